package rules

// Threshold raises when a sample satisfies the condition and resolves when a sample in scope does not. It judges at
// arrival, whatever the age of the sample.
const Threshold Type = "threshold"

type thresholdKind struct{ latchOnly }

func (thresholdKind) Type() Type { return Threshold }

func (thresholdKind) Uses(d *Definition) (Uses, *Error) {
	return Uses{Needs: []string{"when"}, Decides: true, Value: d.When.Metric != "", Keys: ByDevice}, nil
}

func (thresholdKind) Compile(_ *Definition, when *Predicate) (Judge, *Error) {
	return &thresholdJudge{when}, nil
}

type thresholdJudge struct{ when *Predicate }

// Judge implements Judge.
func (t *thresholdJudge) Judge(st *State, s *Sample, out *Verdict) {
	m := t.when.Test(s)
	switch {
	case m.Failed:
		out.Failed = true
	case m.Holds != st.Raised:
		st.Latch(m.Holds, Firing{At: s.Occurred, Value: m.Value, HasValue: m.HasValue}, out)
	}
}
