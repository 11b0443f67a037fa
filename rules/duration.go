package rules

import (
	"weir/model"
	"weir/rules/window"
)

// Duration raises when the condition was satisfied without a break for hold.
const Duration Type = "duration"

type durationKind struct{ overLine }

func (durationKind) Type() Type { return Duration }

func (durationKind) Uses(*Definition) (Uses, *Error) {
	return Uses{Needs: []string{"when", "hold"}, Decides: true, Clears: true, Retains: true, Keys: ByDevice}, nil
}

func (durationKind) Compile(d *Definition, when *Predicate) (Judge, *Error) {
	return newOrdered(&holding{micros(d.Hold), d.late()}, d, when), nil
}

func (durationKind) explain(d *Definition) Times {
	return Times{
		Judged: d.inTurn() + "; the raised edge comes with the clock, " + FormatDuration(d.Hold) + " after the begin, with a sample or without",
		Late: "one that does not satisfy the condition moves a running hold to the first match after it; otherwise " +
			d.setAside(),
		Missing: "silence is an unchanged value: a hold that runs raises; it stands still while Weir could not hear the device",
		Keeps:   "the begin of a hold, and the matches of the last " + FormatDuration(d.lateness()) + ", of each device",
	}
}

// holding keeps the start of a running hold as Mark, and the matches of the last lateness for a late non-match, which moves
// the start to the first match after it. What holds is raised when the clock reaches start + hold, whether by samples or by
// silence: silence is an unchanged value.
type holding struct{ hold, lateness model.Micros }

func (j *holding) closed(l *window.Line, at model.Micros) bool { return at < l.Judged }

func (j *holding) late(_ *State, l *window.Line, s window.Sample, _ model.Micros) bool {
	if s.Is(window.Holds) || l.Mark == window.Never || s.At() < l.Mark {
		return false
	}
	l.Evict(s.At())
	if l.Mark = window.Never; len(l.Kept()) > 0 {
		l.Mark = l.Kept()[0].At()
	}
	return true
}

func (j *holding) advance(st *State, l *window.Line, t moment, out *Verdict) {
	for s, ok := l.Pop(t.clock); ok; s, ok = l.Pop(t.clock) {
		j.raise(st, l, s.At(), out)
		l.Judged = s.At()
		j.judge(st, l, s, out)
	}
	j.raise(st, l, t.clock, out)
}

// raise raises a hold that is over at an event time. A sample at the very end comes after it.
func (j *holding) raise(st *State, l *window.Line, now model.Micros, out *Verdict) {
	if l.Mark != window.Never && l.Mark+j.hold <= now {
		st.Latch(true, Firing{At: l.Mark + j.hold}, out)
		j.stop(l)
	}
}

func (j *holding) stop(l *window.Line) {
	l.Mark = window.Never
	l.Drop(len(l.Kept()))
}

func (j *holding) judge(st *State, l *window.Line, s window.Sample, out *Verdict) {
	switch {
	case st.Raised && s.Is(window.Stays):
	case st.Raised:
		st.Latch(false, Firing{At: s.At()}, out)
	case !s.Is(window.Holds):
		j.stop(l)
	default:
		if l.Mark == window.Never {
			l.Mark = s.At()
		}
		l.Keep(s.Bare())
		l.Evict(s.At() - j.lateness - 1)
	}
}

func (j *holding) wake(_ *State, l *window.Line) (model.Micros, bool, bool) {
	at, waits, _ := firstWaiting(l)
	if l.Mark != window.Never && (!waits || l.Mark+j.hold < at) {
		return l.Mark + j.hold, true, false
	}
	return at, waits, false
}
