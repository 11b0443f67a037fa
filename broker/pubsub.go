package broker

import (
	"container/list"
	"sync"
	"time"

	"weir/model"
)

// pubsub holds the connections and sessions of a service, their subscriptions, what waits for them and what is retained.
// There is one for the devices and one for the open topics: the same code, apart from each other, so that no client of one can
// meet the other.
//
// One lock guards all of it. A goroutine that holds it writes to no connection: a delivery goes into the client's queue and is
// written from there without the lock, so that a slow client delays no other.
type pubsub struct {
	service service
	limits  limits
	metrics *pubsubMetrics

	mu            sync.Mutex
	conns         map[string]*conn // by client id, the latest
	perDevice     map[int64]int    // connections
	sessions      map[string]*session
	away          list.List // of *session without a connection, the one that left first in front
	tree          topicTree
	subscriptions int
	retained      int
	retainedBytes int64
	queued        int
	queuedBytes   int64
	closing       bool
	gathered      map[*session]*delivery // of the publish that is being delivered
}

// limits bound a pubsub and say what it offers.
type limits struct {
	OpenConfig                 // its maxima
	MaxConnections func() int  // they may change
	MaxPerDevice   int         // 0: not bounded
	MaxQoS         byte        // of subscriptions
	MaxAliases     uint16      // topic aliases of a connection, in each direction
	Identifiers    bool        // subscription identifiers
	KeepsMessages  bool        // for clients that are away
	AllowQoS2      func() bool // of publishes
}

func newPubsub(s service, l limits, m *pubsubMetrics) *pubsub {
	return &pubsub{service: s, limits: l, metrics: m, conns: map[string]*conn{}, perDevice: map[int64]int{}, sessions: map[string]*session{},
		gathered: map[*session]*delivery{}}
}

func (p *pubsub) qos2() bool { return p.limits.AllowQoS2() }

// claim takes the client id for a connection and waits until nothing is left of the connection that had it before. Of many
// that come at once the last one stays.
func (p *pubsub) claim(c *conn) *refusal {
	p.mu.Lock()
	old := p.conns[c.clientID]
	switch {
	case p.closing:
		p.mu.Unlock()
		return refuseStopping
	case old != nil: // its place is taken over
	case len(p.conns) >= p.limits.MaxConnections(), p.limits.MaxPerDevice > 0 && p.perDevice[c.binding.DeviceID] >= p.limits.MaxPerDevice:
		p.mu.Unlock()
		return refuseBusy
	}
	p.conns[c.clientID] = c
	p.perDevice[c.binding.DeviceID] += newPlace(old)
	p.gauge()
	p.mu.Unlock()
	if old != nil {
		old.end(causeTakenOver)
		<-old.done
	}
	return nil
}

// newPlace is 1 for a connection that takes over no other.
func newPlace(old *conn) int {
	if old == nil {
		return 1
	}
	return 0
}

// unclaim gives the client id back, unless another connection has it by now. It needs the lock.
func (p *pubsub) unclaim(c *conn) {
	if p.conns[c.clientID] != c {
		return
	}
	delete(p.conns, c.clientID)
	if p.perDevice[c.binding.DeviceID]--; p.perDevice[c.binding.DeviceID] == 0 {
		delete(p.perDevice, c.binding.DeviceID)
	}
	p.gauge()
}

// release gives back the client id of a connection that was never served.
func (p *pubsub) release(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unclaim(c)
}

func (p *pubsub) live() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*conn, 0, len(p.conns))
	for _, c := range p.conns {
		all = append(all, c)
	}
	return all
}

