package broker

import "bytes"

// checkForm checks the form of every packet but CONNECT, PUBLISH and DISCONNECT. A SUBSCRIBE or UNSUBSCRIBE that passes is
// decoded by the library, which reads past the end of some that would not.
func checkForm(version, kind byte, body []byte) *cause {
	c := cursor{b: body}
	if kind == pktPingreq {
		if len(body) > 0 {
			return causeMalformed
		}
		return nil
	}
	if id := c.uint16(); id == 0 && !c.bad {
		return causeProtocol // MQTT-2.2.1-3
	}
	if kind >= pktPuback && kind <= pktPubcomp {
		return checkAck(version, kind, &c)
	}
	if version == mqtt5 && !c.bad {
		if ends := causeOf(properties(&c, kind, nonZeroSubscriptionID)); ends != nil {
			return ends
		}
	}
	if len(c.b) == 0 && !c.bad {
		return causeProtocol // MQTT-3.8.3-2, -3.10.3-2
	}
	for len(c.b) > 0 && !c.bad {
		filter := c.text()
		if len(filter) == 0 {
			return causeMalformed // MQTT-4.7.3-1
		}
		if kind == pktUnsubscribe {
			continue
		}
		switch o := c.byte(); {
		case !soundOptions(version, o):
			return causeMalformed
		case o&noLocal != 0 && bytes.HasPrefix(filter, []byte(sharePrefix)): // MQTT-3.8.3-4
			return causeProtocol
		}
	}
	if c.bad {
		return causeMalformed
	}
	return nil
}

func nonZeroSubscriptionID(id, v uint32) byte {
	if id == propSubscriptionID && v == 0 { // section 3.8.2.1.2
		return codeProtocolError
	}
	return codeSuccess
}

const noLocal = 1 << 2 // of the subscription options

// soundOptions checks the subscription options, section 3.8.3.1; 3.1.1 has only the QoS.
func soundOptions(version, o byte) bool {
	if o&3 == 3 {
		return false
	}
	if version == mqtt5 {
		return o&0xC0 == 0 && o>>4&3 != 3
	}
	return o&0xFC == 0
}

func checkAck(version, kind byte, c *cursor) *cause {
	if version == mqtt5 && len(c.b) > 0 {
		c.byte()
		if len(c.b) > 0 && properties(c, kind, nil) != codeSuccess {
			return causeMalformed
		}
	}
	if c.bad || len(c.b) > 0 {
		return causeMalformed
	}
	return nil
}
