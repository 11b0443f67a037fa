package broker

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"weir/ingest"
)

func TestPublishConforms(t *testing.T) { conforms(t, publishCases) }

var publishCases = []conformCase{
	{"3.3.1-1 3.3.1-3 4.3.2-5", "after its PUBACK an identifier starts a new message, with or without DUP", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		for _, flags := range []byte{qos1, qos1 | dup, qos1} {
			c.send(publishPacket(v, flags, theEvents, 7, "same"))
			c.expect("each", puback(7))
		}
		x.expectStored("same", "same", "same")
		if a := x.intake.seenArrivals(); a[0].Dup || a[1].Dup || a[2].Dup || a[1].PacketID != 7 {
			x.t.Error("a message after the PUBACK counts as a repeat of the one before it")
		}
	}},
	{"4.4.0-1 v3:4.4.0-1", "DUP counts on a new connection, until the identifier is used", 0, Config{}, func(x *bench, v byte) {
		for _, clean := range []bool{false, true} {
			var opts []func(*hello)
			if !clean {
				opts = append(opts, stays(v))
			}
			c := x.connect(v, opts...)
			before := len(x.intake.seenArrivals())
			for _, id := range []byte{7, 7, 8} {
				c.send(publishPacket(v, qos1|dup, theEvents, uint16(id), "same"))
				c.expect("each", puback(id))
			}
			a := x.intake.seenArrivals()[before:]
			if !a[0].Dup || a[1].Dup || !a[2].Dup {
				x.t.Errorf("clean %v: repeats %v %v %v", clean, a[0].Dup, a[1].Dup, a[2].Dup)
			}
			c.conn.Close()
			synctest.Wait()
		}
	}},
	{"3.3.1-2", "DUP at QoS 0", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		c.send(publishPacket(v, dup, theEvents, 0, "{}"))
		c.expectEnd(codeProtocolError)
		x.expectStored()
	}},
	{"3.3.1-4", "QoS 3", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		c.send(publishPacket(v, qos1|qos2, theEvents, 1, "{}"))
		c.expectEnd(codeMalformed)
	}},
	{"3.3.1-5 3.3.1-8 3.2.2-14", "RETAIN has no effect: nothing is retained", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		c.send(publishPacket(v, 1, theEvents, 0, "zero"), publishPacket(v, qos1|1, theEvents, 1, "one"))
		c.expect("accepted", puback(1))
		x.expectStored("zero", "one")
		if n := x.broker.devices.pubsub.retained; n != 0 {
			x.t.Errorf("%d messages retained", n)
		}
	}},
	{"3.3.2-1", "a topic that is not a well-formed string", 0, Config{}, func(x *bench, v byte) {
		for _, topic := range []string{"\xff", "a\x00", "\xed\xa0\x80"} {
			c := x.connect(v)
			c.send(publishPacket(v, qos1, topic, 1, "{}"))
			c.expectEnd(codeMalformed)
		}
		x.expectStored()
	}},
	{"3.3.2-2 4.7.0-1", "wildcards in a topic name", 0, Config{}, func(x *bench, v byte) {
		for _, topic := range []string{"#", "+", "weir/acme/devices/+/events", theEvents + "/#", "a+b"} {
			c := x.connect(v)
			c.send(publishPacket(v, qos1, topic, 1, "{}"))
			c.expectEnd(codeTopicNameInvalid)
		}
		x.expectStored()
	}},
	{"4.7.3-1", "an empty topic", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		c.send(publishPacket(v, qos1, "", 1, "{}"))
		c.expectEnd(codeProtocolError)
	}},
	{"4.7.3-3 4.7.3-4", "a topic of 65,535 bytes, and one that normalisation would make the device's own", 0, Config{}, func(x *bench, v byte) {
		for _, topic := range []string{strings.Repeat("t", 65535), strings.ToUpper(theEvents), theEvents + "/", "/" + theEvents, strings.Replace(theEvents, "e", "e\u0301", 1)} {
			c := x.connect(v)
			c.send(publishPacket(v, qos1, topic, 1, "{}"))
			synctest.Wait()
			if got := c.take(); v == mqtt5 && (len(got) != 1 || got[0][4] != codeNotAuthorized) {
				x.t.Errorf("%.40q: answered % x", topic, got)
			} else if v == mqtt311 {
				c.expectClosed("a forbidden topic")
			}
		}
		x.expectStored()
	}},
	{"2.2.1-2", "at QoS 0 no bytes separate topic and payload", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		c.send(publishPacket(v, 0, theEvents, 0, "\x00\x01rest"), pingreq)
		c.expect("QoS 0", pingresp)
		x.expectStored("\x00\x01rest")
	}},
	{"2.2.1-3 v3:2.3.1-1", "an identifier of 0", 0, Config{}, func(x *bench, v byte) {
		for _, p := range [][]byte{publishPacket(v, qos1, theEvents, 0, "{}"), subscribePacket(v, 0, theCommands), unsubscribePacket(v, 0, theCommands)} {
			c := x.connect(v)
			c.send(p)
			c.expectEnd(codeProtocolError)
		}
	}},
	{"3.3.2-4 3.3.2-5 3.3.2-13 3.3.2-16 3.3.2-19 3.3.4-1", "a request with response topic, correlation data and every other PUBLISH property", mqtt5, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		all := props(prop8(1, 1), prop32(2, 60), propText(3, "application/json"), propText(8, "reply/to/me"), propText(9, "\x00\xff"),
			propText(propUser, "k", "v"), propText(propUser, "k", "v"))
		c.send(publishWith(qos1, theEvents, 9, all, "body"), publishWith(0, theEvents, 0, all, "zero"))
		c.expect("accepted", puback(9))
		x.expectStored("body", "zero")
	}},
	{"3.3.2-14", "a response topic with a wildcard", mqtt5, Config{}, func(x *bench, v byte) {
		for _, topic := range []string{"#", "reply/+", "a#"} {
			c := x.connect(v)
			c.send(publishWith(qos1, theEvents, 9, props(propText(8, topic)), "body"))
			c.expectEnd(codeProtocolError)
			x.expectRefused(v, connectPacket(v, func(h *hello) { h.will, h.willProps = []string{theEvents, "x"}, propText(8, topic) }), refusedConnack(codeProtocolError)...)
		}
		x.expectStored()
	}},
	{"3.3.2-7 3.3.2-8 3.3.2-9 3.2.2-17", "topic aliases, of which none is allowed", mqtt5, Config{}, func(x *bench, v byte) {
		for _, alias := range []uint16{0, 1, 65535} {
			for _, topic := range []string{theEvents, ""} {
				c := x.connect(v)
				c.send(publishWith(qos1, topic, 1, props(prop16(propTopicAlias, alias)), "{}"))
				c.expectEnd(codeTopicAliasInvalid)
			}
		}
		x.expectStored()
	}},
	{"3.3.4-6", "a subscription identifier from a client", mqtt5, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		c.send(publishWith(qos1, theEvents, 1, props([]byte{propSubscriptionID, 1}), "{}"))
		c.expectEnd(codeProtocolError)
	}},
	{"2.2.2-1 4.13.1-1", "malformed properties of a PUBLISH", mqtt5, Config{}, func(x *bench, v byte) {
		for _, tc := range []struct {
			section []byte
			code    byte
		}{
			{props(prop8(1, 1), prop8(1, 1)), codeProtocolError},
			{props(propText(8, "a"), propText(8, "a")), codeProtocolError},
			{props(propText(3, "\xff")), codeMalformed},
			{props(propText(propUser, "k")), codeMalformed},
			{props([]byte{0x7e}), codeMalformed},
			{props(prop32(propSessionExpiry, 1)), codeMalformed},
			{[]byte{3, 2, 0, 0}, codeMalformed},                              // an expiry of two bytes
			{[]byte{0x85, 0, 2, 0, 0, 0, 1}, codeMalformed},                  // a length longer than needed
			{[]byte{0xff, 0xff, 0xff, 0xff, 0x7f}, codeMalformed},            // and one of five bytes
			{slices.Concat([]byte{1}, prop8(1, 1)), codeMalformed},           // one that ends within a property
			{slices.Concat([]byte{200, 1}, prop8(1, 1)), codeMalformed},      // and one past the packet
			{props(prop32(2, 1), []byte{propSubscriptionID}), codeMalformed}, // nothing behind an identifier
		} {
			c := x.connect(v)
			c.send(publishWith(qos1, theEvents, 1, tc.section, ""))
			c.expectEnd(tc.code)
		}
		x.expectStored()
	}},
	{"3.2.2-15", "a packet above the Maximum Packet Size", 0, Config{MaxPacket: 1000}, func(x *bench, v byte) {
		head := len(publishPacket(v, qos1, theEvents, 1, strings.Repeat("x", 200))) - 200
		c := x.connect(v)
		c.send(publishPacket(v, qos1, theEvents, 1, strings.Repeat("x", 1000-head)))
		c.expect("just as large", puback(1))
		c.send(publishPacket(v, qos1, theEvents, 2, strings.Repeat("x", 1001-head)))
		c.expectEnd(codePacketTooLarge)
		if n := len(x.intake.bodies()); n != 1 {
			x.t.Errorf("%d messages stored", n)
		}
	}},
	{"4.3.1-1", "QoS 0 has no answer, stored or refused", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		c.send(publishPacket(v, 0, theEvents, 0, "a"))
		c.expect("stored")
		x.intake.answer = func(*ingest.Arrival) ingest.Answer {
			return ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonUndecodable}
		}
		c.send(publishPacket(v, 0, theEvents, 0, "b"))
		c.expect("refused")
		if c.isClosed() {
			x.t.Error("closed")
		}
	}},
	{"4.6.0-5 4.6.0-6", "messages reach the log in the order of arrival, regardless of their QoS", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		var want []string
		for i := range 50 {
			body, flags := string(rune('A'+i%26))+string(rune('a'+i/26)), byte(qos1*(i%2))
			want = append(want, body)
			c.send(publishPacket(v, flags, theEvents, uint16(i+1)*uint16(i%2), body))
		}
		x.expectStored(want...)
	}},
}
