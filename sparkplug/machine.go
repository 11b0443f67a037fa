package sparkplug

import (
	"hash/maphash"
	"slices"
	"strings"
	"time"
)

// Rules are what of the configuration decides how messages are judged.
type Rules struct {
	// ReorderTimeout is how long a message is waited for that others have overtaken; 0: a gap asks for a rebirth at once
	// (tck-id-operational-behavior-host-reordering-param).
	ReorderTimeout time.Duration
	// ResumeWithin is how long an interruption may last after which a node goes on without a rebirth.
	ResumeWithin time.Duration
	// RebirthsPerSecond bounds the requests to all nodes of the source.
	RebirthsPerSecond float64
	// Keep reports whether a metric is wanted; nil: all are.
	Keep func(name string) bool
}

// Bounds of what a machine keeps.
const (
	MaxNodes     = 10_000 // of a source
	MaxDevices   = 1_000  // of a node
	maxHeld      = 256    // messages of a node that wait for its birth
	maxHeldBytes = 1 << 20
	maxHeldAll   = 16 << 20 // bytes of all nodes of the source
	maxReorder   = 64       // messages of a node that wait for one that they have overtaken

	reconcile = 10 * time.Second // after a request for a rebirth, or after the birth of a node for its devices
)

// What is an effect of a message or of time.
type What uint8

// The effects.
const (
	Online     What = iota + 1 // the node or device is connected
	Offline                    // it is not
	Readings                   // measurements
	Attributes                 // texts that have changed
	NoBirth                    // a message that no birth resolves: a dead letter
	Malformed                  // a message that cannot be decoded: a dead letter
)

// Effect is what follows from a message or from time.
type Effect struct {
	What
	Node, Device string
	Reason       string    // of Online, Offline, NoBirth and Malformed
	At           time.Time // of Online and Offline
	Samples      []Sample
	Texts        []Attribute
	Body         []byte // of NoBirth and Malformed
	Kind         Kind   // of the message
}

// ExternalID is the external id of the node or device.
func (e *Effect) ExternalID() string { return externalID(e.Node, e.Device) }

// Sample is one value of a metric; At is in milliseconds since 1970.
type Sample struct {
	Name  string
	Value float64
	At    int64
}

// Attribute is a text to report.
type Attribute struct {
	Key, Value string
	JSON       bool
}

// Reasons of transitions.
const (
	ReasonNBirth    = "nbirth"
	ReasonNDeath    = "ndeath-will"
	ReasonDBirth    = "dbirth"
	ReasonDDeath    = "ddeath"
	ReasonReconcile = "reconcile-timeout"
)

// Machine follows the nodes and devices of one source: their births, sequences and deaths. What follows from a message or from time is returned as
// effects, in their order. It reads no clock and is not safe for concurrent use.
type Machine struct {
	rules Rules
	nodes map[string]*node
	owed  map[string]*node // that are to be asked for a rebirth
	dirty map[string]*node // whose row is to be written
	busy  map[string]*node // that wait for a time
	gone  []string         // whose row is to be removed
	held  int              // bytes
	limit bucket
	seed  maphash.Seed

	out    []Effect
	Counts Counts
}

// Counts are what a machine has counted since they were taken.
type Counts struct {
	Skipped    map[string]int // metrics that were not stored, by the reason
	Rebirths   map[string]int // causes of rebirths, by the reason
	Repeats    int            // messages that came again
	Stale      int            // deaths of a session that is over, births that are known
	Errors     int            // messages that cannot be decoded
	Deferred   int            // requests for a rebirth that wait for the rate of the source
	TooMany    int            // messages of nodes or devices beyond the bounds
	Duplicates int            // nodes that were found to be two
}

// NewMachine returns a machine that knows no node.
func NewMachine(rules Rules) *Machine {
	m := &Machine{rules: rules, nodes: map[string]*node{}, owed: map[string]*node{}, dirty: map[string]*node{}, busy: map[string]*node{},
		seed: maphash.MakeSeed()}
	m.limit = bucket{rate: rules.RebirthsPerSecond, burst: 2 * rules.RebirthsPerSecond}
	m.resetCounts()
	return m
}

func (m *Machine) resetCounts() {
	m.Counts = Counts{Skipped: map[string]int{}, Rebirths: map[string]int{}}
}

// TakeCounts returns what was counted since the last call.
func (m *Machine) TakeCounts() Counts {
	c := m.Counts
	m.resetCounts()
	return c
}

