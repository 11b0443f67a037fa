package broker

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"

	"weir/ingest"
)

func TestSubscribeConforms(t *testing.T) { conforms(t, subscribeCases) }

// received are the payloads of the commands that have come, which must carry these flags.
func (c *client) received(flags byte) (payloads []string) {
	c.t.Helper()
	synctest.Wait()
	for _, p := range c.take() {
		if p[0] != pktPublish<<4|flags {
			c.t.Fatalf("received % x", p)
		}
		_, rest, _ := bytes.Cut(p, []byte(theCommands))
		if flags&6 != 0 {
			rest = rest[2:]
		}
		if c.version == mqtt5 {
			rest = rest[1:]
		}
		payloads = append(payloads, string(rest))
	}
	return payloads
}

var subscribeCases = []conformCase{
	{"3.8.4-1 3.8.4-2 2.2.1-6 3.10.4-4 3.10.4-5", "SUBACK and UNSUBACK with the identifier that was sent", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		for _, id := range []uint16{1, 255, 256, 65535} {
			c.send(subscribePacket(v, id, theCommands))
			c.expect("SUBACK", subackPacket(v, id, 1))
			c.send(unsubscribePacket(v, id, theCommands))
			c.expect("UNSUBACK", unsubackPacket(v, id, 0))
			c.send(unsubscribePacket(v, id, theCommands))
			c.expect("nothing to end", unsubackPacket(v, id, codeNoSubscription))
		}
	}},
	{"3.8.1-1 3.10.1-1", "the reserved flags are checked", 0, Config{}, func(x *bench, v byte) {
		for _, p := range [][]byte{subscribePacket(v, 1, theCommands), unsubscribePacket(v, 1, theCommands)} {
			for _, flags := range []byte{0, 1, 3, 6, 10} {
				c := x.connect(v)
				c.send(append([]byte{p[0]&0xF0 | flags}, p[1:]...))
				c.expectEnd(codeMalformed)
			}
		}
	}},
	{"3.8.3-1 3.10.3-1 4.7.3-2", "filters that are not well-formed strings", 0, Config{}, func(x *bench, v byte) {
		for _, filter := range []string{"\xff", "a\x00b", "\xed\xa0\x80"} {
			for _, p := range [][]byte{subscribePacket(v, 1, theCommands, filter), unsubscribePacket(v, 1, theCommands, filter)} {
				c := x.connect(v)
				c.send(p)
				c.expectEnd(codeMalformed)
			}
		}
	}},
	{"3.8.3-2 3.10.3-2", "no filter", 0, Config{}, func(x *bench, v byte) {
		for _, p := range [][]byte{subscribePacket(v, 1), unsubscribePacket(v, 1)} {
			c := x.connect(v)
			c.send(p)
			c.expectEnd(codeProtocolError)
		}
	}},
	{"4.7.3-1", "an empty filter", 0, Config{}, func(x *bench, v byte) {
		for _, p := range [][]byte{subscribePacket(v, 1, theCommands, ""), unsubscribePacket(v, 1, "")} {
			c := x.connect(v)
			c.send(p)
			c.expectEnd(codeMalformed)
		}
	}},
	{"3.8.3-5 v3:3.8.3-4", "reserved bits of the options, and QoS 3", 0, Config{}, func(x *bench, v byte) {
		bad := []byte{3, 0x40, 0x80, 0x30}
		if v == mqtt311 {
			bad = append(bad, 4, 8, 0x10, 0x20) // what 5.0 gave a meaning
		}
		for _, o := range bad {
			c := x.connect(v)
			p := subscribePacket(v, 1, theCommands)
			p[len(p)-1] = o
			c.send(p)
			c.expectEnd(codeMalformed)
		}
	}},
	{"3.8.3-3 3.3.1-9 3.3.1-10 3.3.1-11 3.3.1-12 3.3.1-13", "every option on the device's own commands", mqtt5, Config{}, func(x *bench, v byte) {
		for _, o := range []byte{0, 1, 2, 4, 8, 0x10, 0x20, 0x2D} { // no local, retain as published, retain handling
			c := x.connect(v)
			c.send(subscribeWith(1, []byte{0}, theCommands, o))
			c.expect("accepted", subackPacket(v, 1, min(o&3, 1)))
			x.command("cmd")
			if got := c.received(min(o&3, 1) << 1); !slices.Equal(got, []string{"cmd"}) {
				x.t.Errorf("options %#x: received %q", o, got)
			}
		}
	}},
	{"3.8.4-3 3.8.4-4", "the same filter again replaces the first", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		p := subscribePacket(v, 2, theCommands)
		p[len(p)-1] = 0
		c.send(subscribePacket(v, 1, theCommands), p)
		c.expect("both accepted", subackPacket(v, 1, 1), subackPacket(v, 2, 0))
		x.command("cmd")
		if got := c.received(0); !slices.Equal(got, []string{"cmd"}) {
			x.t.Errorf("received %q", got)
		}
	}},
	{"3.8.4-5 3.8.4-6 3.8.4-7 3.9.3-1 3.9.3-2 3.2.2-10 4.7.1-1 4.7.1-2 4.8.2-1 4.8.2-2", "a code for each filter, in order, with the reason", 0, Config{}, func(x *bench, v byte) {
		filters, codes := []string{}, []byte{}
		for _, tc := range []struct {
			filter string
			code   byte
		}{
			{theCommands, 1}, {"weir/acme/device-commands/dev2", codeNotAuthorized}, {theEvents, codeNotAuthorized}, {"$SYS/x", codeNotAuthorized},
			{"#", codeWildNotSupported}, {"+", codeWildNotSupported}, {"weir/+/device-commands/dev1", codeWildNotSupported},
			{"weir/acme/device-commands/#", codeWildNotSupported}, {"$SYS/#", codeWildNotSupported}, {"+/+/#", codeWildNotSupported},
			{"a#", codeTopicFilterInvalid}, {"a/#/b", codeTopicFilterInvalid}, {"#/", codeTopicFilterInvalid}, {"a+/b", codeTopicFilterInvalid},
			{"++", codeTopicFilterInvalid}, {"+#", codeTopicFilterInvalid},
			{"$share/g/" + theCommands, codeSharedNotSupported}, {"$share/g/#", codeSharedNotSupported}, {"$share/g", codeTopicFilterInvalid},
			{"$share//a", codeTopicFilterInvalid}, {"$share/g+/a", codeTopicFilterInvalid}, {"$share/#/a", codeTopicFilterInvalid},
			{"$share/g/", codeTopicFilterInvalid}, {"$share/g/a#", codeTopicFilterInvalid}, {theCommands, 1},
		} {
			if v == mqtt311 && tc.code > 1 {
				tc.code = codeUnspecified
			}
			filters, codes = append(filters, tc.filter), append(codes, tc.code)
		}
		c := x.connect(v)
		c.send(subscribePacket(v, 7, filters...))
		c.expect("SUBACK", subackPacket(v, 7, codes...))
		x.command("cmd")
		if got := c.received(qos1); !slices.Equal(got, []string{"cmd"}) {
			x.t.Errorf("received %q", got)
		}
	}},
	{"3.1.2-24 3.9.2-1", "a SUBACK above the client's maximum packet size", mqtt5, Config{}, func(x *bench, v byte) {
		c := x.connect(v, func(h *hello) { h.props = prop32(propMaximumPacketSize, 40) })
		filters := slices.Repeat([]string{"a"}, 36)
		c.send(subscribePacket(v, 1, filters[:35]...))
		c.expect("just as large", subackPacket(v, 1, slices.Repeat([]byte{codeNotAuthorized}, 35)...))
		c.send(subscribePacket(v, 2, filters...))
		c.expectEnd(codePacketTooLarge)
	}},
	{"3.8.3-4", "No Local on a shared subscription", mqtt5, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		c.send(subscribeWith(1, []byte{0}, "$share/g/"+theCommands, 4))
		c.expectEnd(codeProtocolError)
	}},
	{"3.3.4-3 3.3.4-4 3.3.4-5", "subscription identifiers, which are not available", mqtt5, Config{}, func(x *bench, v byte) {
		for _, tc := range []struct {
			section []byte
			code    byte
		}{
			{props([]byte{propSubscriptionID, 1}), codeSubIDNotSupported},
			{props([]byte{propSubscriptionID, 0xff, 0xff, 0xff, 0x7f}), codeSubIDNotSupported},
			{props([]byte{propSubscriptionID, 0}), codeProtocolError},
			{props([]byte{propSubscriptionID, 0xff, 0xff, 0xff, 0xff, 0x7f}), codeMalformed},
		} {
			c := x.connect(v)
			c.send(subscribeWith(1, tc.section, theCommands, 1))
			c.expectEnd(tc.code)
		}
		x.command("nobody is subscribed")
	}},
	{"3.8.4-8 3.10.4-1 3.10.4-2 3.3.2-3 4.5.0-1", "commands arrive while subscribed, at the granted QoS", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		x.command("before")
		c.send(subscribePacket(v, 1, theCommands))
		c.expect("subscribed", subackPacket(v, 1, 1))
		x.command("meanwhile")
		if got := c.received(qos1); !slices.Equal(got, []string{"meanwhile"}) {
			x.t.Errorf("received %q", got)
		}
		c.send(unsubscribePacket(v, 2, "weir/acme/device-commands/DEV1", theCommands+"/"))
		c.expect("others, by the letter", unsubackPacket(v, 2, codeNoSubscription, codeNoSubscription))
		x.command("still")
		if got := c.received(qos1); !slices.Equal(got, []string{"still"}) {
			x.t.Errorf("received %q", got)
		}
		c.send(unsubscribePacket(v, 3, "a", theCommands, "b"))
		c.expect("one answer for all", unsubackPacket(v, 3, codeNoSubscription, 0, codeNoSubscription))
		x.command("after")
		c.expect("after it")
	}},
	{"3.10.4-6 3.11.3-1 3.11.3-2", "a code for each removed filter, in order", mqtt5, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		c.send(subscribePacket(v, 1, theCommands), unsubscribePacket(v, 2, "#", theCommands, theCommands))
		c.expect("both", subackPacket(v, 1, 1), unsubackPacket(v, 2, codeNoSubscription, 0, codeNoSubscription))
	}},
	{"3.8.4-1", "an identifier that a PUBLISH of the client also uses", 0, Config{}, func(x *bench, v byte) {
		x.intake.hold = true
		c := x.connect(v)
		c.send(publishPacket(v, qos1, theEvents, 4, "{}"), subscribePacket(v, 4, theCommands), unsubscribePacket(v, 4, theCommands))
		c.expect("answered", subackPacket(v, 4, 1), unsubackPacket(v, 4, 0))
		x.intake.settle(0, ingest.Answer{})
		c.expect("stored", puback(4))
	}},
	{"3.12.4-1", "PINGREQ", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		c.send(pingreq, pingreq, pingreq)
		c.expect("PINGRESP", pingresp, pingresp, pingresp)
	}},
	{"2.1.3-1 v3:2.2.2-1 v3:2.2.2-2", "flags of packets whose flags are reserved", 0, Config{}, func(x *bench, v byte) {
		for _, p := range [][]byte{{0xC1, 0}, {0xC8, 0}, {0xE1, 0}, {0x42, 2, 0, 1}, {0x00, 0}} {
			c := x.connect(v)
			c.send(p)
			c.expectEnd(codeMalformed)
		}
	}},
}
