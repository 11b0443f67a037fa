package broker

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"weir/ingest"
)

// Reasons of the ledger that only this transport has.
const (
	// ReasonQoS2 is a publish at QoS 2, which is refused.
	ReasonQoS2 ingest.Reason = "qos-2"
	// ReasonProtocol is a publish that breaks the protocol: over the receive maximum, or with an identifier in use.
	ReasonProtocol ingest.Reason = "protocol-error"
)

// publish is a decoded PUBLISH packet (MQTT 5.0 section 3.3).
type publish struct {
	topic   string
	id      uint16 // 0 at QoS 0
	qos     byte
	dup     bool
	props   []byte // the section of properties, checked; of MQTT 5
	payload []byte // of the buffer that was decoded
}

// decodePublish decodes what follows the fixed header whose first byte is header. It accepts any QoS. The topic is compared
// with own first, which is known to be sound.
func decodePublish(version, header byte, body []byte, own string) (publish, *cause) {
	p := publish{qos: header >> 1 & 3, dup: header&8 != 0}
	c := cursor{b: body}
	p.topic = c.known(own)
	if p.qos > 0 {
		p.id = c.uint16()
	}
	if version == mqtt5 && !c.bad {
		whole := c.b
		if ends := publishProperties(&c); ends != nil {
			return p, ends
		}
		p.props = whole[:len(whole)-len(c.b)]
	}
	p.payload = c.b
	switch {
	case c.bad:
		return p, causeMalformed
	case p.topic == "", p.qos > 0 && p.id == 0, p.qos == 0 && p.dup: // MQTT-3.3.2-8, -2.2.1-3, -3.3.1-2
		return p, causeProtocol
	case p.topic != own && strings.ContainsAny(p.topic, "+#"): // MQTT-3.3.2-2
		return p, causeTopicName
	}
	return p, nil
}

func publishProperties(c *cursor) *cause {
	var ends *cause
	code := properties(c, pktPublish, func(id, _ uint32) byte {
		switch id {
		case propTopicAlias: // the CONNACK allowed none, MQTT-3.3.2-9
			ends = causeTopicAlias
		case propSubscriptionID: // MQTT-3.3.4-6
			ends = causeProtocol
		default:
			return codeSuccess
		}
		return codeProtocolError
	})
	return cmp.Or(ends, causeOf(code))
}

// publish hands a message of the device to the intake. The goroutine that reads the connection calls it; it blocks as long as
// the intake does.
func (d *devices) publish(c *conn, header byte, body []byte) *cause {
	p, ends := decodePublish(c.version, header, body, c.topics.events)
	if ends != nil {
		return ends
	}
	c.stall.begin(time.Now())
	defer c.stall.over()
	var number uint64
	if p.qos > 0 {
		var again bool
		number, again, ends = c.acks.open(p.id, p.qos, p.dup)
		switch {
		case ends == causeLost:
			return ends
		case again && ends == nil:
			return nil
		case ends != nil:
			c.countRefused(len(p.payload), ReasonProtocol, "the packet breaks the protocol")
			return ends
		}
	}
	if c.edge && (d.edgeSays(c, &p, number) || d.edgeFrames(c, &p, number) || d.relay(c, &p, number)) {
		return nil
	}
	if purpose := c.topics.purpose(p.topic); purpose != forbidden {
		c.accept(&p, number, purpose)
		return nil
	}
	c.countRefused(len(p.payload), ingest.ReasonNotAuthorized, "topic "+shownID(p.topic)+" is "+c.foreign())
	return c.refuse(&p, number)
}

// countRefused counts a message that does not become an arrival, and shows it with what is wrong with it.
func (c *conn) countRefused(bytes int, reason ingest.Reason, why string) {
	c.b.refusals.Add(1)
	in := c.b.deps.Intake
	in.Refuse(in.Received(ingest.TransportMQTT, c.b.cfg.Source, c.binding.Tenant, bytes).Of(c.binding.Device, why), reason)
}

// foreignTopic is why a publish on the topic of another is refused.
const foreignTopic = "not the topic of this connection's device"

// foreign is foreignTopic with the topic that the device has.
func (c *conn) foreign() string {
	if len(c.topics.events) == 0 {
		return foreignTopic
	}
	return foreignTopic + ": it sends events to " + string(c.topics.events)
}

// refuse answers a publish on a foreign topic. An MQTT 5 client gets the reason at QoS 1; at QoS 0 there is no way to send it. A 3.1.1
// connection ends.
func (c *conn) refuse(p *publish, number uint64) *cause {
	hasReasons := c.version == mqtt5
	switch {
	case hasReasons && p.qos == 0:
	case hasReasons:
		c.acks.complete(number, verdict{code: codeNotAuthorized, reason: c.foreign()})
	case p.qos == 0:
		return causeForbidden
	default:
		c.acks.complete(number, verdict{ends: causeForbidden})
		return causeQueued
	}
	return nil
}

// resendPhase is how many publishes at the beginning of a connection may be repeats: a client has at most 256 of them in
// flight (Config.ReceiveMaximum), and may send new ones in between.
const resendPhase = 512

// mayRepeat reports whether a publish may repeat one of an earlier connection. DUP alone does not say so: once a message is
// acknowledged, its identifier begins a new one, whatever the flag (MQTT-4.3.2-5; 3.1.1: MQTT-4.3.2-2). So it counts only before the
// identifier is used on this connection. A clean start makes no difference, although nothing can be repeated after one by the
// standard: the common clients repeat all the same, and an acknowledgement that was lost must not double a reading.
func (c *conn) mayRepeat(p *publish) bool {
	if p.qos == 0 || c.published >= resendPhase {
		return false
	}
	repeats := p.dup && !slices.Contains(c.begun, p.id)
	if c.published++; c.published < resendPhase {
		c.begun = append(c.begun, p.id)
	} else {
		c.begun = nil
	}
	return repeats
}

// accept hands an event, a flat body, a device report or an answer to a command to the intake.
func (c *conn) accept(p *publish, number uint64, purpose purpose) {
	a := &ingest.Arrival{
		Transport: ingest.TransportMQTT, Source: c.b.cfg.Source, Tenant: c.binding.Tenant, Topic: c.binding.Device,
		Body: p.payload, From: c.from,
		Conn: &c.binding, ClientID: c.clientID, PacketID: p.id, Dup: c.mayRepeat(p), HoldFor: -1,
		CannotRefuse: c.version < mqtt5 || p.qos == 0,
	}
	purpose.shape(a)
	c.hand(a, p, number)
}

// hand hands an arrival to the intake, whose answer acknowledges the publish.
func (c *conn) hand(a *ingest.Arrival, p *publish, number uint64) {
	if a.CannotRefuse {
		// A client that no refusal can reach is slowed down instead, for no longer than its keep-alive allows.
		a.CeilingWait = c.patience() / 3
	}
	if p.qos == 0 {
		c.b.deps.Intake.Accept(c.ctx, a, func(ingest.Answer) {})
		return
	}
	c.b.deps.Intake.Accept(c.ctx, a, func(answer ingest.Answer) { c.acks.complete(number, c.verdictOn(answer)) })
}
