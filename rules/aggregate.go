package rules

import (
	"fmt"
	"math"

	"weir/model"
	"weir/rules/window"
)

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

type aggregateKind struct{ overLine }

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
	u := Uses{Needs: []string{"windowMode", "agg", "op", "threshold"}, May: []string{"when", "clear"},
		As: "type aggregate with windowMode " + d.WindowMode + " and agg " + d.Agg, Value: true, Keys: ByDevice}
	if d.Agg != AggCount {
		u.Needs = append(u.Needs, "metric")
	}
	switch d.WindowMode {
	case Session:
		u.Needs = append(u.Needs, "gap")
		u.Gaps, u.Retains = true, true
	case CountWindow:
		u.Needs = append(u.Needs, "count")
		u.AtArrival = true
	case Sliding:
		u.Needs = append(u.Needs, "window")
		u.Retains = true
	default:
		u.Needs = append(u.Needs, "window")
		u.Gaps, u.Retains = true, true
	}
	return u, nil
}

func (aggregateKind) Compile(d *Definition, when *Predicate) (Judge, *Error) {
	agg := aggregation{d.Agg, limitOf(d)}
	switch d.WindowMode {
	case CountWindow:
		return &countWindow{agg, when, d.Metric, d.Count}, nil
	case Sliding:
		return newOrdered(&sliding{agg, trailing(micros(d.Window))}, d, when), nil
	case Session:
		return newPanes(&session{agg, micros(d.Gap)}, d, when), nil
	default:
		return newPanes(&tumbling{agg, micros(d.Window)}, d, when), nil
	}
}

func (aggregateKind) explain(d *Definition) Times {
	window := FormatDuration(d.Window)
	silence := "the last window ends by silence, once the device is silent for longer than the longest of its last 8 gaps and a quarter of it"
	switch d.WindowMode {
	case CountWindow:
		return Times{
			Judged:  fmt.Sprintf("each match at its arrival; every %d of them are a window, whatever their event times", d.Count),
			Late:    "it counts in the order of arrival; an edge that would be older than the last one is not emitted and counts as late",
			Missing: "it changes nothing: a window that is not full waits",
			Keeps:   "one sum of each device",
		}
	case Sliding:
		return Times{
			Judged:  d.inTurn() + ", over the matches less than " + window + " before it; only a match raises",
			Late:    "a match that lies in the window that was judged last counts from the next sample on; otherwise " + d.setAside(),
			Missing: d.thenNothing() + ": only a sample moves the window",
			Keeps:   "every match of the last " + window + " of each device" + d.held(),
		}
	case Session:
		return Times{
			Judged:  "a session when it is over: " + FormatDuration(d.Gap) + " after its last match, once the newest event time, less " + FormatDuration(d.lateness()) + ", has reached that",
			Late:    "a match of the session that is open counts; one of a session that was judged is set aside and counted",
			Missing: silence,
			Keeps:   "one sum of each device" + d.held(),
		}
	}
	return Times{
		Judged: "a window when it is over: windows of " + window + " begin at whole multiples of it since 1970 (UTC), and are over once the newest event time, less " +
			FormatDuration(d.lateness()) + ", has reached their end; that is the time of the edge",
		Late:    "a match of a window that is open counts; one of a window that was judged is set aside and counted",
		Missing: silence + "; an empty window after one that raised resolves",
		Keeps:   "one sum of each device" + d.held(),
	}
}

// aggregation is an aggregate and its limit. What a window adds up to lies in the line: N samples, and Value.
type aggregation struct {
	agg   string
	limit comparison
}

func (a *aggregation) add(l *window.Line, v float64) {
	l.N++
	switch {
	case l.N == 1 && a.agg != AggCount:
		l.Value = v
	case a.agg == AggMin:
		l.Value = min(l.Value, v)
	case a.agg == AggMax:
		l.Value = max(l.Value, v)
	case a.agg != AggCount:
		l.Value = bounded(l.Value + v)
	}
}

// take returns what the window adds up to, and empties it.
func (a *aggregation) take(l *window.Line) float64 {
	v := l.Value
	switch a.agg {
	case AggCount:
		v = float64(l.N)
	case AggAvg:
		v /= float64(l.N)
	}
	l.N, l.Value = 0, 0
	return v
}

