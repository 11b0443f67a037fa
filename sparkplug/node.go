package sparkplug

import (
	"bytes"
	"slices"
	"time"
)

// node is an edge node with the devices behind it.
type node struct {
	id      string
	root    *birth // nil: it was never born
	devices map[string]*birth
	aliases map[uint64]*birth // whose an alias is, over the births since the node was born

	bdSeq    uint64 // of the session
	hasBdSeq bool
	born     uint64    // timestamp of the birth, milliseconds
	next     uint8     // the sequence number that is expected
	last     uint64    // sum of the last message
	seen     time.Time // when the node was heard last

	synced     bool // the births describe what comes
	unverified bool // the source was interrupted since: the next message decides
	// birthsChanged says that the row's births are to be written, too.
	birthsChanged bool

	textsWait bool // texts of its births are to be reported

	early     []heldMessage // have overtaken the message that is expected
	gapUntil  time.Time
	held      []heldMessage // wait for a birth
	heldBytes int           // of both

	reconcileAt time.Time // when births that are waited for are given up; zero: none are

	owes  string    // the cause for which a rebirth is owed, "" for none
	asked time.Time // last
	askAt time.Time // next
	wait  time.Duration
	asks  int // since the last birth
	// giveUp says that the node was asked often enough: what waits for its birth waits no longer.
	giveUp bool

	swings    []time.Time // when its session went back
	swung     time.Time
	duplicate bool
}

// heldMessage is a message that waits.
type heldMessage struct {
	Topic
	seq  uint8
	sent uint64 // timestamp of the payload
	body []byte
	at   time.Time
}

func (n *node) online() bool { return n.root != nil && n.root.online }

// birthOf returns the birth of the node ("") or of a device, nil for none.
func (n *node) birthOf(device string) *birth {
	if device == "" {
		return n.root
	}
	return n.devices[device]
}

// resumes reports whether a message after an interruption shows that nothing was missed: it bears the sequence number that was expected, and
// the interruption was short.
func (n *node) resumes(in *message, within time.Duration) bool {
	return in.now.Sub(n.seen) < within && in.Seq == n.next
}

// claimAliases makes the aliases of the birth of a device its own. They are unique over the node and its devices
// (tck-id-payloads-alias-uniqueness).
func (n *node) claimAliases(b *birth) error {
	for _, i := range b.byAlias {
		owner := n.aliases[b.defs[i].alias]
		if owner != nil && owner.device != b.device {
			return malformed("the alias %d of %q is one of %q", b.defs[i].alias, cut(b.defs[i].name), cut(externalID(n.id, owner.device)))
		}
	}
	if old := n.devices[b.device]; old != nil {
		for _, i := range old.byAlias {
			if n.aliases[old.defs[i].alias] == old {
				delete(n.aliases, old.defs[i].alias)
			}
		}
	}
	for _, i := range b.byAlias {
		n.aliases[b.defs[i].alias] = b
	}
	return nil
}

// room reports whether a message can be kept until it can be resolved.
func (m *Machine) room(n *node, bytes int) bool {
	return len(n.held)+len(n.early) < maxHeld && n.heldBytes+bytes <= maxHeldBytes && m.held+bytes <= maxHeldAll
}

// hold keeps a message until the birth that resolves it. One without room is a dead letter.
func (m *Machine) hold(n *node, in *message) {
	if !m.room(n, len(in.body)) {
		m.emit(Effect{What: NoBirth, Node: n.id, Device: in.Device, Reason: "too many messages wait for a birth", Body: in.body, Kind: in.Kind})
		return
	}
	n.held = append(n.held, m.keep(n, in))
}

// keep counts the bytes of a message that is kept.
func (m *Machine) keep(n *node, in *message) heldMessage {
	m.held += len(in.body)
	n.heldBytes += len(in.body)
	return heldMessage{Topic: in.Topic, seq: in.Seq, sent: in.Timestamp, body: slices.Clone(in.body), at: in.now}
}

func (m *Machine) release(n *node, h *heldMessage) {
	m.held -= len(h.body)
	n.heldBytes -= len(h.body)
}

// putEarly keeps a message that has overtaken the one that is expected. ok is false when another one with its number waits already: one of them
// is of another session.
func (m *Machine) putEarly(n *node, in *message) (ok bool) {
	for i := range n.early {
		if n.early[i].seq != in.Seq {
			continue
		}
		if n.early[i].Topic != in.Topic || !bytes.Equal(n.early[i].body, in.body) {
			return false
		}
		m.Counts.Repeats++
		return true
	}
	if len(n.early) == 0 {
		n.gapUntil = in.now.Add(m.rules.ReorderTimeout)
	}
	n.early = append(n.early, m.keep(n, in))
	return true
}

