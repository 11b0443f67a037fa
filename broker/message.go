package broker

import (
	"encoding/binary"
	"math"
	"time"

	"weir/command"
)

// message is a publish on its way to subscribers. It does not change once it is made, and all deliveries share it.
type message struct {
	topic   string
	payload []byte
	props   []byte // what is passed on as it came: payload format, content type, response topic, correlation data, user properties
	expires time.Time
	qos     byte
	retain  bool
	from    string // client id
}

// messageOverhead is the approximate memory of a message beyond its bytes.
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
	ids    []uint32                          // identifiers of the subscriptions that it matched
	ended  func(how command.End, why string) // of a command or a set of attributes: reports how it ended, and does not block; else nil
	ends   time.Time                         // of a command: it does not leave after that; zero for all else
}

// expired reports whether a delivery may not leave any more.
func (d *delivery) expired(now time.Time) bool {
	return d.message.expired(now) || !d.ends.IsZero() && !now.Before(d.ends)
}

// end reports how a delivery ended.
func (d *delivery) end(how command.End, why string) {
	if d.ended != nil {
		d.ended(how, why)
	}
}

// outgoing is a delivery at QoS 1 or 2 whose exchange is not over.
type outgoing struct {
	delivery
	id       uint16
	sent     bool // on this connection
	counts   bool // against the client's receive maximum
	received bool // PUBREC came: PUBREL is what is sent
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
