package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"weir/internal/test/made"
	"weir/rules/vocabulary"
)

// performed are the action types that the test's instance performs: all but publish.
var performed = []ActionType{ActionRaiseAlarm, ActionSendCommand, ActionHTTPCall}

func newTestCompiler(t testing.TB, l Limits) *Compiler {
	t.Helper()
	c, err := NewCompiler(l)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// goldenCase is a block of a golden file: a title, a definition, two dashes, what comes of it. Before the definition may stand "group", for
// a rule that is scoped to one, and "there" with the names that publish knows.
type goldenCase struct {
	title  string
	group  bool
	there  string // the names that there are, as JSON; "" for a definition that is compiled by itself
	source string
	want   string
}

func readGolden(t testing.TB, file string) []goldenCase {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var cases []goldenCase
	for block := range strings.SplitSeq(strings.TrimPrefix(string(text), "=== "), "\n=== ") {
		title, rest, _ := strings.Cut(block, "\n")
		source, want, ok := strings.Cut("\n"+rest, "\n--\n")
		if !ok {
			source, ok = strings.CutSuffix("\n"+rest, "\n--")
		}
		if !ok {
			t.Fatalf("%s: %s: no dashes", file, title)
		}
		source, group := strings.CutPrefix(strings.TrimPrefix(source, "\n"), "group\n")
		there := ""
		if rest, ok := strings.CutPrefix(source, "there "); ok {
			there, source, _ = strings.Cut(rest, "\n")
		}
		cases = append(cases, goldenCase{title, group, there, source, strings.TrimSuffix(want, "\n")})
	}
	return cases
}

func writeGolden(t *testing.T, file string, cases []goldenCase) {
	t.Helper()
	var b bytes.Buffer
	for _, c := range cases {
		fmt.Fprintf(&b, "=== %s\n", c.title)
		if c.group {
			b.WriteString("group\n")
		}
		if c.there != "" {
			b.WriteString("there " + c.there + "\n")
		}
		if c.source != "" {
			b.WriteString(c.source + "\n")
		}
		fmt.Fprintf(&b, "--\n%s\n", c.want)
	}
	made.Write(t, file, b.Bytes())
}

// outcome describes everything that decoding and compiling say about a definition.
func outcome(c *Compiler, g goldenCase) (text string, refused bool) {
	def, err := Decode([]byte(g.source))
	if err != nil {
		return "error: " + err.Error(), true
	}
	p, warnings, err := c.Compile(def, Options{GroupScoped: g.group})
	if err != nil {
		return "error: " + err.Error(), true
	}
	if g.there != "" {
		var there Vocabulary
		if err := json.Unmarshal([]byte(g.there), &there); err != nil {
			return "the names do not read: " + err.Error(), true
		}
		warnings, _ = c.validate(Candidate{Definition: g.source, GroupScoped: g.group}, there)
	}
	lines := []string{string(def.Canonical()), fmt.Sprintf("cost %d, looks at %s", p.Cost(), p.LooksAt())}
	for _, w := range warnings {
		lines = append(lines, fmt.Sprintf("warning %s %q: %s", w.Code, w.Params, w.Message))
	}
	if err := p.Evaluable(); err != nil {
		lines = append(lines, "refused at publish: "+err.Error())
	}
	return strings.Join(lines, "\n"), false
}

func TestGolden(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t, Limits{Actions: performed})
	for file, wantRefused := range map[string]bool{"testdata/rules.txt": false, "testdata/refused.txt": true} {
		cases := readGolden(t, file)
		for i, g := range cases {
			got, refused := outcome(c, g)
			if refused != wantRefused {
				t.Errorf("%s: %s: refused is %t: %s", file, g.title, refused, got)
			}
			if made.Update() {
				cases[i].want = got
			} else if got != g.want {
				t.Errorf("%s: %s:\n got %s\nwant %s", file, g.title, got, g.want)
			}
		}
		if made.Update() {
			writeGolden(t, file, cases)
		}
	}
}

func TestCanonicalFormDecodesToTheSameDefinition(t *testing.T) {
	t.Parallel()
	for _, g := range readGolden(t, "testdata/rules.txt") {
		def, err := Decode([]byte(g.source))
		if err != nil {
			t.Fatalf("%s: %v", g.title, err)
		}
		checkCanonical(t, def)
	}
}

func checkCanonical(t interface {
	Helper()
	Fatalf(string, ...any)
}, def *Definition) {
	t.Helper()
	text := def.Canonical()
	again, err := Decode(text)
	if err != nil {
		t.Fatalf("canonical form is refused: %v: %s", err, text)
	}
	if !reflect.DeepEqual(normal(*again), normal(*def)) {
		t.Fatalf("canonical form decodes to\n%+v, not\n%+v", again, def)
	}
	if twice := again.Canonical(); !bytes.Equal(twice, text) {
		t.Fatalf("canonical form is not stable:\n%s\n%s", text, twice)
	}
}

// normal makes absent lists equal, whether nil or empty.
func normal(d Definition) Definition {
	if len(d.Actions) == 0 {
		d.Actions = nil
	}
	for i := range d.Actions {
		if h := d.Actions[i].HTTPCall; h != nil && len(h.Headers) == 0 {
			h.Headers = nil
		}
	}
	return d
}

