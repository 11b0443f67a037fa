// Package selector reads the selectors of dynamic groups: conditions over the attributes of an entity, written in a part of
// CEL that both the database and the evaluator here can answer. A selector is a boolean expression over
//
//	attr        the SHARED attributes of the entity by their keys
//	memberType  the type of the entity: device, asset, area, customer
//
// of these parts, anything else is refused with its position and what was expected there:
//
//	a && b, a || b, !a
//	"k" in attr
//	attr["k"] == 1, attr["k"] != "x"                    with a number, a string or a bool
//	attr["k"] < 1, and likewise <=, >, >=               with a number
//	memberType == "device", memberType != "device"
//
// A missing key makes its comparison false, that of != too.
package selector

import (
	"fmt"
	"math"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"weir/model"
)

// Bounds of a selector.
const (
	MaxLength      = 8 << 10 // characters
	MaxComparisons = 32
	MaxCost        = 100 // as CEL estimates it
	MaxKey         = 128 // characters, as of an attribute
)

// The variables of a selector.
const (
	varAttr       = "attr"
	varMemberType = "memberType"
)

// MemberTypes are the types of entities that groups have as members.
func MemberTypes() []string { return []string{"device", "asset", "area", "customer"} }

// Compiler reads selectors. Its zero value is ready; it is safe for concurrent use.
type Compiler struct {
	once sync.Once
	env  *cel.Env
	err  error
}

// Compile reads the selector of a group of members of one type. What it says of that type is decided already: the result is a
// condition over attributes alone. A refusal is INVALID_INPUT about the field selector.
func (c *Compiler) Compile(source, memberType string) (model.Condition, error) {
	none := model.Condition{Op: model.Never}
	env, err := c.environment()
	if err != nil {
		return none, err
	}
	parsed, issues := env.Parse(source)
	if issues.Err() != nil {
		return none, syntaxError(issues)
	}
	tree := parsed.NativeRep()
	l := lowering{info: tree.SourceInfo(), memberType: memberType}
	condition := l.condition(tree.Expr())
	switch {
	case l.err != nil:
		return none, l.err
	case l.comparisons > MaxComparisons:
		return none, model.Invalid("selector", "makes %d comparisons, at most %d are allowed", l.comparisons, MaxComparisons)
	}
	return condition, checkCost(env, parsed)
}

// environment is made when it is first used: it takes some milliseconds.
func (c *Compiler) environment() (*cel.Env, error) {
	c.once.Do(func() {
		c.env, c.err = cel.NewEnv(
			cel.ClearMacros(),
			cel.ParserExpressionSizeLimit(MaxLength),
			cel.Variable(varAttr, cel.MapType(cel.StringType, cel.DynType)),
			cel.Variable(varMemberType, cel.StringType))
	})
	if c.err != nil {
		return nil, fmt.Errorf("selector: environment: %w", c.err)
	}
	return c.env, nil
}

// syntaxError is the first finding of the parser, on one line.
func syntaxError(issues *cel.Issues) error {
	first := issues.Errors()[0]
	at := ""
	if first.Location != nil && first.Location.Line() >= 1 {
		at = position(first.Location.Line(), max(first.Location.Column(), 0))
	}
	return model.Invalid("selector", "%s%s", at, strings.Join(strings.Fields(first.Message), " "))
}

// position names a place in the source; CEL counts columns from 0.
func position(line, column int) string { return fmt.Sprintf("line %d, column %d: ", line, column+1) }

func checkCost(env *cel.Env, parsed *cel.Ast) error {
	checked, issues := env.Check(parsed)
	if issues.Err() != nil {
		return syntaxError(issues)
	}
	estimate, err := env.EstimateCost(checked, sizes{})
	if err != nil {
		return fmt.Errorf("selector: cost: %w", err)
	}
	if estimate.Max > MaxCost {
		return model.Invalid("selector", "may cost %d, at most %d is allowed: compare less, or with shorter strings", estimate.Max, MaxCost)
	}
	return nil
}

