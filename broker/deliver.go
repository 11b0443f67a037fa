package broker

import (
	"sync"
	"time"

	"weir/command"
	"weir/internal/faults"
)

// outbox holds the bytes and messages that are to be written to a client besides the acknowledgements of its own publishes. The
// reader of the connection writes its answers itself; a goroutine that ends when nothing is left writes deliveries, so that a
// connection that only listens has none. The lock of the connection's pubsub guards it.
type outbox struct {
	out        []byte // encoded answers
	writing    bool   // one goroutine writes: the reader, or that of deliveries
	shut       bool
	quota      int // publishes at QoS 1 and 2 that may still be sent
	sentAlias  map[string]uint16
	maxAliases uint16         // topic aliases that the client takes
	writers    sync.WaitGroup // of deliveries and of acknowledgements
}

func (o *outbox) init(p *pubsub, hello *connect) {
	o.maxAliases, o.quota = min(hello.aliasMaximum, p.limits.MaxAliases), p.limits.MaxInflight
	o.writing = true // of the CONNACK
	if hello.receiveMaximum > 0 {
		o.quota = min(o.quota, int(hello.receiveMaximum))
	}
}

// writeBatch is how many bytes are put into one write, about.
const writeBatch = 32 << 10

// wake starts the writing goroutine, unless it runs. It needs the lock.
func (c *conn) wake() {
	if !c.writing && !c.shut {
		c.writing = true
		c.writers.Go(c.deliver)
	}
}

// deliver writes the outbox until it is empty.
func (c *conn) deliver() {
	defer c.recovered("writing to a client panicked")
	for b := c.pubsub.fill(c, nil); len(b) > 0 && c.put(b) == nil; {
		b = c.pubsub.fill(c, b[:0])
	}
	c.service.idle(c)
}

// put writes what fill has encoded.
func (c *conn) put(b []byte) error {
	err := c.write(b)
	c.written(err)
	return err
}

// answer writes packets for the reader of the connection. While another goroutine writes they wait in the outbox, and when
// much waits there the connection is read no further.
func (c *conn) answer(packets []byte) {
	for {
		c.pubsub.mu.Lock()
		if len(c.out) <= largePacket {
			c.out = append(c.out, packets...)
			c.flush()
			return
		}
		c.pubsub.mu.Unlock()
		select {
		case <-c.acks.room:
		case <-c.ctx.Done():
			return
		}
	}
}

// flush writes what waits, up to a batch, for the reader of the connection, and leaves the rest to a goroutine. It is called
// with the lock and releases it.
func (c *conn) flush() {
	if c.writing || c.shut {
		c.pubsub.mu.Unlock()
		return
	}
	c.writing = true
	c.pubsub.mu.Unlock()
	if b := c.pubsub.fill(c, nil); len(b) == 0 || c.put(b) != nil {
		return
	}
	c.pubsub.mu.Lock()
	defer c.pubsub.mu.Unlock()
	c.writing = false
	if len(c.out) > 0 || len(c.session.queue) > 0 || c.offered || c.shared.due() {
		c.wake()
	}
}

// openOutbox begins with deliveries, after the CONNACK: first with what the session from before has left.
func (c *conn) openOutbox() {
	c.pubsub.mu.Lock()
	c.writing = false
	c.service.changed(c)
	if len(c.session.queue) == 0 && len(c.session.inflight) == 0 {
		c.pubsub.mu.Unlock()
		return
	}
	c.flush()
}

// shutOutbox waits until no goroutine writes any more and returns the answers that were not written.
func (c *conn) shutOutbox() []byte {
	c.pubsub.mu.Lock()
	c.shut = true
	c.pubsub.mu.Unlock()
	c.writers.Wait()
	c.pubsub.mu.Lock()
	defer c.pubsub.mu.Unlock()
	rest := c.out
	c.out = nil
	return rest
}

