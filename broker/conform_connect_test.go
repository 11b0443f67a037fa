package broker

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestConnectConforms(t *testing.T) { conforms(t, connectCases) }

// refusedConnack is the CONNACK that refuses in MQTT 5.
func refusedConnack(code byte) []byte { return []byte{pktConnack << 4, 3, 0, code, 0} }

var connectCases = []conformCase{
	{"3.1.0-1", "the first packet is not a CONNECT", 0, Config{}, func(x *bench, v byte) {
		for _, first := range [][]byte{pingreq, publishPacket(v, qos1, theEvents, 1, "{}"), subscribePacket(v, 1, theCommands), goodbye, {0xF0, 0}} {
			x.expectRefused(v, first)
		}
	}},
	{"3.1.0-2 4.13.1-1 v3:4.8.0-1", "a second CONNECT", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		c.send(connectPacket(v))
		c.expectEnd(codeProtocolError)
	}},
	{"3.1.2-1", "another protocol name", 0, Config{}, func(x *bench, v byte) {
		for _, name := range []string{"mqtt", "MQTT\x00", "MQT", "", "AMQP"} {
			x.expectRefused(v, connectPacket(v, func(h *hello) { h.name = name }))
		}
	}},
	{"3.1.2-2", "an unsupported protocol level", 0, Config{}, func(x *bench, v byte) {
		levels := []byte{0, 3, 6, 0x80 | mqtt5, 255}
		if v == mqtt311 {
			levels = append(levels, 0x80|mqtt311) // of a bridge
		}
		for _, level := range levels {
			x.expectRefused(v, connectPacket(v, func(h *hello) { h.level = level }), 0x20, 2, 0, 1)
		}
	}},
	{"3.1.2-3 3.1.4-1", "the reserved flag", 0, Config{}, func(x *bench, v byte) {
		var answer []byte
		if v == mqtt5 {
			answer = refusedConnack(codeMalformed)
		}
		x.expectRefused(v, connectPacket(v, func(h *hello) { h.flags |= flagReserved }), answer...)
	}},
	{"3.1.2-11 3.1.2-12 3.1.2-13 v3:3.1.2-11", "contradicting will flags", 0, Config{}, func(x *bench, v byte) {
		var answer []byte
		if v == mqtt5 {
			answer = refusedConnack(codeMalformed)
		}
		for _, flags := range []byte{8, 16, 24, flagWillRetain} {
			x.expectRefused(v, connectPacket(v, func(h *hello) { h.flags |= flags }), answer...)
		}
		x.expectRefused(v, connectPacket(v, func(h *hello) { h.flags, h.will = h.flags|24, []string{theEvents, "x"} }), answer...)
	}},
	{"3.1.2-9 3.1.2-16 3.1.2-17 3.1.2-18 3.1.2-19", "missing fields that the flags announce, and unannounced fields", 0, Config{}, func(x *bench, v byte) {
		var answer []byte
		if v == mqtt5 {
			answer = refusedConnack(codeMalformed)
		}
		for _, flag := range []byte{flagWill, flagPassword} {
			x.expectRefused(v, connectPacket(v, func(h *hello) { h.flags |= flag }), answer...)
		}
		x.expectRefused(v, connectPacket(v, func(h *hello) { h.noUser, h.flags = true, h.flags|flagUser }), answer...)
		x.expectRefused(v, connectPacket(v, func(h *hello) { h.tail = str("more") }), answer...)
	}},
	{"v3:3.1.2-22", "a password without a user name", mqtt311, Config{}, func(x *bench, v byte) {
		x.expectRefused(v, connectPacket(v, func(h *hello) { h.noUser, h.password = true, "x" }))
	}},
	{"3.1.3-1 3.1.3-2 3.1.3-3", "all fields in their order", 0, Config{}, func(x *bench, v byte) {
		c, got := x.connack(v, func(h *hello) { h.user, h.password, h.will = "acme:user1", "s3cret", []string{theEvents, "w"} })
		if !slices.Equal(got, connackFor(v, 0)) {
			x.t.Errorf("answered % x", got)
		}
		if s := x.broker.devices.pubsub.live()[0]; s.clientID != theClient || s.will.topic != theEvents || string(s.will.payload) != "w" {
			x.t.Errorf("session of %s with the will %+v", s.clientID, s.will)
		}
		c.send(goodbye)
	}},
	{"3.1.3-4 3.1.3-11 3.1.3-12 1.5.4-1 1.5.4-2", "strings that are not UTF-8", 0, Config{}, func(x *bench, v byte) {
		var answer []byte
		if v == mqtt5 {
			answer = refusedConnack(codeMalformed)
		}
		for _, bad := range []string{"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xed\xbf\xbf", "\xf4\x90\x80\x80", "a\x00b"} { // a surrogate is none
			x.expectRefused(v, connectPacket(v, func(h *hello) { h.clientID = theClient + bad }), answer...)
			x.expectRefused(v, connectPacket(v, func(h *hello) { h.user = theUser + bad }), answer...)
			x.expectRefused(v, connectPacket(v, func(h *hello) { h.will = []string{theEvents + bad, "x"} }), answer...)
		}
	}},
	{"1.5.4-3", "a zero width no-break space is an ordinary character", 0, Config{}, func(x *bench, v byte) {
		const bom = "\xef\xbb\xbf"
		claim := Claim{Tenant: "acme", Type: AccessToken, ID: bom + "tok"}
		x.verifier.proofs[claim] = x.verifier.proofs[Claim{Tenant: "acme", Type: AccessToken, ID: "tok1"}]
		x.connect(v, func(h *hello) { h.user = "acme:" + bom + "tok" })
		answer := []byte{0x20, 2, 0, 5}
		if v == mqtt5 {
			answer = refusedConnack(codeNotAuthorized)
		}
		x.expectRefused(v, connectPacket(v, func(h *hello) { h.user = bom + theUser }), answer...)
	}},
	{"v3:3.1.3-8", "an empty client id without a clean session", mqtt311, Config{}, func(x *bench, v byte) {
		x.expectRefused(v, connectPacket(v, func(h *hello) { h.clientID, h.flags = "", 0 }), 0x20, 2, 0, 2)
	}},
	{"3.1.3-5", "client ids of letters and digits", 0, Config{}, func(x *bench, v byte) {
		for _, id := range []string{"0", "abcXYZ0123456789", "abcdefghijklmnopqrstuvw"} {
			if _, got := x.connack(v, func(h *hello) { h.clientID = id }); !slices.Equal(got, connackFor(v, 0)) {
				x.t.Errorf("%s: answered % x", id, got)
			}
		}
	}},
	{"3.1.3-6 3.1.3-7 3.2.2-16", "an empty client id is assigned", 0, Config{}, func(x *bench, v byte) {
		_, got := x.connack(v, func(h *hello) { h.clientID = "" })
		if v == mqtt311 && !slices.Equal(got, connackFor(v, 0)) || v == mqtt5 && !bytes.Contains(got, slices.Concat([]byte{propAssignedClientID, 0, 31}, []byte(autoName))) {
			x.t.Errorf("answered % x", got)
		}
		if v == mqtt5 {
			for most, answer := range map[uint32][]byte{minConnack + minForID - 1: refusedConnack(codePacketTooLarge), minConnack + minForID: nil} {
				limited := func(h *hello) { h.clientID, h.props = "", prop32(propMaximumPacketSize, most) }
				if answer != nil {
					x.expectRefused(v, connectPacket(v, limited), answer...)
				} else if _, got := x.connack(v, limited); len(got) > int(most) {
					x.t.Errorf("a CONNACK of %d bytes to a client that takes %d", len(got), most)
				}
			}
		}
	}},
	{"3.1.3-8 v3:3.1.3-9", "client ids that name another device are refused like every identity error", 0, Config{}, func(x *bench, v byte) {
		answer := []byte{0x20, 2, 0, 5}
		if v == mqtt5 {
			answer = refusedConnack(codeNotAuthorized)
		}
		for _, id := range []string{"weir:acme:dev2", "weir:globex:dev1", "other:acme:dev1", "weir:acme", "weir:"} {
			x.expectRefused(v, connectPacket(v, func(h *hello) { h.clientID = id }), answer...)
		}
	}},
	{"3.1.4-2 3.1.4-6 3.2.2-6 3.2.2-7 4.13.2-1 v3:3.2.2-4 v3:3.2.2-5", "a refused credential, followed by packets", 0, Config{}, func(x *bench, v byte) {
		answer := []byte{0x20, 2, 0, 5}
		if v == mqtt5 {
			answer = refusedConnack(codeNotAuthorized)
		}
		x.connect(v, stays(v)).send(goodbye) // even where a session is kept
		synctest.Wait()
		x.expectRefused(v, connectPacket(v, stays(v), func(h *hello) { h.user = "acme:wrong" }), answer...)
	}},
	{"3.1.4-5 3.2.0-1 3.2.0-2 3.2.2-1", "packets sent before the CONNACK are answered after it, and it is sent once", 0, Config{}, func(x *bench, v byte) {
		c := x.dial(v)
		c.send(connectPacket(v), pingreq, pingreq, subscribePacket(v, 1, theCommands))
		c.expect("all at once", connackFor(v, 0), pingresp, pingresp, subackPacket(v, 1, 1))
		if v == mqtt311 {
			c.send(publishPacket(v, qos2, theEvents, 1, "{}"))
			c.expectEnd(codeQoSNotSupported)
		}
	}},
	{"3.2.2-9 3.2.2-11 4.3.3-1", "QoS 2 if it is not offered", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		c.send(publishPacket(v, qos1, theEvents, 1, "before"), publishPacket(v, qos2, theEvents, 2, "{}"), publishPacket(v, qos1, theEvents, 3, "after"))
		synctest.Wait()
		if got := c.take(); len(got) < 1 || !slices.Equal(got[0], puback(1)) {
			x.t.Errorf("the message before it: % x", got)
		}
		c.expectClosed("QoS 2")
		x.expectStored("before")
	}},
	{"3.2.2-10 3.8.4-7", "a subscription at QoS 2 is granted QoS 1", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		p := subscribePacket(v, 5, theCommands)
		p[len(p)-1] = 2
		c.send(p)
		c.expect("QoS 2 asked for", subackPacket(v, 5, 1))
	}},
	{"3.2.2-12", "a will at QoS 2", 0, Config{}, func(x *bench, v byte) {
		answer := []byte{0x20, 2, 0, 5}
		if v == mqtt5 {
			answer = refusedConnack(codeQoSNotSupported)
		}
		x.expectRefused(v, connectPacket(v, func(h *hello) { h.flags, h.will = h.flags|16, []string{theEvents, "x"} }), answer...)
	}},
	{"3.2.2-13", "a will with the retain flag", mqtt5, Config{}, func(x *bench, v byte) {
		x.expectRefused(v, connectPacket(v, func(h *hello) { h.flags, h.will = h.flags|flagWillRetain, []string{theEvents, "x"} }),
			refusedConnack(codeRetainNotSupported)...)
	}},
	{"3.2.2-21 3.2.2-22 3.1.2-21", "the Server Keep Alive", mqtt5, Config{}, func(x *bench, v byte) {
		for asked, told := range map[uint16]uint16{0: 600, 1: 1, 60: 60, 600: 600, 601: 600, math.MaxUint16: 600} {
			c, got := x.connack(v, func(h *hello) { h.keepAlive = asked })
			if !strings.Contains(string(got), string(prop16(19, told))) {
				x.t.Errorf("asked for %d: CONNACK % x", asked, got)
			}
			time.Sleep(time.Duration(told)*1500*time.Millisecond - time.Millisecond)
			synctest.Wait()
			if c.isClosed() {
				x.t.Fatalf("asked for %d: closed early", asked)
			}
			time.Sleep(2 * time.Millisecond)
			c.expectEnd(codeKeepAliveTimeout)
		}
	}},
	{"3.1.2-22", "silence for one and a half times the keep-alive", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v, func(h *hello) { h.keepAlive = 10 })
		for range 3 {
			time.Sleep(14900 * time.Millisecond)
			c.send(pingreq)
			c.expect("in time", pingresp)
		}
		time.Sleep(15001 * time.Millisecond)
		c.expectEnd(codeKeepAliveTimeout)
	}},
	{"3.1.2-24 3.2.2-19 3.2.2-20", "a client whose maximum packet size is below the CONNACK's size", mqtt5, Config{}, func(x *bench, v byte) {
		kept := x.connect(v)
		for _, most := range []uint32{1, 4} {
			x.expectRefused(v, connectPacket(v, func(h *hello) { h.props = prop32(propMaximumPacketSize, most) }))
		}
		for _, most := range []uint32{5, 30} {
			x.expectRefused(v, connectPacket(v, func(h *hello) { h.props = prop32(propMaximumPacketSize, most) }), refusedConnack(codePacketTooLarge)...)
		}
		if kept.isClosed() {
			x.t.Error("a refused CONNECT took over")
		}
		x.connack(v, func(h *hello) {
			h.props = slices.Concat(prop32(propMaximumPacketSize, 31), prop32(propSessionExpiry, math.MaxUint32))
		})
	}},
	{"3.1.2-28 3.1.2-26 4.12.0-6 4.12.0-7", "the CONNACK has no response information, alias or authentication", mqtt5, Config{}, func(x *bench, v byte) {
		for _, asks := range [][]byte{prop8(propRequestResponseInfo, 0), prop8(propRequestResponseInfo, 1), prop16(34, 10)} {
			if _, got := x.connack(v, func(h *hello) { h.props = asks }); !slices.Equal(got, connackFor(v, 0)) {
				x.t.Errorf("% x: answered % x", asks, got)
			}
		}
	}},
	{"2.2.2-1 3.1.4-1", "repeated, unknown, out-of-range and misplaced properties of a CONNECT", mqtt5, Config{}, func(x *bench, v byte) {
		for _, tc := range []struct {
			props []byte
			code  byte
		}{
			{slices.Concat(prop32(propSessionExpiry, 1), prop32(propSessionExpiry, 1)), codeProtocolError},
			{slices.Concat(prop16(34, 1), prop16(34, 1)), codeProtocolError},
			{prop16(propReceiveMaximum, 0), codeProtocolError},
			{prop32(propMaximumPacketSize, 0), codeProtocolError},
			{prop8(propRequestResponseInfo, 2), codeProtocolError},
			{prop8(propRequestProblemInfo, 2), codeProtocolError},
			{propText(22, "data"), codeProtocolError},
			{prop32(propWillDelay, 1), codeMalformed},
			{prop8(1, 1), codeMalformed},
			{prop16(19, 1), codeMalformed},
			{[]byte{0}, codeMalformed},
			{[]byte{0x91, 0, 0, 0, 0, 0}, codeMalformed}, // a session expiry whose identifier is longer than needed
			{prop32(propSessionExpiry, 1)[:3], codeMalformed},
		} {
			x.expectRefused(v, connectPacket(v, func(h *hello) { h.props = tc.props }), refusedConnack(tc.code)...)
		}
	}},
	{"4.12.0-1", "an authentication method", mqtt5, Config{}, func(x *bench, v byte) {
		x.expectRefused(v, connectPacket(v, func(h *hello) { h.props = slices.Concat(propText(21, "SCRAM-SHA-256"), propText(22, "data")) }),
			refusedConnack(codeBadAuthMethod)...)
	}},
	{"3.15.1-1 4.12.1-1", "an AUTH without enhanced authentication", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		c.send([]byte{0xF0, 2, 0x19, 0})
		c.expectEnd(codeProtocolError)
		c = x.connect(v)
		c.send([]byte{0xF1, 2, 0x19, 0})
		c.expectEnd(codeMalformed)
	}},
}
