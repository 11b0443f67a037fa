// Package rules decides. A rule definition, written as JSON, is decoded strictly, compiled against its environment and
// evaluated over the readings of each device:
//
//	definition ─Decode─► Definition ─Compile─► Program ─Eval─► edges
//
// Evaluation is a pure function of (state, input) → (state, edges): no clock, no I/O, no randomness. The Engine keeps
// the programs of every active profile version and the state of every key, feeds the function in the order of the log
// and hands over what changed as pages. Live detection, replay preview, rule tests and the canvas all stand on the
// same function, so they cannot disagree. What is done about an edge is not decided here.
//
// DESIGN.md has the reasoning.
package rules

import (
	"fmt"
	"time"
)

// Kind is the type of a rule.
type Kind string

// The eight kinds.
const (
	Threshold    Kind = "threshold"
	DeltaRate    Kind = "deltaRate"
	Repeating    Kind = "repeating"
	Duration     Kind = "duration"
	Absence      Kind = "absence"
	Aggregate    Kind = "aggregate"
	Correlation  Kind = "correlation"
	Connectivity Kind = "connectivity"
)

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

// Window modes and aggregates of an aggregate rule.
const (
	Tumbling    = "tumbling"
	Sliding     = "sliding"
	Session     = "session"
	CountWindow = "count"

	AggCount = "count"
	AggSum   = "sum"
	AggAvg   = "avg"
	AggMin   = "min"
	AggMax   = "max"
)

// Severities, as they stand in a definition.
const (
	Critical      = "critical"
	Major         = "major"
	Minor         = "minor"
	WarningLevel  = "warning"
	Indeterminate = "indeterminate"
)

// DefaultMemberCap is the most members that a correlation counts when its definition does not say.
const DefaultMemberCap = 1024

// The values that an enumerated field may have, in the order in which an error lists them.
var (
	kinds       = [...]Kind{Threshold, DeltaRate, Repeating, Duration, Absence, Aggregate, Correlation, Connectivity}
	ops         = [...]Op{Greater, GreaterOrEqual, Less, LessOrEqual, Equal, NotEqual}
	severities  = [...]string{Critical, Major, Minor, WarningLevel, Indeterminate}
	windowModes = [...]string{Tumbling, Sliding, Session, CountWindow}
	aggregates  = [...]string{AggCount, AggSum, AggAvg, AggMin, AggMax}
)

// Definition is a decoded rule definition. A zero value or nil means that the field is absent; thresholds and
// lateness are pointers because there 0 says something.
type Definition struct {
	Name        string
	Description string
	Type        Kind
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
	AnchorType  string
	MemberCap   int32
	Lateness    *time.Duration
}

// Condition is what a sample must meet: a structured comparison, an expression, or nothing (every event meets it).
type Condition struct {
	Metric        string
	Op            Op
	Threshold     *float64
	ThresholdAttr string
	CEL           string
}

// Empty reports whether every event meets the condition.
func (c *Condition) Empty() bool { return !c.structured() && c.CEL == "" }

func (c *Condition) structured() bool {
	return c.Metric != "" || c.Op != "" || c.Threshold != nil || c.ThresholdAttr != ""
}

// Error says why a definition is refused. It is written for the rule's author: the field first, then the reason.
type Error struct {
	// Field is the path of the field, such as when, hold or actions[0].httpCall.url; "" for the rule as a whole.
	Field  string
	Reason string
}

func (e *Error) Error() string {
	if e.Field == "" {
		return e.Reason
	}
	return e.Field + ": " + e.Reason
}

// Top is the top-level field that the error concerns, "" for the rule as a whole.
func (e *Error) Top() string {
	for i := range len(e.Field) {
		if e.Field[i] == '.' || e.Field[i] == '[' {
			return e.Field[:i]
		}
	}
	return e.Field
}

func refuse(field, format string, args ...any) *Error {
	return &Error{Field: field, Reason: fmt.Sprintf(format, args...)}
}
