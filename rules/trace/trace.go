// Package trace names what the nodes of a canvas do at an edge of its rule.
package trace

// Step is what one node of a graph did at an edge.
type Step struct {
	Node        string
	Kind        string
	Disposition string
	Detail      string // "" when it explains itself
}

// The kinds of nodes in a trace.
const (
	KindSource    = "source"
	KindCondition = "condition"
	KindBranch    = "branch"
	KindAction    = "action"
)

// What nodes did. A condition is raised or resolved; a branch has passed, was blocked or skipped; an action has raised or cleared an alarm,
// was sent, is inert at an edge that does not concern it, or was skipped.
const (
	Delivered = "delivered"
	Raised    = "raised"
	Resolved  = "resolved"
	Passed    = "passed"
	Blocked   = "blocked"
	Skipped   = "skipped"
	Sent      = "sent"
	Cleared   = "cleared"
	Inert     = "inert"
)

// ByTimer is the detail of a source at an edge that no sample caused, but that time has passed.
const ByTimer = "timer"
