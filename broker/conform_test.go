package broker

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// conformCase shows one or more normative statements of the standard on the running door: raw bytes in, exact bytes out.
// The statements are listed in statements_test.go, and the page docs/mqtt-conformance.md is made of both.
type conformCase struct {
	clauses string // as "3.8.4-1 2.2.1-6" for those of 5.0, "v3:3.1.3-8" for those of 3.1.1 that have no like there
	name    string
	version byte // 0: shown for both
	cfg     Config
	run     func(x *bench, v byte)
}

// conforms runs the cases of one subject.
func conforms(t *testing.T, cases []conformCase) {
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for _, v := range bothVersions {
				if tc.version == 0 || tc.version == v {
					inBubble(t, tc.cfg, func(_ *testing.T, x *bench) { tc.run(x, v) })
				}
			}
		})
	}
}

// conformanceCases are all cases, by the test that runs them.
func conformanceCases() map[string][]conformCase {
	return map[string][]conformCase{
		"TestConnectConforms": connectCases, "TestPublishConforms": publishCases, "TestAcknowledgementsConform": ackCases,
		"TestSubscribeConforms": subscribeCases, "TestSessionConforms": sessionCases, "TestWillConforms": willCases,
		"TestFormConforms": formCases, "TestWebSocketConforms": webSocketCases,
	}
}

// props are properties with their length before them.
func props(parts ...[]byte) []byte {
	all := slices.Concat(parts...)
	return append(appendVarint(nil, len(all)), all...)
}

func prop8(id, v byte) []byte { return []byte{id, v} }

func prop16(id byte, v uint16) []byte { return binary.BigEndian.AppendUint16([]byte{id}, v) }

func prop32(id byte, v uint32) []byte { return binary.BigEndian.AppendUint32([]byte{id}, v) }

func propText(id byte, s ...string) []byte {
	b := []byte{id}
	for _, one := range s {
		b = append(b, str(one)...)
	}
	return b
}

// publishWith is a PUBLISH of MQTT 5 with properties.
func publishWith(flags byte, topic string, id uint16, properties []byte, payload string) []byte {
	b := str(topic)
	if flags&6 != 0 {
		b = binary.BigEndian.AppendUint16(b, id)
	}
	return packet(pktPublish<<4|flags, slices.Concat(b, properties, []byte(payload))...)
}

// subscribeWith is a SUBSCRIBE of MQTT 5 with properties and one filter.
func subscribeWith(id byte, properties []byte, filter string, options byte) []byte {
	return packet(pktSubscribe<<4|2, slices.Concat([]byte{0, id}, properties, str(filter), []byte{options})...)
}

func unsubscribePacket(version byte, id uint16, filters ...string) []byte {
	b := binary.BigEndian.AppendUint16(nil, id)
	if version == mqtt5 {
		b = append(b, 0)
	}
	for _, f := range filters {
		b = append(b, str(f)...)
	}
	return packet(pktUnsubscribe<<4|2, b...)
}

func subackPacket(version byte, id uint16, codes ...byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, id)
	if version == mqtt5 {
		b = append(b, 0)
	}
	return packet(pktSuback<<4, append(b, codes...)...)
}

// unsuback has codes in MQTT 5 alone.
func unsubackPacket(version byte, id uint16, codes ...byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, id)
	if version == mqtt5 {
		b = append(append(b, 0), codes...)
	}
	return packet(pktUnsuback<<4, b...)
}

var (
	pingreq  = []byte{pktPingreq << 4, 0}
	pingresp = []byte{pktPingresp << 4, 0}
	goodbye  = []byte{pktDisconnect << 4, 0}
)

// expectEnd fails unless the connection has ended: with a DISCONNECT of that code in MQTT 5, without a word in 3.1.1.
func (c *client) expectEnd(code byte) {
	c.t.Helper()
	if c.version == mqtt5 {
		c.expect("the end", disconnect(code))
	} else {
		c.expect("the end")
	}
	c.expectClosed("the end")
}

// expectRefused sends the first bytes of a connection and fails unless they are answered so and the connection ends.
func (x *bench) expectRefused(v byte, first []byte, answer ...byte) {
	x.t.Helper()
	c := x.dial(v)
	c.send(first, publishPacket(v, qos1, theEvents, 1, "after a refusal"))
	synctest.Wait()
	if got := slices.Concat(c.take()...); !slices.Equal(got, answer) {
		x.t.Errorf("answered % x, want % x", got, answer)
	}
	c.expectClosed("a refused CONNECT")
	if n := len(x.intake.bodies()); n > 0 {
		x.t.Errorf("%d messages of a refused connection", n)
	}
}

// connack opens a session and returns its CONNACK.
func (x *bench) connack(v byte, options ...func(*hello)) (*client, []byte) {
	x.t.Helper()
	c := x.dial(v)
	c.send(connectPacket(v, options...))
	synctest.Wait()
	got := c.take()
	if len(got) != 1 || got[0][0] != pktConnack<<4 {
		x.t.Fatalf("answered % x", got)
	}
	return c, got[0]
}

// expectStored fails unless the intake has exactly these messages.
func (x *bench) expectStored(want ...string) {
	x.t.Helper()
	synctest.Wait()
	if got := x.intake.bodies(); !slices.Equal(got, want) {
		x.t.Errorf("the intake has %q, want %q", got, want)
	}
}

// stays keeps a session for 256 seconds.
func stays(v byte) func(*hello) {
	return func(h *hello) {
		h.flags &^= flagClean
		if v == mqtt5 {
			h.props = append(h.props, prop32(propSessionExpiry, 256)...)
		}
	}
}

// connackFor is the CONNACK of a session; expiry is what MQTT 5 is told of its life when it is not what was asked for.
func connackFor(v, present byte, expiry ...byte) []byte {
	if v == mqtt311 {
		return []byte{pktConnack << 4, 2, present, 0}
	}
	offer := slices.Concat(expiry, prop16(19, 60), prop16(propReceiveMaximum, 256), prop8(36, 1), prop8(37, 0),
		prop32(propMaximumPacketSize, 1<<20), prop8(40, 0), prop8(41, 0), prop8(42, 0))
	return packet(pktConnack<<4, slices.Concat([]byte{present, 0}, props(offer))...)
}

func clausesOf(tc conformCase) []string { return strings.Fields(tc.clauses) }
