package rules

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"weir/internal/zone"
)

// What is constant in an expression is evaluated when a rule is checked: a part that always fails, a zone that does not exist and a
// comparison that never holds would make a rule that judges nothing. Published rules are not checked again: what a version says stays.

// timePart is a function of timestamps that gives a part of the time, and what it gives.
type timePart struct {
	function, overload string
	of                 func(time.Time) int
	least, most        int64
}

// timeParts lists them. Those with a zone are the program's own, which finds zones in its own table.
func timeParts() []timePart {
	return []timePart{
		{overloads.TimeGetFullYear, overloads.TimestampToYearWithTz, time.Time.Year, 1, 9999},
		{overloads.TimeGetMonth, overloads.TimestampToMonthWithTz, func(t time.Time) int { return int(t.Month()) - 1 }, 0, 11},
		{overloads.TimeGetDayOfYear, overloads.TimestampToDayOfYearWithTz, func(t time.Time) int { return t.YearDay() - 1 }, 0, 365},
		{overloads.TimeGetDayOfMonth, overloads.TimestampToDayOfMonthZeroBasedWithTz, func(t time.Time) int { return t.Day() - 1 }, 0, 30},
		{overloads.TimeGetDate, overloads.TimestampToDayOfMonthOneBasedWithTz, time.Time.Day, 1, 31},
		{overloads.TimeGetDayOfWeek, overloads.TimestampToDayOfWeekWithTz, func(t time.Time) int { return int(t.Weekday()) }, 0, 6},
		{overloads.TimeGetHours, overloads.TimestampToHoursWithTz, time.Time.Hour, 0, 23},
		{overloads.TimeGetMinutes, overloads.TimestampToMinutesWithTz, time.Time.Minute, 0, 59},
		{overloads.TimeGetSeconds, overloads.TimestampToSecondsWithTz, time.Time.Second, 0, 59},
		{overloads.TimeGetMilliseconds, overloads.TimestampToMillisecondsWithTz, func(t time.Time) int { return t.Nanosecond() / 1e6 }, 0, 999},
	}
}

// zoned are the functions of timestamps with a zone, over the table of the program.
func zoned(zones *zone.Zones) (opts []cel.EnvOption) {
	for _, p := range timeParts() {
		opts = append(opts, cel.Function(p.function, cel.MemberOverload(p.overload, []*cel.Type{cel.TimestampType, cel.StringType}, cel.IntType,
			cel.BinaryBinding(func(at, name ref.Val) ref.Val {
				t, ok := at.(types.Timestamp)
				z, named := name.(types.String)
				if !ok || !named {
					return types.MaybeNoSuchOverloadErr(name)
				}
				where, err := zones.Find(string(z))
				if err != nil {
					return types.NewErrFromString(err.Error())
				}
				return types.Int(p.of(t.In(where)))
			}))))
	}
	return opts
}

// checkConstants returns what is wrong with the constants of a definition that compiles.
func (c *Compiler) checkConstants(def *Definition) *Error {
	if def.When.CEL != "" {
		if err := c.envs.leaf.constants(def.When.CEL); err != nil {
			return refusedAt("when", err)
		}
	}
	for i := range def.Actions {
		for _, x := range def.Actions[i].expressions(c.envs, actionPath(i)) {
			if x.text == "" {
				continue
			}
			if err := x.env.constants(x.text); err != nil {
				return refusedAt(x.field, err)
			}
		}
	}
	return nil
}

// constants evaluates what is constant in an expression.
func (e *environment) constants(src string) error {
	checked, iss := e.env.Compile(src)
	if iss.Err() != nil {
		return nil // it was checked before
	}
	f := folder{environment: e, checked: checked, parts: map[string]timePart{}}
	for _, p := range timeParts() {
		f.parts[p.function] = p
	}
	f.within(checked.NativeRep().Expr())
	if f.err == nil {
		return nil
	}
	return f.err
}

// folder walks an expression from the leaves up.
type folder struct {
	*environment
	checked *cel.Ast
	parts   map[string]timePart
	err     *Error // the first fault
}

// within looks at the parts of an expression that is not constant as a whole, and evaluates those that are constant: the largest
// alone, so that each text is compiled once.
func (f *folder) within(es ...ast.Expr) {
	for _, e := range es {
		if f.err == nil && f.fold(e) && e.Kind() != ast.LiteralKind {
			f.evaluate(e)
		}
	}
}

