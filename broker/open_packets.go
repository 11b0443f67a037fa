package broker

import (
	"time"
)

// next reads one packet and does what it asks for. It returns false when the connection is over.
func (c *openConn) next() bool {
	if c.ctx.Err() != nil {
		return false
	}
	header, size, err := c.header()
	if err != nil {
		_ = c.readFailed(err)
		return false
	}
	c.b.metrics.packets[header>>4].Inc()
	ends := c.admitOpen(header, size)
	if ends == nil {
		body, release, err := c.body(size)
		if err != nil {
			_ = c.readFailed(err)
			return false
		}
		ends = c.packet(header, body)
		release()
	}
	if ends != nil {
		c.end(ends)
		return false
	}
	return true
}

// admitOpen judges a packet by its fixed header.
func (c *openConn) admitOpen(header byte, size int) *cause {
	kind, flags := header>>4, header&15
	switch {
	case size < 0, kind == 0, kind != pktPublish && flags != reservedFlags(kind):
		return causeMalformed
	case kind == pktPublish && packetSize(size) <= c.b.cfg.MaxPacket:
		return nil
	case packetSize(size) > min(c.b.cfg.MaxPacket, largePacket):
		return causeTooLarge
	}
	return nil
}

func (c *openConn) packet(header byte, body []byte) *cause {
	kind := header >> 4
	switch kind {
	case pktPublish:
		return c.publish(header, body)
	case pktDisconnect:
		return c.goodbye(body)
	case pktPuback, pktPubrec, pktPubrel, pktPubcomp, pktSubscribe, pktUnsubscribe, pktPingreq:
	default: // a second CONNECT, what only a server sends, an authentication that was not begun
		return causeProtocol
	}
	if ends := checkForm(c.version, kind, body); ends != nil {
		return ends
	}
	b := cursor{b: body}
	switch kind {
	case pktPingreq:
		c.answer([]byte{pktPingresp << 4, 0})
	case pktSubscribe:
		return c.subscribe(&b)
	case pktUnsubscribe:
		c.unsubscribe(&b)
	case pktPubrel:
		c.release(b.uint16())
	default:
		id := b.uint16()
		return c.acknowledged(kind, id, b.byte())
	}
	return nil
}

// publish takes a message of the client. It is answered once it is in the queues of those that are to have it.
func (c *openConn) publish(header byte, body []byte) *cause {
	p, ends := decodeOpenPublish(c.version, header, body, time.Now())
	if ends == nil {
		ends = c.resolve(&p)
	}
	if ends != nil {
		return ends
	}
	if p.qos == 2 {
		if _, again := c.client.second[p.id]; again { // MQTT-4.3.3-10
			c.acknowledge(&p, codeSuccess, "")
			return nil
		}
		if len(c.client.second) >= c.mostSecond() {
			return causeReceiveMaximum
		}
	}
	if why := c.h.forbidden(p.topic); why != "" {
		c.h.metrics.refused.WithLabelValues(why).Inc()
		return c.refuse(&p, why)
	}
	p.from = c.clientID
	m := p.message
	if why := c.h.publish(&m); why != "" {
		return c.refuse(&p, why)
	}
	if p.qos == 2 {
		c.client.second[p.id] = struct{}{}
	}
	c.acknowledge(&p, codeSuccess, "")
	return nil
}

// mostSecond is how many publishes at QoS 2 may wait for their PUBREL. A 3.1.1 client was told no bound.
func (c *openConn) mostSecond() int {
	if c.version == mqtt5 {
		return c.b.cfg.ReceiveMaximum
	}
	return maxOpenQoS2
}

// resolve gives a publish its topic by its alias (section 3.3.2.3.4).
func (c *openConn) resolve(p *openPublish) *cause {
	if levelsOf(p.topic) > maxLevels {
		return causeTopicName
	}
	switch {
	case p.alias == 0:
	case p.topic == "":
		topic, known := c.aliases[p.alias]
		if !known {
			return causeProtocol
		}
		p.topic = topic
	default:
		if c.aliases == nil {
			c.aliases = map[uint16]string{}
		}
		c.aliases[p.alias] = p.topic
	}
	return nil
}

// refuse tells the client that a publish was not taken; whom no acknowledgement can tell is told by the end of its
// connection. A refusal must not look like a message that is kept.
func (c *openConn) refuse(p *openPublish, why string) *cause {
	ends := causeOpenDevice
	switch why {
	case openRetainedFull:
		ends = causeOpenQuota
	case openReserved:
		ends = causeTopicName
	}
	if c.version < mqtt5 || p.qos == 0 {
		if c.version < mqtt5 {
			c.b.log.Info("a publish to the open topics was refused; MQTT 3.1.1 cannot be told why", "client", c.clientID, "reason", why)
		}
		return ends
	}
	c.acknowledge(p, ends.code, ends.text)
	return nil
}

func (c *openConn) acknowledge(p *openPublish, code byte, text string) {
	kind := byte(pktPuback)
	switch p.qos {
	case 0:
		return
	case 2:
		kind = pktPubrec
	}
	c.answer(appendAck(nil, c.version, kind, p.id, code, c.reason(text), c.maxPacket))
}

// release ends a publish at QoS 2 (MQTT-4.3.3-11).
func (c *openConn) release(id uint16) {
	code := byte(codeSuccess)
	if _, known := c.client.second[id]; !known {
		code = codeIdentifierNotFound
	}
	delete(c.client.second, id)
	c.answer(appendAck(nil, c.version, pktPubcomp, id, code, "", 0))
}

