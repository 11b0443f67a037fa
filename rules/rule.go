// Package rules evaluates detection rules. A rule definition, written as JSON, is decoded strictly, compiled against its environment and
// evaluated over the readings of each device:
//
//	definition ─Decode─► Definition ─Compile─► Program ─Eval─► edges
//
// Evaluation is a pure function of (state, input) → (state, edges): no clock, no I/O, no randomness. The Engine holds
// the programs of every active profile version, the state of every key and its timers, calls the function in the order
// of the log and returns what changed as pages. Live detection, replay preview, rule tests and the canvas all use the
// same function, so they cannot disagree. Other packages act on the edges.
//
// A kind of rule is a file that implements Kind (threshold.go is the shortest that runs) and a line in builtin.
//
// DESIGN.md has the reasoning.
package rules

import (
	"cmp"
	"slices"
	"time"

	"weir/rules/strict"
)

// Type is the name of a kind of rule in a definition. Each kind's file defines its own.
type Type string

// Op compares a value with a threshold.
type Op string

// The comparisons. Equal and NotEqual stand only in a condition.
const (
	Greater        Op = "gt"
	GreaterOrEqual Op = "ge"
	Less           Op = "lt"
	LessOrEqual    Op = "le"
	Equal          Op = "eq"
	NotEqual       Op = "ne"
)

// Severities, as they stand in a definition.
const (
	Critical      = "critical"
	Major         = "major"
	Minor         = "minor"
	WarningLevel  = "warning"
	Indeterminate = "indeterminate"
)

// The values that an enumerated field may have, in the order in which an error lists them.
var (
	ops        = [...]Op{Greater, GreaterOrEqual, Less, LessOrEqual, Equal, NotEqual}
	severities = [...]string{Critical, Major, Minor, WarningLevel, Indeterminate}
)

// SeverityNames returns the severities that a definition may declare, the gravest first.
func SeverityNames() []string { return severities[:] }

// Definition is a decoded rule definition. A zero value or nil means that the field is absent; thresholds and
// lateness are pointers because 0 differs from absent there.
type Definition struct {
	Name        string
	Description string
	Type        Type
	Severity    string
	Actions     []Action
	When        Condition
	Metric      string
	Window      time.Duration
	Hold        time.Duration
	Timeout     time.Duration
	Gap         time.Duration
	Count       int32
	Rate        bool
	WindowMode  string
	Agg         string
	Op          Op
	Threshold   *float64
	Clear       *float64 // once raised, resolves only where the value does not satisfy op with it
	AnchorType  string
	MemberCap   int32
	Lateness    *time.Duration
}

// Condition is what a sample must satisfy: a structured comparison, an expression, or nothing (every event satisfies it).
type Condition struct {
	Metric        string
	Op            Op
	Threshold     *float64
	Clear         *float64 // as Definition.Clear, for threshold and duration
	ThresholdAttr string
	CEL           string
}

// Empty reports whether every event satisfies the condition.
func (c *Condition) Empty() bool { return !c.structured() && c.CEL == "" }

func (c *Condition) structured() bool {
	return c.Metric != "" || c.Op != "" || c.Threshold != nil || c.Clear != nil || c.ThresholdAttr != ""
}

// Error is the reason for which a definition is refused, written for the rule's author: the field first, then the reason.
type Error = strict.Error

func refuse(field, format string, args ...any) *Error { return strict.Refuse(field, format, args...) }

// field is one optional field of a definition, in the order of the documentation.
type field struct {
	name string
	set  func(*Definition) bool
}

var bodyFields = [...]field{
	{"when", func(d *Definition) bool { return !d.When.Empty() }},
	{"metric", func(d *Definition) bool { return d.Metric != "" }},
	{"window", func(d *Definition) bool { return d.Window != 0 }},
	{"hold", func(d *Definition) bool { return d.Hold != 0 }},
	{"timeout", func(d *Definition) bool { return d.Timeout != 0 }},
	{"gap", func(d *Definition) bool { return d.Gap != 0 }},
	{"count", func(d *Definition) bool { return d.Count != 0 }},
	{"rate", func(d *Definition) bool { return d.Rate }},
	{"windowMode", func(d *Definition) bool { return d.WindowMode != "" }},
	{"agg", func(d *Definition) bool { return d.Agg != "" }},
	{"op", func(d *Definition) bool { return d.Op != "" }},
	{"threshold", func(d *Definition) bool { return d.Threshold != nil }},
	{"clear", func(d *Definition) bool { return d.Clear != nil }},
	{"anchorType", func(d *Definition) bool { return d.AnchorType != "" }},
	{"memberCap", func(d *Definition) bool { return d.MemberCap != 0 }},
}