// fold reports whether an expression is constant: a literal, or a call of functions or a list of such.
func (f *folder) fold(e ast.Expr) bool {
	switch e.Kind() {
	case ast.LiteralKind:
		return true
	case ast.SelectKind:
		f.within(e.AsSelect().Operand())
	case ast.ListKind:
		return f.all(e.AsList().Elements())
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			f.within(entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		f.within(c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result())
	case ast.CallKind:
		c := e.AsCall()
		args := c.Args()
		if c.IsMemberFunction() {
			args = append([]ast.Expr{c.Target()}, args...)
		}
		if f.all(args) {
			return true
		}
		if f.err == nil {
			f.partial(e, c)
		}
	}
	return false
}

// all reports whether all of some expressions are constant, and looks into them where one is not.
func (f *folder) all(es []ast.Expr) bool {
	constant := make([]bool, len(es))
	every := true
	for i, e := range es {
		constant[i] = f.fold(e)
		every = every && constant[i]
	}
	for i, e := range es {
		if !every && constant[i] && e.Kind() != ast.LiteralKind && f.err == nil {
			f.evaluate(e)
		}
	}
	return every
}

// evaluate evaluates a constant call or list.
func (f *folder) evaluate(e ast.Expr) {
	switch v := f.value(e).(type) {
	case *types.Err:
		f.fail(e, "always fails: %s", v.String())
	case types.Double:
		if math.IsInf(float64(v), 0) || math.IsNaN(float64(v)) {
			f.fail(e, "is no finite number")
		}
	}
}

// value is that of a constant expression, an error of CEL where it has none.
func (f *folder) value(e ast.Expr) ref.Val {
	if e.Kind() == ast.LiteralKind {
		return e.AsLiteral()
	}
	text, err := cel.ExprToString(e, f.checked.NativeRep().SourceInfo())
	if err != nil {
		return types.NullValue // what cannot be written alone is left to the engine
	}
	alone, iss := f.env.Compile(text)
	if iss.Err() != nil {
		return types.NullValue
	}
	program, err := f.env.Program(alone, cel.CostLimit(maxActionCost))
	if err != nil {
		return types.NewErrFromString(err.Error())
	}
	v, _, err := program.Eval(cel.NoVars())
	if err != nil {
		return types.NewErrFromString(err.Error())
	}
	return v
}

// partial looks at a call of which only a part is constant.
func (f *folder) partial(e ast.Expr, c ast.CallExpr) {
	args := c.Args()
	if _, ok := f.parts[c.FunctionName()]; ok && c.IsMemberFunction() && len(args) == 1 {
		if name, ok := literal(args[0]); ok {
			if _, err := f.zones.Find(name); err != nil {
				f.fail(args[0], "%s", err.Error())
			}
		}
		return
	}
	switch name := c.FunctionName(); name {
	case operators.Divide, operators.Modulo:
		if n, ok := f.whole(args[1]); ok && n == 0 {
			f.fail(e, "always fails: it divides by zero")
		}
	case operators.Equals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		f.compare(e, name, args[0], args[1])
	}
}

// compare refuses a comparison of a part of a time with a number that it never is.
func (f *folder) compare(e ast.Expr, operator string, left, right ast.Expr) {
	p, ok := f.part(left)
	n, constant := f.whole(right)
	flip := false
	if !ok {
		p, ok = f.part(right)
		n, constant = f.whole(left)
		flip = true
	}
	if !ok || !constant {
		return
	}
	if !holds(operator, p.least, n, flip) && !holds(operator, p.most, n, flip) && (operator != operators.Equals || n < p.least || n > p.most) {
		f.fail(e, "never holds: %s gives %d to %d", p.function, p.least, p.most)
	}
}

func holds(operator string, value, constant int64, flip bool) bool {
	order := cmp.Compare(value, constant)
	if flip {
		order = -order
	}
	switch operator {
	case operators.Less:
		return order < 0
	case operators.LessEquals:
		return order <= 0
	case operators.Greater:
		return order > 0
	case operators.GreaterEquals:
		return order >= 0
	}
	return order == 0
}

// part is the function of timestamps that an expression calls.
func (f *folder) part(e ast.Expr) (timePart, bool) {
	if e.Kind() != ast.CallKind || !e.AsCall().IsMemberFunction() {
		return timePart{}, false
	}
	p, ok := f.parts[e.AsCall().FunctionName()]
	return p, ok && f.checked.NativeRep().GetType(e.AsCall().Target().ID()).IsExactType(cel.TimestampType)
}

// whole is the value of a constant whole number.
func (f *folder) whole(e ast.Expr) (int64, bool) {
	if e.Kind() != ast.LiteralKind {
		return 0, false
	}
	switch n := f.value(e).(type) {
	case types.Int:
		return int64(n), true
	case types.Uint:
		return int64(min(uint64(n), math.MaxInt64)), true
	}
	return 0, false
}

// fail keeps the first fault with its place.
func (f *folder) fail(e ast.Expr, format string, args ...any) {
	if f.err != nil {
		return
	}
	text := fmt.Sprintf(format, args...)
	if shown, err := cel.ExprToString(e, f.checked.NativeRep().SourceInfo()); err == nil && !strings.Contains(text, shown) {
		text = shown + " " + text
	}
	at := f.checked.NativeRep().SourceInfo().GetStartLocation(e.ID())
	if at.Line() >= 1 {
		text = fmt.Sprintf("line %d, column %d: %s", at.Line(), at.Column()+1, text)
	}
	f.err = refuse("", "%s", text)
}