// HeldBytes are the bytes of messages that wait for a birth.
func (m *Machine) HeldBytes() int { return m.held }

// Nodes returns how many nodes are online, offline, and how many of those online owe a rebirth; duplicates are those that seem to be two.
func (m *Machine) Nodes() (online, offline, owing, duplicates int) {
	for _, n := range m.nodes {
		switch {
		case !n.online():
			offline++
		case n.owes != "":
			owing++
		default:
			online++
		}
		if n.duplicate {
			duplicates++
		}
	}
	return online, offline, owing, duplicates
}

// Duplicates returns the nodes that seem to be two, sorted, at most so many of them.
func (m *Machine) Duplicates(most int) (names []string) {
	for _, id := range sortedKeys(m.nodes) {
		if m.nodes[id].duplicate && len(names) < most {
			names = append(names, id)
		}
	}
	return names
}

// Rules returns the rules in force.
func (m *Machine) Rules() Rules { return m.rules }

// SetRules changes the rules for what comes from now on.
func (m *Machine) SetRules(r Rules) {
	m.rules = r
	m.limit.rate, m.limit.burst = r.RebirthsPerSecond, 2*r.RebirthsPerSecond
}

// node returns a node, a new one when it is not known. Beyond MaxNodes the one that has been offline for longest goes; nil when none is.
func (m *Machine) node(id string) *node {
	n := m.nodes[id]
	if n != nil {
		return n
	}
	if len(m.nodes) >= MaxNodes && !m.forgetOldest() {
		return nil
	}
	n = &node{id: id, devices: map[string]*birth{}}
	m.nodes[id] = n
	return n
}

func (m *Machine) forgetOldest() bool {
	var oldest *node
	for _, n := range m.nodes {
		if !n.online() && n.owes == "" && len(n.held) == 0 && (oldest == nil || n.seen.Before(oldest.seen)) {
			oldest = n
		}
	}
	if oldest == nil {
		return false
	}
	m.forget(oldest)
	return true
}

// forget removes a node, and its row.
func (m *Machine) forget(n *node) {
	for _, in := range []map[string]*node{m.nodes, m.owed, m.dirty, m.busy} {
		delete(in, n.id)
	}
	if n.root != nil {
		m.gone = append(m.gone, n.id)
	}
}

// Message judges a message of a node or device. Commands are ignored: those of this host come back to it. The effects are valid until the
// next call.
func (m *Machine) Message(t Topic, body []byte, now time.Time) []Effect {
	m.out = m.out[:0]
	if t.Kind == NCMD || t.Kind == DCMD {
		return nil
	}
	n := m.node(t.node())
	if n == nil {
		m.Counts.TooMany++
		return nil
	}
	p, err := Decode(body)
	if err != nil {
		m.malformed(n, t, body, err, now)
		return m.out
	}
	in := &message{Topic: t, Payload: p, body: body, now: now}
	switch t.Kind {
	case NBIRTH:
		m.nodeBirth(n, in)
	case NDEATH:
		m.nodeDeath(n, in)
	default:
		m.sequenced(n, in)
	}
	if n.waits() {
		m.busy[n.id] = n
	}
	return m.out
}

// message is a message on its way.
type message struct {
	Topic
	*Payload
	body []byte
	now  time.Time
}

// at is the time of the message in milliseconds: its own, else now.
func (in *message) at() int64 {
	if in.Timestamp != 0 {
		return int64(in.Timestamp)
	}
	return in.now.UnixMilli()
}

// malformed takes note of a message that cannot be decoded. It is taken to be the next of its node, so that it makes no gap besides.
func (m *Machine) malformed(n *node, t Topic, body []byte, err error, now time.Time) {
	m.Counts.Errors++
	m.emit(Effect{What: Malformed, Node: n.id, Device: t.Device, Reason: err.Error(), Body: body, Kind: t.Kind})
	if t.Kind == NDEATH {
		return // nobody is there to be asked
	}
	if t.Kind != NBIRTH && n.synced {
		n.next++
		m.dirty[n.id] = n
	}
	m.ask(n, CauseMalformed, now)
}

func (m *Machine) emit(e Effect) { m.out = append(m.out, e) }

