package rules

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"weir/model"
	"weir/rules/strict"
)

// reads is what an expression reads of its environment.
type reads struct {
	vars       map[string]bool
	metrics    []string // constant keys of m, sorted
	whole      bool     // m is read otherwise than by constant keys
	attributes []string // constant keys of attr, sorted
	anchors    []string // constant keys of anchors, sorted
	entire     []string // of attr and anchors, those that are read otherwise than by constant keys, sorted
	fences     []string // tokens tested, as they stand
	badGeo     bool     // geo is used otherwise than geo.inFence("<token>")
}

// readsOf walks an expression. Names that a comprehension or cel.bind binds are not the environment's.
func readsOf(e ast.Expr) reads {
	w := walker{reads: reads{vars: map[string]bool{}}, bound: map[string]int{}}
	w.walk(e)
	for _, names := range []*[]string{&w.metrics, &w.attributes, &w.anchors, &w.entire, &w.fences} {
		*names = sortedUnique(*names...)
	}
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
	case varAttr, varAnchors:
		w.vars[name], w.entire = true, append(w.entire, name)
	default:
		w.vars[name] = true
	}
}

func (w *walker) selection(s ast.SelectExpr) {
	if !w.keyed(s.Operand(), s.FieldName()) {
		w.walk(s.Operand())
	}
}

// keyed notes a read of a map of the environment by a constant key, and reports whether it is one.
func (w *walker) keyed(of ast.Expr, key string) bool {
	name := w.global(of)
	switch name {
	case varMetrics:
		w.metrics = append(w.metrics, key)
	case varAttr:
		w.attributes = append(w.attributes, key)
	case varAnchors:
		w.anchors = append(w.anchors, key)
	default:
		return false
	}
	w.vars[name] = true
	return true
}