func (p *pubsub) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// drop ends the connections whose binding matches, and the kept sessions whose delayed will the binding may not publish any
// more. It returns how many connections it ended.
func (p *pubsub) drop(match func(model.Binding) bool) (n int) {
	for _, c := range p.live() {
		if c.binding.Tenant != "" && match(c.binding) && c.end(causeDropped) {
			n++
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for e := p.away.Front(); e != nil; {
		s := e.Value.(*session)
		e = e.Next()
		if s.will != nil && s.will.binding.Tenant != "" && match(*s.will.binding) {
			s.will.revoked = true
			p.discard(s)
		}
	}
	p.gauge()
	return n
}

// shut refuses new connections and ends those that there are.
func (p *pubsub) shut() []*conn {
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	all := p.live()
	for _, c := range all {
		c.end(causeShutdown)
	}
	return all
}

// clear ends every session and removes every retained message: they live in memory.
func (p *pubsub) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for e := p.away.Front(); e != nil; e = p.away.Front() {
		p.discard(e.Value.(*session))
	}
	p.sessions, p.tree = map[string]*session{}, topicTree{}
}

// publish accepts a message and delivers it. It returns why it was refused, "" when it was not.
func (p *pubsub) publish(m *message) (refused string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.gauge()
	return p.publishLocked(m)
}

// publishLocked is publish for a caller that holds the lock.
func (p *pubsub) publishLocked(m *message) (refused string) {
	if m.retain && !p.retain(m) {
		p.metrics.refused.WithLabelValues(openRetainedFull).Inc()
		return openRetainedFull
	}
	p.metrics.received.Inc()
	p.tree.match(m.topic, func(n *topicNode) {
		for _, s := range n.subs {
			p.gather(m, s)
		}
		for _, g := range n.groups {
			if s := p.choose(g, m); s != nil {
				p.enqueue(s.session, s.delivery(m))
			}
		}
	})
	for s, d := range p.gathered {
		p.enqueue(s, *d)
	}
	clear(p.gathered)
	return ""
}

// delivery is a message as a subscription asks for it.
func (s *subscription) delivery(m *message) delivery {
	d := delivery{message: m, qos: min(m.qos, s.qos), retain: m.retain && s.asPublished} // MQTT-3.3.1-12, -13
	if s.id > 0 {
		d.ids = []uint32{s.id}
	}
	return d
}

// gather joins the subscriptions of one client that match into one delivery: with the highest of their QoS (MQTT-3.3.4-2)
// and all of their identifiers (MQTT-3.3.4-4).
func (p *pubsub) gather(m *message, s *subscription) {
	if s.noLocal && s.session.id == m.from { // MQTT-3.8.3-3
		return
	}
	one := s.delivery(m)
	d := p.gathered[s.session]
	if d == nil {
		p.gathered[s.session] = &one
		return
	}
	d.qos, d.retain, d.ids = max(d.qos, one.qos), d.retain || one.retain, append(d.ids, one.ids...)
}

// choose returns the next member of a group: of the connected members whose queue has space, otherwise of the disconnected
// ones.
func (p *pubsub) choose(g *shareGroup, m *message) *subscription {
	var second *subscription
	for i := range g.members {
		s := g.members[(g.next+i)%len(g.members)]
		switch {
		case !p.hasRoom(s.session, m):
		case s.session.conn != nil:
			g.next = (g.next + i + 1) % len(g.members)
			return s
		case second == nil:
			second = s
		}
	}
	if second == nil && len(g.members) > 0 {
		second = g.members[0] // its queue is full: the message is counted as dropped there
	}
	return second
}

// retain keeps a message as the last of its topic, or removes that when it is empty (MQTT-3.3.1-6). It returns false when the
// maximum is reached.
func (p *pubsub) retain(m *message) bool {
	n := p.tree.find(m.topic, false)
	var old *message
	if n != nil {
		old = n.retained
	}
	if len(m.payload) == 0 {
		if old != nil {
			p.removeRetained(n)
		}
		return true
	}
	count, bytes := 1, m.size()
	if old != nil {
		count, bytes = 0, bytes-old.size()
	}
	if !p.retainable(count, bytes, levelsOf(m.topic)) {
		p.sweep()
		if !p.retainable(count, bytes, levelsOf(m.topic)) {
			return false
		}
	}
	p.tree.find(m.topic, true).retained = m // the sweep may have removed the node
	p.retained, p.retainedBytes = p.retained+count, p.retainedBytes+bytes
	return true
}

func (p *pubsub) retainable(count int, bytes int64, levels int) bool {
	return p.retained+count <= p.limits.MaxRetained && p.retainedBytes+bytes <= p.limits.MaxRetainedBytes && p.tree.nodes+levels*count <= p.limits.MaxNodes
}

// removeRetained removes the retained message of a node.
func (p *pubsub) removeRetained(n *topicNode) {
	p.retained--
	p.retainedBytes -= n.retained.size()
	n.retained = nil
	p.tree.prune(n)
}

// sweep removes the retained messages that have expired (MQTT-3.3.2-5).
func (p *pubsub) sweep() {
	var over []*topicNode
	now := time.Now()
	p.tree.root.walk(func(n *topicNode) {
		if n.retained != nil && n.retained.expired(now) {
			over = append(over, n)
		}
	})
	for _, n := range over {
		p.removeRetained(n)
	}
}

// gauge updates the metrics of what is held.
func (p *pubsub) gauge() {
	m := p.metrics
	m.connections.Set(float64(len(p.conns)))
	m.kept.Set(float64(p.away.Len()))
	m.retained.Set(float64(p.retained))
	m.retainedBytes.Set(float64(p.retainedBytes))
	m.queued.Set(float64(p.queued))
	m.queuedBytes.Set(float64(p.queuedBytes))
	m.subscriptions.Set(float64(p.subscriptions))
	m.nodes.Set(float64(p.tree.nodes))
}
