package broker

import (
	"container/list"
	"slices"
	"time"
)

// openSession is what the open topics hold of a client (section 4.1): it outlives the connection as long as its expiry
// says. The lock of openTopics guards it.
type openSession struct {
	id       string
	conn     *openConn // nil while the client is away
	subs     map[string]*subscription
	queue    []delivery
	bytes    int64 // of the queue and of what is in flight
	inflight []*outgoing
	last     uint16              // packet identifier given last
	second   map[uint16]struct{} // identifiers of its publishes at QoS 2 that wait for their PUBREL

	place    *list.Element // among those that are away
	will     *will         // waits for its delay
	ends     *time.Timer
	speaks   *time.Timer // when the will is due
	absences uint64      // so that a timer knows its own
}

// join gives a connection its session: the one that was kept, unless it is to start clean (MQTT-3.1.2-4).
func (h *openTopics) join(c *openConn, kept *openSession) {
	if kept != nil && c.clean {
		h.discard(kept)
		kept = nil
	}
	c.present = kept != nil
	if kept == nil {
		kept = &openSession{id: c.clientID, subs: map[string]*subscription{}, second: map[uint16]struct{}{}}
		h.clients[c.clientID] = kept
	}
	kept.stopTimers()
	kept.will = nil // it is back in time (MQTT-3.1.3-9)
	h.comesBack(kept)
	kept.conn, c.client = c, kept
	for _, o := range kept.inflight {
		o.sent, o.counts = false, false
	}
}

func (h *openTopics) comesBack(s *openSession) {
	s.absences++
	if s.place != nil {
		h.away.Remove(s.place)
		s.place = nil
	}
}

// part takes the connection from its session and does what follows: the will (section 3.1.2.5), the end of the session.
func (h *openTopics) part(c *openConn, why *cause) {
	s := c.client
	s.conn = nil
	will := c.will
	if why.kind == clean {
		will = nil
	}
	if will != nil && (why.kind == revoked || h.closing) {
		h.withhold(why)
		will = nil
	}
	if will != nil && (will.delay == 0 || c.expiry == 0) {
		h.say(s, will)
		will = nil
	}
	if c.expiry == 0 || why.kind == revoked || h.closing {
		h.discard(s)
		return
	}
	h.goesAway(s, c, will)
}

// goesAway keeps a session for a client that may come back.
func (h *openTopics) goesAway(s *openSession, c *openConn, will *will) {
	h.keepOrdered(s)
	s.place = h.away.PushBack(s)
	life := time.Duration(c.expiry) * time.Second
	absence := s.absences
	s.ends = time.AfterFunc(life, func() { h.later(s, absence, func() { h.discard(s) }) })
	if will != nil {
		s.will = will
		delay := min(life, time.Duration(will.delay)*time.Second)
		s.speaks = time.AfterFunc(delay, func() { h.later(s, absence, func() { h.sayLate(s) }) })
	}
	for h.away.Len() > h.cfg.MaxSessions {
		h.discard(h.away.Front().Value.(*openSession))
		h.metrics.evicted.Inc()
	}
}

// keepOrdered leaves in the queue what belongs to the session: nothing at QoS 0.
func (h *openTopics) keepOrdered(s *openSession) {
	s.queue = slices.DeleteFunc(s.queue, func(d delivery) bool {
		if d.qos == 0 {
			h.released(s, d.message)
		}
		return d.qos == 0
	})
}

// later does what a timer was set for, unless the client came back meanwhile.
func (h *openTopics) later(s *openSession, absence uint64, do func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clients[s.id] == s && s.absences == absence && !h.closing {
		do()
		h.gauge()
	}
}

func (s *openSession) stopTimers() {
	for _, t := range []*time.Timer{s.ends, s.speaks} {
		if t != nil {
			t.Stop()
		}
	}
}

// discard ends a session; a will that waited for its delay is due with it.
func (h *openTopics) discard(s *openSession) {
	h.comesBack(s)
	s.stopTimers()
	for _, sub := range s.subs {
		h.tree.unsubscribe(sub)
		h.subscriptions--
	}
	h.queued -= len(s.queue) + len(s.inflight)
	h.queuedBytes -= s.bytes
	s.subs, s.queue, s.inflight, s.bytes = nil, nil, nil, 0
	if h.clients[s.id] == s {
		delete(h.clients, s.id)
	}
	h.sayLate(s)
}

func (h *openTopics) sayLate(s *openSession) {
	if will := s.will; will != nil {
		s.will = nil
		h.say(s, will)
	}
}

// withhold counts a will that is not published: who lost the right to publish has no last word either, and when Weir stops
// nobody is left to hear it.
func (h *openTopics) withhold(why *cause) {
	reason := openStopping
	if why.kind == revoked {
		reason = openRevoked
	}
	h.metrics.refused.WithLabelValues(reason).Inc()
}

// say publishes a will. Nobody is left to be told when there is no room for it; that is counted.
func (h *openTopics) say(s *openSession, w *will) {
	h.metrics.wills.Inc()
	h.handOut(&message{topic: w.topic, payload: w.payload, props: w.props, qos: w.qos, retain: w.retain, from: s.id,
		expires: expiry(time.Now(), w.expiry, w.expires)}) // its time begins now, section 3.1.3.2.4
}

// hasRoom reports whether a client's queue takes a message.
func (h *openTopics) hasRoom(s *openSession, m *message) bool {
	return len(s.queue) < h.cfg.MaxQueued && s.bytes+m.size() <= h.cfg.MaxQueuedBytes && h.queuedBytes+m.size() <= allQueues*h.cfg.MaxQueuedBytes
}

// enqueue puts a message into the queue of a client. One that is away gets none at QoS 0.
func (h *openTopics) enqueue(s *openSession, d delivery) {
	switch {
	case s.conn == nil && d.qos == 0:
		return
	case !h.hasRoom(s, d.message):
		h.metrics.dropped.WithLabelValues(openQueueFull).Inc()
		return
	}
	s.queue = append(s.queue, d)
	s.bytes += d.size()
	h.queued++
	h.queuedBytes += d.size()
	if s.conn != nil {
		s.conn.wake()
	}
}

// released takes a message out of the account of a client.
func (h *openTopics) released(s *openSession, m *message) {
	s.bytes -= m.size()
	h.queued--
	h.queuedBytes -= m.size()
}

// identifier returns a packet identifier that is not in use.
func (s *openSession) identifier() uint16 {
	for {
		if s.last++; s.last != 0 && s.exchange(s.last) == nil {
			return s.last
		}
	}
}

func (s *openSession) exchange(id uint16) *outgoing {
	for _, o := range s.inflight {
		if o.id == id {
			return o
		}
	}
	return nil
}

// unsent are the exchanges that are to be taken up again on this connection.
func (s *openSession) unsent() (all []*outgoing) {
	for _, o := range s.inflight {
		if !o.sent {
			all = append(all, o)
		}
	}
	return all
}

// done ends an exchange.
func (h *openTopics) done(s *openSession, o *outgoing) {
	s.inflight = slices.DeleteFunc(s.inflight, func(p *outgoing) bool { return p == o })
	h.released(s, o.message)
	if s.conn != nil && o.counts {
		s.conn.quota++
		s.conn.wake()
	}
}