// fill appends to b what is to be written next: answers, then what is to be repeated on a new connection (MQTT-4.4.0-1), then
// what waits, in its order, as far as the client's receive maximum allows (section 4.9). When there is nothing the writing
// ends.
func (p *pubsub) fill(c *conn, b []byte) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { c.writing = len(b) > 0 && c.ctx.Err() == nil }()
	if c.ctx.Err() != nil {
		return nil
	}
	b, c.out = append(b, c.out...), nil
	select {
	case c.acks.room <- struct{}{}:
	default:
	}
	now := time.Now()
	s := c.session
	for _, o := range s.unsent() {
		switch {
		case o.received:
			b, o.sent = appendAck(b, c.version, pktPubrel, o.id, codeSuccess, "", 0), true
		case c.quota == 0 || len(b) >= writeBatch:
			return b
		default:
			b = p.repeat(c, b, o, now)
		}
	}
	for len(s.queue) > 0 && len(b) < writeBatch {
		d := s.queue[0]
		if d.qos > 0 && !d.expired(now) && (c.quota == 0 || len(s.inflight) >= p.limits.MaxInflight) {
			break
		}
		s.queue[0] = delivery{}
		s.queue = s.queue[1:]
		b = p.send(c, b, &d, now)
	}
	if len(s.queue) == 0 {
		s.queue = nil
	}
	p.gauge()
	return b
}

// repeat encodes a message once more.
func (p *pubsub) repeat(c *conn, b []byte, o *outgoing, now time.Time) []byte {
	before := len(b)
	if b = c.encode(b, &o.delivery, o.id, true, now); len(b) == before { // it takes smaller packets than last time
		p.metrics.dropped.WithLabelValues(openTooLarge).Inc()
		p.done(c.session, o)
		return b
	}
	c.quota--
	o.sent, o.counts = true, true
	return b
}

// send encodes a message that leaves the queue.
func (p *pubsub) send(c *conn, b []byte, d *delivery, now time.Time) []byte {
	s := c.session
	if d.expired(now) { // MQTT-3.3.2-5
		p.metrics.dropped.WithLabelValues(openExpired).Inc()
		p.released(s, d.message)
		d.end(command.Lost, "")
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
		p.metrics.dropped.WithLabelValues(openTooLarge).Inc()
		p.released(s, d.message)
		d.end(command.Undeliverable, "the command is larger than the packets that the device takes")
	case d.qos == 0:
		p.released(s, d.message)
		if d.ended != nil {
			c.unconfirmed = append(c.unconfirmed, *d)
		}
	default:
		if d.ended != nil {
			faults.Point("command.packet")
		}
		c.quota--
		if !p.limits.KeepsMessages { // it will not be repeated
			p.released(s, d.message)
			d.message = &message{topic: d.topic, qos: d.message.qos}
			p.account(s, d.message, 1)
		}
		s.inflight = append(s.inflight, &outgoing{delivery: *d, id: id, sent: true, counts: true})
	}
	return b
}

// encode appends a PUBLISH, by alias where the client takes those, and nothing when it would be larger than the client takes.
func (c *conn) encode(b []byte, d *delivery, id uint16, dup bool, now time.Time) []byte {
	topic, alias, isNew := d.topic, uint16(0), false
	if c.version == mqtt5 && c.maxAliases > 0 {
		if alias = c.sentAlias[topic]; alias > 0 {
			topic = ""
		} else if len(c.sentAlias) < int(c.maxAliases) {
			alias, isNew = uint16(len(c.sentAlias)+1), true
		}
	}
	before := len(b)
	b = appendPublish(b, c.version, d, id, dup, topic, alias, now)
	if c.maxPacket > 0 && len(b)-before > int(c.maxPacket) {
		return b[:before]
	}
	if isNew {
		if c.sentAlias == nil {
			c.sentAlias = map[string]uint16{}
		}
		c.sentAlias[d.topic] = alias
	}
	c.pubsub.metrics.delivered.Inc()
	return b
}

// acknowledged handles a PUBACK, PUBREC or PUBCOMP of the client.
func (c *conn) acknowledged(kind byte, id uint16, code byte) *cause {
	c.pubsub.mu.Lock()
	o := c.session.exchange(id)
	var answer byte = codeSuccess
	switch {
	case o == nil:
		answer = codeIdentifierNotFound
	case (o.qos == 2) == (kind == pktPuback), kind == pktPubcomp && !o.received: // another QoS, or an end without a PUBREC
		c.pubsub.mu.Unlock()
		return causeProtocol
	case kind == pktPubrec && code < codeUnspecified:
		o.received, o.sent = true, true
	default:
		c.pubsub.done(c.session, o)
		if code < codeUnspecified {
			o.end(command.Acknowledged, "")
		} else {
			o.end(command.Unwritten, "the device refused the packet")
		}
		kind = 0 // nothing is left to be answered (MQTT-4.3.3-4)
	}
	c.pubsub.mu.Unlock()
	if kind == pktPubrec {
		c.answer(appendAck(nil, c.version, pktPubrel, id, answer, "", 0))
	}
	return nil
}