// sequenced judges a message that has a place in the sequence of its node: data, and the births and deaths of devices
// (tck-id-payloads-sequence-num-incrementing).
func (m *Machine) sequenced(n *node, in *message) {
	switch {
	case !n.online():
		m.ask(n, CauseBeforeBirth, in.now)
		m.afterGap(n, in)
		return
	case n.unverified:
		if n.synced && n.resumes(in, m.rules.ResumeWithin) {
			n.unverified = false
			n.awaitDevices(in.now)
			break
		}
		m.unsync(n)
		m.ask(n, CauseReconnect, in.now)
	}
	n.seen = in.now
	if !n.synced {
		m.afterGap(n, in)
		return
	}
	switch {
	case in.Seq == n.next && n.wasOvertaken(in):
		m.accept(n, in)
		m.drain(n)
	case m.isRepeat(n, in):
		m.Counts.Repeats++
	case m.rules.ReorderTimeout > 0 && len(n.early) < maxReorder && m.room(n, len(in.body)) && m.putEarly(n, in):
	default:
		m.gap(n, in.now)
		m.afterGap(n, in)
	}
}

// accept takes the next message of a node in.
func (m *Machine) accept(n *node, in *message) {
	n.next = in.Seq + 1
	n.last = m.sum(in)
	m.dirty[n.id] = n
	switch in.Kind {
	case DBIRTH:
		m.deviceBirth(n, in)
	case DDEATH:
		m.deviceDeath(n, in)
	default:
		m.data(n, in)
	}
}

// afterGap judges a message of a node whose births may not be the latest: a death counts at once, data waits for the births that were
// asked for.
func (m *Machine) afterGap(n *node, in *message) {
	if in.Kind == DDEATH {
		m.deviceDeath(n, in)
		return
	}
	m.hold(n, in)
}

// isRepeat reports whether a message is the one before it once more.
func (m *Machine) isRepeat(n *node, in *message) bool {
	return in.Seq+1 == n.next && n.last == m.sum(in)
}

func (m *Machine) sum(in *message) uint64 {
	return maphash.String(m.seed, in.Device) ^ maphash.Bytes(m.seed, in.body) ^ uint64(in.Kind)
}

// gap takes note that messages of a node are missing: what births it had is not known any more.
func (m *Machine) gap(n *node, now time.Time) {
	m.ask(n, CauseGap, now)
	m.unsync(n)
}

// unsync has what comes wait for a birth, with what waited for an overtaken message.
func (m *Machine) unsync(n *node) {
	n.synced, n.unverified = false, false
	m.dirty[n.id] = n
	for _, h := range n.takeEarly() {
		if h.Kind == DDEATH {
			if in := h.message(); in != nil {
				m.deviceDeath(n, in)
			}
			m.release(n, &h)
			continue
		}
		n.held = append(n.held, h)
	}
}

// data takes values of a node or a device in.
func (m *Machine) data(n *node, in *message) {
	b := n.birthOf(in.Device)
	if b == nil || !b.fresh || !b.online {
		// A device that was not born in this session: what it says cannot be resolved, but may be once it is born.
		m.ask(n, CauseBeforeBirth, in.now)
		m.hold(n, in)
		return
	}
	if !b.knowsAliases(in.Metrics) {
		m.ask(n, CauseUnknownAlias, in.now)
		m.hold(n, in)
		return
	}
	if m.values(n, b, in) > 0 {
		m.ask(n, CauseUnknownAlias, in.now)
	}
}

// knowsAliases reports whether every metric without a name is one of the birth.
func (b *birth) knowsAliases(metrics []Metric) bool {
	for i := range metrics {
		if metrics[i].Name == "" && b.resolve(&metrics[i]) == nil {
			return false
		}
	}
	return true
}

// nodeBirth takes the birth of a node in (tck-id-topics-nbirth-bdseq-matching).
func (m *Machine) nodeBirth(n *node, in *message) {
	b, err := newBirth("", in.Metrics)
	if err != nil {
		m.malformed(n, in.Topic, in.body, err, in.now)
		return
	}
	bd, has := bdSeqOf(in.Metrics)
	same := n.online() && n.hasBdSeq == has && n.bdSeq == bd
	if same && n.synced && !n.unverified && n.owes == "" && in.Timestamp != 0 && in.Timestamp <= n.born {
		m.Counts.Stale++ // the same birth once more
		return
	}
	if !same {
		m.watchSwings(n, bd, in.now)
	}
	m.unsync(n) // what has overtaken a message waits for a birth, too: for this one
	kept, wasOnline := n.root, n.online()
	b.takeTexts(kept)
	b.fresh, b.online = true, true
	n.begin(b, bd, has, in)
	m.unask(n)
	m.dirty[n.id] = n
	n.birthsChanged = true
	if !same && (!n.duplicate || !wasOnline) {
		m.emit(Effect{What: Online, Node: n.id, Reason: ReasonNBirth, At: in.now, Kind: NBIRTH})
	}
	m.resolveHeld(n, "", kept.same(b), in.now)
	m.values(n, b, in)
}

