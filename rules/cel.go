package rules

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/ext"

	"weir/internal/zone"
	"weir/rules/facts"
	"weir/rules/strict"
)

// The variables that expressions may read.
const (
	varDevice   = "device"
	varAnchors  = "anchors"
	varOccurred = "occurred"
	varMetrics  = "m"
	varAttr     = "attr"
	varGeo      = "geo"
	varValue    = "value"
	varHasValue = "hasValue"
	varSeries   = "series"

	funcInFence = "inFence"
)

// Assumed sizes of what an expression reads, for the static worst case. Without them every read of a map would count
// as unbounded.
const (
	assumedEntries = 64
	assumedSeries  = 256
	assumedToken   = strict.MaxIdentifier
	assumedString  = 64 // result of string()
)

// MaxExpression bounds the text of one expression, in characters.
const MaxExpression = 8 << 10

// maxRegexProgram bounds the compiled form of a constant regular expression.
const maxRegexProgram = 1000

// environment is one of the four settings in which an expression of a rule stands.
type environment struct {
	env    *cel.Env
	result *cel.Type
	sizes  sizes
	vars   []string // declared variables, sorted
	zones  *zone.Zones
}

type environments struct {
	leaf, guard, template, alarmKey environment
}

func newEnvironments() (*environments, error) {
	zones := zone.New()
	doubles := cel.MapType(cel.StringType, cel.DoubleType)
	leaf, err := newEnv(zones,
		cel.Variable(varDevice, cel.StringType),
		cel.Variable(varAnchors, cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable(varOccurred, cel.TimestampType),
		cel.Variable(varMetrics, doubles),
		cel.Variable(varAttr, doubles),
		cel.Variable(varGeo, facts.GeoType),
		cel.Function(funcInFence, cel.MemberOverload("geo_in_fence_string",
			[]*cel.Type{facts.GeoType, cel.StringType}, cel.BoolType, cel.BinaryBinding(facts.InFence))),
	)
	if err != nil {
		return nil, err
	}
	key, err := newEnv(zones, cel.Variable(varSeries, cel.StringType))
	if err != nil {
		return nil, err
	}
	firing, err := key.Extend(cel.Variable(varValue, cel.DoubleType), cel.Variable(varHasValue, cel.BoolType))
	if err != nil {
		return nil, fmt.Errorf("rules: expression environment: %w", err)
	}
	return &environments{
		leaf:     environment{leaf, cel.BoolType, leafSizes(), []string{varAnchors, varAttr, varDevice, varGeo, varMetrics, varOccurred}, zones},
		guard:    environment{firing, cel.BoolType, firingSizes(), firingVars(), zones},
		template: environment{firing, cel.StringType, firingSizes(), firingVars(), zones},
		alarmKey: environment{key, cel.StringType, firingSizes(), []string{varSeries}, zones},
	}, nil
}

// variableNotes are what the variables hold.
var variableNotes = map[string]string{
	varDevice:   "token of the device",
	varOccurred: "event time of the sample, in UTC",
	varMetrics:  "readings of the sample, by metric; every value is a double",
	varAttr:     "numbers among the attributes of the device, of the scope `SERVER`, else `SHARED`; as of the sample's log position",
	varAnchors:  "anchors of the device, by type: the smallest token of each",
	varGeo:      "position of the sample: only `geo.inFence(\"<fence token>\")`",
	varSeries:   "device token, or the anchor's token of a correlation",
	varValue:    "value that raised the edge; 0 when there is none",
	varHasValue: "whether there is a value",
}

// Variable is one that expressions know.
type Variable struct{ Name, Type, Holds string }

// Environments returns the variables of conditions, of guards of actions, and of the templates of alarm keys.
func (c *Compiler) Environments() (conditions, guards, alarmKeys []Variable) {
	return c.envs.leaf.variables(), c.envs.guard.variables(), c.envs.alarmKey.variables()
}

func (e *environment) variables() (out []Variable) {
	for _, v := range e.env.Variables() {
		if note, ok := variableNotes[v.Name()]; ok { // the others are names of types, which every expression knows
			out = append(out, Variable{v.Name(), cel.FormatCELType(v.Type()), note})
		}
	}
	return out
}

func firingVars() []string { return []string{varHasValue, varSeries, varValue} }

func newEnv(zones *zone.Zones, vars ...cel.EnvOption) (*cel.Env, error) {
	opts := append([]cel.EnvOption{
		ext.Bindings(),
		cel.DefaultUTCTimeZone(true), // no reading of the machine's zone: a replay elsewhere must agree
		cel.ParserExpressionSizeLimit(MaxExpression),
		cel.RegexProgramSizeLimit(maxRegexProgram),
	}, append(zoned(zones), vars...)...)
	env, err := cel.NewEnv(opts...)
	if err != nil {
		return nil, fmt.Errorf("rules: expression environment: %w", err)
	}
	return env, nil
}

// check parses src, checks its types and its cost. The text of the error is for the rule's author.
func (e *environment) check(src string, maxCost uint64) (*cel.Ast, uint64, error) {
	ast, err := e.types(src)
	if err != nil {
		return nil, 0, err
	}
	est, bad := e.env.EstimateCost(ast, e.sizes)
	if bad != nil {
		return nil, 0, fmt.Errorf("the cost cannot be estimated: %v", bad)
	}
	if est.Max > maxCost {
		return nil, est.Max, costError(est.Max, maxCost)
	}
	return ast, est.Max, nil
}

// types parses src and checks its types.
func (e *environment) types(src string) (*cel.Ast, error) {
	ast, iss := e.env.Compile(src)
	if iss.Err() != nil {
		return nil, e.refusal(src, iss)
	}
	if e.result != nil && !ast.OutputType().IsExactType(e.result) {
		return nil, fmt.Errorf("the expression gives a %s, it must give a %s", cel.FormatCELType(ast.OutputType()), cel.FormatCELType(e.result))
	}
	return ast, nil
}

// Scope is where an expression stands: what it may read, and what it must give. Whoever makes an expression of several parts checks each part in
// its scope first: no part then reaches out of its place, and an error has its line and column in its own part.
type Scope struct {
	environment
	maxCost uint64
}

// Leaf is the scope of a condition.
func (c *Compiler) Leaf() Scope { return Scope{c.envs.leaf, c.limits.MaxCost} }

// Guard is the scope of an action's guard.
func (c *Compiler) Guard() Scope { return Scope{c.envs.guard, c.limits.MaxCost} }

// Variables are the variables that conditions and guards may read.
func (c *Compiler) Variables() []string {
	return sortedUnique(slices.Concat(c.envs.leaf.vars, c.envs.guard.vars)...)
}

// Parse checks the syntax of an expression by itself.
func (s Scope) Parse(text string) *Error {
	if _, iss := s.env.Parse(text); iss.Err() != nil {
		return s.refusal(text, iss)
	}
	return nil
}

// Identifier reports whether a name may be bound, as far as the syntax goes: it is no word of the language.
func (s Scope) Identifier(name string) bool {
	parsed, iss := s.env.Parse(name)
	if iss.Err() != nil || strings.HasPrefix(name, ".") {
		return false
	}
	x := parsed.NativeRep().Expr()
	return x.Kind() == ast.IdentKind && x.AsIdent() == name
}

// Bind checks the types of an expression and returns the scope in which name stands for its value, as within cel.bind.
func (s Scope) Bind(name, text string) (Scope, *Error) {
	free := s.environment
	free.result = nil // any type will do
	checked, err := free.types(text)
	if err != nil {
		return s, refusedAt("", err)
	}
	within, bad := s.env.Extend(cel.Variable(name, checked.OutputType()))
	if bad != nil {
		return s, refuse("", "%s cannot be bound: %v", strict.Quote(name), bad)
	}
	s.env, s.vars = within, append(slices.Clone(s.vars), name)
	return s, nil
}

// Types checks the types of an expression. It may read what was bound.
func (s Scope) Types(text string) *Error {
	if _, err := s.types(text); err != nil {
		return refusedAt("", err)
	}
	return nil
}

// Check checks types and cost, as Compile does. Nothing may be bound in the scope: the cost of reading what is bound is known only as part of
// the whole.
func (s Scope) Check(text string) *Error {
	if _, _, err := s.check(text, s.maxCost); err != nil {
		return refusedAt("", err)
	}
	return nil
}

func costError(cost, limit uint64) error {
	if cost > math.MaxInt32 {
		return fmt.Errorf("the expression may cost without bound, at most %d is allowed", limit)
	}
	return fmt.Errorf("the expression may cost %d, at most %d is allowed", cost, limit)
}

// refusal is the first finding with its line and column, on one line, and what to write instead.
func (e *environment) refusal(src string, iss *cel.Issues) *Error {
	first := iss.Errors()[0]
	err := refuse("", "%s", strings.Join(strings.Fields(first.Message), " "))
	if first.Location != nil && first.Location.Line() >= 1 {
		err.Reason = fmt.Sprintf("line %d, column %d: %s", first.Location.Line(), first.Location.Column()+1, err.Reason)
	}
	if parsed, bad := e.env.Parse(src); bad.Err() == nil { // the same text has the same ids
		err.Hint = e.hint(parsed.NativeRep().Expr(), first.ExprID)
	}
	return err
}

// refusedAt is the error of an expression as that of the field in which it stands.
func refusedAt(field string, err error) *Error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return refuse(field, "%v", err)
	}
	placed := *e
	placed.Field = field
	return &placed
}

