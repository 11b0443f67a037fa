package strict

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// thing is a document with a field of each sort.
type thing struct {
	text, name, word string
	flag             bool
	number           *float64
	count            int32
	period           time.Duration
	span             *time.Duration
	raw              []byte
	list             []string
}

func decode(t *testing.T, src string, millis bool) (got thing, faults string) {
	t.Helper()
	if err := CheckText([]byte(src), "thing", 10_000); err != nil {
		return got, err.Error()
	}
	d := New([]byte(src))
	d.Millis = millis
	d.Note(d.Object("", map[string]Setter{"text": d.Text(&got.text), "name": d.Identifier(&got.name), "word": OneOf(d, &got.word, []string{"a", "b"}),
		"flag": d.Flag(&got.flag), "number": d.Float(&got.number), "count": d.Integer(&got.count, 1, 5), "period": d.Period(&got.period), "span": d.Span(&got.span),
		"raw": d.Raw(&got.raw), "list": d.List(2, "words", func(_ int, at string) *Error {
			got.list = append(got.list, "")
			return d.Text(&got.list[len(got.list)-1])(at)
		})}))
	var lines []string
	for _, f := range d.Faults() {
		lines = append(lines, f.Error())
	}
	return got, strings.Join(lines, "; ")
}

func TestEverySortOfField(t *testing.T) {
	t.Parallel()
	got, faults := decode(t, `{"text":"\u00e9","name":"a-b","word":"b","flag":true,"number":-0.0,"count":5,"period":"1m","span":"0s","raw":{"x":[null]},"list":["p","q"]}`, false)
	if faults != "" || got.text != "é" || got.name != "a-b" || got.word != "b" || !got.flag || fmt.Sprint(*got.number) != "0" || got.count != 5 || got.period != time.Minute ||
		*got.span != 0 || string(got.raw) != `{"x":[null]}` || strings.Join(got.list, "") != "pq" {
		t.Errorf("%+v %s", got, faults)
	}
	got, faults = decode(t, `{"period":0,"span":1500}`, true)
	if faults != "" || got.period != 0 || *got.span != 1500*time.Millisecond {
		t.Errorf("%+v %s", got, faults)
	}
	for src, want := range map[string]string{
		`{"text":"a\u0000","name":"a b","word":"c"}`:                   `text: must not hold a NUL character; name: "a b" must match ^[A-Za-z0-9][A-Za-z0-9_-]*$ and be at most 128 characters; word: "c" is not one of a, b`,
		`{"flag":0,"number":"1","count":6,"period":"0s","span":"-1s"}`: `flag: must be true or false, not a number; number: must be a number, not a string; count: 6 is not a whole number from 1 to 5; period: must be longer than zero; span: must not be negative`,
		`{"list":["a",1,"c"]}`:                                         "list[1]: must be a string, not a number; list: at most 2 words are allowed",
		`{"list":{"a":[1]},"text":"t","text":"u"}`:                     "list: must be an array, not an object; text: given twice",
		`{"Text":"a","number":1e999,"span":null}`:                      "Text: unknown field (known are count, flag, list, name, number, period, raw, span, text, word); number: 1e999 is out of range; span: must be a string, not null",
		`{} {}`: "the thing is not valid JSON: invalid character '{' after top-level value (at byte 4)",
		`"x"`:   "the thing must be a JSON object, not a string",
	} {
		if _, got := decode(t, src, false); got != want {
			t.Errorf("%s:\n got %s\nwant %s", src, got, want)
		}
	}
	for src, want := range map[string]string{
		`{"period":"1m","span":1.5}`:                 "period: must be a whole number of milliseconds, not a string; span: 1.5 is not a whole number of milliseconds from 0 on",
		`{"period":-1,"span":9223372036855}`:         "period: -1 is not a whole number of milliseconds from 0 on; span: 9223372036855 is not a whole number of milliseconds from 0 on",
		`{"period":1e3,"span":99999999999999999999}`: "period: 1e3 is not a whole number of milliseconds from 0 on; span: 99999999999999999999 is not a whole number of milliseconds from 0 on",
	} {
		if _, got := decode(t, src, true); got != want {
			t.Errorf("%s:\n got %s\nwant %s", src, got, want)
		}
	}
}

// TestOffencesAreBounded: the walk goes on, and keeps as many as anybody reads.
func TestOffencesAreBounded(t *testing.T) {
	t.Parallel()
	var src strings.Builder
	for i := range 500 {
		fmt.Fprintf(&src, `"x%d":1,`, i)
	}
	got, faults := decode(t, `{`+src.String()+`"text":"last"}`, false)
	if n := strings.Count(faults, "unknown field"); n != MaxFaults || got.text != "last" {
		t.Errorf("%d offences, the last field is %q", n, got.text)
	}
}
