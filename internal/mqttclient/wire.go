package mqttclient

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"weir/internal/edgewire"
)

// Control packet types, MQTT 5.0 section 2.1.2.
const (
	pktConnect    = 1
	pktConnack    = 2
	pktPublish    = 3
	pktPuback     = 4
	pktPubrec     = 5
	pktPubrel     = 6
	pktPubcomp    = 7
	pktSubscribe  = 8
	pktSuback     = 9
	pktPingreq    = 12
	pktPingresp   = 13
	pktDisconnect = 14
)

// Protocol levels.
const (
	MQTT311 byte = 4
	MQTT5   byte = 5
)

// Properties that a client sets or reads, MQTT 5.0 section 2.2.2.2.
const (
	propSessionExpiry  = 0x11
	propReasonString   = 0x1f
	propReceiveMaximum = 0x21
	propMaximumQoS     = 0x24
	propRetain         = 0x25
	propUser           = 0x26
	propMaximumPacket  = 0x27
)

// propertyForm is how the value of a property is encoded: the number of bytes of an integer, v a variable byte integer, s a text or
// binary data, p a pair of texts.
var propertyForm = map[byte]byte{
	0x01: 1, 0x02: 4, 0x03: 's', 0x08: 's', 0x09: 's', 0x0b: 'v', 0x11: 4, 0x12: 's', 0x13: 2, 0x15: 's', 0x16: 's', 0x17: 1, 0x18: 4, 0x19: 1,
	0x1a: 's', 0x1c: 's', 0x1f: 's', 0x21: 2, 0x22: 2, 0x23: 2, 0x24: 1, 0x25: 1, 0x26: 'p', 0x27: 4, 0x28: 1, 0x29: 1, 0x2a: 1,
}

// property is one that was read. A text is in text, a number in number; of a user property there is the name.
type property struct {
	id     byte
	number uint32
	text   string
	value  string // of a user property, whose name is text
}

var errShort = errors.New("it ends too early")

// cursor reads the body of a packet. err is set once it is exhausted.
type cursor struct {
	b   []byte
	err error
}

