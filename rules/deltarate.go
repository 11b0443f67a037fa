package rules

// DeltaRate raises when the change of a metric between two samples, or its rate per second, satisfies op.
const DeltaRate Type = "deltaRate"

type deltaRateKind struct{ notRun }

func (deltaRateKind) Type() Type { return DeltaRate }

func (deltaRateKind) Uses(*Definition) (Uses, *Error) {
	return Uses{Needs: []string{"metric", "op", "threshold"}, May: []string{"when", "rate"}, Value: true, Keys: ByDevice}, nil
}