// acknowledged takes what the client says of a message that it was sent.
func (c *openConn) acknowledged(kind byte, id uint16, code byte) *cause {
	c.h.mu.Lock()
	o := c.client.exchange(id)
	if o != nil && (o.qos == 2) == (kind == pktPuback) {
		c.h.mu.Unlock()
		return causeProtocol
	}
	var answer byte = codeSuccess
	switch {
	case o == nil:
		answer = codeIdentifierNotFound
	case kind == pktPubrec && code < codeUnspecified:
		o.received, o.sent = true, true
	case kind == pktPubcomp && !o.received: // an end without a PUBREC
		c.h.mu.Unlock()
		return causeProtocol
	default:
		c.h.done(c.client, o)
		kind = 0 // nothing is left to say (MQTT-4.3.3-4)
	}
	c.h.mu.Unlock()
	if kind == pktPubrec {
		c.answer(appendAck(nil, c.version, pktPubrel, id, answer, "", 0))
	}
	return nil
}

// subscribe reads the filters of a SUBSCRIBE, answers and sends what is retained.
func (c *openConn) subscribe(b *cursor) *cause {
	id := b.uint16()
	var identifier uint32
	if c.version == mqtt5 {
		properties(b, pktSubscribe, func(prop, v uint32) byte {
			if prop == propSubscriptionID {
				identifier = v
			}
			return codeSuccess
		})
	}
	codes := []byte{byte(id >> 8), byte(id)}
	if c.version == mqtt5 {
		codes = append(codes, 0)
	}
	c.waitForRoom()
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	defer c.wake()
	at := len(c.out)
	for len(b.b) > 0 {
		filter, options := string(b.text()), b.byte()
		code := c.h.subscribe(c, filter, options, identifier)
		if code >= codeUnspecified && c.version < mqtt5 {
			code = codeUnspecified
		}
		codes = append(codes, code)
	}
	// The SUBACK goes before what is retained, for that is in the queue, behind every answer.
	c.out = append(c.out[:at], append(appendVarint([]byte{pktSuback << 4}, len(codes)), codes...)...)
	c.h.gauge()
	return nil
}

// waitForRoom waits until out has room for an answer.
func (c *openConn) waitForRoom() { c.answer(nil) }

// subscribe is one filter of a SUBSCRIBE; it returns the code of the SUBACK. It needs the lock.
func (h *openTopics) subscribe(c *openConn, filter string, options byte, identifier uint32) byte {
	s := c.client
	group, plain, sound := splitShare(filter)
	if !sound || !soundFilter(plain) {
		return codeTopicFilterInvalid
	}
	old := s.subs[filter]
	if old == nil && (len(s.subs) >= h.cfg.MaxSubscriptions || h.tree.nodes+levelsOf(plain) > h.cfg.MaxNodes) || levelsOf(plain) > maxLevels {
		h.metrics.refused.WithLabelValues(openSubsFull).Inc()
		return codeQuotaExceeded
	}
	var retained []*message
	handling := options >> 4 & 3
	if group == "" && (handling == 0 || handling == 1 && old == nil) { // MQTT-3.3.1-9 to -11
		now := time.Now()
		h.tree.matchRetained(plain, func(m *message) {
			if !m.expired(now) {
				retained = append(retained, m)
			}
		})
	}
	if !h.hasRoomFor(s, retained) {
		h.metrics.refused.WithLabelValues(openQueueFull).Inc()
		return codeQuotaExceeded
	}
	sub := &subscription{client: s, group: group, qos: options & 3, noLocal: c.bridge || options&4 != 0, asPublished: c.bridge || options&8 != 0, id: identifier}
	if old == nil {
		h.subscriptions++
	}
	s.subs[filter] = sub
	h.tree.subscribe(plain, sub)
	for _, m := range retained {
		d := sub.delivery(m)
		d.retain = true // MQTT-3.3.1-8
		h.enqueue(s, d)
	}
	return sub.qos
}

// hasRoomFor reports whether a client's queue takes all of these: else the subscription is refused, for it would begin with
// a gap.
func (h *openTopics) hasRoomFor(s *openSession, all []*message) bool {
	var bytes int64
	for _, m := range all {
		bytes += m.size()
	}
	return len(all) == 0 || len(s.queue)+len(all) <= h.cfg.MaxQueued && s.bytes+bytes <= h.cfg.MaxQueuedBytes && h.queuedBytes+bytes <= allQueues*h.cfg.MaxQueuedBytes
}

// unsubscribe ends subscriptions. What is in the queue by them is still delivered (section 3.10.4).
func (c *openConn) unsubscribe(b *cursor) {
	id := b.uint16()
	codes := []byte{byte(id >> 8), byte(id)}
	if c.version == mqtt5 {
		properties(b, pktUnsubscribe, nil)
		codes = append(codes, 0)
	}
	c.h.mu.Lock()
	for len(b.b) > 0 {
		filter := string(b.text())
		code := byte(codeNoSubscription)
		if sub := c.client.subs[filter]; sub != nil {
			delete(c.client.subs, filter)
			c.h.tree.unsubscribe(sub)
			c.h.subscriptions--
			code = codeSuccess
		}
		if c.version == mqtt5 {
			codes = append(codes, code)
		}
	}
	c.h.gauge()
	c.h.mu.Unlock()
	c.answer(append(appendVarint([]byte{pktUnsuback << 4}, len(codes)), codes...))
}