// wasOvertaken reports whether a message that is expected can be the one that others have overtaken: it was sent before them. One that was sent later
// has the number by chance, in a session whose birth is missing.
func (n *node) wasOvertaken(in *message) bool {
	return !slices.ContainsFunc(n.early, func(h heldMessage) bool { return h.sent < in.Timestamp })
}

func (n *node) takeEarly() []heldMessage {
	early := n.early
	// In the order in which they were sent: distances from the expected one.
	slices.SortStableFunc(early, func(x, y heldMessage) int { return int(x.seq-n.next) - int(y.seq-n.next) })
	n.early = nil
	return early
}

// drain takes in what has overtaken the message that came now
// (tck-id-operational-behavior-host-reordering-success).
func (m *Machine) drain(n *node) {
	for n.synced {
		i := slices.IndexFunc(n.early, func(h heldMessage) bool { return h.seq == n.next })
		if i < 0 {
			return
		}
		h := n.early[i]
		n.early = slices.Delete(n.early, i, i+1)
		m.release(n, &h)
		if in := h.message(); in != nil {
			m.accept(n, in)
		}
	}
}

// message decodes a message that was kept; it has been decoded before.
func (h *heldMessage) message() *message {
	p, err := Decode(h.body)
	if err != nil {
		return nil
	}
	return &message{Topic: h.Topic, Payload: p, body: h.body, now: h.at}
}

// resolveHeld takes in what waited for the birth of the node ("") or of a device. Data counts when the birth gives the names that are kept of
// the one before: else nothing says what its aliases meant. Births of devices resolve themselves.
func (m *Machine) resolveHeld(n *node, device string, same bool, now time.Time) {
	waiting := n.held
	n.held = nil
	for i := range waiting {
		h := &waiting[i]
		if h.Kind != DBIRTH && h.Device != device {
			n.held = append(n.held, *h)
			continue
		}
		m.release(n, h)
		in := h.message()
		switch {
		case in == nil:
		case h.Kind == DBIRTH:
			if b, err := newBirth(h.Device, in.Metrics); err == nil {
				b.takeTexts(n.devices[h.Device])
				m.values(n, b, in)
			}
		case same:
			m.values(n, n.birthOf(device), in)
		default:
			m.emit(Effect{What: NoBirth, Node: n.id, Device: h.Device, Reason: "the birth that followed has other metrics, or none was known before", Body: h.body, Kind: h.Kind})
		}
	}
}

func (n *node) hasHeldDevices() bool {
	return slices.ContainsFunc(n.held, func(h heldMessage) bool { return h.Device != "" })
}

// dropHeldDevices gives up what waits for births of devices that have not come.
func (m *Machine) dropHeldDevices(n *node) {
	kept := n.held[:0]
	for i := range n.held {
		h := n.held[i]
		if h.Device == "" || !n.synced {
			kept = append(kept, h)
			continue
		}
		m.release(n, &h)
		m.emit(Effect{What: NoBirth, Node: n.id, Device: h.Device, Reason: "no birth of the device followed", Body: h.body, Kind: h.Kind})
	}
	n.held = kept
}

// dropHeld gives up all that waits for a birth.
func (m *Machine) dropHeld(n *node, why string) {
	for i := range n.held {
		h := &n.held[i]
		m.release(n, h)
		m.emit(Effect{What: NoBirth, Node: n.id, Device: h.Device, Reason: why, Body: h.body, Kind: h.Kind})
	}
	n.held = nil
}

// swingWindow is within which a session that goes back three times shows that two nodes use one id.
const (
	swingWindow = time.Minute
	swingsOfTwo = 3
)

// watchSwings looks for two nodes with one id: each connect of one ends the other's connection, and their sessions alternate.
func (m *Machine) watchSwings(n *node, bd uint64, now time.Time) {
	if n.root == nil || !n.hasBdSeq || bd > n.bdSeq {
		return
	}
	n.swings = slices.DeleteFunc(append(n.swings, now), func(at time.Time) bool { return now.Sub(at) > swingWindow })
	if len(n.swings) >= swingsOfTwo {
		if !n.duplicate {
			m.Counts.Duplicates++
		}
		n.duplicate, n.swung = true, now
		m.unask(n)
	}
}
