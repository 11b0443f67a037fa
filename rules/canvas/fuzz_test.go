package canvas

import (
	"strings"
	"testing"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/debug"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/ext"

	"weir/rules"
)

// hostile are texts that would reach out of the place of a compute, a condition or a branch, if anything let them.
var hostile = []string{"1.0 // comment", "1.0 //", "1.0)", "(1.0", "1.0, true) || (true", "1.0) || cel.bind(x, 1.0, true", "\"a\" // \"", "'a)'", `"a\")"`, "r\"\\\"", "'''a\n//'''",
	"\"\"\"\n)\n\"\"\"", "b'//'", "1.0\n)", "1.0\r// c\r", "true ? 1.0 :", "[1.0", "{'a': 1.0}", "cel.bind(x, 1.0, x)", "x", "-x", "x // y\n+ 1.0", "\\", "`a`", "1.0 /* c */", "//", "\n", "\x00",
	"\u2028", "\"//\"", "m.exists(v, v == \"a\")", "!x", "a.b", "1.0;2.0", "\u00a0 1.0"}

// parts checks that a folded text has exactly the parts of which it was made.
type parts struct{ env *cel.Env }

func newParts(t testing.TB) parts {
	t.Helper()
	env, err := cel.NewEnv(ext.Bindings())
	if err != nil {
		t.Fatal(err)
	}
	return parts{env}
}

// parse is the tree of a text, nil where it does not parse.
func (p parts) parse(text string) ast.Expr {
	parsed, iss := p.env.Parse(text)
	if iss.Err() != nil {
		return nil
	}
	return parsed.NativeRep().Expr()
}

func same(a, b ast.Expr) bool {
	return a != nil && b != nil && debug.ToDebugString(a) == debug.ToDebugString(b)
}

// checkFold: values bound around a body are found again as they are, as is the body.
func (p parts) checkFold(t *testing.T, exprs []string, body string) {
	t.Helper()
	var computes []*node
	for i, e := range exprs {
		computes = append(computes, &node{compute: &compute{"v" + string(rune('a'+i)), e}})
	}
	folded := foldText(computes, body)
	tree := p.parse(folded)
	for i, e := range exprs {
		if tree == nil || tree.Kind() != ast.ComprehensionKind || tree.AsComprehension().AccuVar() != computes[i].compute.name ||
			!same(tree.AsComprehension().AccuInit(), p.parse(e)) {
			t.Fatalf("%q and %q fold to %q, in which value %d is another", exprs, body, folded, i)
		}
		tree = tree.AsComprehension().Result()
	}
	if !same(tree, p.parse(body)) {
		t.Fatalf("%q and %q fold to %q, in which the body is another", exprs, body, folded)
	}
}

// checkAll: parts of a guard are found again as they are.
func (p parts) checkAll(t *testing.T, a, b string) {
	t.Helper()
	joined := all([]string{a, b})
	tree := p.parse(joined)
	if tree == nil || tree.Kind() != ast.CallKind || tree.AsCall().FunctionName() != operators.LogicalAnd ||
		!same(tree.AsCall().Args()[0], p.parse(a)) || !same(tree.AsCall().Args()[1], p.parse(b)) {
		t.Fatalf("%q and %q join to %q, which is something else", a, b, joined)
	}
}

// plainAnd reports whether an expression is an && itself: the parser then balances the chain.
func (p parts) plainAnd(text string) bool {
	tree := p.parse(text)
	return tree != nil && tree.Kind() == ast.CallKind && tree.AsCall().FunctionName() == operators.LogicalAnd
}

// FuzzCompute folds what strangers write. What does not parse alone is refused at its node; what does stays in its place.
func FuzzCompute(f *testing.F) {
	for i, a := range hostile {
		f.Add(a, hostile[(i+1)%len(hostile)], "x > 1.0")
		f.Add("1.0", a, "x > 1.0 // c")
		f.Add("1.0", "2.0", a)
	}
	c, p := newCompiler(f), newParts(f)
	scope := c.rules.Leaf()
	f.Fuzz(func(t *testing.T, one, two, body string) {
		if len(one)+len(two)+len(body) > 1000 {
			return
		}
		alone := func(s string) bool { return scope.Parse(s) == nil }
		if alone(one) && alone(two) && alone(body) {
			p.checkFold(t, []string{one}, body)
			p.checkFold(t, []string{one, two}, body)
			if !p.plainAnd(one) && !p.plainAnd(body) {
				p.checkAll(t, one, body)
			}
		}
		r := c.Compile(`{"schemaVersion":1,"nodes":[{"id":"s","type":"source","config":{"scope":{"kind":"profile","profileToken":"boiler"}}},`+
			`{"id":"1","type":"compute","config":{"name":"x","expr":`+quoted(one)+`}},{"id":"2","type":"compute","config":{"name":"y","expr":`+quoted(two)+`}},`+
			`{"id":"c","type":"threshold","config":{"name":"n","when":{"cel":`+quoted(body)+`}}},`+
			`{"id":"b","type":"branch","config":{"when":`+quoted(body)+`}}],`+
			`"edges":[{"from":"s:out","to":"c:in"},{"from":"1:value","to":"c:value"},{"from":"2:value","to":"c:value"},{"from":"c:signal","to":"b:in"},{"from":"1:value","to":"b:value"}]}`, profile)
		consistent(t, r)
		if r.OK && !(alone(one) && alone(two) && alone(body)) {
			t.Fatalf("compiled to %s", r.Definition)
		}
	})
}

func quoted(s string) string {
	b, err := plain(strings.ToValidUTF8(s, "?"))
	if err != nil {
		panic(err)
	}
	return string(b)
}

// FuzzCanvas compiles what a stranger drew. What compiles decodes and compiles again as a definition, and is shown as a canvas that compiles
// to the same.
func FuzzCanvas(f *testing.F) {
	for _, file := range galleries {
		for _, d := range readGallery(f, file) {
			f.Add(document(f, d.source))
		}
	}
	c := newCompiler(f)
	f.Fuzz(func(t *testing.T, text string) {
		r := c.Compile(text, profile)
		consistent(t, r)
		if len(r.Diagnostics) > MaxFound+1 {
			t.Fatalf("%d diagnostics", len(r.Diagnostics))
		}
		if !r.OK {
			return
		}
		program, _, faults := c.rules.Inspect(r.Definition, rules.Options{})
		if program == nil || string(program.Definition().Canonical()) != r.Definition || program.Cost() != r.Cost || r.Cost > rules.DefaultMaxCost {
			t.Fatalf("%s: %v", r.Definition, faults)
		}
		graph, reason := c.Show(r.Definition, profile)
		if reason != "" {
			t.Fatalf("%s is not shown: %s", r.Definition, reason)
		}
		if again := c.Compile(graph, profile); again.Definition != r.Definition {
			t.Fatalf("%s\nis shown as %s\nwhich gives %s", r.Definition, graph, outcome(again))
		}
	})
}
