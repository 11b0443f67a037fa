package yamldoc

import (
	"fmt"
	"strings"
	"testing"
)

// shown writes a tree on one line.
func shown(n *Node) string {
	switch n.Kind {
	case Null:
		return "~"
	case Scalar:
		if n.Quoted {
			return fmt.Sprintf("%q", n.Text)
		}
		return n.Text
	case List:
		var items []string
		for _, i := range n.Items {
			items = append(items, shown(i))
		}
		return "[" + strings.Join(items, " ") + "]"
	}
	var entries []string
	for _, e := range n.Entries {
		entries = append(entries, e.Key+":"+shown(e.Value))
	}
	return "{" + strings.Join(entries, " ") + "}"
}

func TestADocumentBecomesAPlainTree(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                      "~",
		"# nothing\n":                           "~",
		"\ufeffa: 1\r\n":                        "{a:1}",
		"---\n":                                 "~",
		"a: 1\nb: {c: \"2\", d: ['x', y]}":      `{a:1 b:{c:"2" d:["x" y]}}`,
		"a:\n  - b: 1\n    c:\n  - d\n":         "{a:[{b:1 c:~} d]}",
		"a: |\n  two\n  lines\n":                `{a:"two\nlines\n"}`,
		"a: &x {p: 1, q: 2}\nb: *x":             "{a:{p:1 q:2} b:{p:1 q:2}}",
		"a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}": "{a:{p:1 q:2} b:{q:3 p:1}}",
		"on: true\noff: ~\nn: 012\nf: 1e3":      "{on:true off:~ n:012 f:1e3}",
		"a: [] \nb: {}":                         "{a:[] b:{}}",
	} {
		n, ps := Parse("f.yaml", []byte(text))
		if len(ps) > 0 || shown(n) != want {
			t.Errorf("%q: got %s, want %s; %v", text, shown(n), want, ps)
		}
	}
}

func TestUnreadableDocumentsAreReportedWithTheirPosition(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a: 1\na: 2":           "f.yaml:2:1: a: is given twice\n    a: 2\n    ^",
		"a: {b: 1, b: 2}":      "f.yaml:1:11: a.b: is given twice\n    a: {b: 1, b: 2}\n              ^",
		"a: *none":             "f.yaml:1:4: a: the alias *none names no anchor before it\n    a: *none\n       ^",
		"a: 1\n---\nb: 2":      "f.yaml:2:1: a second document (put everything into the first one)\n    ---\n    ^",
		"a:\n\tb: 1":           "f.yaml:2:1: this is not YAML: found character '\t' that cannot start any token (use blanks: YAML is not indented with tabs)\n    \tb: 1\n    ^",
		"a: x\nb: K\xfchl":     "f.yaml:2:5: the byte 0xfc is no text in UTF-8 (save it as UTF-8)",
		"\xff\xfea\x00":        "f.yaml:1:1: this is UTF-16, not UTF-8 (save it as UTF-8)",
		"a: !!binary eA==":     "f.yaml:1:4: a: the tag !!binary is not understood (leave it out)\n    a: !!binary eA==\n       ^",
		"a: &x 1\nb: {<<: *x}": "f.yaml:1:7: b: only a mapping can be merged with <<\n    a: &x 1\n          ^",
	} {
		_, ps := Parse("f.yaml", []byte(text))
		if got := ps.Lines(); got != want {
			t.Errorf("%q: got\n%s\nwant\n%s", text, got, want)
		}
	}
	_, ps := Parse("f.yaml", []byte("a:\n  b: [\n"))
	if len(ps) != 1 || ps[0].Line == 0 || !strings.Contains(ps[0].Reason, "not YAML") {
		t.Errorf("got %v", ps)
	}
}

func TestADocumentIsBounded(t *testing.T) {
	t.Parallel()
	_, ps := Parse("f.yaml", []byte(strings.Repeat("[", 200)+strings.Repeat("]", 200)))
	if len(ps) != 1 || !strings.Contains(ps[0].Reason, "too deep") {
		t.Errorf("got %v", ps)
	}
}

