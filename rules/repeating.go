package rules

// Repeating raises when count samples within the trailing window satisfy the condition.
const Repeating Type = "repeating"

type repeatingKind struct{ notRun }

func (repeatingKind) Type() Type { return Repeating }

func (repeatingKind) Uses(d *Definition) (Uses, *Error) {
	return Uses{Needs: []string{"count", "window"}, May: []string{"when"}, Value: d.When.Metric != "", Keys: ByDevice}, nil
}
