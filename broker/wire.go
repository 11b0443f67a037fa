package broker

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// Control packet types, MQTT 5.0 section 2.1.2.
const (
	pktConnect     = 1
	pktConnack     = 2
	pktPublish     = 3
	pktPuback      = 4
	pktPubrec      = 5
	pktPubrel      = 6
	pktPubcomp     = 7
	pktSubscribe   = 8
	pktSuback      = 9
	pktUnsubscribe = 10
	pktUnsuback    = 11
	pktPingreq     = 12
	pktPingresp    = 13
	pktDisconnect  = 14
	pktAuth        = 15
	pktWill        = 16 // not on the wire: the properties of a will
)

// Protocol levels.
const (
	mqtt311 = 4
	mqtt5   = 5
)

// Reason codes of MQTT 5.0, section 2.4.
const (
	codeSuccess            = 0x00
	codeNoSubscription     = 0x11
	codeUnspecified        = 0x80
	codeMalformed          = 0x81
	codeProtocolError      = 0x82
	codeImplementation     = 0x83
	codeUnsupportedVersion = 0x84
	codeClientIDNotValid   = 0x85
	codeNotAuthorized      = 0x87
	codeServerUnavailable  = 0x88
	codeServerBusy         = 0x89
	codeShuttingDown       = 0x8B
	codeBadAuthMethod      = 0x8C
	codeKeepAliveTimeout   = 0x8D
	codeSessionTakenOver   = 0x8E
	codeTopicFilterInvalid = 0x8F
	codeTopicNameInvalid   = 0x90
	codeIdentifierNotFound = 0x92
	codeReceiveMaximum     = 0x93
	codeTopicAliasInvalid  = 0x94
	codePacketTooLarge     = 0x95
	codeQuotaExceeded      = 0x97
	codePayloadInvalid     = 0x99
	codeRetainNotSupported = 0x9A
	codeQoSNotSupported    = 0x9B
	codeSharedNotSupported = 0x9E
	codeMaximumConnectTime = 0xA0
	codeSubIDNotSupported  = 0xA1
	codeWildNotSupported   = 0xA2
)

// Return codes of a CONNACK of MQTT 3.1.1, section 3.2.2.3.
const (
	connackUnsupported   = 1
	connackIdentifier    = 2
	connackUnavailable   = 3
	connackNotAuthorized = 5
)

// Identifiers of properties, MQTT 5.0 section 2.2.2.2.
const (
	propPayloadFormat       = 1
	propMessageExpiry       = 2
	propContentType         = 3
	propResponseTopic       = 8
	propCorrelation         = 9
	propSessionExpiry       = 17
	propAssignedClientID    = 18
	propServerKeepAlive     = 19
	propAuthMethod          = 21
	propAuthData            = 22
	propRequestProblemInfo  = 23
	propWillDelay           = 24
	propRequestResponseInfo = 25
	propReasonString        = 31
	propReceiveMaximum      = 33
	propTopicAliasMaximum   = 34
	propTopicAlias          = 35
	propUser                = 38
	propMaximumPacketSize   = 39
	propSubscriptionID      = 11
)

// cursor reads the fields of a packet. After the first field that is not there, bad is set and everything reads as zero.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n > len(c.b) {
		c.bad = true
		return nil
	}
	v := c.b[:n]
	c.b = c.b[n:]
	return v
}

func (c *cursor) byte() byte {
	if v := c.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (c *cursor) uint16() uint16 {
	if v := c.take(2); v != nil {
		return binary.BigEndian.Uint16(v)
	}
	return 0
}

func (c *cursor) uint32() uint32 {
	if v := c.take(4); v != nil {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

// varint reads a variable byte integer, section 1.5.5: at most four bytes, and no longer than needed.
func (c *cursor) varint() uint32 {
	var v uint32
	for i := range 4 {
		d := c.byte()
		v |= uint32(d&0x7f) << (7 * i)
		if d < 0x80 {
			if i > 0 && d == 0 {
				c.bad = true
			}
			return v
		}
	}
	c.bad = true
	return 0
}

// binary reads length-prefixed bytes.
func (c *cursor) binary() []byte { return c.take(int(c.uint16())) }

// text reads a UTF-8 string as section 1.5.4 wants it: well-formed and without U+0000.
func (c *cursor) text() []byte {
	v := c.binary()
	if !utf8.Valid(v) || bytes.IndexByte(v, 0) >= 0 {
		c.bad = true
		return nil
	}
	return v
}

// known is text, which need not be looked at nor copied when it is own.
func (c *cursor) known(own string) string {
	t := *c
	if string(t.binary()) == own && !t.bad {
		*c = t
		return own
	}
	return string(c.text())
}

func appendVarint(b []byte, v int) []byte {
	for ; v >= 0x80; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

// maxReason bounds a reason string, so that every acknowledgement has a small fixed bound.
const maxReason = 200

// appendAck encodes a PUBACK, PUBREC, PUBREL or PUBCOMP. Without a reason code it is the short form that both versions know;
// reason is left out when it would make the packet larger than the client takes (limit, 0 for none).
func appendAck(b []byte, version, kind byte, id uint16, code byte, reason string, limit uint32) []byte {
	if version < mqtt5 || code == codeSuccess {
		return append(b, kind<<4|reservedFlags(kind), 2, byte(id>>8), byte(id))
	}
	if len(reason) > maxReason {
		reason = reason[:maxReason]
		for !utf8.ValidString(reason) {
			reason = reason[:len(reason)-1]
		}
	}
	props := 0
	if reason != "" {
		props = 3 + len(reason)
	}
	rest := 3
	if props > 0 {
		rest += 1 + props
		if props >= 0x80 {
			rest++
		}
	}
	if size := 2 + rest; reason != "" && limit > 0 && uint32(size)+1 > limit {
		return appendAck(b, version, kind, id, code, "", limit)
	}
	b = append(b, kind<<4|reservedFlags(kind))
	b = appendVarint(b, rest)
	b = append(b, byte(id>>8), byte(id), code)
	if props > 0 {
		b = appendVarint(b, props)
		b = append(b, propReasonString, byte(len(reason)>>8), byte(len(reason)))
		b = append(b, reason...)
	}
	return b
}

// connackRefusal encodes a CONNACK that refuses, in the form of the client's version.
func connackRefusal(version byte, r *refusal) []byte {
	if version < mqtt5 {
		return []byte{pktConnack << 4, 2, 0, r.v3}
	}
	return []byte{pktConnack << 4, 3, 0, r.code, 0}
}

// disconnectText is disconnect with a reason string, which is left out when the client takes no packet so large.
func disconnectText(code byte, text string, limit uint32) []byte {
	if size := 6 + len(text); text == "" || len(text) > maxReason || size+1 > 0x7f+2 || limit > 0 && size+1 > int(limit) {
		return disconnect(code)
	}
	b := []byte{pktDisconnect << 4, byte(5 + len(text)), code, byte(3 + len(text)), propReasonString, 0, byte(len(text))}
	return append(b, text...)
}

// disconnect encodes a DISCONNECT of MQTT 5; a 3.1.1 server has none.
func disconnect(code byte) []byte { return []byte{pktDisconnect << 4, 1, code} }