// sizes answers the estimator: a comparison costs as much as the literal is long, whatever an attribute holds.
type sizes struct{}

// EstimateSize implements cost.Estimator.
func (sizes) EstimateSize(node cost.AstNode) *cost.SizeEstimate {
	if path := node.Path(); len(path) > 0 && path[0] == varMemberType {
		return &cost.SizeEstimate{Max: MaxKey}
	}
	return nil
}

// EstimateCallCost implements cost.Estimator.
func (sizes) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate {
	return nil
}

// lowering turns the expression of a selector into a condition. It stops at the first error.
type lowering struct {
	info        *ast.SourceInfo
	memberType  string
	comparisons int
	err         error
}

// comparisonOf are the comparisons by CEL's names of their operators.
func comparisonOf(function string) model.Comparison {
	switch function {
	case operators.Equals:
		return model.Equal
	case operators.NotEquals:
		return model.NotEqual
	case operators.Less:
		return model.Less
	case operators.LessEquals:
		return model.LessOrEqual
	case operators.Greater:
		return model.Greater
	case operators.GreaterEquals:
		return model.GreaterOrEqual
	}
	return ""
}

const expected = `expected &&, ||, !, "key" in attr, or a comparison of attr["key"] or memberType`

// refuse notes the first thing that is not part of a selector.
func (l *lowering) refuse(e ast.Expr, format string, args ...any) model.Condition {
	if l.err == nil {
		at := ""
		if start := l.info.GetStartLocation(e.ID()); start.Line() >= 1 {
			at = position(start.Line(), start.Column())
		}
		l.err = model.Invalid("selector", "%s%s", at, fmt.Sprintf(format, args...))
	}
	return model.Condition{Op: model.Never}
}

// condition lowers an expression that gives true or false.
func (l *lowering) condition(e ast.Expr) model.Condition {
	if e.Kind() != ast.CallKind || e.AsCall().IsMemberFunction() {
		return l.refuse(e, "%s", expected)
	}
	call := e.AsCall()
	args := call.Args()
	switch call.FunctionName() {
	case operators.LogicalAnd:
		return join(model.AllOf, l.condition(args[0]), l.condition(args[1]))
	case operators.LogicalOr:
		return join(model.AnyOf, l.condition(args[0]), l.condition(args[1]))
	case operators.LogicalNot:
		return negate(l.condition(args[0]))
	case operators.In:
		return l.hasKey(e, args)
	}
	if cmp := comparisonOf(call.FunctionName()); cmp != "" {
		return l.compare(e, cmp, args)
	}
	return l.refuse(e, "%s", expected)
}

func (l *lowering) hasKey(e ast.Expr, args []ast.Expr) model.Condition {
	if args[1].Kind() != ast.IdentKind || args[1].AsIdent() != varAttr {
		return l.refuse(args[1], "expected attr: only a key of it can be asked for")
	}
	key, ok := l.key(args[0])
	if !ok {
		return model.Condition{Op: model.Never}
	}
	l.comparisons++
	return model.Condition{Op: model.HasKey, Key: key}
}

