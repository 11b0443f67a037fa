package broker

import (
	"bufio"
	"encoding/binary"
	"net"
	"runtime/debug"
	"sync"
	"time"
)

// openConn is a connection to the open topics. What every connection has, its clock, its writer and its end, is a
// session's. One goroutine reads it and answers into out; another writes out, and what waits for the client, to the wire.
type openConn struct {
	*session
	h        *openTopics
	client   *openSession
	assigned bool // the client id is the server's choice
	present  bool // there was a session before
	bridge   bool // it gets nothing back that it sent, and retained messages as such
	aliases  map[uint16]string

	awake  chan struct{} // a hint that there is something to write
	room   chan struct{} // a hint that out was written
	writer sync.WaitGroup

	// The lock of openTopics guards these.
	out   []byte
	quota int // publishes at QoS 1 and 2 that may still be sent
	told  map[string]uint16
	most  uint16 // topic aliases that the client takes
}

func newOpenConn(h *openTopics, conn net.Conn, in *bufio.Reader, p *connect, proof Proof) *openConn {
	c := &openConn{session: newSession(h.b, conn, in, p, identity{}, proof), h: h, bridge: p.bridge, most: min(p.aliasMaximum, openAliases),
		awake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	c.quota = h.cfg.MaxInflight
	if p.receiveMaximum > 0 {
		c.quota = min(c.quota, int(p.receiveMaximum))
	}
	return c
}

func (c *openConn) wake() {
	select {
	case c.awake <- struct{}{}:
	default:
	}
}

// run serves the connection until it ends.
func (c *openConn) run() {
	defer func() {
		if p := recover(); p != nil {
			c.b.metrics.panics.Inc()
			c.b.log.Error("a connection to the open topics panicked", "panic", p, "stack", string(debug.Stack()))
			c.end(causePanic)
		}
	}()
	c.established, c.since = true, time.Now()
	c.b.metrics.connects.Inc()
	if c.proofEnds != 0 {
		c.expire = time.AfterFunc(max(c.proofEnds.Time().Sub(c.b.deps.Now()), 0), func() { c.end(causeExpired) })
	}
	c.answer(c.connack())
	c.writer.Go(c.writeAll)
	for c.next() {
	}
}

// finish says the last word, after what was answered before, and leaves.
func (c *openConn) finish() {
	c.end(causeLost)
	why := c.cause.Load()
	c.stall.stop()
	if c.expire != nil {
		c.expire.Stop()
	}
	c.writer.Wait()
	c.h.mu.Lock()
	rest := c.out
	c.out = nil
	c.h.mu.Unlock()
	if why.code != 0 && c.version == mqtt5 {
		rest = append(rest, disconnectText(why.code, c.reason(why.text), c.maxPacket)...)
	}
	c.wmu.Lock()
	c.hurryUp()
	if why != causeSlowReader && why != causeLost {
		_, _ = c.conn.Write(rest) // it may be gone already; the connection ends either way
	}
	c.wmu.Unlock()
	c.b.metrics.disconnects.WithLabelValues(why.word).Inc()
	c.b.log.Debug("a connection to the open topics ended", "client", c.clientID, "cause", why.word)
	c.h.leave(c, why)
	close(c.done)
	linger(c.conn)
}

// writeBatch is how many bytes are put into one write, about.
const writeBatch = 32 << 10

// writeAll writes what there is to write until the connection ends.
func (c *openConn) writeAll() {
	defer func() {
		if p := recover(); p != nil {
			c.b.metrics.panics.Inc()
			c.b.log.Error("writing to a client of the open topics panicked", "panic", p, "stack", string(debug.Stack()))
			c.end(causePanic)
		}
	}()
	var b []byte
	for c.ctx.Err() == nil {
		if b = c.h.fill(c, b[:0]); len(b) > 0 {
			if c.write(b) != nil {
				return
			}
			continue
		}
		if cap(b) > readBuffer { // a large one is not held for a connection that may be idle from now on
			b = nil
		}
		select {
		case <-c.awake:
		case <-c.ctx.Done():
		}
	}
}

// fill takes what is to be written next: answers, then what is to be repeated on a new connection (MQTT-4.4.0-1), then
// what waits, in its order, as far as the client's receive maximum goes (section 4.9).
func (h *openTopics) fill(c *openConn, b []byte) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, c.out = append(b, c.out...), c.out[:0]
	if cap(c.out) > readBuffer {
		c.out = nil
	}
	select {
	case c.room <- struct{}{}:
	default:
	}
	now := time.Now()
	s := c.client
	for _, o := range s.unsent() {
		switch {
		case o.received:
			b, o.sent = appendAck(b, c.version, pktPubrel, o.id, codeSuccess, "", 0), true
		case c.quota == 0 || len(b) >= writeBatch:
			return b
		default:
			b = h.repeat(c, b, o, now)
		}
	}
	for len(s.queue) > 0 && len(b) < writeBatch {
		d := s.queue[0]
		if d.qos > 0 && !d.expired(now) && (c.quota == 0 || len(s.inflight) >= h.cfg.MaxInflight) {
			break
		}
		s.queue[0] = delivery{}
		s.queue = s.queue[1:]
		b = h.send(c, b, &d, now)
	}
	if len(s.queue) == 0 {
		s.queue = nil
	}
	h.gauge()
	return b
}

