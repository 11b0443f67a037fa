package rules

// Aggregate raises when an aggregate over a window of samples satisfies op.
const Aggregate Type = "aggregate"

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

var (
	windowModes = [...]string{Tumbling, Sliding, Session, CountWindow}
	aggregates  = [...]string{AggCount, AggSum, AggAvg, AggMin, AggMax}
)

type aggregateKind struct{ notRun }

func (aggregateKind) Type() Type { return Aggregate }

func (aggregateKind) Uses(d *Definition) (Uses, *Error) {
	switch {
	case d.WindowMode == "":
		return Uses{}, refuse("windowMode", "required by type aggregate")
	case d.Agg == "":
		return Uses{}, refuse("agg", "required by type aggregate")
	case d.WindowMode == CountWindow && d.Agg == AggCount:
		return Uses{}, refuse("agg", "count cannot be aggregated over a window that is a count itself")
	}
	u := Uses{Needs: []string{"windowMode", "agg", "op", "threshold"}, May: []string{"when"},
		As: "type aggregate with windowMode " + d.WindowMode + " and agg " + d.Agg, Value: true, Keys: ByDevice}
	if d.Agg != AggCount {
		u.Needs = append(u.Needs, "metric")
	}
	switch d.WindowMode {
	case Session:
		u.Needs = append(u.Needs, "gap")
	case CountWindow:
		u.Needs = append(u.Needs, "count")
	default:
		u.Needs = append(u.Needs, "window")
	}
	return u, nil
}
