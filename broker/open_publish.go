package broker

import (
	"cmp"
	"strings"
	"time"
)

// openPublish is a decoded PUBLISH to the open topics.
type openPublish struct {
	message
	id    uint16
	alias uint16 // 0 for none
}

// decodeOpenPublish decodes what follows the fixed header of a PUBLISH of any QoS. What it returns holds no byte of body.
func decodeOpenPublish(version, header byte, body []byte, now time.Time) (p openPublish, ends *cause) {
	p.qos, p.retain = header>>1&3, header&1 != 0
	c := cursor{b: body}
	p.topic = string(c.text())
	if p.qos > 0 {
		p.id = c.uint16()
	}
	if version == mqtt5 && !c.bad {
		if ends = p.properties(&c, now); ends != nil {
			return p, ends
		}
	}
	switch {
	case c.bad, p.qos == 3: // MQTT-3.3.1-4
		return p, causeMalformed
	case p.topic == "" && p.alias == 0, p.qos > 0 && p.id == 0, p.qos == 0 && header&8 != 0: // section 3.3.2.1, MQTT-2.2.1-3, -3.3.1-2
		return p, causeProtocol
	case strings.ContainsAny(p.topic, "+#"): // MQTT-3.3.2-2
		return p, causeTopicName
	}
	p.payload = append([]byte(nil), c.b...)
	return p, nil
}

func (p *openPublish) properties(c *cursor, now time.Time) *cause {
	whole := *c
	var ends *cause
	code := properties(c, pktPublish, func(id, v uint32) byte {
		switch {
		case id == propTopicAlias && (v == 0 || v > openAliases): // MQTT-3.3.2-8, -9
			ends = causeTopicAlias
		case id == propTopicAlias:
			p.alias = uint16(v)
		case id == propMessageExpiry:
			p.expires = expiry(now, v, true)
		case id == propSubscriptionID, id == propPayloadFormat && v > 1: // MQTT-3.3.4-6, section 3.3.2.3.2
			ends = causeProtocol
		}
		if ends != nil {
			return codeProtocolError
		}
		return codeSuccess
	})
	if ends = cmp.Or(ends, causeOf(code)); ends != nil {
		return ends
	}
	p.props = passOn(&whole)
	return nil
}

// message is the will as a publish. Its expiry begins now, section 3.1.3.2.4.
func (w *lastWill) message() *message {
	return &message{topic: w.topic, payload: w.payload, props: w.props, qos: w.qos, retain: w.retain, from: w.clientID,
		expires: expiry(time.Now(), w.expiry, w.expires)}
}

// publish accepts a message of the client. It is answered once it is in the queues of its subscribers.
func (o *openTopics) publish(c *conn, header byte, body []byte) *cause {
	p, ends := decodeOpenPublish(c.version, header, body, time.Now())
	if ends == nil {
		ends = c.resolve(&p)
	}
	if ends != nil {
		return ends
	}
	if p.qos == 2 {
		if _, again := c.session.second[p.id]; again { // MQTT-4.3.3-10
			c.acknowledge(&p, codeSuccess, "")
			return nil
		}
		if len(c.session.second) >= c.maxSecond() {
			return causeReceiveMaximum
		}
	}
	why := o.forbidden(p.topic)
	if why != "" {
		o.metrics.refused.WithLabelValues(why).Inc()
		return c.refuseOpen(&p, why)
	}
	p.from = c.clientID
	m := p.message
	if why = o.pubsub.publish(&m); why != "" {
		return c.refuseOpen(&p, why)
	}
	if p.qos == 2 {
		if c.session.second == nil {
			c.session.second = map[uint16]struct{}{}
		}
		c.session.second[p.id] = struct{}{}
	}
	c.acknowledge(&p, codeSuccess, "")
	return nil
}

// maxSecond is how many publishes at QoS 2 may wait for their PUBREL. A 3.1.1 client was given no bound.
func (c *conn) maxSecond() int {
	if c.version == mqtt5 {
		return c.b.cfg.ReceiveMaximum
	}
	return maxOpenQoS2
}

// resolve gives a publish its topic by its alias (section 3.3.2.3.4).
func (c *conn) resolve(p *openPublish) *cause {
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

// refuseOpen answers a publish that was not accepted; where no acknowledgement can carry the reason, the connection ends. A
// refusal must not look like a message that is kept.
func (c *conn) refuseOpen(p *openPublish, why string) *cause {
	ends := causeOpenDevice
	switch why {
	case openRetainedFull:
		ends = causeOpenQuota
	case openReserved:
		ends = causeTopicName
	}
	if c.version < mqtt5 || p.qos == 0 {
		if c.version < mqtt5 {
			c.b.log.Info("a publish to the open topics was refused; MQTT 3.1.1 has no way to say why", "client", c.clientID, "reason", why)
		}
		return ends
	}
	c.acknowledge(p, ends.code, ends.text)
	return nil
}

func (c *conn) acknowledge(p *openPublish, code byte, text string) {
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
func (o *openTopics) release(c *conn, id uint16) *cause {
	code := byte(codeSuccess)
	if _, known := c.session.second[id]; !known {
		code = codeIdentifierNotFound
	}
	delete(c.session.second, id)
	c.answer(appendAck(nil, c.version, pktPubcomp, id, code, "", 0))
	return nil
}
