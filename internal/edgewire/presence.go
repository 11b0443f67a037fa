package edgewire

import (
	"encoding/json"
	"fmt"
	"time"
)

// KindPresence is up: devices at the site have come or gone. Its acknowledgement says that all of it is on disk above. A Weir that does not know the
// kind refuses it with 0x99.
const KindPresence = "presence"

// MaxTransitions is how many transitions a document has at most.
const MaxTransitions = 500

// Presence are transitions of devices at the site, in their order.
type Presence struct {
	Kind        string       `json:"kind"`
	Transitions []Transition `json:"transitions"`
}

// The states of a transition.
const (
	StateConnected    = "CONNECTED"
	StateDisconnected = "DISCONNECTED"
	StateDemoted      = "DEMOTED"
)

// Transition is what the edge asserts of a device. What is sent again changes nothing: it has the same session and the same time.
type Transition struct {
	Device string `json:"device"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// Session is the number of the connection, Expected that which is to be followed, 0 where none is.
	Session  uint64    `json:"sessionId,string"`
	Expected uint64    `json:"expectedSessionId,string,omitempty"`
	Occurred time.Time `json:"occurredTime"`
}

// parsePresence reads transitions. Errors wrap ErrDocument: one that is none refuses the document.
func parsePresence(b []byte) (*Presence, error) {
	p := &Presence{}
	if err := json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocument, err)
	}
	if len(p.Transitions) == 0 || len(p.Transitions) > MaxTransitions {
		return nil, fmt.Errorf("%w: %d transitions, 1 to %d are allowed", ErrDocument, len(p.Transitions), MaxTransitions)
	}
	for i := range p.Transitions {
		if why := p.Transitions[i].check(); why != "" {
			return nil, fmt.Errorf("%w: transition %d: %s", ErrDocument, i, why)
		}
	}
	return p, nil
}

// check returns what is wrong with a transition, "" for nothing.
func (t *Transition) check() string {
	const first, last = 2000, 2200 // years
	switch {
	case !validToken(t.Device):
		return "the device is no token"
	case t.State != StateConnected && t.State != StateDisconnected && t.State != StateDemoted:
		return "the state is not known"
	case !validText(t.Reason):
		return "the reason has control characters or more than 256 bytes"
	case t.Session == 0:
		return "the session is 0"
	case t.Occurred.Year() < first || t.Occurred.Year() > last:
		return "the time is no time of day"
	}
	return ""
}