// repeat encodes a message once more.
func (h *openTopics) repeat(c *openConn, b []byte, o *outgoing, now time.Time) []byte {
	before := len(b)
	if b = c.encode(b, &o.delivery, o.id, true, now); len(b) == before { // it takes smaller packets than last time
		h.metrics.dropped.WithLabelValues(openTooLarge).Inc()
		h.done(c.client, o)
		return b
	}
	c.quota--
	o.sent, o.counts = true, true
	return b
}

// send encodes a message that leaves the queue.
func (h *openTopics) send(c *openConn, b []byte, d *delivery, now time.Time) []byte {
	s := c.client
	if d.expired(now) { // MQTT-3.3.2-5
		h.metrics.dropped.WithLabelValues(openExpired).Inc()
		h.released(s, d.message)
		return b
	}
	var id uint16
	if d.qos > 0 {
		id = s.identifier()
	}
	before := len(b)
	b = c.encode(b, d, id, false, now)
	switch {
	case len(b) == before: // MQTT-3.1.2-25: as if it were sent
		h.metrics.dropped.WithLabelValues(openTooLarge).Inc()
		h.released(s, d.message)
	case d.qos == 0:
		h.released(s, d.message)
	default:
		c.quota--
		s.inflight = append(s.inflight, &outgoing{delivery: *d, id: id, sent: true, counts: true})
	}
	return b
}

// encode appends a PUBLISH, by alias where the client takes those, and nothing when the client takes none so large.
func (c *openConn) encode(b []byte, d *delivery, id uint16, dup bool, now time.Time) []byte {
	topic, alias, isNew := d.topic, uint16(0), false
	if c.version == mqtt5 && c.most > 0 {
		if alias = c.told[topic]; alias > 0 {
			topic = ""
		} else if len(c.told) < int(c.most) {
			alias, isNew = uint16(len(c.told)+1), true
		}
	}
	before := len(b)
	b = appendPublish(b, c.version, d, id, dup, topic, alias, now)
	if c.maxPacket > 0 && len(b)-before > int(c.maxPacket) {
		return b[:before]
	}
	if isNew {
		if c.told == nil {
			c.told = map[string]uint16{}
		}
		c.told[d.topic] = alias
	}
	c.h.metrics.delivered.Inc()
	return b
}

// answer puts packets into out. While much waits there the connection is read no further.
func (c *openConn) answer(packets []byte) {
	for {
		c.h.mu.Lock()
		full := len(c.out) > largePacket
		if !full {
			c.out = append(c.out, packets...)
		}
		c.h.mu.Unlock()
		if !full {
			c.wake()
			return
		}
		select {
		case <-c.room:
		case <-c.ctx.Done():
			return
		}
	}
}

// connack says what is offered (section 3.2): all of MQTT, within bounds.
func (c *openConn) connack() []byte {
	present := byte(0)
	if c.present {
		present = 1
	}
	if c.version < mqtt5 {
		return []byte{pktConnack << 4, 2, present, 0}
	}
	two := func(b []byte, id byte, v uint16) []byte { return binary.BigEndian.AppendUint16(append(b, id), v) }
	props := two(nil, propReceiveMaximum, uint16(c.b.cfg.ReceiveMaximum))
	props = binary.BigEndian.AppendUint32(append(props, propMaximumPacketSize), uint32(c.b.cfg.MaxPacket))
	props = two(props, propTopicAliasMaximum, openAliases)
	props = two(props, propServerKeepAlive, uint16(c.keepAlive/time.Second))
	if c.expiry != c.asked {
		props = binary.BigEndian.AppendUint32(append(props, propSessionExpiry), c.expiry)
	}
	if c.assigned {
		props = two(props, propAssignedClientID, uint16(len(c.clientID)))
		props = append(props, c.clientID...)
	}
	body := append(appendVarint([]byte{present, codeSuccess}, len(props)), props...)
	return append(appendVarint([]byte{pktConnack << 4}, len(body)), body...)
}