// begin makes the node one that was just born. Its devices are to be born again (tck-id-topics-dbirth-... after NBIRTH).
func (n *node) begin(b *birth, bd uint64, has bool, in *message) {
	n.root, n.bdSeq, n.hasBdSeq, n.born = b, bd, has, in.Timestamp
	n.next, n.last, n.seen = in.Seq+1, 0, in.now
	n.synced, n.unverified = true, false
	n.aliases = map[uint64]*birth{}
	for _, i := range b.byAlias {
		n.aliases[b.defs[i].alias] = b
	}
	for _, d := range n.devices {
		d.fresh = false
	}
	n.awaitDevices(in.now)
}

// awaitDevices gives devices that were not born since their node was a time in which they are.
func (n *node) awaitDevices(now time.Time) {
	n.reconcileAt = time.Time{}
	for _, d := range n.devices {
		if d.online && !d.fresh {
			n.reconcileAt = now.Add(reconcile)
		}
	}
	if n.hasHeldDevices() {
		n.reconcileAt = now.Add(reconcile)
	}
}

// deviceBirth takes the birth of a device in.
func (m *Machine) deviceBirth(n *node, in *message) {
	b, err := newBirth(in.Device, in.Metrics)
	if err == nil {
		err = n.claimAliases(b)
	}
	if err != nil {
		m.Counts.Errors++
		m.emit(Effect{What: Malformed, Node: n.id, Device: in.Device, Reason: err.Error(), Body: in.body, Kind: DBIRTH})
		m.ask(n, CauseMalformed, in.now)
		return
	}
	kept := n.devices[in.Device]
	if kept == nil && len(n.devices) >= MaxDevices {
		m.Counts.TooMany++
		return
	}
	was := kept != nil && kept.online
	b.takeTexts(kept)
	b.fresh, b.online = true, true
	n.devices[in.Device] = b
	n.birthsChanged = true
	if !was {
		m.emit(Effect{What: Online, Node: n.id, Device: in.Device, Reason: ReasonDBirth, At: in.now, Kind: DBIRTH})
	}
	m.resolveHeld(n, in.Device, kept.same(b), in.now)
	m.values(n, b, in)
}

// deviceDeath takes the death of a device in: only of one that was born, at the time that the payload says
// (tck-id-operational-behavior-edge-node-termination-host-action-ddeath-devices-offline).
func (m *Machine) deviceDeath(n *node, in *message) {
	b := n.devices[in.Device]
	if b == nil || !b.online {
		m.Counts.Stale++
		return
	}
	at := in.now
	if in.Timestamp != 0 && int64(in.Timestamp) < at.UnixMilli() && int64(in.Timestamp) > 0 {
		at = time.UnixMilli(int64(in.Timestamp))
	}
	m.offline(n, b, ReasonDDeath, at)
}

func (m *Machine) offline(n *node, b *birth, reason string, at time.Time) {
	b.online = false
	m.dirty[n.id] = n
	n.birthsChanged = true
	m.emit(Effect{What: Offline, Node: n.id, Device: b.device, Reason: reason, At: at})
}

// nodeDeath takes the death of a node in, with all its devices, at the host's time. One of another session than the present is the will of a
// connection that is over (tck-id-payloads-ndeath-bdseq).
func (m *Machine) nodeDeath(n *node, in *message) {
	bd, has := bdSeqOf(in.Metrics)
	if !n.online() || n.hasBdSeq != has || n.bdSeq != bd {
		m.Counts.Stale++
		return
	}
	if n.duplicate {
		return
	}
	m.down(n, ReasonNDeath, in.now)
}

// down takes a node and its devices offline. It is not asked for anything any more: nobody would answer.
func (m *Machine) down(n *node, reason string, now time.Time) {
	m.unsync(n)
	m.unask(n)
	n.reconcileAt = time.Time{}
	m.offline(n, n.root, reason, now)
	for _, name := range sortedKeys(n.devices) {
		if b := n.devices[name]; b.online {
			m.offline(n, b, reason, now)
		}
	}
}

// bdSeqOf returns the number of the session in a birth or a death. It may come as any integer.
func bdSeqOf(metrics []Metric) (bd uint64, ok bool) {
	for i := range metrics {
		if metrics[i].Name == "bdSeq" && (metrics[i].Form == FormInt || metrics[i].Form == FormLong) {
			return metrics[i].Bits, true
		}
	}
	return 0, false
}

