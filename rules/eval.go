package rules

import (
	"math"

	"cel.dev/cel-go/common/types"

	"weir/model"
)

// Listening is listening time: nanoseconds in which a device could be heard. It stands still while Weir is off, a link
// is down or the tenant is refused, and only ever grows.
type Listening int64

// Place is a place in the log.
type Position struct {
	Epoch     uint32
	Offset    model.Offset
	Index     uint32      // of the sample's first reading in the record
	Received  model.Nanos // receive time of the record
	Listening Listening   // at the record, for the device (or the tenant) concerned
}

// InputKind tells what a sample is.
type InputKind uint8

// The kinds of samples. A message is one input per entry; an alert or an empty event is one Bare input: a sign of life
// that carries nothing. A Transition of presence reaches connectivity rules only and is no sign of life.
const (
	Measurement InputKind = iota
	Location
	Bare
	Transition
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
}

// Clock is what is known of a device's own time when a sample is judged.
type Clock struct {
	Newest  model.Micros // largest event time of the device, this sample included
	Arrived Listening    // listening time of the last arrival of any of its events
	Now     Listening
}

// State is what a program remembers of a key. The zero value is the state of a key that never fired.
type State struct {
	Raised   bool
	Edged    bool         // there was an edge
	LastEdge model.Micros // stamp of the last edge; while Raised, of the raise
}

// Firing is an edge before it has a place.
type Firing struct {
	Signal   model.EdgeSignal
	At       model.Micros
	Value    float64
	HasValue bool
}

// Note is what an evaluation has to say beside its edges.
type Note struct {
	InScope bool // the rule looked at the sample
	Failed  bool // the expression failed; the sample counts for nothing
	Late    bool // an edge was not emitted because it is older than the key's last one
	// Due is the listening time at which the state wants to be asked again, 0 when it waits for nothing. Kinds that
	// judge on arrival never wait.
	Due Listening
}

// Eval judges one sample. It is a function of its arguments only: the same state, sample and clock give the same
// state, edges and note, whenever and wherever it is called. Edges are appended to fired.
func (p *Program) Eval(st State, in *Input, clock Clock, fired []Firing) (State, []Firing, Note) {
	var s sample
	s.bind(in)
	return p.eval(st, &s, nil, clock, fired)
}

// eval is Eval over a bound sample. at, when the caller knows it already, is the reading of the rule's metric. Threshold
// judges on arrival, so the clock tells it nothing.
func (p *Program) eval(st State, s *sample, at *model.Reading, _ Clock, fired []Firing) (State, []Firing, Note) {
	in := s.in
	note := Note{InScope: p.looksAt(s, at)}
	if !note.InScope {
		return st, fired, note
	}
	match, f, ok := p.judge(s, at)
	switch {
	case !ok:
		note.Failed = true
		return st, fired, note
	case match == st.Raised:
		return st, fired, note
	case st.Edged && in.Occurred < st.LastEdge:
		note.Late = true
		return st, fired, note
	case match:
		f.Signal = model.Raised
	default:
		f = Firing{Signal: model.Resolved}
	}
	f.At = in.Occurred
	return State{Raised: match, Edged: true, LastEdge: in.Occurred}, append(fired, f), note
}

// looksAt reports whether the sample is in the rule's scope.
func (p *Program) looksAt(s *sample, at *model.Reading) bool {
	switch {
	case s.in.Kind == Transition:
		return false
	case p.scope == scopeAll, at != nil:
		return true
	case p.scope == scopePosition:
		return s.in.Kind == Location
	}
	for _, name := range p.carries {
		if s.metrics.reading(name) != nil {
			return true
		}
	}
	return false
}

// judge evaluates the condition. ok is false when the expression failed.
func (p *Program) judge(s *sample, at *model.Reading) (match bool, f Firing, ok bool) {
	if p.leaf != nil {
		prg := p.leaf
		if !s.assumed() {
			prg = p.limited
		}
		out, _, err := prg.Eval(s)
		b, isBool := out.(types.Bool)
		return bool(b), f, err == nil && isBool
	}
	if at == nil {
		at = s.metrics.reading(p.compare.metric)
	}
	return p.compare.holds(at.Value), Firing{Value: at.Value, HasValue: true}, true
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
