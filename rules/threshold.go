package rules

// Threshold raises when a sample satisfies the condition and resolves when a sample in scope does not. It judges at
// arrival, whatever the age of the sample.
const Threshold Type = "threshold"

type thresholdKind struct{ latchOnly }

func (thresholdKind) Type() Type { return Threshold }

func (thresholdKind) Uses(d *Definition) (Uses, *Error) {
	return Uses{Needs: []string{"when"}, Decides: true, Clears: true, AtArrival: true, Value: d.When.Metric != "", Keys: ByDevice}, nil
}

func (thresholdKind) Compile(_ *Definition, when *Predicate) (Judge, *Error) {
	return &thresholdJudge{when}, nil
}

func (thresholdKind) explain(*Definition) Times {
	return Times{
		Judged:  "each sample at its arrival, whatever its age",
		Late:    "it is judged as any other; an edge that would be older than the last one of its device is not emitted, leaves the latch as it is, and counts as late",
		Missing: "it changes nothing: what is raised stays raised until a sample resolves it",
		Keeps:   "a latch of 40 bytes for each device that fired",
	}
}

type thresholdJudge struct{ when *Predicate }

// Judge implements Judge.
func (t *thresholdJudge) Judge(st *State, s *Sample, out *Verdict) {
	m := t.when.Test(s)
	switch {
	case m.Failed:
		out.Failed = true
	case m.Holds != st.Raised && m.Stays != st.Raised:
		st.Latch(m.Holds, Firing{At: s.Occurred, Value: m.Value, HasValue: m.HasValue}, out)
	}
}