// Assume takes note that a node or a device is online of which nothing else is known: the row of its node was not written. The node is asked for
// its births.
func (m *Machine) Assume(externalID string, now time.Time) {
	levels := strings.SplitN(externalID, "/", 3)
	if len(levels) < 2 {
		return
	}
	n := m.node(levels[0] + "/" + levels[1])
	if n == nil {
		return
	}
	if n.root == nil {
		n.root, n.seen = &birth{online: true, texts: &texts{}}, now
		m.ask(n, CauseReconnect, now)
	}
	if len(levels) == 3 && n.devices[levels[2]] == nil && len(n.devices) < MaxDevices {
		n.devices[levels[2]] = &birth{device: levels[2], online: true, texts: &texts{}}
	}
	n.birthsChanged = true
	m.dirty[n.id] = n
}

// IsOnline reports whether a node, or a device of it, is online.
func (m *Machine) IsOnline(node, device string) bool {
	n := m.nodes[node]
	if n == nil {
		return false
	}
	b := n.birthOf(device)
	return b != nil && b.online
}

// LinkUp takes note that the source is connected: what nodes said meanwhile is not known.
func (m *Machine) LinkUp(now time.Time) []Effect {
	for _, n := range m.nodes {
		if n.online() {
			n.unverified = true
			m.busy[n.id] = n
		}
	}
	return m.Tick(now)
}

// LinkDown takes note that the source is not connected any more. What waited for an overtaken message waits for a birth.
func (m *Machine) LinkDown() []Effect {
	m.out = m.out[:0]
	for _, id := range sortedKeys(m.nodes) {
		n := m.nodes[id]
		if len(n.early) > 0 {
			m.unsync(n)
		}
		n.reconcileAt = time.Time{}
	}
	return m.out
}

// Dropped takes note that readings of a node were dropped: its values are owed, and come with its births.
func (m *Machine) Dropped(node string, now time.Time) {
	if n := m.nodes[node]; n != nil && n.online() {
		m.ask(n, CauseDropped, now)
	}
}

// Tick returns what follows from the time. It is to be called some times a second.
func (m *Machine) Tick(now time.Time) []Effect {
	m.out = m.out[:0]
	for _, id := range sortedKeys(m.busy) {
		n := m.busy[id]
		if m.tick(n, now); !n.waits() {
			delete(m.busy, id)
		}
	}
	return m.out
}

// waits reports whether something of a node follows from the time.
func (n *node) waits() bool {
	return n.unverified || n.duplicate || n.giveUp || len(n.early) > 0 || !n.reconcileAt.IsZero() || n.textsWait
}

func (m *Machine) tick(n *node, now time.Time) {
	if n.giveUp {
		n.giveUp = false
		m.dropHeld(n, "no birth followed")
		if n.root == nil {
			m.forget(n)
			return
		}
	}
	if n.duplicate && now.Sub(n.swung) > swingWindow {
		// The quarrel is over; what was asserted meanwhile is not known.
		n.duplicate, n.swings = false, nil
		m.unsync(n)
		m.ask(n, CauseReconnect, now)
	}
	if n.unverified && now.Sub(n.seen) >= m.rules.ResumeWithin {
		m.unsync(n)
		m.ask(n, CauseReconnect, now)
	}
	if len(n.early) > 0 && !now.Before(n.gapUntil) {
		m.gap(n, now)
	}
	if !n.reconcileAt.IsZero() && !now.Before(n.reconcileAt) {
		n.reconcileAt = time.Time{}
		m.reconcile(n, now)
	}
	if !n.textsWait {
		return
	}
	n.textsWait = false
	m.flush(n, n.root, now)
	for _, name := range sortedKeys(n.devices) {
		m.flush(n, n.devices[name], now)
	}
}

// reconcile ends the wait for a birth: of the node when it is owed, else of those of its devices that have not been born since.
func (m *Machine) reconcile(n *node, now time.Time) {
	if n.owes == CauseReconnect {
		m.down(n, ReasonReconcile, now)
		return
	}
	for _, name := range sortedKeys(n.devices) {
		if b := n.devices[name]; b.online && !b.fresh {
			m.offline(n, b, ReasonReconcile, now)
		}
	}
	m.dropHeldDevices(n)
}

func sortedKeys[V any](in map[string]V) []string {
	if len(in) == 0 {
		return nil
	}
	keys := make([]string, 0, len(in))
	for k := range in {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
