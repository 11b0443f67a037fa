package broker

import (
	"cmp"
	"encoding/binary"
	"math"
	"strings"
	"time"
)

// message is a publish to the open topics. It does not change once it is made, and all who receive it share it.
type message struct {
	topic   string
	payload []byte
	props   []byte // what is handed on as it came: payload format, content type, response topic, correlation data, user properties
	expires time.Time
	qos     byte
	retain  bool
	from    string // client id
}

// messageOverhead is what a message costs beyond its bytes, about.
const messageOverhead = 128

func (m *message) size() int64 {
	return int64(len(m.topic)+len(m.payload)+len(m.props)) + messageOverhead
}

func (m *message) expired(now time.Time) bool { return !m.expires.IsZero() && !now.Before(m.expires) }

func expiry(now time.Time, seconds uint32, given bool) time.Time {
	if !given {
		return time.Time{}
	}
	return now.Add(time.Duration(seconds) * time.Second)
}

// delivery is a message on its way to one client.
type delivery struct {
	*message
	qos    byte
	retain bool
	ids    []uint32 // identifiers of the subscriptions that it came by
}

// outgoing is a delivery at QoS 1 or 2 whose exchange is not over.
type outgoing struct {
	delivery
	id       uint16
	sent     bool // on this connection
	counts   bool // against the client's receive maximum
	received bool // PUBREC came: PUBREL is what is sent
}

// openPublish is a PUBLISH to the open topics, decoded.
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

// passOn returns the properties that a message keeps on its way (section 3.3.2.3), as they came, in their order. They were
// found to be of good form before.
func passOn(c *cursor) (kept []byte) {
	section := cursor{b: c.take(int(c.varint()))}
	for len(section.b) > 0 && !section.bad {
		before := section.b
		id := section.varint()
		p, _ := propertyOf(id)
		section.value(p.holds)
		switch id {
		case propPayloadFormat, propContentType, propResponseTopic, propCorrelation, propUser:
			kept = append(kept, before[:len(before)-len(section.b)]...)
		}
	}
	return kept
}

// appendPublish encodes a delivery for a version. alias is 0 for none; with one, topic may be empty.
func appendPublish(b []byte, version byte, d *delivery, id uint16, dup bool, topic string, alias uint16, now time.Time) []byte {
	var head [32]byte
	props := head[:0]
	if version == mqtt5 {
		props = d.appendProperties(props, alias, now)
	}
	size := 2 + len(topic) + len(d.payload)
	if d.qos > 0 {
		size += 2
	}
	if version == mqtt5 {
		size += len(appendVarint(nil, len(props))) + len(props)
	}
	header := byte(pktPublish<<4) | d.qos<<1
	if dup {
		header |= 8
	}
	if d.retain {
		header |= 1
	}
	b = appendVarint(append(b, header), size)
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(topic))), topic...)
	if d.qos > 0 {
		b = binary.BigEndian.AppendUint16(b, id)
	}
	if version == mqtt5 {
		b = append(appendVarint(b, len(props)), props...)
	}
	return append(b, d.payload...)
}

func (d *delivery) appendProperties(b []byte, alias uint16, now time.Time) []byte {
	b = append(b, d.props...)
	if !d.expires.IsZero() { // what is left of it, MQTT-3.3.2-6
		left := min(max(math.Ceil(d.expires.Sub(now).Seconds()), 1), math.MaxUint32)
		b = binary.BigEndian.AppendUint32(append(b, propMessageExpiry), uint32(left))
	}
	for _, id := range d.ids { // MQTT-3.3.4-3, -4
		b = appendVarint(append(b, propSubscriptionID), int(id))
	}
	if alias > 0 {
		b = binary.BigEndian.AppendUint16(append(b, propTopicAlias), alias)
	}
	return b
}
