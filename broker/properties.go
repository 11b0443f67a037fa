package broker

import "bytes"

// The value types of properties, MQTT 5.0 section 2.2.2.2.
const (
	asByte = iota + 1
	asUint16
	asUint32
	asVarint
	asText
	asBinary
	asPair
	asTopic
)

// property says what a property holds and in which packets from a client it may stand.
type property struct {
	holds   byte
	packets uint32 // bit per packet type
	repeats bool
}

func in(types ...byte) (bits uint32) {
	for _, t := range types {
		bits |= 1 << t
	}
	return bits
}

// propertyOf is the table of section 2.2.2.2, reduced to what a client may send.
func propertyOf(id uint32) (property, bool) {
	switch id {
	case propPayloadFormat:
		return property{holds: asByte, packets: in(pktPublish, pktWill)}, true
	case propMessageExpiry:
		return property{holds: asUint32, packets: in(pktPublish, pktWill)}, true
	case propContentType:
		return property{holds: asText, packets: in(pktPublish, pktWill)}, true
	case propResponseTopic:
		return property{holds: asTopic, packets: in(pktPublish, pktWill)}, true
	case propCorrelation:
		return property{holds: asBinary, packets: in(pktPublish, pktWill)}, true
	case propSubscriptionID:
		return property{holds: asVarint, packets: in(pktPublish, pktSubscribe)}, true
	case propSessionExpiry:
		return property{holds: asUint32, packets: in(pktConnect, pktDisconnect)}, true
	case propAuthMethod:
		return property{holds: asText, packets: in(pktConnect, pktAuth)}, true
	case propAuthData:
		return property{holds: asBinary, packets: in(pktConnect, pktAuth)}, true
	case propRequestProblemInfo, propRequestResponseInfo:
		return property{holds: asByte, packets: in(pktConnect)}, true
	case propWillDelay:
		return property{holds: asUint32, packets: in(pktWill)}, true
	case propReasonString:
		return property{holds: asText, packets: in(pktPuback, pktPubrec, pktPubrel, pktPubcomp, pktDisconnect, pktAuth)}, true
	case propReceiveMaximum, propTopicAliasMaximum:
		return property{holds: asUint16, packets: in(pktConnect)}, true
	case propTopicAlias:
		return property{holds: asUint16, packets: in(pktPublish)}, true
	case propMaximumPacketSize:
		return property{holds: asUint32, packets: in(pktConnect)}, true
	case propUser:
		return property{holds: asPair, repeats: true,
			packets: in(pktConnect, pktPublish, pktWill, pktPuback, pktPubrec, pktPubrel, pktPubcomp, pktSubscribe, pktUnsubscribe, pktDisconnect, pktAuth)}, true
	}
	return property{}, false
}

// properties reads the property section of a packet and hands every number to visit; what visit returns other than
// success ends it. Texts and bytes are checked for form only: nothing here needs their content. Returned are 0x81 for
// what is malformed, 0x82 for a property given twice and for a response topic with a wildcard.
func properties(c *cursor, packet byte, visit func(id uint32, v uint32) byte) byte {
	section := cursor{b: c.take(int(c.varint()))}
	if c.bad {
		return codeMalformed
	}
	var seen uint64
	for len(section.b) > 0 {
		id := section.varint()
		p, known := propertyOf(id)
		if section.bad || !known || p.packets&(1<<packet) == 0 {
			return codeMalformed
		}
		v := section.value(p.holds)
		if section.bad {
			return codeMalformed
		}
		if seen&(1<<id) != 0 && !p.repeats {
			return codeProtocolError
		}
		seen |= 1 << id
		if p.holds == asTopic && v == wildTopic { // MQTT-3.3.2-14
			return codeProtocolError
		}
		if visit == nil {
			continue
		}
		if code := visit(id, v); code != codeSuccess {
			return code
		}
	}
	return codeSuccess
}

// wildTopic is the value of a topic that has a wildcard.
const wildTopic = 1

func (c *cursor) value(holds byte) uint32 {
	switch holds {
	case asByte:
		return uint32(c.byte())
	case asUint16:
		return uint32(c.uint16())
	case asUint32:
		return c.uint32()
	case asVarint:
		return c.varint()
	case asText:
		c.text()
	case asBinary:
		c.binary()
	case asPair:
		c.text()
		c.text()
	case asTopic:
		if bytes.ContainsAny(c.text(), "+#") {
			return wildTopic
		}
	}
	return 0
}

// causeOf is why a connection ends whose packet has properties of that code, nil when they are sound.
func causeOf(code byte) *cause {
	switch code {
	case codeSuccess:
		return nil
	case codeMalformed:
		return causeMalformed
	}
	return causeProtocol
}
