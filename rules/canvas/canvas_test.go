package canvas

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"weir/internal/test/made"
	"weir/rules"
)

// profile is what the canvases of the tests watch.
const profile = "boiler"

func newCompiler(t testing.TB, performed ...rules.ActionType) *Compiler {
	t.Helper()
	if len(performed) == 0 {
		performed = rules.ActionTypes()
	}
	c, err := rules.NewCompiler(rules.Limits{Actions: performed})
	if err != nil {
		t.Fatal(err)
	}
	return NewCompiler(c)
}

// drawing is a block of the gallery: a title, a canvas, two dashes, what comes of it. A canvas is its JSON, or lines of
//
//	ID TYPE CONFIG   a node
//	FROM > TO        an edge
//
// A source without a config watches the profile of the tests.
type drawing struct{ title, source, want string }

func readGallery(t testing.TB, file string) []drawing {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []drawing
	for block := range strings.SplitSeq(strings.TrimPrefix(string(text), "=== "), "\n=== ") {
		title, rest, _ := strings.Cut(block, "\n")
		source, want, ok := strings.Cut("\n"+rest+"\n", "\n--\n")
		if !ok {
			t.Fatalf("%s: %s: no dashes", file, title)
		}
		all = append(all, drawing{title, strings.TrimPrefix(source, "\n"), strings.TrimRight(want, "\n")})
	}
	return all
}

// document is the JSON of a drawing.
func document(t testing.TB, source string) string {
	t.Helper()
	if !regexp.MustCompile(`^[A-Za-z]\S* \S`).MatchString(source) {
		return source
	}
	var nodes, edges []string
	for line := range strings.Lines(source) {
		line = strings.TrimSuffix(line, "\n")
		if from, to, ok := strings.Cut(line, " > "); ok && !strings.Contains(from, " ") {
			edges = append(edges, fmt.Sprintf(`{"from":%q,"to":%q}`, from, to))
			continue
		}
		id, rest, _ := strings.Cut(line, " ")
		kind, config, _ := strings.Cut(rest, " ")
		if kind == typeSource && config == "" {
			config = `{"scope":{"kind":"profile","profileToken":"` + profile + `"}}`
		}
		nodes = append(nodes, fmt.Sprintf(`{"id":%q,"type":%q,"config":%s}`, id, kind, config))
	}
	return `{"schemaVersion":1,"nodes":[` + strings.Join(nodes, ",") + `],"edges":[` + strings.Join(edges, ",") + `]}`
}

// outcome describes everything that compiling says about a canvas.
func outcome(r Result) string {
	var lines []string
	if r.OK {
		lines = append(lines, r.Definition, fmt.Sprintf("cost %d", r.Cost))
	}
	for _, d := range r.Diagnostics {
		line := d.Severity + " "
		if d.Code != "" {
			line += fmt.Sprintf("%s %q ", d.Code, d.Params)
		}
		if d.Node != "" {
			line += "at node " + d.Node + ", "
		}
		lines = append(lines, line+"at "+strconv.Quote(d.Path)+": "+d.Message)
	}
	return strings.Join(lines, "\n")
}

var galleries = []string{"testdata/compiled.txt", "testdata/refused.txt"}

func TestGallery(t *testing.T) {
	t.Parallel()
	c := newCompiler(t)
	for i, file := range galleries {
		var b bytes.Buffer
		for _, d := range readGallery(t, file) {
			r := c.Compile(document(t, d.source), profile)
			if refused := i == 1; r.OK == refused {
				t.Errorf("%s: %s: ok is %t", file, d.title, r.OK)
			}
			consistent(t, r)
			got := outcome(r)
			if got != d.want && !made.Update() {
				t.Errorf("%s: %s:\n got %s\nwant %s", file, d.title, got, d.want)
			}
			fmt.Fprintf(&b, "=== %s\n%s\n--\n%s\n", d.title, d.source, got)
		}
		if made.Update() {
			made.Write(t, file, b.Bytes())
		}
	}
}