// hint is what to write instead of the part of an expression that does not compile, "" when nothing is known to help: the
// variables that there are in place of an unknown one, and a double in place of a whole number.
func (e *environment) hint(root ast.Expr, id int64) string {
	var found ast.Expr
	ast.PostOrderVisit(root, ast.NewExprVisitor(func(x ast.Expr) {
		if x.ID() == id {
			found = x
		}
	}))
	switch {
	case found == nil:
		return ""
	case found.Kind() == ast.IdentKind:
		return e.declared(found.AsIdent())
	case found.Kind() == ast.CallKind:
		return doubleFor(found.AsCall())
	}
	return ""
}

// declared lists the variables, and how a metric of an unknown name is read.
func (e *environment) declared(name string) string {
	if slices.Contains(e.vars, name) {
		return ""
	}
	text := "the variables are " + strings.Join(e.vars, ", ")
	if slices.Contains(e.vars, varMetrics) {
		text += fmt.Sprintf("; %s.%s reads the metric %[2]s", varMetrics, name)
	}
	return text
}

// arithmetic are the operators whose sides must have one type.
var arithmetic = []string{operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals, operators.Equals, operators.NotEquals,
	operators.Add, operators.Subtract, operators.Multiply, operators.Divide}

// doubleFor offers the double for a whole number that is compared with, or added to, something else.
func doubleFor(c ast.CallExpr) string {
	if !slices.Contains(arithmetic, c.FunctionName()) {
		return ""
	}
	for _, arg := range c.Args() {
		if arg.Kind() != ast.LiteralKind {
			continue
		}
		if n, ok := arg.AsLiteral().(types.Int); ok {
			return "write " + strconv.FormatInt(int64(n), 10) + ".0: metrics, attributes and values are doubles"
		}
	}
	return ""
}

