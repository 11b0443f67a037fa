package rules

// Connectivity raises when the device disconnects and resolves when it connects.
const Connectivity Type = "connectivity"

type connectivityKind struct{ notRun }

func (connectivityKind) Type() Type { return Connectivity }

func (connectivityKind) Uses(*Definition) (Uses, *Error) {
	return Uses{Presence: true, Keys: ByDevice}, nil
}
