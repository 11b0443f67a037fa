package rules

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
)

// compileWhen compiles the condition and determines what the rule reads and which samples it looks at.
func (c *Compiler) compileWhen(p *Program) ([]Warning, error) {
	d := p.def
	if d.When.CEL != "" {
		return c.compileLeaf(p)
	}
	if p.uses.Presence {
		p.scope = scopePresence
	}
	p.wants = sortedUnique(d.Metric, d.When.Metric)
	if len(p.wants) > 0 {
		p.scope = scopeMetrics
		p.carries = []string{cmp.Or(d.Metric, d.When.Metric)}
	}
	p.attributes = sortedUnique(d.When.ThresholdAttr)
	p.when.compare, p.when.direct = newComparison(&d.When), d.Metric == "" || d.Metric == d.When.Metric
	return nil, c.setCost(p)
}

// setCost estimates the whole predicate in its documented form.
func (c *Compiler) setCost(p *Program) error {
	text := p.def.predicate()
	if text == "" {
		return nil
	}
	_, cost, err := c.envs.leaf.check(text, c.limits.MaxCost)
	if err != nil {
		return refusedAt("when", err)
	}
	p.cost = cost
	return nil
}

// compileLeaf compiles and analyses the expression of a condition. The author's text is compiled alone, before it is
// joined with anything, so that no parenthesis in it can reach out and no position in an error is shifted.
func (c *Compiler) compileLeaf(p *Program) ([]Warning, error) {
	d := p.def
	leaf, _, err := c.envs.leaf.check(d.When.CEL, c.limits.MaxCost)
	if err != nil {
		return nil, refusedAt("when", err)
	}
	r := readsOf(leaf.NativeRep().Expr())
	if err := r.checkFences(d); err != nil {
		return nil, err
	}
	if err := c.checkTruth(p.uses, leaf); err != nil {
		return nil, err
	}
	if err := c.setCost(p); err != nil {
		return nil, err
	}
	p.wants = sortedUnique(append(slices.Clone(r.metrics), d.Metric)...)
	p.fences, p.attributes, p.anchors, p.entire = r.fences, r.attributes, r.anchors, r.entire
	p.scope, p.carries = c.scopeOf(p, leaf, r)
	if err := c.plan(p, leaf, len(r.entire) > 0); err != nil {
		return nil, err
	}
	return guardWarnings(leaf), nil
}

// plan prepares the expression twice: a sample within the sizes that the static worst case assumes cannot exceed the
// limit, so its cost need not be counted; counting triples the time of an evaluation. counted: it is always counted.
func (c *Compiler) plan(p *Program, leaf *cel.Ast, counted bool) (err error) {
	env, optimize := c.envs.leaf.env, cel.EvalOptions(cel.OptOptimize)
	if p.when.leaf, err = env.Program(leaf, optimize); err != nil {
		return refuse("when", "%v", err)
	}
	if p.when.limited, err = env.Program(leaf, optimize, cel.CostLimit(c.limits.MaxCost)); err != nil {
		return refuse("when", "%v", err)
	}
	if counted {
		p.when.leaf = p.when.limited
	}
	return nil
}

// checkTruth refuses a latch that could never be released, or never be set, whatever the samples carry.
func (c *Compiler) checkTruth(u Uses, leaf *cel.Ast) *Error {
	if !u.Decides {
		return nil
	}
	if c.envs.leaf.prove(leaf, varAttr) == provedTrue {
		return refuse("when", "the condition is true for every sample of a device without attributes; it must also test what the sample carries")
	}
	if c.envs.leaf.prove(leaf) == provedFalse {
		return refuse("when", "the condition is never true")
	}
	return nil
}

// scopeOf finds the samples that an expression looks at. An expression that reads m by constant keys only cannot tell
// a sample without any of them from an empty one; when it is false for that one, it need not look at such samples.
func (c *Compiler) scopeOf(p *Program, leaf *cel.Ast, r reads) (scope, []string) {
	switch {
	case p.uses.Presence:
		return scopePresence, nil
	case p.def.Metric != "":
		return scopeMetrics, []string{p.def.Metric}
	case len(p.fences) > 0:
		return scopePosition, nil
	case len(r.metrics) > 0 && !r.whole && c.envs.leaf.prove(leaf, varMetrics) == provedFalse:
		return scopeMetrics, r.metrics
	}
	return scopeAll, nil
}

// predicate is the documented CEL form of the condition, with the prefix of a value metric; "" when nothing is tested.
// A comparison costs what this form costs, though it is evaluated natively.
func (d *Definition) predicate() string {
	text := d.When.CEL
	if d.When.Metric != "" {
		text = d.When.celForm()
	}
	if d.Metric == "" {
		return text
	}
	has := strconv.Quote(d.Metric) + " in " + varMetrics
	if text == "" {
		return has
	}
	return "(" + has + ") && (" + text + "\n)" // the line break ends a comment in the author's text
}

func (c *Condition) celForm() string {
	key := strconv.Quote(c.Metric)
	guard := key + " in m && m[" + key + "] " + celOps[c.Op] + " "
	if c.ThresholdAttr != "" {
		attr := strconv.Quote(c.ThresholdAttr)
		return attr + " in attr && " + guard + "attr[" + attr + "]"
	}
	right := strconv.FormatFloat(*c.Threshold, 'g', -1, 64)
	if !strings.ContainsAny(right, ".e") {
		right += ".0"
	}
	return guard + right
}

var celOps = map[Op]string{Greater: ">", GreaterOrEqual: ">=", Less: "<", LessOrEqual: "<=", Equal: "==", NotEqual: "!="}