// consistent holds a result against what holds for all.
func consistent(t interface {
	Helper()
	Errorf(string, ...any)
}, r Result) {
	t.Helper()
	errors := 0
	for _, d := range r.Diagnostics {
		if d.Severity == Error {
			errors++
		} else if d.Severity != Warning {
			t.Errorf("severity %q", d.Severity)
		}
		if d.Message == "" || d.Params == nil || d.Code == "" && len(d.Params) > 0 || d.Code != "" && d.Severity == Error {
			t.Errorf("%+v", d)
		}
	}
	if r.OK != (errors == 0) || r.OK != (r.Definition != "") || r.OK != (r.Program != nil) {
		t.Errorf("ok is %t with %d errors, definition %q", r.OK, errors, r.Definition)
	}
}

// unseen are refusals that no canvas of the gallery can bring about, with the reason.
var unseen = map[string]string{
	"a profile is required: give the token of the profile that the canvas watches": "TestBlankProfile has it",
	"the canvas is refused: %v":                                                         "TestBounds has it",
	"is %d bytes long, at most %d are allowed":                                          "TestBounds has it",
	"the expressions have more than %d bytes, each with the computes that flow into it": "TestBounds has it",
	"the expression has %d characters with its computes, at most %d are allowed":        "TestBounds has it",
	"a canvas counts whole milliseconds, %s is none":                                    "TestRulesAndTheirCanvases has it",
}

// TestTheGalleryHasEveryRefusal reads the sources: what the steps can refuse or warn of is in the gallery at least once.
func TestTheGalleryHasEveryRefusal(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	for _, file := range galleries {
		for _, d := range readGallery(t, file) {
			said.WriteString(d.want + "\n")
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			fun, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || fun.Sel.Name != "refuse" && fun.Sel.Name != "Refuse" {
				return true
			}
			for _, arg := range call.Args[1:] {
				text, ok := arg.(*ast.BasicLit)
				if !ok || text.Kind != token.STRING {
					continue
				}
				format, err := strconv.Unquote(text.Value)
				if err != nil || !strings.Contains(format, " ") && format != "required" {
					continue // the field
				}
				found++
				shape := regexp.MustCompile(regexp.MustCompile(`%[a-z]`).ReplaceAllString(regexp.QuoteMeta(format), ".*"))
				if _, excused := unseen[format]; !excused && !shape.MatchString(said.String()) {
					t.Errorf("%s: no canvas of testdata is refused with %q", name, format)
				}
			}
			return true
		})
	}
	if found < 30 {
		t.Errorf("only %d refusals found; does this test still see them?", found)
	}
	for _, want := range []string{"the branch leads nowhere", "sends the same command as", rules.WarnValueNeverSet, rules.WarnNegatedAttributeGuard} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("no canvas of testdata is warned of with %q", want)
		}
	}
}

// TestEveryNodeType: each type of node is in a canvas that compiles, and each of its ports is used in one.
func TestEveryNodeType(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, d := range readGallery(t, galleries[0]) {
		var doc struct {
			Nodes []struct{ ID, Type string }
			Edges []struct{ From, To string }
		}
		if err := json.Unmarshal([]byte(document(t, d.source)), &doc); err != nil {
			t.Fatalf("%s: %v", d.title, err)
		}
		kinds := map[string]string{}
		for _, n := range doc.Nodes {
			kinds[n.ID] = n.Type
		}
		for _, e := range doc.Edges {
			for way, text := range map[string]string{"out": e.From, "in": e.To} {
				i := strings.LastIndexByte(text, ':')
				used[kinds[text[:i]]+" "+way+" "+text[i+1:]] = true
			}
		}
	}
	for _, kind := range newCompiler(t).Types() {
		for way, ports := range map[string][]Port{"in": kind.In, "out": kind.Out} {
			for _, p := range ports {
				if key := kind.Name + " " + way + " " + p.Name; !used[key] {
					t.Errorf("no canvas that compiles uses %s", key)
				}
			}
		}
	}
}

func TestBlankProfile(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"", " "} {
		r := newCompiler(t).Compile(document(t, readGallery(t, galleries[0])[0].source), token)
		if got := outcome(r); got != `error at "": a profile is required: give the token of the profile that the canvas watches` {
			t.Error(got)
		}
	}
}