func (c *cursor) take(n int) []byte {
	if c.err != nil || n > len(c.b) {
		c.err = errShort
		return nil
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

func (c *cursor) byte() byte {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) uint16() uint16 {
	if b := c.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) uint32() uint32 {
	if b := c.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) text() string { return string(c.take(int(c.uint16()))) }

// varint reads a variable byte integer.
func (c *cursor) varint() (v uint32) {
	for shift := 0; shift < 28; shift += 7 {
		b := c.byte()
		v |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
	if c.err == nil {
		c.err = errors.New("a length of more than four bytes")
	}
	return 0
}

// properties reads the properties of MQTT 5.
func (c *cursor) properties(f func(property)) {
	in := cursor{b: c.take(int(c.varint()))}
	for c.err == nil && len(in.b) > 0 {
		p := property{id: in.byte()}
		switch form := propertyForm[p.id]; form {
		case 1:
			p.number = uint32(in.byte())
		case 2:
			p.number = uint32(in.uint16())
		case 4:
			p.number = in.uint32()
		case 'v':
			p.number = in.varint()
		case 's':
			p.text = in.text()
		case 'p':
			p.text, p.value = in.text(), in.text()
		default:
			in.err = fmt.Errorf("the property 0x%02x is unknown", p.id)
		}
		if in.err != nil {
			c.err = in.err
			return
		}
		if f != nil {
			f(p)
		}
	}
}

func appendVarint(b []byte, v int) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

// packet puts the fixed header before a body.
func packet(first byte, body []byte) []byte {
	return append(appendVarint(append(make([]byte, 0, len(body)+5), first), len(body)), body...)
}

// hello is what a CONNECT says.
type hello struct {
	version        byte
	clientID       string
	clean          bool
	keepAlive      uint16
	expiry         uint32
	receiveMaximum uint16
	maximumPacket  uint32
	username       string
	password       string
	will           *Message
}

func (h *hello) encode() []byte {
	b := append(appendText(nil, "MQTT"), h.version, 0)
	flags := &b[len(b)-1]
	if h.clean {
		*flags |= 0x02
	}
	if w := h.will; w != nil {
		*flags |= 0x04 | w.QoS<<3
		if w.Retain {
			*flags |= 0x20
		}
	}
	if h.username != "" {
		*flags |= 0x80
		if h.password != "" {
			*flags |= 0x40
		}
	}
	b = binary.BigEndian.AppendUint16(b, h.keepAlive)
	if h.version == MQTT5 {
		var p []byte
		if h.expiry > 0 {
			p = binary.BigEndian.AppendUint32(append(p, propSessionExpiry), h.expiry)
		}
		p = binary.BigEndian.AppendUint16(append(p, propReceiveMaximum), h.receiveMaximum)
		p = binary.BigEndian.AppendUint32(append(p, propMaximumPacket), h.maximumPacket)
		b = append(appendVarint(b, len(p)), p...)
	}
	b = appendText(b, h.clientID)
	if w := h.will; w != nil {
		if h.version == MQTT5 {
			b = append(b, 0)
		}
		b = appendText(appendText(b, w.Topic), string(w.Payload))
	}
	if h.username != "" {
		b = appendText(b, h.username)
		if h.password != "" {
			b = appendText(b, h.password)
		}
	}
	return packet(pktConnect<<4, b)
}

// connack is the answer to a CONNECT.
type connack struct {
	present        bool
	code           byte
	reason         string
	maximumQoS     byte
	noRetain       bool
	receiveMaximum uint16 // of what may be published at once
	maximumPacket  uint32 // 0: none
	keepAlive      uint16 // 0: that of the client
	time           string // what a Weir says of the time of day; see edgewire.PropertyTime
}

func decodeConnack(version byte, body []byte) (a connack, err error) {
	c := cursor{b: body}
	a = connack{maximumQoS: 2, receiveMaximum: 0xffff}
	a.present, a.code = c.byte()&1 != 0, c.byte()
	if version == MQTT5 && len(c.b) > 0 {
		c.properties(func(p property) {
			switch p.id {
			case propMaximumQoS:
				a.maximumQoS = byte(p.number)
			case propRetain:
				a.noRetain = p.number == 0
			case propReceiveMaximum:
				a.receiveMaximum = max(uint16(p.number), 1)
			case propMaximumPacket:
				a.maximumPacket = p.number
			case propReasonString:
				a.reason = p.text
			case 0x13:
				a.keepAlive = uint16(p.number)
			case propUser:
				if p.text == edgewire.PropertyTime {
					a.time = p.value
				}
			}
		})
	}
	return a, c.err
}

// Incoming is a message that a broker has delivered.
type Incoming struct {
	Topic    string
	Payload  []byte
	QoS      byte
	Dup      bool
	Retained bool
	PacketID uint16 // 0 at QoS 0
}

func decodePublish(version, first byte, body []byte) (m Incoming, err error) {
	c := cursor{b: body}
	m = Incoming{QoS: first >> 1 & 3, Dup: first&8 != 0, Retained: first&1 != 0}
	m.Topic = c.text()
	if m.QoS > 0 {
		m.PacketID = c.uint16()
	}
	if version == MQTT5 {
		c.properties(nil)
	}
	m.Payload = c.b
	switch {
	case c.err != nil:
		return m, c.err
	case m.QoS > 1:
		return m, errors.New("a message at QoS 2 was not asked for")
	case m.QoS == 1 && m.PacketID == 0:
		return m, errors.New("a message has the packet identifier 0")
	case m.Topic == "" || strings.ContainsAny(m.Topic, "+#\x00") || !utf8.ValidString(m.Topic):
		return m, errors.New("a message has no topic")
	}
	return m, nil
}

func encodePublish(version byte, id uint16, m *Message) []byte {
	first := byte(pktPublish<<4) | m.QoS<<1
	if m.Retain {
		first |= 1
	}
	b := appendText(make([]byte, 0, len(m.Topic)+len(m.Payload)+8), m.Topic)
	if m.QoS > 0 {
		b = binary.BigEndian.AppendUint16(b, id)
	}
	if version == MQTT5 {
		var p []byte
		for _, u := range m.Properties {
			p = appendText(appendText(append(p, propUser), u[0]), u[1])
		}
		b = append(appendVarint(b, len(p)), p...)
	}
	return packet(first, append(b, m.Payload...))
}

func encodePuback(id uint16) []byte { return []byte{pktPuback << 4, 2, byte(id >> 8), byte(id)} }

// decodeAck reads a PUBACK.
func decodeAck(body []byte) (id uint16, code byte, err error) {
	c := cursor{b: body}
	id = c.uint16()
	if len(c.b) > 0 {
		code = c.byte()
	}
	return id, code, c.err
}

// decodeAnswer reads a PUBACK, PUBREC or PUBCOMP of MQTT 5 with its reason.
func decodeAnswer(body []byte) (id uint16, code byte, reason string, err error) {
	c := cursor{b: body}
	if id = c.uint16(); len(c.b) > 0 {
		code = c.byte()
	}
	if len(c.b) > 0 {
		c.properties(func(p property) {
			if p.id == propReasonString {
				reason = p.text
			}
		})
	}
	return id, code, reason, c.err
}

// Subscription is a topic filter that is subscribed to.
type Subscription struct {
	Filter string
	QoS    byte
}

func encodeSubscribe(version byte, id uint16, subs []Subscription) []byte {
	b := binary.BigEndian.AppendUint16(nil, id)
	if version == MQTT5 {
		b = append(b, 0)
	}
	for _, s := range subs {
		b = append(appendText(b, s.Filter), s.QoS)
	}
	return packet(pktSubscribe<<4|2, b)
}

// decodeSuback reads the codes of a SUBACK and its reason.
func decodeSuback(version byte, body []byte) (id uint16, codes []byte, reason string, err error) {
	c := cursor{b: body}
	id = c.uint16()
	if version == MQTT5 {
		c.properties(func(p property) {
			if p.id == propReasonString {
				reason = p.text
			}
		})
	}
	return id, c.b, reason, c.err
}

func encodeDisconnect(version byte) []byte {
	if version == MQTT5 {
		return []byte{pktDisconnect << 4, 2, 0, 0}
	}
	return []byte{pktDisconnect << 4, 0}
}

// decodeDisconnect reads with what reason a broker of MQTT 5 ends the connection.
func decodeDisconnect(body []byte) (code byte, reason string) {
	c := cursor{b: body}
	if len(body) > 0 {
		code = c.byte()
	}
	if len(c.b) > 0 {
		c.properties(func(p property) {
			if p.id == propReasonString {
				reason = p.text
			}
		})
	}
	return code, reason
}

// readFrame reads a packet: the first byte and the body, which belongs to the caller.
func readFrame(r io.ByteReader, full func([]byte) error, largest int) (first byte, body []byte, err error) {
	if first, err = r.ReadByte(); err != nil {
		return 0, nil, err
	}
	length := 0
	for shift := 0; ; shift += 7 {
		b, err := r.ReadByte()
		if err != nil {
			return 0, nil, err
		}
		length |= int(b&0x7f) << shift
		if b < 0x80 {
			break
		}
		if shift == 21 {
			return 0, nil, fmt.Errorf("%w: a length of more than four bytes", ErrMalformed)
		}
	}
	if length > largest {
		return 0, nil, fmt.Errorf("%w: a packet of %d bytes", ErrMalformed, length)
	}
	body = make([]byte, length)
	return first, body, full(body)
}
