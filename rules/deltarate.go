package rules

import (
	"weir/model"
	"weir/rules/window"
)

// DeltaRate raises when the change of a metric between two samples, or its rate per second, satisfies op.
const DeltaRate Type = "deltaRate"

type deltaRateKind struct{ overLine }

func (deltaRateKind) Type() Type { return DeltaRate }

func (deltaRateKind) Uses(d *Definition) (Uses, *Error) {
	return Uses{Needs: []string{"metric", "op", "threshold"}, May: []string{"when", "rate", "clear"}, Value: true, Retains: true,
		Keys: ByDevice}, nil
}

func (deltaRateKind) Compile(d *Definition, when *Predicate) (Judge, *Error) {
	o := newOrdered(&deltaRate{limitOf(d), d.Rate}, d, when)
	o.retains = o.lateness > 0
	return o, nil
}

func (deltaRateKind) explain(d *Definition) Times {
	return Times{
		Judged:  d.inTurn() + ", against the one before it; the first one only begins the series",
		Late:    d.setAside() + "; so is one of the same event time as the one before",
		Missing: d.thenNothing() + ": the next sample is compared with the last one, however old that is",
		Keeps:   "the last sample of each device" + d.held(),
	}
}

// deltaRate keeps the last sample that satisfied the gate: its time is Mark, its value Value. A sample that does not
// satisfy the gate resolves and is no part of the series.
type deltaRate struct {
	limit     comparison
	perSecond bool
}

// shortest is the time below which a rate is not taken.
const shortest model.Micros = 1000

func (j *deltaRate) closed(l *window.Line, at model.Micros) bool { return at < l.Judged }

func (j *deltaRate) late(*State, *window.Line, window.Sample, model.Micros) bool { return false }

func (j *deltaRate) advance(st *State, l *window.Line, t moment, out *Verdict) {
	for s, ok := l.Pop(t.clock); ok; s, ok = l.Pop(t.clock) {
		l.Judged = s.At()
		j.judge(st, l, s, out)
	}
}

func (j *deltaRate) judge(st *State, l *window.Line, s window.Sample, out *Verdict) {
	if !s.Is(window.Holds) {
		st.Latch(false, Firing{At: s.At()}, out)
		return
	}
	if l.Mark == window.Never {
		l.Mark, l.Value = s.At(), s.Value
		return
	}
	dt, change := s.At()-l.Mark, bounded(s.Value-l.Value)
	if dt <= 0 || j.perSecond && dt < shortest {
		out.skip()
		return
	}
	if j.perSecond {
		change = bounded(change / (float64(dt) / 1e6))
	}
	l.Mark, l.Value = s.At(), s.Value
	j.limit.latch(st, s.At(), change, out)
}

func (j *deltaRate) wake(_ *State, l *window.Line) (model.Micros, bool, bool) { return firstWaiting(l) }

// firstWaiting is wake of a kind that waits for its held samples only.
func firstWaiting(l *window.Line) (at model.Micros, waits, quiet bool) {
	if w := l.Waiting(); len(w) > 0 {
		return w[0].At(), true, false
	}
	return 0, false, false
}

// overLine is embedded by kinds whose memory is a timeline.
type overLine struct{}

func (overLine) Check(*Definition) *Error { return nil }

// lines says that the memory is a line and nothing else, which may lie in segments.
func (overLine) lines() {}

func (overLine) Decode(b []byte) (Memory, error) {
	l, err := window.Decode(b)
	if err != nil {
		return nil, err
	}
	return l, nil
}