// check checks what the fields mean together, apart from expressions, and returns what the rule uses. The error is the
// first in the order of the documentation.
func (d *Definition) check(k Kind, l Limits) (Uses, *Error) {
	u, err := k.Uses(d)
	u.As = cmp.Or(u.As, "type "+string(d.Type))
	switch {
	case u.NoActions && len(d.Actions) > 0:
		return u, refuse("actions", "%s has no actions", u.As)
	case err != nil:
		return u, err
	}
	if err := d.checkFields(u); err != nil {
		return u, err
	}
	if err := d.When.checkForm(); err != nil {
		return u, err
	}
	if d.Op == Equal || d.Op == NotEqual {
		return u, refuse("op", "%s is allowed only in a condition", d.Op)
	}
	if err := d.checkClear(u); err != nil {
		return u, err
	}
	if err := k.Check(d); err != nil {
		return u, err
	}
	if err := d.checkDurations(l.MaxDuration); err != nil {
		return u, err
	}
	return u, d.checkActions(l.MaxDuration)
}

// checkFields compares the fields that are set with those that the kind uses.
func (d *Definition) checkFields(u Uses) *Error {
	for _, f := range bodyFields {
		if f.set(d) && !slices.Contains(u.Needs, f.name) && !slices.Contains(u.May, f.name) {
			return refuse(f.name, "not used by %s", u.As)
		}
	}
	for _, f := range bodyFields {
		if !f.set(d) && slices.Contains(u.Needs, f.name) {
			return refuse(f.name, "required by %s", u.As)
		}
	}
	return nil
}

// checkClear checks both places in which clear may stand.
func (d *Definition) checkClear(u Uses) *Error {
	if d.When.Clear != nil && !u.Clears {
		return refuse("when", "clear is not used by %s", u.As)
	}
	if d.When.Clear != nil && d.When.Threshold == nil {
		return refuse("when", "clear stands beside a threshold")
	}
	if err := checkRelease("when", d.When.Op, d.When.Threshold, d.When.Clear); err != nil {
		return err
	}
	return checkRelease("clear", d.Op, d.Threshold, d.Clear)
}

// checkRelease refuses a clear that does not lie on the releasing side of its threshold.
func checkRelease(field string, op Op, threshold, limit *float64) *Error {
	if limit == nil {
		return nil
	}
	switch op {
	case Greater, GreaterOrEqual:
		if *limit >= *threshold {
			return refuse(field, "clear must be below the threshold for %s", op)
		}
	case Less, LessOrEqual:
		if *limit <= *threshold {
			return refuse(field, "clear must be above the threshold for %s", op)
		}
	default:
		return refuse(field, "clear is not used by %s", op)
	}
	return nil
}

func (c *Condition) checkForm() *Error {
	switch {
	case !c.structured():
		return nil
	case c.CEL != "":
		return refuse("when", "a comparison and cel cannot stand together")
	case c.Threshold != nil && c.ThresholdAttr != "":
		return refuse("when", "threshold and thresholdAttr cannot stand together")
	case c.Metric == "":
		return refuse("when", "the comparison lacks its metric")
	case c.Op == "":
		return refuse("when", "the comparison lacks its op")
	case c.Threshold == nil && c.ThresholdAttr == "":
		return refuse("when", "the comparison lacks its threshold or thresholdAttr")
	}
	return nil
}

func (d *Definition) checkDurations(limit time.Duration) *Error {
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"window", d.Window}, {"hold", d.Hold}, {"timeout", d.Timeout}, {"gap", d.Gap}} {
		if err := checkPeriod(f.name, f.d, limit); err != nil {
			return err
		}
	}
	if d.Lateness != nil {
		return checkPeriod("lateness", *d.Lateness, limit)
	}
	return nil
}

func checkPeriod(field string, d, limit time.Duration) *Error {
	if d > limit {
		return refuse(field, "%s is longer than the maximum rule duration of %s", FormatDuration(d), FormatDuration(limit))
	}
	return nil
}

// checkActions checks the actions apart from their expressions.
func (d *Definition) checkActions(limit time.Duration) *Error {
	seen := map[string]int{}
	for i := range d.Actions {
		a, path := &d.Actions[i], actionPath(i)
		if a.Type == ActionRaiseAlarm && d.Severity == "" {
			return refuse(path, "raiseAlarm needs a severity on the rule")
		}
		if a.MaxAge != nil {
			if a.Type == ActionRaiseAlarm {
				return refuse(strict.Join(path, "maxAge"), "not used by raiseAlarm")
			}
			if err := checkPeriod(strict.Join(path, "maxAge"), *a.MaxAge, limit); err != nil {
				return err
			}
		}
		content := a.content()
		if first, ok := seen[content]; ok {
			return refuse(path, "the same as %s", actionPath(first))
		}
		seen[content] = i
	}
	return nil
}