func TestErrorNamesItsTopLevelField(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"name":"n","type":"threshold","when":{"op":"x"}}`:                      "when",
		`{"name":"n","type":"connectivity","actions":[{"type":"sendCommand"}]}`:  "actions",
		`{"name":"n","type":"absence","timeout":"x"}`:                            "timeout",
		`{"name":"n","type":"absence","timeout":"1m"} {}`:                        "",
		`{"name":"n","type":"connectivity","actions":[{"type":"x"},{"type":1}]}`: "actions",
	} {
		_, err := Decode([]byte(text))
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Top() != want {
			t.Errorf("%s: %v, top-level field is not %q", text, err, want)
		}
	}
}

func TestBodyIsWhatChangesTheVerdict(t *testing.T) {
	t.Parallel()
	base := mustDecode(t, `{"name":"n","type":"correlation","anchorType":"area","count":3,"window":"10m","when":{"metric":"a","op":"gt","threshold":1}}`)
	same := mustDecode(t, `{"name":"other","description":"d","severity":"major","type":"correlation","memberCap":1024,"anchorType":"area","count":3,"window":"600s","when":{"threshold":1.0,"op":"gt","metric":"a"}}`)
	if base.BodyHash("", 0) != same.BodyHash("", 0) {
		t.Error("another name, severity or spelling makes another body")
	}
	if base.BodyHash("", 0) == base.BodyHash("g", 1) || base.BodyHash("g", 1) == base.BodyHash("g", 2) {
		t.Error("another group scope makes the same body")
	}
	for _, text := range []string{
		`{"name":"n","type":"correlation","anchorType":"area","count":3,"window":"10m","when":{"metric":"a","op":"gt","threshold":2}}`,
		`{"name":"n","type":"correlation","anchorType":"area","count":4,"window":"10m","when":{"metric":"a","op":"gt","threshold":1}}`,
		`{"name":"n","type":"correlation","anchorType":"area","count":3,"window":"10m","lateness":"5s","when":{"metric":"a","op":"gt","threshold":1}}`,
	} {
		if mustDecode(t, text).BodyHash("", 0) == base.BodyHash("", 0) {
			t.Errorf("%s has the same body", text)
		}
	}
}

func TestBodyHashIsFrozen(t *testing.T) {
	t.Parallel()
	def := mustDecode(t, `{"name":"n","type":"threshold","when":{"metric":"temp","op":"gt","threshold":80.5}}`)
	const want = "a879118922bb31d4255dc4a132303205"
	if got := fmt.Sprintf("%x", def.BodyHash("", 0)); got != want {
		t.Errorf("hash is %s: a change drops the state of every rule in the field; raise bodyVersion if it is meant", got)
	}
}

func mustDecode(t testing.TB, text string) *Definition {
	t.Helper()
	def, err := Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return def
}

// unseen are refusals that no definition of the gallery can bring about, with the reason.
var unseen = map[string]string{
	"%v": "carries the text of another error",
	"the %s is %d bytes long, at most %d are allowed":                                "TestOversizedAndIllFormedText has it: it is too long for the file",
	"the %s is not valid UTF-8":                                                      "TestOversizedAndIllFormedText has it: the file is UTF-8",
	"%s is not a whole number of milliseconds from 0 on":                             "canvases alone have such durations",
	"%s cannot be bound: %v":                                                         "canvases alone bind names",
	"alarms are raised for devices: a rule of %s has no state for each device alone": "the kinds of Weir without one take no actions",
	"%s is not a kind of this instance":                                              "the decoder refuses such a type first",
}

// TestTheGalleryHasEveryRefusal reads the sources: what Decode and Compile can refuse is refused in the gallery at least once.
func TestTheGalleryHasEveryRefusal(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	for _, file := range []string{"testdata/rules.txt", "testdata/refused.txt"} {
		for _, g := range readGolden(t, file) {
			said.WriteString(g.want + "\n")
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range append(files, filepath.Join("strict", "strict.go")) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for format := range refusals(tree) {
			found++
			if _, excused := unseen[format]; !excused && !shaped(format).MatchString(said.String()) {
				t.Errorf("%s: no definition of testdata is refused with %q", name, format)
			}
		}
	}
	if found < 60 {
		t.Errorf("only %d refusals found; does this test still see them?", found)
	}
	for _, code := range []string{WarnNegatedAttributeGuard, WarnNegatedAttributeGuardDisjunct, WarnValueNeverSet, WarnLongLateness, WarnIdleLateness,
		vocabulary.UnknownMetric, vocabulary.UnknownCommand, vocabulary.UnknownFence, vocabulary.UnknownConnector, vocabulary.ThresholdOutside} {
		if !strings.Contains(said.String(), "warning "+code+" ") {
			t.Errorf("no definition of testdata is warned of with %s", code)
		}
	}
}

// refusals are the formats of the calls of refuse, and the hints and reasons of errors that are built otherwise.
func refusals(tree *ast.File) iter.Seq[string] {
	return func(yield func(string) bool) {
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 {
				return true
			}
			if name, ok := call.Fun.(*ast.Ident); !ok || name.Name != "refuse" && name.Name != "Refuse" {
				return true
			}
			if text, ok := call.Args[1].(*ast.BasicLit); ok {
				format, err := strconv.Unquote(text.Value)
				return err == nil && yield(format)
			}
			return true
		})
	}
}

// shaped matches what a format can give.
func shaped(format string) *regexp.Regexp {
	return regexp.MustCompile(regexp.MustCompile(`%[a-z]`).ReplaceAllString(regexp.QuoteMeta(format), ".*"))
}