func TestASuggestionIsNearOrNone(t *testing.T) {
	t.Parallel()
	known := []string{"device", "devices", "tenant"}
	for name, want := range map[string]string{"devcie": "did you mean device?", "tenants": "did you mean tenant?", "xyzzy": ""} {
		if got := Suggest(name, known); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a: 1", "a: &x [1]\nb: *x", "? a\n: b", "a: |\n x", "{a: {<<: {b: 1}}}", "- - -", "a: !!str 1", "%YAML 1.2\n---\na: b"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		n, _ := Parse("f.yaml", text)
		if n == nil {
			t.Fatal("no tree")
		}
	})
}

func TestALineThatIsShownIsBounded(t *testing.T) {
	t.Parallel()
	_, ps := Parse("f.yaml", []byte("a: 1\na: \""+strings.Repeat("ä", 1<<20)+"\"\n"))
	if len(ps) == 0 {
		t.Fatal("a key that is given twice is not told")
	}
	if text := ps[0].String(); len(text) > 2000 {
		t.Errorf("%d bytes: %.80q", len(text), text)
	}
}

// Each of these is short and would have the parser call itself a hundred thousand times.
func TestADocumentThatIsAllOpeningsIsRefusedBeforeItIsParsed(t *testing.T) {
	t.Parallel()
	for _, opening := range []string{"[", "{a: ", "- ", "? ", "&a ", "!!a ", "[{a: [", "- ? "} {
		for _, before := range []string{"", "a:\n  ", "[b, "} {
			_, problems := Parse("deep.yaml", []byte(before+strings.Repeat(opening, 100_000)))
			if len(problems) != 1 || problems[0].Reason != "the document is too deep: at most 64" {
				t.Errorf("%q: %d problems, the first: %.200v", opening, len(problems), problems)
			}
		}
	}
	if _, problems := Parse("flat.yaml", []byte("[&a a,"+strings.Repeat("[{a: !!a b}], *a,", 1000)+"]\n")); len(problems) > 1000 {
		t.Errorf("what closes again is not deep: %.200v", problems)
	}
}

// TestAMappingIsBounded: a document whose parsing would take the square of its keys is refused before; lists, and mappings in them, are as long as they like.
func TestAMappingIsBounded(t *testing.T) {
	t.Parallel()
	repeated := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, test := range map[string]struct {
		text string
		line int // 0: it is read
	}{
		"as many as may be":         {repeated(maxKeys, "k%d: 1\n"), 0},
		"one more":                  {repeated(maxKeys+1, "k%d: 1\n"), maxKeys + 1},
		"one more, indented":        {"a:\n" + repeated(maxKeys+1, "  k%d:\n    - 1\n"), 2 * (maxKeys + 1)},
		"one more, in a list":       {"- a: 1\n" + repeated(maxKeys, "  k%d: {b: 1}\n"), maxKeys + 1},
		"one more, in braces":       {"a: [{" + repeated(maxKeys+1, "k%d: 1,\n") + "}]", maxKeys + 1},
		"a list of mappings":        {repeated(2*maxKeys, "- a: %d\n  b: 1\n"), 0},
		"a list in a mapping":       {"a:\n" + repeated(2*maxKeys, "- a: %d\n"), 0},
		"a list in brackets":        {"a: [" + repeated(2*maxKeys, "{a: %d},\n") + "]", 0},
		"mappings of one key there": {"a: [" + repeated(2*maxKeys, "a: %d,\n") + "]", 0},
		"mappings in mappings":      {repeated(maxKeys, "k%d:\n  a: 1\n  b: 2\n"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, ps := Parse("f", []byte(test.text))
			switch {
			case test.line == 0 && len(ps) > 0:
				t.Error(ps[0])
			case test.line > 0 && (len(ps) != 1 || ps[0].Line != test.line || ps[0].Reason != "a mapping has too many keys: at most 4096"):
				t.Errorf("%v, want it in line %d", ps, test.line)
			}
		})
	}
}
