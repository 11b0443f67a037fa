package rules

import (
	"weir/model"
	"weir/rules/window"
)

// Absence raises when no event of the device arrived for timeout.
const Absence Type = "absence"

type absenceKind struct{ overLine }

func (absenceKind) Type() Type { return Absence }

func (absenceKind) Uses(*Definition) (Uses, *Error) {
	return Uses{Needs: []string{"timeout"}, NoGroup: true, Enrolls: true, Keys: ByDevice}, nil
}

func (absenceKind) Compile(d *Definition, _ *Predicate) (Judge, *Error) {
	return &absence{micros(d.Timeout), d.late()}, nil
}

func (absenceKind) explain(d *Definition) Times {
	return Times{
		Judged: "every event of the device at its arrival: readings, locations, alerts and empty ones; the raised edge comes " +
			FormatDuration(d.Timeout+d.lateness()) + " after the last arrival (timeout and lateness), stamped with the newest event time and " + FormatDuration(d.Timeout),
		Late:    "it is a sign of life as any other, however old",
		Missing: "it raises; a device that was created and never heard is missed from then on; the time stands still while Weir could not hear the device",
		Keeps:   "a timer for each device",
	}
}

// absence waits on the clock of the device. A device that was enrolled and not heard since has a line that says from when
// on it is missed; a device that was heard has a due time only.
type absence struct{ timeout, lateness model.Micros }

// Judge implements Judge.
func (j *absence) Judge(st *State, s *Sample, out *Verdict) {
	enrolled, _ := st.Own.(*window.Line)
	switch {
	case s.Kind == Enrolled:
		if !st.Raised && st.Due == 0 {
			enrolled = window.New()
			enrolled.Newest, enrolled.Heard = s.Occurred, s.Clock.Now
			st.Own, st.Due = enrolled, j.end(s.Clock.Now)
		}
	case s.Kind != Timer:
		st.Own = nil
		st.Latch(false, Firing{At: max(st.LastEdge, s.Occurred)}, out)
		st.wait(j.end(s.Clock.Arrived), false)
	case enrolled != nil:
		j.raise(st, enrolled.Newest, enrolled.Heard, s, out)
	default:
		j.raise(st, s.Clock.Newest, s.Clock.Arrived, s, out)
	}
}

func (j *absence) end(heard Listening) Listening {
	return heard + Listening(j.timeout+j.lateness)*1000
}

// raise raises when the timeout is over since the last event, and waits for that otherwise.
func (j *absence) raise(st *State, last model.Micros, heard Listening, s *Sample, out *Verdict) {
	if st.Due = j.end(heard); st.Due > s.Clock.Now {
		return
	}
	st.Due, st.Own = 0, nil
	st.Latch(true, Firing{At: max(st.LastEdge, last+j.timeout)}, out)
}
