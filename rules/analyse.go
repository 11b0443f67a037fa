package rules

import (
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"weir/model"
)

// reads is what an expression reads of its environment.
type reads struct {
	vars    map[string]bool
	metrics []string // constant keys of m, sorted
	whole   bool     // m is read otherwise than by constant keys
	fences  []string // tokens tested, as they stand
	badGeo  bool     // geo is used otherwise than geo.inFence("<token>")
}

// readsOf walks an expression. Names that a comprehension or cel.bind binds are not the environment's.
func readsOf(e ast.Expr) reads {
	w := walker{reads: reads{vars: map[string]bool{}}, bound: map[string]int{}}
	w.walk(e)
	slices.Sort(w.metrics)
	w.metrics = slices.Compact(w.metrics)
	return w.reads
}

type walker struct {
	reads
	bound map[string]int // how often a name is bound here
}

func (w *walker) walk(e ast.Expr) {
	switch e.Kind() {
	case ast.IdentKind:
		w.variable(e)
	case ast.SelectKind:
		w.selection(e.AsSelect())
	case ast.CallKind:
		w.call(e.AsCall())
	case ast.ListKind:
		w.all(e.AsList().Elements())
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			w.walk(entry.AsMapEntry().Key())
			w.walk(entry.AsMapEntry().Value())
		}
	case ast.StructKind:
		for _, f := range e.AsStruct().Fields() {
			w.walk(f.AsStructField().Value())
		}
	case ast.ComprehensionKind:
		w.comprehension(e.AsComprehension())
	}
}

func (w *walker) all(es []ast.Expr) {
	for _, e := range es {
		w.walk(e)
	}
}

// global returns the variable of the environment that e names, or "".
func (w *walker) global(e ast.Expr) string {
	if e.Kind() != ast.IdentKind {
		return ""
	}
	name, rooted := strings.CutPrefix(e.AsIdent(), ".")
	if !rooted && w.bound[name] > 0 {
		return ""
	}
	return name
}

func (w *walker) variable(e ast.Expr) {
	switch name := w.global(e); name {
	case "":
	case varMetrics:
		w.vars[name], w.whole = true, true
	case varGeo:
		w.vars[name], w.badGeo = true, true
	default:
		w.vars[name] = true
	}
}

func (w *walker) selection(s ast.SelectExpr) {
	if w.global(s.Operand()) == varMetrics {
		w.metric(s.FieldName())
		return
	}
	w.walk(s.Operand())
}

func (w *walker) metric(key string) {
	w.vars[varMetrics] = true
	w.metrics = append(w.metrics, key)
}

func (w *walker) call(c ast.CallExpr) {
	args := c.Args()
	switch c.FunctionName() {
	case operators.Index:
		if key, ok := literal(args[1]); ok && w.global(args[0]) == varMetrics {
			w.metric(key)
			return
		}
	case operators.In:
		if key, ok := literal(args[0]); ok && w.global(args[1]) == varMetrics {
			w.metric(key)
			return
		}
	case funcInFence:
		w.fence(c)
		return
	}
	if c.IsMemberFunction() {
		w.walk(c.Target())
	}
	w.all(args)
}

func (w *walker) fence(c ast.CallExpr) {
	token, ok := literal(c.Args()[0])
	if !ok || w.global(c.Target()) != varGeo {
		w.badGeo = true
	}
	w.vars[varGeo] = true
	w.fences = append(w.fences, token)
}

func (w *walker) comprehension(c ast.ComprehensionExpr) {
	w.walk(c.IterRange())
	w.walk(c.AccuInit())
	w.bound[c.AccuVar()]++
	w.bound[c.IterVar()]++
	w.bound[c.IterVar2()]++
	w.walk(c.LoopCondition())
	w.walk(c.LoopStep())
	w.bound[c.IterVar()]--
	w.bound[c.IterVar2()]--
	w.walk(c.Result())
	w.bound[c.AccuVar()]--
}

func literal(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}

// proof is the known result of an expression while most of its variables are unknown.
type proof uint8

const (
	undecided proof = iota
	provedFalse
	provedTrue
)

// prove evaluates a leaf with empty maps for the named variables and everything else unknown.
func (e *environment) prove(checked *cel.Ast, empty ...string) proof {
	known := map[string]any{}
	for _, name := range empty {
		known[name] = map[string]float64{}
	}
	var unknown []*cel.AttributePatternType
	for _, name := range []string{varDevice, varAnchors, varOccurred, varMetrics, varAttr, varGeo} {
		if _, ok := known[name]; !ok {
			unknown = append(unknown, cel.AttributePattern(name))
		}
	}
	prg, err := e.env.Program(checked, cel.EvalOptions(cel.OptPartialEval))
	if err != nil {
		return undecided
	}
	vars, err := cel.PartialVars(known, unknown...)
	if err != nil {
		return undecided
	}
	switch out, _, _ := prg.Eval(vars); out {
	case types.True:
		return provedTrue
	case types.False:
		return provedFalse
	}
	return undecided
}

// checkFences says what is wrong with the containment tests of a leaf.
func (r *reads) checkFences(d *Definition) *Error {
	switch {
	case r.badGeo:
		return refuse("when", `geo can only be asked geo.inFence("<fence token>")`)
	case len(r.fences) == 0:
		return nil
	case r.vars[varMetrics]:
		return refuse("when", "a condition that tests geo.inFence cannot read m: no sample carries both")
	case d.Metric != "":
		return refuse("when", "a rule that watches a metric cannot test geo.inFence: no sample carries both")
	}
	for _, token := range r.fences {
		if !model.ValidToken(token) {
			return refuse("when", "%s is no fence token", quote(token))
		}
	}
	return nil
}

// missingTests finds the attributes whose absence the condition tests: as a whole or as one of its top-level && parts
// (guards), or inside an || (disjuncts). Tests inside cel.bind, ?: or a negation are not looked for.
func missingTests(e ast.Expr, inOr bool, guards, disjuncts map[string]bool) {
	if attr, ok := missingTest(e); ok {
		if inOr {
			disjuncts[attr] = true
		} else {
			guards[attr] = true
		}
		return
	}
	if e.Kind() != ast.CallKind {
		return
	}
	switch c := e.AsCall(); c.FunctionName() {
	case operators.LogicalAnd, operators.LogicalOr:
		for _, arg := range c.Args() {
			missingTests(arg, inOr || c.FunctionName() == operators.LogicalOr, guards, disjuncts)
		}
	}
}

// missingTest recognises !("k" in attr), !has(attr.k) and ("k" in attr) == false.
func missingTest(e ast.Expr) (attr string, ok bool) {
	if e.Kind() != ast.CallKind {
		return "", false
	}
	c := e.AsCall()
	switch c.FunctionName() {
	case operators.LogicalNot:
		return presenceTest(c.Args()[0])
	case operators.Equals:
		for i, arg := range c.Args() {
			if arg.Kind() == ast.LiteralKind && arg.AsLiteral() == types.False {
				return presenceTest(c.Args()[1-i])
			}
		}
	}
	return "", false
}

func presenceTest(e ast.Expr) (attr string, ok bool) {
	isAttr := func(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == varAttr }
	switch e.Kind() {
	case ast.SelectKind:
		s := e.AsSelect()
		return s.FieldName(), s.IsTestOnly() && isAttr(s.Operand())
	case ast.CallKind:
		if c := e.AsCall(); c.FunctionName() == operators.In && isAttr(c.Args()[1]) {
			return literal(c.Args()[0])
		}
	}
	return "", false
}
