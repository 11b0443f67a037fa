package jsonscan

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestSkipAgreesWithTheStandardOnWhatIsADocument(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		`{}`, `[]`, `""`, `0`, `-0.5e+3`, ` {"a" : [1, "x\u00e9\n", {"b":null}], "c":true} `,
		``, `{`, `{"a"}`, `{"a":1,}`, `[1,]`, `01`, `1.`, `.5`, `1e`, `+1`, `"\x"`, `"\u12"`, `tru`, `nulll`, `{} {}`,
		"\"a\x01\"", `{"a":1 "b":2}`, `-`, `{1:2}`,
	} {
		if got, want := valid([]byte(doc)), json.Valid([]byte(doc)); got != want {
			t.Errorf("%q: valid %v, encoding/json says %v", doc, got, want)
		}
	}
}

func TestStricterThanTheStandard(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{"\"\xff\"", `"\ud800"`, `"\ud800\u0041"`, strings.Repeat("[", MaxDepth+2) + strings.Repeat("]", MaxDepth+2)} {
		if valid([]byte(doc)) {
			t.Errorf("%.40q was taken", doc)
		}
	}
}

func TestStringsAreUnescaped(t *testing.T) {
	t.Parallel()
	s := New([]byte(`"a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00z"`))
	if got, want := s.String("x"), "a\"\\/\b\f\n\r\té😀z"; got != want || s.End() != nil {
		t.Errorf("got %q, %v; want %q", got, s.Err(), want)
	}
}

func TestAnErrorSaysWhere(t *testing.T) {
	t.Parallel()
	s := New([]byte(`{"a": x}`))
	s.Skip()
	if err := s.End(); err == nil || err.Error() != "expected a value at byte 6" {
		t.Errorf("got %v", err)
	}
}

func valid(b []byte) bool {
	s := New(b)
	s.Skip()
	return s.End() == nil
}

func FuzzSkip(f *testing.F) {
	for _, doc := range []string{`{"a":[1,2.5e3,"\u00e9",null,true]}`, `[[[]]]`, `"\ud83d\ude00"`, `-0`} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if valid(b) && !json.Valid(b) {
			t.Errorf("took what encoding/json refuses: %q", b)
		}
		s := New(b)
		got := s.Bytes("x")
		var want string
		if s.End() == nil && (json.Unmarshal(b, &want) != nil || want != string(got)) {
			t.Errorf("string %q, encoding/json reads %q", got, want)
		}
	})
}
