package rules

import (
	"fmt"

	"weir/model"
	"weir/rules/window"
)

// Repeating raises when count samples within the trailing window satisfy the condition.
const Repeating Type = "repeating"

type repeatingKind struct{ overLine }

func (repeatingKind) Type() Type { return Repeating }

func (repeatingKind) Uses(d *Definition) (Uses, *Error) {
	return Uses{Needs: []string{"count", "window"}, May: []string{"when"}, Value: d.When.Metric != "", Retains: true,
		Keys: ByDevice}, nil
}

func (repeatingKind) Compile(d *Definition, when *Predicate) (Judge, *Error) {
	return newOrdered(&repeating{trailing(micros(d.Window)), int(d.Count)}, d, when), nil
}

func (repeatingKind) explain(d *Definition) Times {
	return Times{
		Judged: d.inTurn() + ", with those less than " + FormatDuration(d.Window) + " before it",
		Late: "a match that lies in the window that was judged last counts from the next sample on; otherwise " +
			d.setAside(),
		Missing: d.thenNothing() + ": only a sample moves the window",
		Keeps:   fmt.Sprintf("the newest %d matches of each device", d.Count) + d.held(),
	}
}

// repeating keeps the newest count matches: more cannot decide anything.
type repeating struct {
	trailing
	count int
}

func (j *repeating) late(_ *State, l *window.Line, s window.Sample, _ model.Micros) bool {
	if !j.keepLate(l, s.Bare()) {
		return false
	}
	j.limit(l)
	return true
}

func (j *repeating) limit(l *window.Line) { l.Drop(max(0, len(l.Kept())-j.count)) }

func (j *repeating) advance(st *State, l *window.Line, t moment, out *Verdict) {
	for s, ok := l.Pop(t.clock); ok; s, ok = l.Pop(t.clock) {
		if j.move(l, s.At()); s.Is(window.Holds) {
			l.Keep(s.Bare())
			j.limit(l)
		}
		st.Latch(len(l.Kept()) >= j.count, Firing{At: s.At(), Value: s.Value, HasValue: s.Is(window.Valued)}, out)
	}
	l.Evict(t.frontier - model.Micros(j.trailing))
}

// trailing is the length of a window that ends at the sample that is judged. A sample as old as the length is outside.
type trailing model.Micros

func (w trailing) closed(l *window.Line, at model.Micros) bool { return at < l.Judged }

// keepLate keeps a late match that lies in the last window; it counts from the next sample on.
func (w trailing) keepLate(l *window.Line, s window.Sample) bool {
	if !s.Is(window.Holds) || l.Judged != window.Never && s.At() <= l.Judged-model.Micros(w) {
		return false
	}
	l.Keep(s)
	return true
}

// move ends the window at a sample.
func (w trailing) move(l *window.Line, at model.Micros) {
	l.Judged = at
	l.Evict(at - model.Micros(w))
}

func (w trailing) wake(_ *State, l *window.Line) (model.Micros, bool, bool) { return firstWaiting(l) }
