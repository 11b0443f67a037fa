package rules

// Duration raises when the condition was satisfied without a break for hold.
const Duration Type = "duration"

type durationKind struct{ notRun }

func (durationKind) Type() Type { return Duration }

func (durationKind) Uses(*Definition) (Uses, *Error) {
	return Uses{Needs: []string{"when", "hold"}, Decides: true, Keys: ByDevice}, nil
}
