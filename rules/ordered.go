package rules

import (
	"time"

	"weir/model"
	"weir/rules/window"
)

// ordered judges the samples of a key in the order of their event times, equal times in the order of the log, each when
// the key's clock passes it. The condition is evaluated at arrival, so that a sample is judged by what held at its own
// place in the log; what is retained of it is what the condition said and its value.
type ordered struct {
	kind     inOrder
	when     *Predicate
	metric   string // whose value the samples have; "": that of the condition
	lateness model.Micros
	retains  bool // a full budget refuses samples
	matches  bool // only samples that satisfy the condition are of interest
}

// inOrder is what a kind does with a key's samples.
type inOrder interface {
	// closed reports whether an event time lies before what was judged.
	closed(l *window.Line, at model.Micros) bool
	// late takes a sample that came late, or whose time is closed. It reports whether the sample counts.
	late(st *State, l *window.Line, s window.Sample, frontier model.Micros) bool
	// advance judges what is due.
	advance(st *State, l *window.Line, t moment, out *Verdict)
	// wake returns the event time for which the key waits, if it does. quiet: only when the device is silent for longer
	// than its gaps.
	wake(st *State, l *window.Line) (at model.Micros, waits, quiet bool)
}

// moment is the time of a key while it is judged.
type moment struct {
	frontier model.Micros // newest − lateness
	clock    model.Micros // frontier + listening time since the last arrival
	silent   bool         // the device is silent for longer than its last gaps
}

// newOrdered returns the judge of a kind. The definition has its lateness.
func newOrdered(kind inOrder, d *Definition, when *Predicate) *ordered {
	return &ordered{kind: kind, when: when, metric: d.Metric, lateness: d.late(), retains: true}
}

// late is the lateness of a definition that is compiled, which has one.
func (d *Definition) late() model.Micros {
	if d.Lateness == nil {
		return 0
	}
	return micros(*d.Lateness)
}

// micros is a period in event time, rounded up.
func micros(d time.Duration) model.Micros {
	return model.Micros((d + time.Microsecond - 1) / time.Microsecond)
}

// Judge implements Judge.
func (o *ordered) Judge(st *State, s *Sample, out *Verdict) {
	l, _ := st.Own.(*window.Line)
	if s.Kind < Timer {
		smp, ok := o.read(s, out)
		if !ok {
			return
		}
		if l == nil {
			l = window.New()
			st.Own = l
		}
		out.spare = l.Lend(out.spare)
		o.arrive(st, l, smp, s, out)
	}
	if l == nil {
		st.Due = 0
		return
	}
	quiet := l.Heard + s.Clock.Gap + s.Clock.Gap/4 // a device that sends at equal distances is not exact
	o.kind.advance(st, l, moment{l.Newest - o.lateness, l.Clock(s.Clock.Now, o.lateness), s.Clock.Now >= quiet}, out)
	var due Listening
	if at, waits, silent := o.kind.wake(st, l); waits {
		if due = l.Reaches(at, o.lateness); silent {
			due = max(due, quiet)
		}
	}
	st.wait(due, s.Kind == Timer)
	out.spare = l.TakeBack(out.spare)
}

// waitsFor implements stamps.
func (o *ordered) waitsFor(st *State) (at model.Micros, ok bool) {
	l, _ := st.Own.(*window.Line)
	if l == nil {
		return 0, false
	}
	at, ok, _ = o.kind.wake(st, l)
	return at, ok
}

// wait sets the due time. A timer that runs and would fire too early stays: it costs less to let it fire.
func (st *State) wait(due Listening, fired bool) {
	if fired || st.Due == 0 || due < st.Due {
		st.Due = due
	}
}

// read evaluates the condition over a sample.
func (o *ordered) read(s *Sample, out *Verdict) (window.Sample, bool) {
	m := o.when.Test(s)
	if m.Failed {
		out.Failed = true
		return window.Sample{}, false
	}
	return retain(s, m, o.metric), true
}

// retain returns what is retained of a sample.
func retain(s *Sample, m Match, metric string) window.Sample {
	var flags window.Flags
	v, has := m.Value, m.HasValue
	if metric != "" {
		v, has = s.Metric(metric)
	}
	for flag, on := range [...]bool{m.Holds, m.Stays, has} {
		if on {
			flags |= 1 << flag
		}
	}
	return window.NewSample(s.Occurred, flags, v)
}

func (o *ordered) arrive(st *State, l *window.Line, smp window.Sample, s *Sample, out *Verdict) {
	arrival := l.Arrive(smp.At(), s.Clock.Now, o.lateness)
	if arrival == window.SetBack {
		st.LastEdge = min(st.LastEdge, smp.At())
		out.SetBack = true
	}
	late := arrival == window.Late || o.kind.closed(l, smp.At())
	switch {
	case s.Full && o.retains:
		out.Refused = true
	case late && !o.kind.late(st, l, smp, l.Newest-o.lateness):
		out.skip()
	case late:
	case !o.matches || smp.Is(window.Holds):
		l.Hold(smp)
	}
}
