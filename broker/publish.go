package broker

import (
	"cmp"
	"strings"
	"time"

	"weir/ingest"
)

// Reasons of the ledger that only this door has.
const (
	// ReasonQoS2 is a publish at QoS 2, which is refused.
	ReasonQoS2 ingest.Reason = "qos-2"
	// ReasonProtocol is a publish that breaks the protocol: over the receive maximum, or with an identifier in use.
	ReasonProtocol ingest.Reason = "protocol-error"
)

// publish is a PUBLISH packet, decoded (MQTT 5.0 section 3.3).
type publish struct {
	topic   string
	id      uint16 // 0 at QoS 0
	qos     byte
	dup     bool
	payload []byte // of the buffer that was decoded
}

// decodePublish decodes what follows the fixed header whose first byte is header. QoS 2 is not its business.
// The topic is held against own first, which is known to be sound.
func decodePublish(version, header byte, body []byte, own string) (publish, *cause) {
	p := publish{qos: header >> 1 & 3, dup: header&8 != 0}
	c := cursor{b: body}
	p.topic = c.known(own)
	if p.qos > 0 {
		p.id = c.uint16()
	}
	if version == mqtt5 && !c.bad {
		if ends := publishProperties(&c); ends != nil {
			return p, ends
		}
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

// publish takes a message of the device to the gate. It is called by the goroutine that reads the connection and blocks
// as long as the gate does. A cause that it returns ends the connection, in its turn.
func (s *session) publish(p publish) *cause {
	s.stall.begin(time.Now())
	defer s.stall.over()
	var number uint64
	if p.qos > 0 {
		var again bool
		var ends *cause
		number, again, ends = s.acks.open(p.id, p.qos, p.dup)
		switch {
		case ends == causeLost:
			return ends
		case again && ends == nil:
			return nil
		case ends != nil:
			s.countRefused(len(p.payload), ReasonProtocol)
			return ends
		}
	}
	reason := ingest.ReasonNotAuthorized
	switch s.topics.purpose(p.topic) {
	case forEvents:
		s.accept(&p, number)
		return nil
	case noConsumer:
		reason = ingest.ReasonNoConsumer
	}
	s.countRefused(len(p.payload), reason)
	return s.refuse(&p, number, reason)
}

// countRefused counts a message that does not become an arrival.
func (s *session) countRefused(bytes int, reason ingest.Reason) {
	packet := s.b.deps.Gate.Received(ingest.TransportMQTT, s.b.cfg.Source, s.binding.Tenant, bytes)
	s.b.deps.Gate.Refuse(packet, reason)
}

// refuse answers a publish that does not become an arrival. MQTT 5 is told at QoS 1; at QoS 0 nobody can be. A 3.1.1
// connection ends: on a foreign topic at any QoS, on a topic of its own that nothing reads only at QoS 1. That one could
// also be left unanswered, but it would then hold back every later PUBACK of the connection, and a PUBACK would say that
// the message is kept.
func (s *session) refuse(p *publish, number uint64, reason ingest.Reason) *cause {
	told := s.version == mqtt5
	v := verdict{code: pubackCode(reason), reason: reasonText(reason)}
	switch {
	case told && p.qos == 0:
	case told:
		s.acks.settle(number, v)
	case reason == ingest.ReasonNotAuthorized:
		return s.refuseOld(p, number, causeForbidden)
	case p.qos > 0:
		return s.refuseOld(p, number, causeNoConsumer)
	}
	return nil
}

func (s *session) refuseOld(p *publish, number uint64, ends *cause) *cause {
	if p.qos == 0 {
		return ends
	}
	s.acks.settle(number, verdict{ends: ends})
	return causeQueued
}

func reasonText(r ingest.Reason) string {
	if r == ingest.ReasonNoConsumer {
		return "nothing reads this topic yet"
	}
	return "not the topic of this connection's device"
}

// accept hands an event to the gate.
func (s *session) accept(p *publish, number uint64) {
	a := &ingest.Arrival{
		Transport: ingest.TransportMQTT, Source: s.b.cfg.Source, Tenant: s.binding.Tenant, Topic: s.binding.Device,
		Body: p.payload,
		Conn: &s.binding, ClientID: s.clientID, PacketID: p.id, Dup: p.dup, HoldFor: -1,
		CannotRefuse: s.version < mqtt5 || p.qos == 0,
	}
	if a.CannotRefuse {
		// Who cannot be told is slowed down instead, for no longer than its keep-alive allows.
		a.CeilingWait = s.keepAlive / 2
	}
	if p.qos == 0 {
		s.b.deps.Gate.Accept(s.ctx, a, func(ingest.Answer) {})
		return
	}
	s.b.deps.Gate.Accept(s.ctx, a, func(answer ingest.Answer) { s.acks.settle(number, s.verdictOn(answer)) })
}
