package shared

import (
	"encoding/json"
	"strings"
	"testing"
)

func literal(key, value string) Attribute { return Attribute{Key: key, Literal: &value} }

func TestASetIsOneDocumentInTheOrderOfItsKeys(t *testing.T) {
	t.Parallel()
	hello, yes := "a \"b\"\n<é>", true
	s := SetOf([]Attribute{literal("z", "+007"), {Key: "text", Text: &hello}, {Key: "on", Bool: &yes}, {Key: "nothing"}, literal("half", ".5"),
		literal("doc", `{"a":[1]}`), literal("long", "9007199254740993"), literal("exact", "0.10")})
	want := `{"revision":"` + s.Revision + `","attributes":{"doc":{"a":[1]},"exact":0.10,"half":0.5,"long":9007199254740993,"nothing":null,"on":true,` +
		`"text":"a \"b\"\n\u003cé\u003e","z":7}}`
	if string(s.Body) != want || s.Bytes != len(want) || s.TooLarge() {
		t.Errorf("got %s (%d bytes), want %s", s.Body, s.Bytes, want)
	}
}

func TestAnEmptySetHasARevisionToo(t *testing.T) {
	t.Parallel()
	s := SetOf(nil)
	if want := `{"revision":"` + s.Revision + `","attributes":{}}`; string(s.Body) != want || len(s.Revision) != 32 {
		t.Errorf("got %s, want %s", s.Body, want)
	}
}

func TestTheRevisionFollowsTheContentAlone(t *testing.T) {
	t.Parallel()
	a, b, c := SetOf([]Attribute{literal("a", "1"), literal("b", "2")}), SetOf([]Attribute{literal("b", "2"), literal("a", "1")}), SetOf([]Attribute{literal("a", "1")})
	if a.Revision != b.Revision || a.Revision == c.Revision {
		t.Errorf("revisions %s, %s, %s", a.Revision, b.Revision, c.Revision)
	}
}

func TestASetThatIsTooLargeIsOnlyNamed(t *testing.T) {
	t.Parallel()
	of := func(n int) Set {
		v := strings.Repeat("x", n)
		return SetOf([]Attribute{{Key: "k", Text: &v}})
	}
	frame := of(0).Bytes
	if s := of(MaxBytes - frame); s.TooLarge() || len(s.Body) != MaxBytes {
		t.Errorf("a set of %d bytes is too large", s.Bytes)
	}
	s := of(MaxBytes - frame + 1)
	if want := `{"revision":"` + s.Revision + `","tooLarge":true,"bytes":65537}`; string(s.Body) != want || !s.TooLarge() {
		t.Errorf("got %.100s, want %s", s.Body, want)
	}
}

func FuzzSet(f *testing.F) {
	f.Add("key", "text", "1.", "-.5e7")
	f.Add("\x00\xff", "\u2028", "[1", "+1e999")
	f.Fuzz(func(t *testing.T, key, str, one, other string) {
		s := SetOf([]Attribute{{Key: key, Text: &str}, literal(key+"1", one), literal(key+"2", other)})
		if !json.Valid(s.Body) {
			t.Fatalf("no JSON: %s", s.Body)
		}
	})
}
