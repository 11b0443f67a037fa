package broker

import (
	"container/list"
	"slices"
	"time"

	"weir/command"
	"weir/model"
)

// session is what is kept of a client (section 4.1): it outlives the connection as long as its expiry says. The lock of its
// pubsub guards it.
type session struct {
	id       string
	conn     *conn // nil while the client is away
	subs     map[string]*subscription
	queue    []delivery
	bytes    int64 // of the queue and of what is in flight
	inflight []*outgoing
	lastID   uint16              // packet identifier used last
	second   map[uint16]struct{} // identifiers of publishes to open topics at QoS 2 that wait for their PUBREL

	place    *list.Element // among those that are away
	will     *lastWill     // waits for its delay
	expires  *time.Timer
	willDue  *time.Timer
	absences uint64 // by which a timer knows whether the client came back meanwhile
}

// lastWill is the will of a connection that has ended.
type lastWill struct {
	*will
	clientID string
	binding  *model.Binding // of the connection
	revoked  bool           // the client may not publish any more
}

// join gives a connection its session: the one that was kept, unless it is to start clean (MQTT-3.1.2-4). The client that
// returns cancels its delayed will (MQTT-3.1.3-9); a clean start ends the session and publishes it.
func (p *pubsub) join(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sessions[c.clientID]
	if s != nil && c.clean {
		p.discard(s)
		s = nil
	}
	c.present = s != nil
	if s == nil {
		s = &session{id: c.clientID}
		p.sessions[c.clientID] = s
	}
	s.stopTimers()
	s.will = nil
	p.returned(s)
	s.conn, c.session = c, s
	for _, o := range s.inflight {
		o.sent, o.counts = false, false
	}
	p.gauge()
}

func (p *pubsub) returned(s *session) {
	s.absences++
	if s.place != nil {
		p.away.Remove(s.place)
		s.place = nil
	}
}

// leave takes the connection from its session and ends or keeps that. It returns the will when it is due now: only the client
// itself removes its will, with a DISCONNECT of reason 0 (MQTT-3.1.2-8).
func (p *pubsub) leave(c *conn, why *cause) (due *lastWill) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.gauge()
	p.unclaim(c)
	s := c.session
	s.conn = nil
	p.service.changed(c)
	if c.will != nil && why.kind != clean {
		due = &lastWill{will: c.will, clientID: c.clientID, binding: &c.binding, revoked: why.kind == revoked}
	}
	if c.expiry == 0 || why.kind == revoked || p.closing {
		p.discard(s)
		return due
	}
	var delayed *lastWill
	if due != nil && due.delay > 0 {
		delayed, due = due, nil
	}
	p.keep(s, c, delayed)
	return due
}

// keep stores a session for a client that may come back. The one that left first goes when there are too many.
func (p *pubsub) keep(s *session, c *conn, will *lastWill) {
	p.keepQueue(s)
	s.place = p.away.PushBack(s)
	life, absence := time.Duration(c.expiry)*time.Second, s.absences
	s.expires = time.AfterFunc(life, func() { p.later(s, absence, func() { p.discard(s) }) })
	if will != nil {
		s.will = will
		s.willDue = time.AfterFunc(min(life, time.Duration(will.delay)*time.Second), func() { p.later(s, absence, func() { p.sayWill(s) }) })
	}
	for p.away.Len() > p.limits.MaxSessions {
		p.discard(p.away.Front().Value.(*session))
		p.metrics.evicted.Inc()
	}
}

// keepQueue leaves in the queue the messages that belong to the session: none at QoS 0, and none at all if the platform keeps
// messages for disconnected clients.
func (p *pubsub) keepQueue(s *session) {
	if p.limits.KeepsMessages {
		s.queue = slices.DeleteFunc(s.queue, func(d delivery) bool {
			if d.qos == 0 {
				p.released(s, d.message)
			}
			return d.qos == 0
		})
		return
	}
	p.clearQueue(s)
}

// clearQueue drops what waits for a client, and what it has not acknowledged.
func (p *pubsub) clearQueue(s *session) {
	for i := range s.inflight {
		s.inflight[i].end(command.Lost, "")
	}
	for i := range s.queue {
		s.queue[i].end(command.Lost, "")
	}
	p.queued -= len(s.queue) + len(s.inflight)
	p.queuedBytes -= s.bytes
	s.queue, s.inflight, s.bytes = nil, nil, 0
}

// later does what a timer was set for, unless the client came back meanwhile.
func (p *pubsub) later(s *session, absence uint64, do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sessions[s.id] == s && s.absences == absence && !p.closing {
		do()
		p.gauge()
	}
}

func (s *session) stopTimers() {
	for _, t := range []*time.Timer{s.expires, s.willDue} {
		if t != nil {
			t.Stop()
		}
	}
}

// discard ends a session; a will that waited for its delay is due with it.
func (p *pubsub) discard(s *session) {
	p.returned(s)
	s.stopTimers()
	for _, sub := range s.subs {
		p.tree.unsubscribe(sub)
		p.subscriptions--
	}
	s.subs = nil
	p.clearQueue(s)
	if p.sessions[s.id] == s {
		delete(p.sessions, s.id)
	}
	p.sayWill(s)
}

func (p *pubsub) sayWill(s *session) {
	if will := s.will; will != nil {
		s.will = nil
		p.service.sayWill(will)
	}
}

// hasRoom reports whether a client's queue takes a message.
func (p *pubsub) hasRoom(s *session, m *message) bool {
	return len(s.queue) < p.limits.MaxQueued && s.bytes+m.size() <= p.limits.MaxQueuedBytes && p.queuedBytes+m.size() <= allQueues*p.limits.MaxQueuedBytes
}

// enqueue puts a message into the queue of a client. A client that is away gets none at QoS 0.
func (p *pubsub) enqueue(s *session, d delivery) {
	switch {
	case s.conn == nil && (d.qos == 0 || !p.limits.KeepsMessages):
		return
	case !p.hasRoom(s, d.message):
		p.metrics.dropped.WithLabelValues(openQueueFull).Inc()
		return
	}
	s.queue = append(s.queue, d)
	p.account(s, d.message, 1)
	if s.conn != nil {
		s.conn.wake()
	}
}

// account adds n times a message to what waits for a client.
func (p *pubsub) account(s *session, m *message, n int) {
	s.bytes += int64(n) * m.size()
	p.queued += n
	p.queuedBytes += int64(n) * m.size()
}

// released takes a message out of what waits for a client.
func (p *pubsub) released(s *session, m *message) { p.account(s, m, -1) }

// identifier returns a packet identifier that is not in use.
func (s *session) identifier() uint16 {
	for {
		if s.lastID++; s.lastID != 0 && s.exchange(s.lastID) == nil {
			return s.lastID
		}
	}
}

func (s *session) exchange(id uint16) *outgoing {
	for _, o := range s.inflight {
		if o.id == id {
			return o
		}
	}
	return nil
}

// unsent are the exchanges that are to be taken up again on this connection.
func (s *session) unsent() (all []*outgoing) {
	for _, o := range s.inflight {
		if !o.sent {
			all = append(all, o)
		}
	}
	return all
}

// done ends an exchange.
func (p *pubsub) done(s *session, o *outgoing) {
	s.inflight = slices.DeleteFunc(s.inflight, func(other *outgoing) bool { return other == o })
	p.released(s, o.message)
	if s.conn != nil && o.counts {
		s.conn.quota++
		s.conn.wake()
	}
}