// sizes answers the cost estimator by the path of a variable: the first element is the variable, "@keys" and
// "@values" follow for what a map holds.
type sizes map[string]cost.SizeEstimate

func leafSizes() sizes {
	entries, token := upTo(assumedEntries), upTo(assumedToken)
	return sizes{
		varGeo:     upTo(1),
		varDevice:  token,
		varAnchors: entries, varAnchors + ".@keys": token, varAnchors + ".@values": token,
		varMetrics: entries, varMetrics + ".@keys": token,
		varAttr: entries, varAttr + ".@keys": token,
	}
}

func firingSizes() sizes { return sizes{varSeries: upTo(assumedSeries)} }

func upTo(n uint64) cost.SizeEstimate { return cost.SizeEstimate{Max: n} }

// EstimateSize implements cost.Estimator.
func (s sizes) EstimateSize(node cost.AstNode) *cost.SizeEstimate {
	if est, ok := s[strings.Join(node.Path(), ".")]; ok {
		return &est
	}
	return nil
}

// EstimateCallCost implements cost.Estimator: string() costs 1 and gives at most 64 characters.
func (s sizes) EstimateCallCost(function, _ string, _ *cost.AstNode, _ []cost.AstNode) *cost.CallEstimate {
	if function != "string" {
		return nil
	}
	result := upTo(assumedString)
	return &cost.CallEstimate{CostEstimate: cost.FixedCostEstimate(1), ResultSize: &result}
}