// TestBounds: what is too large is refused, whatever it is.
func TestBounds(t *testing.T) {
	t.Parallel()
	c := newCompiler(t)
	long := strings.Repeat("x", MaxID+1)
	wide := strings.Repeat("x", rules.MaxExpression-20)
	computed := "s source\nv compute {\"name\":\"v\",\"expr\":\"1.0\"}\nc threshold {\"name\":\"n\",\"when\":{\"cel\":\"" + wide + " == v\"}}\nv:value > c:value"
	var branches []string // one compute of 8000 bytes flows into nine of them
	for i := range 9 {
		branches = append(branches, fmt.Sprintf("b%d branch {\"when\":\"true\"}\nv:value > b%d:value", i, i))
	}
	branches = append(branches, fmt.Sprintf("v compute {\"name\":\"v\",\"expr\":%q}", "'"+wide[:8000]+"'"))
	for text, want := range map[string]string{
		`{"schemaVersion":1,"nodes":[],"edges":[],"x":"` + strings.Repeat("x", MaxText) + `"}`:           `the canvas is 262192 bytes long, at most 262144 are allowed`,
		`{"nodes":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`:                          "nesting deeper than 64",
		document(t, strings.Repeat("s source\n", MaxNodes)+"s source"):                                   "nodes: at most 100 nodes are allowed",
		`{"schemaVersion":1,"edges":[` + strings.Repeat(`{"from":"a:b","to":"a:b"},`, MaxEdges) + `{}]}`: "edges: at most 200 edges are allowed",
		document(t, long+" source"):               "id: is 129 bytes long, at most 128 are allowed",
		document(t, strings.Join(branches, "\n")): `error at "": the expressions have more than 65536 bytes, each with the computes that flow into it`,
		document(t, computed):                     "config.when.cel: the expression has 8196 characters with its computes, at most 8192 are allowed",
		"{\"schemaVersion\":1,\"a\":\"\xff\"}":    "the canvas is not valid UTF-8",
	} {
		r := c.Compile(text, profile)
		consistent(t, r)
		if got := outcome(r); r.OK || !strings.Contains(got, want) {
			t.Errorf("%.200s, want %s", got, want)
		}
	}
}

// TestFindingsAreBounded: a document of nothing but mistakes has a bounded answer, and is refused.
func TestFindingsAreBounded(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&many, `,"f%d":1`, i)
	}
	for _, text := range []string{
		`{"schemaVersion":1` + many.String() + `}`,
		`{"schemaVersion":1,"nodes":[{"id":"a","type":"absence","config":{"name":"n"` + many.String() + `}}]}`,
		`{"schemaVersion":1,"nodes":[{"id":"a","type":"absence"` + many.String() + `}]}`,
		document(t, strings.TrimSuffix(strings.Repeat("a source {\"x\":1,\"y\":1,\"z\":1}\n", MaxNodes), "\n")),
	} {
		r := newCompiler(t).Compile(text, profile)
		if consistent(t, r); r.OK || len(r.Diagnostics) > MaxFound+1 {
			t.Errorf("%d findings", len(r.Diagnostics))
		}
	}
	var warned strings.Builder // what is only warned of does not hide an error
	for i := range MaxNodes - 2 {
		fmt.Fprintf(&warned, "b%d branch {\"when\":\"true\"}\n", i)
	}
	r := newCompiler(t).Compile(document(t, strings.TrimSuffix(warned.String(), "\n")), profile)
	if consistent(t, r); r.OK {
		t.Error("nothing is refused")
	}
}

// TestTheFieldsOfAConditionAreThoseOfItsKind: the list of node types is what the contract lists, field by field.
func TestTheFieldsOfAConditionAreThoseOfItsKind(t *testing.T) {
	t.Parallel()
	const common = "name description severity "
	want := map[string]string{
		"source":       "scope metricFilter",
		"threshold":    common + "when latenessMs",
		"duration":     common + "when holdMs latenessMs",
		"absence":      common + "timeoutMs latenessMs",
		"connectivity": common + "latenessMs",
		"aggregate":    common + "when metric windowMs gapMs count windowMode agg op threshold clear latenessMs",
		"deltaRate":    common + "when metric rate op threshold clear latenessMs",
		"repeating":    common + "when windowMs count latenessMs",
		"correlation":  common + "when windowMs count anchorType memberCap latenessMs",
		"branch":       "name when",
		"action":       "action",
		"compute":      "name expr",
	}
	for _, kind := range newCompiler(t).Types() {
		if got := strings.Join(kind.Fields(), " "); got != want[kind.Name] {
			t.Errorf("%s has %q, want %q", kind.Name, got, want[kind.Name])
		}
		delete(want, kind.Name)
	}
	for name := range want {
		t.Errorf("there is no node type %s", name)
	}
}
