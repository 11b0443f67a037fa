package sparkplug

import (
	"cmp"
	"slices"
	"time"
)

// The causes for which a node is asked for its births.
const (
	CauseGap          = "seq-gap"       // messages are missing
	CauseUnknownAlias = "unknown-alias" // a metric or an alias that is not in the birth
	CauseBeforeBirth  = "before-birth"  // data of a node or a device that was not born
	CauseMalformed    = "malformed"     // a message that cannot be decoded
	CauseDropped      = "dropped"       // readings found no room: their values come with the births
	CauseReconnect    = "reconnect"     // the source was interrupted
)

// Causes are all causes.
func Causes() []string {
	return []string{CauseGap, CauseUnknownAlias, CauseBeforeBirth, CauseMalformed, CauseDropped, CauseReconnect}
}

// The waits between two requests to one node: the first, doubled while the cause stays, at most the last.
const (
	firstWait = 5 * time.Second
	lastWait  = 5 * time.Minute
	// maxAsks is after how many requests a node that is not online is not asked any more until it is heard again.
	maxAsks = 8
)

// ask takes note that a node owes its births. It is asked by Rebirths: at once, or when the wait since the last request is over. A cause that
// comes back within twice that wait has stayed.
func (m *Machine) ask(n *node, cause string, now time.Time) {
	switch {
	case n.duplicate || n.owes == cause:
		return
	case n.owes != "" && n.owes != CauseDropped:
		if cause == CauseReconnect { // what is not answered now ends the presence of the node
			n.owes, n.reconcileAt = cause, time.Time{}
		}
		return
	}
	m.Counts.Rebirths[cause]++
	n.owes = cause
	if n.wait == 0 || now.Sub(n.asked) >= 2*n.wait {
		n.wait, n.askAt = firstWait, now
		if now.Sub(n.asked) < firstWait {
			n.askAt = n.asked.Add(firstWait)
		}
	} else {
		n.askAt = n.asked.Add(n.wait)
		n.wait = min(2*n.wait, lastWait)
	}
	m.owed[n.id] = n
}

// unask takes note that a node owes nothing any more.
func (m *Machine) unask(n *node) {
	n.owes, n.asks = "", 0
	delete(m.owed, n.id)
}

// Rebirths returns the nodes that are to be asked for their births now: at most as many as the rate of the source allows, those first that
// have waited longest. room reports whether readings would be taken; while it says no, a node that owes only what was dropped is not asked.
func (m *Machine) Rebirths(now time.Time, room bool) (nodes []string) {
	if len(m.owed) == 0 {
		return nil
	}
	var due []*node
	for _, n := range m.owed {
		if !now.Before(n.askAt) && (room || n.owes != CauseDropped) {
			due = append(due, n)
		}
	}
	slices.SortFunc(due, func(x, y *node) int { return cmp.Or(x.askAt.Compare(y.askAt), cmp.Compare(x.id, y.id)) })
	for i, n := range due {
		if !m.limit.take(now) {
			m.Counts.Deferred += len(due) - i
			break
		}
		m.asked(n, now)
		nodes = append(nodes, n.id)
	}
	return nodes
}

// asked takes note that a node is asked now.
func (m *Machine) asked(n *node, now time.Time) {
	n.asks++
	n.asked = now
	n.askAt = now.Add(n.wait)
	if n.asks > 1 {
		n.wait = min(2*n.wait, lastWait)
	}
	if n.owes == CauseReconnect && n.reconcileAt.IsZero() {
		n.reconcileAt = now.Add(reconcile)
		m.busy[n.id] = n
	}
	if !n.online() && n.asks >= maxAsks {
		m.unask(n)
		n.giveUp = true
		m.busy[n.id] = n
	}
}

// bucket is how many requests may go out.
type bucket struct {
	rate, burst float64
	has         float64
	at          time.Time
}

func (b *bucket) take(now time.Time) bool {
	if b.at.IsZero() {
		b.has = b.burst
	} else if passed := now.Sub(b.at).Seconds(); passed > 0 {
		b.has = min(b.has+passed*b.rate, b.burst)
	}
	b.at = now
	if b.has < 1 {
		return false
	}
	b.has--
	return true
}
