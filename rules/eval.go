package rules

import (
	"math"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"weir/model"
)

// Listening is listening time: nanoseconds in which a device could be heard. It stands still while Weir is off, a link
// is down or the tenant is refused, and it never decreases.
type Listening int64

// Position is a position in the log.
type Position struct {
	Epoch     uint32
	Offset    model.Offset
	Index     uint32      // of the sample's first reading in the record
	Received  model.Nanos // receive time of the record
	Listening Listening   // at the record, for the device (or the tenant) concerned
}

// InputKind is what a sample carries.
type InputKind uint8

// The kinds of samples. A message is one input per entry; an alert or an empty event is one Bare input: a sign of life
// that carries nothing. A Transition of presence reaches rules with Uses.Presence only and is no sign of life. A Timer
// comes from the engine: the key's due time has come.
const (
	Measurement InputKind = iota
	Location
	Bare
	Transition
	Timer
)

// Device is the device of a sample, resolved as of the record.
type Device struct {
	ID    int64 // row id
	Type  int64 // row id of its device type
	Token string
}

// Input is one sample: the readings of one entry, resolved as of its record.
type Input struct {
	Position
	Profile  ProfileKey
	Device   Device
	Kind     InputKind
	Occurred model.Micros
	// Readings of a Measurement, each metric once. Values that are not finite count as absent.
	Readings []model.Reading
	Anchors  []model.Anchor      // of the device, each once
	Presence model.PresenceState // of a Transition
}

// Clock is what is known of a device's own time when a sample is judged.
type Clock struct {
	Newest  model.Micros // largest event time of the device, this sample included
	Arrived Listening    // listening time of the last arrival of any of its events
	Now     Listening
}

// Time is the device's own time: its newest event time plus the listening time since its last arrival.
func (c Clock) Time() model.Micros { return c.Newest + model.Micros(max(0, c.Now-c.Arrived)/1000) }

// State is what a rule remembers of a key. The zero value is the state of a key that was never judged.
type State struct {
	Raised   bool
	Edged    bool         // there was an edge
	LastEdge model.Micros // stamp of the last edge; while Raised, of the raise
	// Due is the listening time at which the key is to be judged again, 0 when it waits for nothing. A later arrival
	// of the device may move the time for which the key waits; the judge of a Timer compares with the clock again.
	Due Listening
	Own Memory // what the kind remembers besides, nil for nothing
}

// empty reports whether there is nothing to remember.
func (st *State) empty() bool { return !st.Edged && st.Due == 0 && st.Own == nil }

// Latch turns the key to raised or to resolved and adds the edge. It does nothing when the key stands so already. An
// edge older than the key's last edge is not emitted and leaves the latch as it is: a latch that turned without an edge
// would make the next edge wrong.
func (st *State) Latch(raise bool, f Firing, out *Verdict) {
	switch {
	case raise == st.Raised:
		return
	case st.Edged && f.At < st.LastEdge:
		out.Late = true
		return
	case raise:
		f.Signal = model.Raised
	default:
		f = Firing{Signal: model.Resolved, At: f.At}
	}
	st.Raised, st.Edged, st.LastEdge = raise, true, f.At
	out.Fired = append(out.Fired, f)
}

// Verdict is the result of one evaluation, besides the state.
type Verdict struct {
	Fired []Firing // the edges, in their order
	Note
}

// Firing is an edge before it has a position.
type Firing struct {
	Signal   model.EdgeSignal
	At       model.Micros
	Value    float64
	HasValue bool
}

// Note is what an evaluation reports besides its edges.
type Note struct {
	InScope bool // the rule looked at the sample; set by the program
	Failed  bool // the expression failed; the sample counts for nothing
	Late    bool // the sample was set aside, or an edge was not emitted, for its age
}

// Eval judges one sample. It is a function of its arguments only: the same state, sample and clock give the same
// state, edges and note, whenever and wherever it is called. Edges are appended to fired. The memory of st may be
// changed in place, so the caller must not use st again.
func (p *Program) Eval(st State, in *Input, clock Clock, fired []Firing) (State, []Firing, Note) {
	s, out := Sample{Clock: clock}, Verdict{Fired: fired}
	s.bind(in)
	p.eval(&st, &s, &out)
	return st, out.Fired, out.Note
}

// eval is Eval over a bound sample.
func (p *Program) eval(st *State, s *Sample, out *Verdict) {
	if s.at == nil && !p.looksAt(s) {
		return
	}
	out.InScope = s.Kind != Timer
	p.judge.Judge(st, s, out)
}

// looksAt reports whether the sample is in the rule's scope.
func (p *Program) looksAt(s *Sample) bool {
	switch {
	case s.Kind == Timer:
		return true
	case s.Kind == Transition || p.scope == scopePresence:
		return s.Kind == Transition && p.scope == scopePresence
	case p.scope == scopeAll:
		return true
	case p.scope == scopePosition:
		return s.Kind == Location
	}
	for _, name := range p.carries {
		if s.metrics.reading(name) != nil {
			return true
		}
	}
	return false
}

// Predicate is the compiled condition of a rule.
type Predicate struct {
	leaf    cel.Program // nil for a comparison and for an empty condition
	limited cel.Program // leaf, stopped at its cost
	compare comparison
	direct  bool // the metric that is compared is the one by which the index finds the rule
}

// Match is what a predicate says of a sample.
type Match struct {
	Holds    bool
	Failed   bool    // the expression failed: the sample counts for nothing
	Value    float64 // of the metric that is compared
	HasValue bool
}

// Test tests a sample in the rule's scope. Every sample satisfies an empty condition.
func (p *Predicate) Test(s *Sample) Match {
	if p.leaf != nil {
		return p.testLeaf(s)
	}
	r := s.at
	if r == nil || !p.direct {
		if r = s.metrics.reading(p.compare.metric); r == nil {
			return Match{Holds: p.compare.metric == ""}
		}
	}
	return Match{Holds: p.compare.holds(r.Value), Value: r.Value, HasValue: true}
}

func (p *Predicate) testLeaf(s *Sample) Match {
	prg := p.leaf
	if !s.assumed() {
		prg = p.limited
	}
	out, _, err := prg.Eval(s)
	holds, isBool := out.(types.Bool)
	return Match{Holds: bool(holds), Failed: err != nil || !isBool}
}

// comparison is a structured condition, evaluated natively.
type comparison struct {
	metric    string
	op        Op
	threshold float64
}

func newComparison(c *Condition) comparison {
	if c.Threshold == nil {
		return comparison{metric: c.Metric, op: c.Op}
	}
	return comparison{c.Metric, c.Op, *c.Threshold}
}

func (c *comparison) holds(v float64) bool {
	switch c.op {
	case Greater:
		return v > c.threshold
	case GreaterOrEqual:
		return v >= c.threshold
	case Less:
		return v < c.threshold
	case LessOrEqual:
		return v <= c.threshold
	case Equal:
		return v == c.threshold
	default:
		return v != c.threshold
	}
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
