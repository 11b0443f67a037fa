package rules

// Absence raises when no event of the device arrived for timeout.
const Absence Type = "absence"

type absenceKind struct{ notRun }

func (absenceKind) Type() Type { return Absence }

func (absenceKind) Uses(*Definition) (Uses, *Error) {
	return Uses{Needs: []string{"timeout"}, NoGroup: true, Keys: ByDevice}, nil
}
