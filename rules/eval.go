package rules

import (
	"cmp"
	"math"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"weir/model"
	"weir/rules/celmap"
	"weir/rules/facts"
	"weir/rules/window"
)

// Listening is listening time: nanoseconds in which a device could be heard. It stands still while Weir is off, a link
// is down or the tenant is refused, and it never decreases.
type Listening = window.Listening

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
// comes from the engine: the key's due time has come. Enrolled and Left come from the engine as well: the device is in the
// roster, for rules with Uses.Enrolls; and it is no longer at Sample.Anchor, for keys of an anchor.
const (
	Measurement InputKind = iota
	Location
	Bare
	Transition
	Timer
	Enrolled
	Left
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
	Link     string // through which it came; one that never was up counts as the transports together
	AtSite   bool   // the site of an edge has judged it by the rules with placement EDGE: they are not judged here
	Kind     InputKind
	Occurred model.Micros
	// Readings of a Measurement, each metric once. Values that are not finite count as absent.
	Readings []model.Reading
	Where    *model.Location     // of a Location
	Anchors  []model.Anchor      // of the device, each once
	Facts    Facts               // what the registry knew at the record; nil: nothing
	Presence model.PresenceState // of a Transition
	Reason   string              // of a Transition
}

// Facts are what the registry knew at the place of a record.
type Facts = facts.Facts

func (in *Input) facts() Facts {
	if in.Facts == nil {
		return facts.None{}
	}
	return in.Facts
}

// measured are the readings of a measurement, none of anything else.
func (in *Input) measured() []model.Reading {
	if in.Kind != Measurement {
		return nil
	}
	return in.Readings
}

// Sample is an input as judges and expressions see it. The engine binds it to one input at a time and uses it again for
// the next, so that structured rules allocate nothing; what an expression reads is boxed once per input.
type Sample struct {
	*Input
	Clock  Clock  // of the device; for a Timer of a key without a device, of the key's rule
	Full   bool   // the budget of samples is used up: none may be retained
	Anchor string // token of the key's anchor, "" for a key without one

	metrics  celmap.Map
	at       *model.Reading // reading for which the index found the rule, nil for none
	device   ref.Val
	occurred ref.Val
	attr     ref.Val
	geo      facts.Geo

	anchorType string // of Anchor
	lacking    bool   // the device does not have the attribute that the condition compares with
}

var _ cel.Activation = (*Sample)(nil)

func (s *Sample) bind(in *Input) {
	s.Input, s.Anchor, s.anchorType, s.at, s.device, s.occurred, s.attr = in, "", "", nil, nil, nil, nil
	s.lacking = false
	s.metrics.Bind(in.measured())
}

// Metric returns the finite value of a metric, false when the sample does not carry one.
func (s *Sample) Metric(name string) (float64, bool) {
	if r := s.metrics.Reading(name); r != nil {
		return r.Value, true
	}
	return 0, false
}

// assumed reports whether the sample is within the sizes that the static cost of an expression assumes. Names of
// metrics and tokens of devices cannot be longer: ingest refuses longer ones.
func (s *Sample) assumed() bool { return len(s.metrics.Readings) <= assumedEntries }

// ResolveName implements cel.Activation.
func (s *Sample) ResolveName(name string) (any, bool) {
	switch name {
	case varMetrics:
		return &s.metrics, true
	case varDevice:
		if s.device == nil {
			s.device = types.String(s.Input.Device.Token)
		}
		return s.device, true
	case varOccurred:
		if s.occurred == nil {
			s.occurred = types.Timestamp{Time: s.Occurred.Time()}
		}
		return s.occurred, true
	case varAttr:
		if s.attr == nil {
			s.attr = facts.Attributes(s.facts(), s.Input.Device.ID)
		}
		return s.attr, true
	case varAnchors:
		return facts.Anchors(s.Anchors, model.Anchor{Type: s.anchorType, Token: s.Anchor}), true
	case varGeo:
		s.geo = facts.Geo{Facts: s.facts(), Tenant: s.Profile.Tenant, Has: s.Kind == Location && s.Where != nil}
		if s.geo.Has {
			s.geo.Position = *s.Where
		}
		return &s.geo, true
	}
	return nil, false
}

// Parent implements cel.Activation.
func (s *Sample) Parent() cel.Activation { return nil }

// Clock is what is known of a device's own time when a sample is judged.
type Clock struct {
	Newest  model.Micros // largest event time of the device, this sample included
	Arrived Listening    // listening time of the last arrival of any of its events
	Now     Listening
	Gap     Listening // longest of the last gaps between arrivals, for rules with Uses.Gaps
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
		out.skip()
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
	skipped int             // samples set aside and edges not emitted; Late says that it is not 0
	spare   []window.Sample // memory for the line of a key that retains nothing
}

