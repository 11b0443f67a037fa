package rules

// Correlation raises when count distinct devices under one anchor satisfy the condition within the window.
const Correlation Type = "correlation"

// DefaultMemberCap is the maximum of members that a correlation counts when its definition does not say.
const DefaultMemberCap = 1024

type correlationKind struct{ notRun }

func (correlationKind) Type() Type { return Correlation }

func (correlationKind) Uses(*Definition) (Uses, *Error) {
	return Uses{Needs: []string{"anchorType", "count", "window"}, May: []string{"when", "memberCap"}, NoActions: true, NoGroup: true,
		Keys: ByAnchor}, nil
}

func (correlationKind) Check(d *Definition) *Error {
	if limit := d.effectiveMemberCap(); d.Count > limit {
		return refuse("memberCap", "%d is below count, which is %d", limit, d.Count)
	}
	return nil
}

// effectiveMemberCap is memberCap with its default, 0 for the other kinds.
func (d *Definition) effectiveMemberCap() int32 {
	if d.Type == Correlation && d.MemberCap == 0 {
		return DefaultMemberCap
	}
	return d.MemberCap
}