// over returns the aggregate of samples, of which there is one at least. It is a function of them and of their order alone, whatever
// was evaluated before: no error adds up, and a replay comes to the same value.
func (a *aggregation) over(kept []window.Sample) float64 {
	switch a.agg {
	case AggCount:
		return float64(len(kept))
	case AggMin, AggMax:
		v := kept[0].Value
		for i := range kept {
			if w := kept[i].Value; a.agg == AggMin && w < v || a.agg == AggMax && w > v {
				v = w
			}
		}
		return v
	case AggAvg:
		return sum(kept) / float64(len(kept))
	}
	return sum(kept)
}

// sum adds up the values of samples, those of every fourth one for themselves: an addition need not wait for the one before.
func sum(kept []window.Sample) float64 {
	var lanes [4]float64
	rest := kept
	for ; len(rest) >= 4; rest = rest[4:] {
		lanes[0] += rest[0].Value
		lanes[1] += rest[1].Value
		lanes[2] += rest[2].Value
		lanes[3] += rest[3].Value
	}
	for i := range rest {
		lanes[i] += rest[i].Value
	}
	v := (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
	if !math.IsInf(v, 0) && !math.IsNaN(v) {
		return v
	}
	v = 0 // beyond what a number can be: each step is bounded, as in the other windows
	for i := range kept {
		v = bounded(v + kept[i].Value)
	}
	return v
}

// countWindow evaluates each full set of count matches in the order of the log. It judges at arrival.
type countWindow struct {
	aggregation
	when   *Predicate
	metric string
	count  int32
}

// Judge implements Judge.
func (j *countWindow) Judge(st *State, s *Sample, out *Verdict) {
	if s.Kind >= Timer {
		return
	}
	m := j.when.Test(s)
	if m.Failed || !m.Holds {
		out.Failed = m.Failed
		return
	}
	l, ok := st.Own.(*window.Line)
	if !ok {
		l = window.New()
		l.Newest = s.Occurred
	}
	v, _ := s.Metric(j.metric)
	l.Newest, l.Heard = max(l.Newest, s.Occurred), s.Clock.Now
	j.add(l, v)
	if st.Own = l; l.N < j.count {
		return
	}
	st.Own = nil
	j.limit.latch(st, s.Occurred, j.take(l), out)
}

// sliding evaluates the trailing window at each sample.
type sliding struct {
	aggregation
	trailing
}

func (j *sliding) late(_ *State, l *window.Line, s window.Sample, _ model.Micros) bool {
	return j.keepLate(l, j.needed(s))
}

// needed is what the window needs of a sample.
func (j *sliding) needed(s window.Sample) window.Sample {
	if j.agg == AggCount {
		return s.Bare()
	}
	return s
}

func (j *sliding) advance(st *State, l *window.Line, t moment, out *Verdict) {
	for s, ok := l.Pop(t.clock); ok; s, ok = l.Pop(t.clock) {
		if j.move(l, s.At()); s.Is(window.Holds) {
			l.Keep(j.needed(s))
		}
		j.evaluate(st, l, s, out)
	}
	l.Evict(t.frontier - model.Micros(j.trailing))
}

// evaluate latches at a sample. Only one in the window raises; an empty window resolves.
func (j *sliding) evaluate(st *State, l *window.Line, s window.Sample, out *Verdict) {
	switch kept := l.Kept(); {
	case len(kept) == 0:
		st.Latch(false, Firing{At: s.At()}, out)
	case st.Raised || s.Is(window.Holds):
		j.limit.latch(st, s.At(), j.over(kept), out)
	}
}

// newPanes returns the judge of a kind whose windows end by themselves. Only matches are held, until the key's newest
// passes them or their window ends: then they are added to the window, in the order of their times.
func newPanes(kind inOrder, d *Definition, when *Predicate) *ordered {
	o := newOrdered(kind, d, when)
	o.matches, o.retains = true, o.lateness > 0
	return o
}

// paned is a kind with such windows.
type paned interface {
	// end is the end of the earliest open window.
	end(st *State, l *window.Line) (at model.Micros, open bool)
	fold(l *window.Line, s window.Sample)
	close(st *State, l *window.Line, end model.Micros, out *Verdict)
}

// advancePanes closes the windows whose end newest − lateness has reached, and by silence those whose end the clock has.
func advancePanes(k paned, st *State, l *window.Line, t moment, out *Verdict) {
	closePanes(k, st, l, t.frontier, out)
	for s, ok := l.Pop(t.frontier); ok; s, ok = l.Pop(t.frontier) {
		k.fold(l, s)
	}
	if t.silent {
		closePanes(k, st, l, t.clock, out)
	}
}

func closePanes(k paned, st *State, l *window.Line, through model.Micros, out *Verdict) {
	for end, open := k.end(st, l); open && end <= through; end, open = k.end(st, l) {
		for s, ok := l.Pop(end - 1); ok; s, ok = l.Pop(end - 1) {
			k.fold(l, s)
		}
		k.close(st, l, end, out)
	}
}

// tumbling has panes that are aligned to the Unix epoch. Mark is the begin of the pane that N samples are in, or the end of
// the last one that was closed.
type tumbling struct {
	aggregation
	length model.Micros
}

// begin is the begin of the pane of an event time.
func (j *tumbling) begin(at model.Micros) model.Micros {
	into := at % j.length
	if into < 0 {
		into += j.length
	}
	return at - into
}

func (j *tumbling) closed(l *window.Line, at model.Micros) bool {
	return l.Mark != window.Never && at < l.Mark
}

func (j *tumbling) late(_ *State, l *window.Line, s window.Sample, frontier model.Micros) bool {
	if !s.Is(window.Holds) || j.closed(l, s.At()) || j.begin(s.At())+j.length <= frontier {
		return false
	}
	j.fold(l, s)
	return true
}

func (j *tumbling) fold(l *window.Line, s window.Sample) {
	if l.N == 0 {
		l.Mark = j.begin(s.At())
	}
	j.add(l, s.Value)
}

func (j *tumbling) advance(st *State, l *window.Line, t moment, out *Verdict) {
	advancePanes(j, st, l, t, out)
}

// end is that of the pane with samples, or of an empty one after a pane that raised.
func (j *tumbling) end(st *State, l *window.Line) (model.Micros, bool) {
	if l.N > 0 {
		return l.Mark + j.length, true
	}
	waiting, after := l.Waiting(), st.Raised && l.Mark != window.Never
	if len(waiting) == 0 {
		return l.Mark + j.length, after
	}
	end := j.begin(waiting[0].At()) + j.length
	if after {
		end = min(end, l.Mark+j.length)
	}
	return end, true
}

func (j *tumbling) close(st *State, l *window.Line, end model.Micros, out *Verdict) {
	if l.Mark = end; l.N == 0 {
		st.Latch(false, Firing{At: end}, out)
		return
	}
	j.limit.latch(st, end, j.take(l), out)
}

func (j *tumbling) wake(st *State, l *window.Line) (model.Micros, bool, bool) {
	end, open := j.end(st, l)
	return end, open, true
}

// session has windows that end gap after their last sample. Mark is the end of the last one that was closed, Judged the last
// sample of the open one; the first of it is kept.
type session struct {
	aggregation
	gap model.Micros
}

func (j *session) closed(l *window.Line, at model.Micros) bool {
	return l.Mark != window.Never && at < l.Mark
}

// late adds a sample to the open session, or opens one that is not over yet.
func (j *session) late(_ *State, l *window.Line, s window.Sample, frontier model.Micros) bool {
	switch {
	case !s.Is(window.Holds) || j.closed(l, s.At()):
		return false
	case l.N == 0 && s.At()+j.gap <= frontier:
		return false
	case l.N > 0 && l.Kept()[0].At()-s.At() >= j.gap:
		return false
	}
	j.fold(l, s)
	return true
}

func (j *session) fold(l *window.Line, s window.Sample) {
	switch {
	case l.N == 0:
		l.Judged = s.At()
		l.Keep(s.Bare())
	case s.At() < l.Kept()[0].At():
		l.Drop(1)
		l.Keep(s.Bare())
	}
	l.Judged = max(l.Judged, s.At())
	j.add(l, s.Value)
}

func (j *session) advance(st *State, l *window.Line, t moment, out *Verdict) {
	advancePanes(j, st, l, t, out)
}

// end is gap after the last of the samples that follow each other.
func (j *session) end(_ *State, l *window.Line) (model.Micros, bool) {
	last, waiting := l.Judged, l.Waiting()
	if l.N == 0 {
		if len(waiting) == 0 {
			return 0, false
		}
		last = waiting[0].At()
	}
	for _, s := range waiting {
		if s.At() >= last+j.gap {
			break
		}
		last = s.At()
	}
	return last + j.gap, true
}

func (j *session) close(st *State, l *window.Line, end model.Micros, out *Verdict) {
	l.Drop(len(l.Kept()))
	l.Mark = end
	j.limit.latch(st, end, j.take(l), out)
}

func (j *session) wake(st *State, l *window.Line) (model.Micros, bool, bool) {
	end, open := j.end(st, l)
	return end, open, true
}