func (w *walker) call(c ast.CallExpr) {
	args := c.Args()
	switch c.FunctionName() {
	case operators.Index:
		if key, ok := literal(args[1]); ok && w.keyed(args[0], key) {
			return
		}
	case operators.In:
		if key, ok := literal(args[0]); ok && w.keyed(args[1], key) {
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
			return refuse("when", "%s is no fence token", strict.Quote(token))
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

// Times is what a kind says of a rule: which samples it judges when, and what becomes of data that comes late or not at all.
type Times struct {
	Judged  string `json:"judged"`
	Late    string `json:"late"`
	Missing string `json:"missing"`
	Keeps   string `json:"keeps"` // what it remembers
}

// explainer is a kind that says so.
type explainer interface{ explain(d *Definition) Times }

// Explanation is what a compiled rule reads, costs and does.
type Explanation struct {
	Name    string   `json:"name"`
	Kind    Type     `json:"kind"`
	Metrics []string `json:"metrics"` // that it names
	Reads
	LooksAt string `json:"looksAt"`
	Cost    uint64 `json:"cost"`
	MaxCost uint64 `json:"maxCost"`
	State   string `json:"state"` // what each state belongs to
	Footprint
	Times
	Actions []ExplainedAction `json:"actions"`
}

// Reads is what a rule reads of what the registry knows.
type Reads struct {
	Attributes []string `json:"attributes"` // by key
	Anchors    []string `json:"anchors"`    // by type
	Entire     []string `json:"entire"`     // attr and anchors, where they are read as a whole
	Fences     []string `json:"geofences"`
}

// Footprint is the memory of a rule, in bytes.
type Footprint struct {
	Key    int `json:"keyBytes"`              // of each key that remembers something
	Sample int `json:"sampleBytes"`           // of each sample that is kept, at most; 0: none is kept
	Member int `json:"memberBytes,omitempty"` // of each device that counts under an anchor
}

// What a key takes: that of a kind that only latches, and besides what kinds with a timer have, and those with samples.
const (
	latchBytes  = 40
	extraBytes  = 64
	lineBytes   = 80
	sampleBytes = 24 // with the slack of a buffer that grows
)

func (p *Program) footprint() Footprint {
	switch {
	case p.uses.Keys == ByAnchor:
		return Footprint{Key: latchBytes + extraBytes + sampleBytes, Sample: sampleBytes, Member: perMember * sampleBytes}
	case p.uses.Retains:
		return Footprint{Key: latchBytes + extraBytes + lineBytes, Sample: sampleBytes}
	case p.def.Type == Aggregate:
		return Footprint{Key: latchBytes + extraBytes + lineBytes}
	case p.uses.Enrolls:
		return Footprint{Key: latchBytes + extraBytes}
	}
	return Footprint{Key: latchBytes}
}

// ExplainedAction is an action of a rule and what it costs.
type ExplainedAction struct {
	Type         ActionType `json:"type"`
	Does         string     `json:"does"`          // what it raises, sends or calls
	Key          string     `json:"key,omitempty"` // of the alarm; "" for that of the rule, or one from the template
	Guard        string     `json:"guard,omitempty"`
	GuardCost    uint64     `json:"guardCost,omitempty"`
	Template     string     `json:"template,omitempty"` // of the alarm's key, the body or the payload
	TemplateCost uint64     `json:"templateCost,omitempty"`
	MaxAge       string     `json:"maxAge,omitempty"` // "" for any age
}

// Explain explains a program of the compiler.
func (c *Compiler) Explain(p *Program) Explanation {
	x := Explanation{Name: p.def.Name, Kind: p.def.Type, Metrics: listed(p.wants), LooksAt: p.LooksAt(), Cost: p.cost, MaxCost: c.limits.MaxCost,
		State: p.uses.Keys.String(), Actions: []ExplainedAction{},
		Reads: Reads{listed(p.attributes), listed(sortedUnique(append(slices.Clone(p.anchors), p.def.AnchorType)...)), listed(p.entire), listed(p.fences)}}
	for i := range p.acting.actions {
		x.Actions = append(x.Actions, p.acting.actions[i].explain())
	}
	full := *p.def
	full.Lateness = cmp.Or(full.Lateness, &c.limits.Lateness)
	if k, _ := findKind(c.kinds, p.def.Type); k != nil {
		if k, ok := k.(explainer); ok {
			x.Times, x.Footprint = k.explain(&full), p.footprint()
		}
	}
	return x
}

// listed is a list that is never nil, as JSON shows it.
func listed(names []string) []string { return append([]string{}, names...) }

func (a *compiledAction) explain() ExplainedAction {
	x := ExplainedAction{Type: a.Type, Guard: a.Guard, GuardCost: a.guardCost, TemplateCost: a.templateCost}
	if age := a.maxAge(); age > 0 {
		x.MaxAge = FormatDuration(age)
	}
	switch a.Type {
	case ActionRaiseAlarm:
		x.Does, x.Key, x.Template = "raises an alarm of the device", a.RaiseAlarm.AlarmKey, a.RaiseAlarm.AlarmKeyTemplate
	case ActionSendCommand:
		x.Does = "sends the command " + a.SendCommand.Command
	case ActionHTTPCall:
		x.Does, x.Template = "posts to "+a.HTTPCall.URL, a.HTTPCall.BodyTemplate
	case ActionPublish:
		x.Does, x.Template = "publishes to the connector "+a.Publish.ConnectorRef, a.Publish.PayloadTemplate
	}
	return x
}

// LooksAt says which samples are in the rule's scope.
func (p *Program) LooksAt() string {
	switch {
	case p.scope == scopePresence:
		return "changes of presence"
	case p.scope == scopeMetrics:
		return "samples with " + strings.Join(p.carries, " or ")
	case p.scope == scopePosition:
		return "samples with a position"
	case len(p.wants) > 0:
		return "every sample, names " + strings.Join(p.wants, ", ")
	}
	return "every sample"
}

// String says what a state belongs to.
func (k KeySpace) String() string {
	switch k {
	case ByDevice:
		return "one for each device"
	case ByAnchor:
		return "one for each anchor"
	case ByDevice | ByAnchor:
		return "one for each device and anchor"
	}
	return "one for the rule"
}

// lateness is that of a definition that is compiled.
func (d *Definition) lateness() time.Duration {
	if d.Lateness == nil {
		return 0
	}
	return *d.Lateness
}

// inTurn says when a kind judges that judges in the order of event times.
func (d *Definition) inTurn() string {
	if d.lateness() == 0 {
		return "each sample at its arrival"
	}
	return "each sample in the order of event times, once a newer one is " + FormatDuration(d.lateness()) + " ahead of it or that time has passed without one"
}

func (d *Definition) setAside() string {
	if d.lateness() == 0 {
		return "a sample older than the newest is set aside and counted"
	}
	return "a sample more than " + FormatDuration(d.lateness()) + " older than the newest is set aside and counted"
}

func (d *Definition) thenNothing() string {
	if d.lateness() == 0 {
		return "it changes nothing"
	}
	return "what waits is judged after " + FormatDuration(d.lateness()) + ", and then nothing changes"
}

// held is what waits for the lateness besides.
func (d *Definition) held() string {
	if d.lateness() == 0 {
		return ""
	}
	return ", and the samples of the last " + FormatDuration(d.lateness())
}