func (v *Verdict) skip() {
	v.Late = true
	v.skipped++
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
	Refused bool // the sample was not retained: the budget of samples is used up
	SetBack bool // the clock of the device was set back; the key began again
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
	out.InScope = s.Kind < Timer
	p.judge.Judge(st, s, out)
}

// looksAt reports whether the sample is in the rule's scope.
func (p *Program) looksAt(s *Sample) bool {
	switch {
	case s.Kind >= Timer:
		return true
	case s.Kind == Transition || p.scope == scopePresence:
		return p.scope == scopePresence && (s.Kind == Transition || p.uses.Wakes)
	case p.scope == scopeAll:
		return true
	case p.scope == scopePosition:
		return s.Kind == Location
	}
	for _, name := range p.carries {
		if s.metrics.Reading(name) != nil {
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

// Match is what a predicate says of a sample. It has few fields, and those few of their own, so that it is passed in registers: one
// with five lies in memory, which made a threshold three times slower.
type Match struct {
	Truth
	Value    float64 // of the metric that is compared
	HasValue bool
}

// Truth is whether the condition is true.
type Truth struct {
	Holds  bool
	Stays  bool // the sample does not release what is raised: Holds, or with clear what that says
	Failed bool // the expression failed: the sample counts for nothing
}

// Test tests a sample in the rule's scope. Every sample satisfies an empty condition.
func (p *Predicate) Test(s *Sample) Match {
	if p.leaf != nil {
		return p.testLeaf(s)
	}
	r := s.at
	if r == nil || !p.direct {
		if r = s.metrics.Reading(p.compare.metric); r == nil {
			all := p.compare.metric == ""
			return Match{Truth: Truth{Holds: all, Stays: all}}
		}
	}
	if p.compare.attr != "" {
		return p.compare.testAttribute(s, r.Value)
	}
	holds := p.compare.holds(r.Value) // and then it stays, too: clear is never the stricter one
	return Match{Truth{Holds: holds, Stays: holds || p.compare.clear != p.compare.threshold && p.compare.stays(r.Value)}, r.Value, true}
}

// testAttribute compares with an attribute of the device. Nothing holds for a device that does not have it.
func (c *comparison) testAttribute(s *Sample, v float64) Match {
	limit, has := s.facts().Number(s.Input.Device.ID, c.attr)
	s.lacking = !has
	holds := has && c.op.compare(v, limit)
	return Match{Truth{Holds: holds, Stays: holds}, v, true}
}

func (p *Predicate) testLeaf(s *Sample) Match {
	prg := p.leaf
	if !s.assumed() {
		prg = p.limited
	}
	out, _, err := prg.Eval(s)
	holds, isBool := out.(types.Bool)
	return Match{Truth: Truth{bool(holds), bool(holds), err != nil || !isBool}}
}

// comparison is a structured condition, evaluated natively.
type comparison struct {
	metric    string
	op        Op
	threshold float64
	clear     float64 // equal to threshold when there is none
	attr      string  // key of the attribute in the place of threshold, "" for none
}

func newComparison(c *Condition) comparison {
	if c.Threshold == nil {
		return comparison{metric: c.Metric, op: c.Op, attr: c.ThresholdAttr}
	}
	return comparison{metric: c.Metric, op: c.Op, threshold: *c.Threshold, clear: *cmp.Or(c.Clear, c.Threshold)}
}

// limitOf is the comparison of a kind that has op and threshold of its own.
func limitOf(d *Definition) comparison {
	return newComparison(&Condition{Op: d.Op, Threshold: d.Threshold, Clear: d.Clear})
}

func (c *comparison) holds(v float64) bool { return c.op.compare(v, c.threshold) }

// stays reports whether a raised key stays raised at a value.
func (c *comparison) stays(v float64) bool { return c.op.compare(v, c.clear) }

// latch turns the key to what a value says of it.
func (c *comparison) latch(st *State, at model.Micros, v float64, out *Verdict) {
	raise := c.holds(v) || st.Raised && c.stays(v)
	st.Latch(raise, Firing{At: at, Value: v, HasValue: true}, out)
}

func (op Op) compare(v, threshold float64) bool {
	switch op {
	case Greater:
		return v > threshold
	case GreaterOrEqual:
		return v >= threshold
	case Less:
		return v < threshold
	case LessOrEqual:
		return v <= threshold
	case Equal:
		return v == threshold
	default:
		return v != threshold
	}
}

// bounded is a result of arithmetic as a finite value.
func bounded(v float64) float64 { return min(max(v, -math.MaxFloat64), math.MaxFloat64) }