// compare lowers a comparison: what is compared stands on the left, the literal on the right.
func (l *lowering) compare(e ast.Expr, cmp model.Comparison, args []ast.Expr) model.Condition {
	l.comparisons++
	left, right := args[0], args[1]
	if left.Kind() == ast.IdentKind && left.AsIdent() == varMemberType {
		return l.compareType(e, cmp, right)
	}
	if left.Kind() != ast.CallKind || left.AsCall().FunctionName() != operators.Index {
		return l.refuse(left, `expected attr["key"] or memberType on the left`)
	}
	index := left.AsCall().Args()
	if index[0].Kind() != ast.IdentKind || index[0].AsIdent() != varAttr {
		return l.refuse(index[0], `expected attr["key"]`)
	}
	key, ok := l.key(index[1])
	if !ok {
		return model.Condition{Op: model.Never}
	}
	value, ok := literal(right)
	_, number := value.(float64)
	switch {
	case !ok:
		return l.refuse(right, "expected a number, a string, true or false")
	case number && inexact(value):
		return l.refuse(right, "expected a number below 2^53: those above are stored and compared as 64-bit floats, and neighbours would be equal. Give the attribute the type STRING")
	case !number && cmp != model.Equal && cmp != model.NotEqual:
		return l.refuse(right, "expected a number: only numbers have an order")
	}
	return model.Condition{Op: model.Compare, Key: key, Cmp: cmp, Value: value}
}

// inexact reports whether a whole number of 64 bits near a literal may have another value as a float.
func inexact(literal any) bool {
	v, ok := literal.(float64)
	return ok && math.Abs(v) >= 1<<53 && math.Abs(v) <= 1<<63
}

// compareType decides a comparison with the type of the members.
func (l *lowering) compareType(e ast.Expr, cmp model.Comparison, right ast.Expr) model.Condition {
	value, _ := literal(right)
	name, ok := value.(string)
	switch {
	case !ok:
		return l.refuse(right, "expected a string: memberType is one of %s", strings.Join(MemberTypes(), ", "))
	case cmp != model.Equal && cmp != model.NotEqual:
		return l.refuse(e, "expected == or != for memberType")
	}
	return constant((name == l.memberType) == (cmp == model.Equal))
}

// key reads the key of an attribute.
func (l *lowering) key(e ast.Expr) (string, bool) {
	value, _ := literal(e)
	key, ok := value.(string)
	switch {
	case !ok:
		l.refuse(e, "expected the key of an attribute, a string")
	case len(key) > MaxKey && len([]rune(key)) > MaxKey:
		l.refuse(e, "expected a key of at most %d characters", MaxKey)
		ok = false
	}
	return key, ok
}

// literal is the value of a scalar literal: a string, a bool, or a number as float64. A minus may stand before a number.
func literal(e ast.Expr) (any, bool) {
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Negate {
		value, ok := literal(e.AsCall().Args()[0])
		number, isNumber := value.(float64)
		return -number, ok && isNumber
	}
	if e.Kind() != ast.LiteralKind {
		return nil, false
	}
	switch v := e.AsLiteral().(type) {
	case types.String:
		return string(v), true
	case types.Bool:
		return bool(v), true
	case types.Int:
		return float64(v), true
	case types.Uint:
		return float64(v), true
	case types.Double:
		return float64(v), true
	}
	return nil, false
}

func constant(holds bool) model.Condition {
	if holds {
		return model.Condition{Op: model.Always}
	}
	return model.Condition{Op: model.Never}
}

// negate is the opposite of a condition.
func negate(c model.Condition) model.Condition {
	switch c.Op {
	case model.Always, model.Never:
		return constant(c.Op == model.Never)
	case model.Not:
		return c.Parts[0]
	}
	return model.Condition{Op: model.Not, Parts: []model.Condition{c}}
}

// join joins two conditions by AllOf or AnyOf. A constant decides, or falls away; chains of one operator become one node.
func join(op model.ConditionOp, a, b model.Condition) model.Condition {
	decides, falls := model.Never, model.Always
	if op == model.AnyOf {
		decides, falls = model.Always, model.Never
	}
	switch {
	case a.Op == decides || b.Op == decides:
		return model.Condition{Op: decides}
	case a.Op == falls:
		return b
	case b.Op == falls:
		return a
	}
	joined := model.Condition{Op: op}
	for _, c := range []model.Condition{a, b} {
		if c.Op == op {
			joined.Parts = append(joined.Parts, c.Parts...)
		} else {
			joined.Parts = append(joined.Parts, c)
		}
	}
	return joined
}
