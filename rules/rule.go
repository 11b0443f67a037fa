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
	"fmt"
	"time"
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
	AnchorType  string
	MemberCap   int32
	Lateness    *time.Duration
}

// Condition is what a sample must satisfy: a structured comparison, an expression, or nothing (every event satisfies it).
type Condition struct {
	Metric        string
	Op            Op
	Threshold     *float64
	ThresholdAttr string
	CEL           string
}

// Empty reports whether every event satisfies the condition.
func (c *Condition) Empty() bool { return !c.structured() && c.CEL == "" }

func (c *Condition) structured() bool {
	return c.Metric != "" || c.Op != "" || c.Threshold != nil || c.ThresholdAttr != ""
}

// Error is the reason for which a definition is refused, written for the rule's author: the field first, then the reason.
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
