package rules

import (
	"errors"

	"weir/model"
)

// Connectivity raises when the device disconnects and resolves when it connects.
const Connectivity Type = "connectivity"

// ReasonSourceGone is the reason of a demotion that no operator asked for: the event source of the device was lost.
const ReasonSourceGone = "source-gone"

type connectivityKind struct{}

func (connectivityKind) Type() Type { return Connectivity }

func (connectivityKind) Uses(*Definition) (Uses, *Error) {
	return Uses{Presence: true, Wakes: true, AtArrival: true, Keys: ByDevice}, nil
}

func (connectivityKind) Check(*Definition) *Error { return nil }

func (connectivityKind) Compile(*Definition, *Predicate) (Judge, *Error) { return connectivity{}, nil }

func (connectivityKind) explain(*Definition) Times {
	return Times{
		Judged: "each change of the device's presence at its arrival",
		Late:   "an edge that would be older than the last one is not emitted and counts as late",
		Missing: "it changes nothing: a device that is silent and connected is connected; a device of whose connection Weir has lost sight stays raised " +
			"until it connects or sends",
		Keeps: "a latch of 40 bytes for each device that fired",
	}
}

func (connectivityKind) Decode(b []byte) (Memory, error) {
	if len(b) != 1 || b[0] != 1 {
		return nil, errors.New("rules: no memory of a connection")
	}
	return lostSight{}, nil
}

// lostSight is the memory of a raised key whose event source was lost: the next sign of the device resolves it.
type lostSight struct{}

// Append implements Memory.
func (lostSight) Append(b []byte) []byte { return append(b, 1) }

type connectivity struct{}

// Judge implements Judge.
func (connectivity) Judge(st *State, s *Sample, out *Verdict) {
	switch {
	case s.Kind == Timer:
	case s.Kind != Transition && st.Own == nil:
	case s.Kind == Transition && s.Presence == model.Disconnected:
		st.Own = nil
		st.Latch(true, Firing{At: s.Occurred}, out)
	case s.Kind == Transition && s.Presence == model.Demoted && s.Reason == ReasonSourceGone:
		if st.Raised {
			st.Own = lostSight{}
		}
	default:
		st.Own = nil
		st.Latch(false, Firing{At: max(st.LastEdge, s.Occurred)}, out)
	}
}
