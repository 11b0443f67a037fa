package jsonscan

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTextFindsWhatIsNoText(t *testing.T) {
	t.Parallel()
	for doc, at := range map[string]string{
		`{"a": "ä \u00e4 \ud83d\ude00 \\ud800 \n"}`: "", `not JSON \`: "", `"\u12"`: "", "": "",
		"{\"a\": \"K\xfchl\"}": "at byte 8", `"\ud83d"`: "at byte 1", `"\ude00"`: "at byte 1", `"\ud83dx"`: "at byte 1", `"\ud83d\u0041"`: "at byte 1", "\"\xed\xa0\x80\"": "at byte 1",
	} {
		err := Text([]byte(doc))
		if (err == nil) != (at == "") || err != nil && !strings.HasSuffix(err.Error(), at) {
			t.Errorf("%q: %v, want %q", doc, err, at)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, doc := range []string{`"ä\ud83d\ude00"`, "\"\xfc\"", `"\ud83d"`, `{"a":["\\ud800"]}`} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if Text(doc) != nil {
			return
		}
		if !utf8.Valid(doc) {
			t.Fatal("it is no UTF-8")
		}
		var s string // what is text is decoded as it stands
		if json.Unmarshal(doc, &s) == nil && strings.ContainsRune(s, utf8.RuneError) && !strings.ContainsRune(string(doc), utf8.RuneError) && !strings.Contains(strings.ToLower(string(doc)), `\ufffd`) {
			t.Fatalf("%q is decoded as %q", doc, s)
		}
	})
}
