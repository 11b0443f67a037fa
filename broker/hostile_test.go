package broker

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/ingest"
	"weir/internal/test/conformance"
)

// hostileConnects are CONNECTs that must not open a session, each with its exact answer: "" is a connection closed without
// a word.
var hostileConnects = []struct {
	name    string
	version byte
	packet  []byte
	answer  string
	why     string
}{
	{"not MQTT at all", 4, []byte("GET / HTTP/1.1\r\n\r\n"), "", "not-mqtt"},
	{"first packet is no CONNECT", 4, []byte{0xC0, 0}, "", "not-mqtt"},
	{"CONNECT with reserved flags in its header", 4, []byte{0x11, 0}, "", "not-mqtt"},
	{"remaining length of five bytes", 4, []byte{0x10, 0xff, 0xff, 0xff, 0xff, 1}, "", "malformed"},
	{"remaining length longer than needed", 4, []byte{0x10, 0x80, 0}, "", "malformed"},
	{"CONNECT over 64 KiB", 5, []byte{0x10, 0xff, 0xff, 0x7f}, "", "connect-too-large"},
	{"empty CONNECT", 4, []byte{0x10, 0}, "", "protocol-name"},
	{"MQTT 3.1", 4, connectPacket(4, func(h *hello) { h.name, h.level = "MQIsdp", 3 }), "20020001", "protocol-version"},
	{"other protocol", 4, connectPacket(4, func(h *hello) { h.name = "HTTP" }), "", "protocol-name"},
	{"level 3 under the new name", 4, connectPacket(4, func(h *hello) { h.level = 3 }), "20020001", "protocol-version"},
	{"level 6", 4, connectPacket(4, func(h *hello) { h.level = 6 }), "20020001", "protocol-version"},
	{"bridge bit in the level", 4, connectPacket(4, func(h *hello) { h.level = 0x84 }), "20020001", "protocol-version"},
	{"reserved connect flag", 4, connectPacket(4, func(h *hello) { h.flags |= 1 }), "", "malformed"},
	{"reserved connect flag", 5, connectPacket(5, func(h *hello) { h.flags |= 1 }), "2003008100", "malformed"},
	{"will QoS without a will", 5, connectPacket(5, func(h *hello) { h.flags |= 8 }), "2003008100", "malformed"},
	{"will retain without a will", 5, connectPacket(5, func(h *hello) { h.flags |= 32 }), "2003008100", "malformed"},
	{"will QoS 3", 5, connectPacket(5, func(h *hello) { h.flags |= 24; h.will = []string{theEvents, "x"} }), "2003008100", "malformed"},
	{"will QoS 2", 4, connectPacket(4, func(h *hello) { h.flags |= 16; h.will = []string{theEvents, "x"} }), "20020005", "will-qos"},
	{"will QoS 2", 5, connectPacket(5, func(h *hello) { h.flags |= 16; h.will = []string{theEvents, "x"} }), "2003009b00", "will-qos"},
	{"retained will", 5, connectPacket(5, func(h *hello) { h.flags |= 32; h.will = []string{theEvents, "x"} }), "2003009a00", "will-retain"},
	{"will on a foreign topic", 4, connectPacket(4, func(h *hello) { h.will = []string{"weir/acme/devices/dev2/events", "x"} }), "20020005", "not-authorized"},
	{"will on a foreign topic", 5, connectPacket(5, func(h *hello) { h.will = []string{"weir/acme/devices/dev2/events", "x"} }), "2003008700", "not-authorized"},
	{"will on its commands", 5, connectPacket(5, func(h *hello) { h.will = []string{theCommands, "x"} }), "2003008700", "not-authorized"},
	{"will with an unknown property", 5, connectPacket(5, func(h *hello) { h.will, h.willProps = []string{theEvents, "x"}, []byte{17, 0, 0, 0, 1} }), "2003008100", "malformed"},
	{"password without a user name", 4, connectPacket(4, func(h *hello) { h.noUser, h.password = true, "x" }), "", "malformed"},
	{"cut short", 4, packet(0x10, append(str("MQTT"), 4, 2, 0)...), "", "malformed"},
	{"cut short", 5, packet(0x10, append(str("MQTT"), 5, 2, 0)...), "2003008100", "malformed"},
	{"bytes behind the end", 5, connectPacket(5, func(h *hello) { h.tail = []byte{0} }), "2003008100", "malformed"},
	{"client id that is no UTF-8", 5, connectPacket(5, func(h *hello) { h.clientID = "weir:acme:\xff" }), "2003008100", "malformed"},
	{"client id with U+0000", 4, connectPacket(4, func(h *hello) { h.clientID = "weir:acme:dev1\x00" }), "", "malformed"},
	{"properties longer than the packet", 5, packet(0x10, append(str("MQTT"), 5, 2, 0, 60, 0x7f)...), "2003008100", "malformed"},
	{"unknown property", 5, connectPacket(5, func(h *hello) { h.props = []byte{99, 0} }), "2003008100", "malformed"},
	{"property of another packet", 5, connectPacket(5, func(h *hello) { h.props = []byte{propTopicAlias, 0, 1} }), "2003008100", "malformed"},
	{"property given twice", 5, connectPacket(5, func(h *hello) { h.props = []byte{33, 0, 1, 33, 0, 1} }), "2003008200", "malformed"},
	{"property cut short", 5, connectPacket(5, func(h *hello) { h.props = []byte{33, 0} }), "2003008100", "malformed"},
	{"receive maximum 0", 5, connectPacket(5, func(h *hello) { h.props = []byte{33, 0, 0} }), "2003008200", "malformed"},
	{"maximum packet size 0", 5, connectPacket(5, func(h *hello) { h.props = []byte{39, 0, 0, 0, 0} }), "2003008200", "malformed"},
	{"problem information 2", 5, connectPacket(5, func(h *hello) { h.props = []byte{23, 2} }), "2003008200", "malformed"},
	{"authentication method", 5, connectPacket(5, func(h *hello) { h.props = append([]byte{21}, str("SCRAM-SHA-1")...) }), "2003008c00", "authentication-method"},
	{"authentication data alone", 5, connectPacket(5, func(h *hello) { h.props = append([]byte{22}, str("x")...) }), "2003008200", "malformed"},
	{"unknown token", 4, connectPacket(4, func(h *hello) { h.user = "acme:nope" }), "20020005", "not-authorized"},
	{"unknown token", 5, connectPacket(5, func(h *hello) { h.user = "acme:nope" }), "2003008700", "not-authorized"},
	{"wrong password", 4, connectPacket(4, func(h *hello) { h.user, h.password = "acme:user1", "wrong" }), "20020005", "not-authorized"},
	{"wrong password", 5, connectPacket(5, func(h *hello) { h.user, h.password = "acme:user1", "wrong" }), "2003008700", "not-authorized"},
	{"password for a token", 5, connectPacket(5, func(h *hello) { h.password = "x" }), "2003008700", "not-authorized"},
	{"no user name", 4, connectPacket(4, func(h *hello) { h.noUser = true }), "20020005", "not-authorized"},
	{"no tenant in the user name", 5, connectPacket(5, func(h *hello) { h.user = "tok1" }), "2003008700", "not-authorized"},
	{"empty tenant", 5, connectPacket(5, func(h *hello) { h.user = ":tok1" }), "2003008700", "not-authorized"},
	{"empty credential id", 5, connectPacket(5, func(h *hello) { h.user = "acme:" }), "2003008700", "not-authorized"},
	{"client id of another device", 5, connectPacket(5, func(h *hello) { h.clientID = "weir:acme:dev2" }), "2003008700", "not-authorized"},
	{"client id of another tenant", 5, connectPacket(5, func(h *hello) { h.clientID = "weir:globex:dev1" }), "2003008700", "not-authorized"},
	{"client id of another instance", 5, connectPacket(5, func(h *hello) { h.clientID = "other:acme:dev1" }), "2003008700", "not-authorized"},
	{"endless client id", 5, connectPacket(5, func(h *hello) { h.clientID = strings.Repeat("x", 129) }), "2003008700", "not-authorized"},
	{"client id without a device", 5, connectPacket(5, func(h *hello) { h.clientID = "weir:acme" }), "2003008700", "not-authorized"},
	{"free client id and a wrong credential", 5, connectPacket(5, func(h *hello) { h.clientID, h.user = "esp32", "acme:nope" }), "2003008700", "not-authorized"},
	{"free client id and the will of another device", 5, connectPacket(5, func(h *hello) {
		h.clientID, h.will = "esp32", []string{"weir/acme/devices/dev2/events", "{}"}
	}), "2003008700", "not-authorized"},
	{"empty suffix", 5, connectPacket(5, func(h *hello) { h.clientID = theClient + ":" }), "2003008700", "not-authorized"},
	{"endless suffix", 5, connectPacket(5, func(h *hello) { h.clientID = theClient + ":" + strings.Repeat("x", 129) }), "2003008700", "not-authorized"},
	{"wildcard for a device", 5, connectPacket(5, func(h *hello) { h.clientID = "weir:acme:+" }), "2003008700", "not-authorized"},
	{"token whose proof is of another tenant", 5, connectPacket(5, func(h *hello) { h.user = "acme:tok-of-another-tenant" }), "2003008700", "not-authorized"},
}

func TestHostileConnectsAreRefusedExactly(t *testing.T) {
	for _, tc := range hostileConnects {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, x *bench) {
				c := x.dial(tc.version)
				c.send(tc.packet)
				synctest.Wait()
				if got := hex.EncodeToString(slices.Concat(c.take()...)); got != tc.answer {
					t.Errorf("answered %q, want %q", got, tc.answer)
				}
				c.expectClosed("a refused CONNECT")
				if n := counted(t, x.broker.metrics.refused.WithLabelValues(tc.why)); n != 1 {
					t.Errorf("counted %v times as %s", n, tc.why)
				}
				if len(x.intake.seenPresence()) != 0 || x.broker.Connections() != 0 {
					t.Error("a refused CONNECT left something behind")
				}
				if tc.why == "not-authorized" {
					conformance.Shown(t, "S2-024")
				}
			})
		})
	}
}

// hostilePackets come after a good CONNECT. The answer is everything that is sent before the connection closes.
var hostilePackets = []struct {
	name    string
	version byte
	packet  []byte
	answer  string
	cause   *cause
}{
	{"second CONNECT", 4, connectPacket(4), "", causeProtocol},
	{"second CONNECT", 5, connectPacket(5), "e00182", causeProtocol},
	{"packet type 0", 5, []byte{0x00, 0}, "e00181", causeMalformed},
	{"CONNACK", 5, []byte{0x20, 2, 0, 0}, "e00182", causeProtocol},
	{"SUBACK", 5, []byte{0x90, 3, 0, 1, 0}, "e00182", causeProtocol},
	{"PINGRESP", 5, []byte{0xD0, 0}, "e00182", causeProtocol},
	{"AUTH", 5, []byte{0xF0, 0}, "e00182", causeProtocol},
	{"AUTH in 3.1.1", 4, []byte{0xF0, 0}, "", causeProtocol},
	{"PUBREC", 5, []byte{0x50, 2, 0, 1}, "e00182", causeProtocol},
	{"PUBREL", 5, []byte{0x62, 2, 0, 1}, "e00182", causeProtocol},
	{"PUBCOMP", 4, []byte{0x70, 2, 0, 1}, "", causeProtocol},
	{"PINGREQ with reserved flags", 5, []byte{0xC1, 0}, "e00181", causeMalformed},
	{"PINGREQ with a body", 5, []byte{0xC0, 1, 0}, "e00181", causeMalformed},
	{"remaining length of five bytes", 5, []byte{0x30, 0x80, 0x80, 0x80, 0x80, 1}, "e00181", causeMalformed},
	{"PUBLISH at QoS 2", 4, publishPacket(4, qos2, theEvents, 1, "{}"), "", causeQoS2},
	{"PUBLISH at QoS 2", 5, publishPacket(5, qos2, theEvents, 1, "{}"), "e0019b", causeQoS2},
	{"PUBLISH at QoS 3", 5, publishPacket(5, qos1|qos2, theEvents, 1, "{}"), "e00181", causeMalformed},
	{"PUBLISH at QoS 0 that says DUP", 5, publishPacket(5, dup, theEvents, 0, "{}"), "e00182", causeProtocol},
	{"PUBLISH without identifier", 5, publishPacket(5, qos1, theEvents, 0, "{}"), "e00182", causeProtocol},
	{"PUBLISH over 1 MiB", 4, []byte{0x32, 0x80, 0x80, 0x80, 1}, "", causeTooLarge},
	{"PUBLISH over 1 MiB", 5, []byte{0x32, 0x80, 0x80, 0x80, 1}, "e00195", causeTooLarge},
	{"PUBLISH of the largest length there is", 5, []byte{0x32, 0xff, 0xff, 0xff, 0x7f}, "e00195", causeTooLarge},
	{"empty PUBLISH", 5, []byte{0x30, 0}, "e00181", causeMalformed},
	{"PUBLISH with a topic past its end", 5, []byte{0x30, 3, 0, 9, 'x'}, "e00181", causeMalformed},
	{"PUBLISH with a topic that is no UTF-8", 5, publishPacket(5, 0, "\xff\xfe", 0, "{}"), "e00181", causeMalformed},
	{"PUBLISH with U+0000 in the topic", 5, publishPacket(5, 0, "a\x00b", 0, "{}"), "e00181", causeMalformed},
	{"PUBLISH with a wildcard", 5, publishPacket(5, qos1, "weir/acme/devices/+/events", 1, "{}"), "e00190", causeTopicName},
	{"PUBLISH with a wildcard", 4, publishPacket(4, 0, "#", 0, "{}"), "", causeTopicName},
	{"PUBLISH without a topic", 5, publishPacket(5, qos1, "", 1, "{}"), "e00182", causeProtocol},
	{"PUBLISH that sets a topic alias", 5, packet(0x32, slices.Concat(str(theEvents), []byte{0, 1, 3, propTopicAlias, 0, 1}, []byte("{}"))...), "e00194", causeTopicAlias},
	{"PUBLISH by alias alone", 5, packet(0x32, 0, 0, 0, 1, 3, propTopicAlias, 0, 1, '{', '}'), "e00194", causeTopicAlias},
	{"PUBLISH with a subscription identifier", 5, packet(0x30, slices.Concat(str(theEvents), []byte{2, propSubscriptionID, 1}, []byte("{}"))...), "e00182", causeProtocol},
	{"PUBLISH with a property of CONNECT", 5, packet(0x30, slices.Concat(str(theEvents), []byte{3, propReceiveMaximum, 0, 1}, []byte("{}"))...), "e00181", causeMalformed},
	{"PUBLISH with a property twice", 5, packet(0x30, slices.Concat(str(theEvents), []byte{4, 1, 0, 1, 0}, []byte("{}"))...), "e00182", causeProtocol},
	{"PUBLISH with properties past its end", 5, packet(0x30, append(str(theEvents), 0x7f)...), "e00181", causeMalformed},
	{"SUBSCRIBE of seven bytes", 5, []byte{0x82, 5, 0, 1, 0, 0, 0}, "e00181", causeMalformed},
	{"SUBSCRIBE without options", 5, packet(0x82, slices.Concat([]byte{0, 1, 0}, str("a"))...), "e00181", causeMalformed},
	{"SUBSCRIBE without a filter", 5, []byte{0x82, 3, 0, 1, 0}, "e00182", causeProtocol},
	{"SUBSCRIBE without a filter", 4, []byte{0x82, 2, 0, 1}, "", causeProtocol},
	{"SUBSCRIBE without identifier", 5, subscribePacket(5, 0, theCommands), "e00182", causeProtocol},
	{"SUBSCRIBE with wrong flags", 5, []byte{0x80, 3, 0, 1, 0}, "e00181", causeMalformed},
	{"SUBSCRIBE at QoS 3", 5, packet(0x82, slices.Concat([]byte{0, 1, 0}, str(theCommands), []byte{3})...), "e00181", causeMalformed},
	{"SUBSCRIBE with reserved options", 5, packet(0x82, slices.Concat([]byte{0, 1, 0}, str(theCommands), []byte{0x41})...), "e00181", causeMalformed},
	{"SUBSCRIBE with options of 5.0", 4, packet(0x82, slices.Concat([]byte{0, 1}, str(theCommands), []byte{5})...), "", causeMalformed},
	{"SUBSCRIBE with identifier 0", 5, packet(0x82, slices.Concat([]byte{0, 1, 2, propSubscriptionID, 0}, str(theCommands), []byte{1})...), "e00182", causeProtocol},
	{"SUBSCRIBE over 64 KiB", 5, []byte{0x82, 0x80, 0x80, 0x08}, "e00195", causeTooLarge},
	{"UNSUBSCRIBE with an empty filter", 5, []byte{0xA2, 5, 0, 1, 0, 0, 0}, "e00181", causeMalformed},
	{"PUBACK cut short", 5, []byte{0x40, 1, 0}, "e00181", causeMalformed},
	{"PUBACK with bytes behind", 4, []byte{0x40, 3, 0, 1, 0}, "", causeMalformed},
	{"DISCONNECT with a body in 3.1.1", 4, []byte{0xE0, 1, 0}, "", causeMalformed},
	{"DISCONNECT that lengthens a session of 0", 5, []byte{0xE0, 7, 0, 5, propSessionExpiry, 0, 0, 0, 1}, "e00182", causeProtocol},
	{"DISCONNECT with an unknown property", 5, []byte{0xE0, 4, 0, 2, 99, 0}, "e00181", causeMalformed},
}

func TestHostilePacketsEndTheConnectionExactly(t *testing.T) {
	for _, tc := range hostilePackets {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, x *bench) {
				c := x.connect(tc.version)
				c.send(tc.packet)
				synctest.Wait()
				if got := hex.EncodeToString(slices.Concat(c.take()...)); got != tc.answer {
					t.Errorf("answered %q, want %q", got, tc.answer)
				}
				c.expectClosed("a hostile packet")
				if n := counted(t, x.broker.metrics.disconnects.WithLabelValues(tc.cause.word)); n != 1 {
					t.Errorf("counted %v times as %s", n, tc.cause.word)
				}
				if len(x.intake.seenArrivals()) > 0 {
					t.Errorf("reached the intake: %q", x.intake.bodies())
				}
				if counted(t, x.broker.metrics.panics) != 0 {
					t.Error("panicked")
				}
				// Whoever else is there is not touched.
				d := x.connect(tc.version)
				d.send(publishPacket(tc.version, qos1, theEvents, 1, "{}"))
				d.expect("the next client", puback(1))
			})
		})
	}
}

func TestRefusedPublishesOfWrongKindAreCounted(t *testing.T) {
	for _, p := range [][]byte{publishPacket(5, qos2, theEvents, 1, "{}"), {0x32, 0x80, 0x80, 0x80, 1}} {
		inBubble(t, Config{}, func(t *testing.T, x *bench) {
			c := x.connect(mqtt5)
			c.send(p)
			c.expectClosed("a refused publish")
			if x.intake.counted() != 1 || len(x.intake.reasons()) != 1 {
				t.Errorf("received %d, refused %v", x.intake.counted(), x.intake.reasons())
			}
		})
	}
}

// A panic in the library or in us ends one connection.
func TestPanicEndsOneConnection(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		other := x.connect(mqtt5, func(h *hello) { h.clientID, h.user = "weir:acme:dev2", "acme:tok2" })
		x.intake.block = func(context.Context) { panic("boom") }
		c := x.connect(mqtt5)
		c.send(publishPacket(mqtt5, qos1, theEvents, 1, "{}"))
		c.expect("after a panic", disconnect(codeUnspecified))
		c.expectClosed("after a panic")
		if counted(t, x.broker.metrics.panics) != 1 {
			t.Error("not counted")
		}
		other.send([]byte{0xC0, 0})
		other.expect("the other client", []byte{0xD0, 0})
	})
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		x.verifier.hook = func() { panic("boom") }
		c := x.dial(mqtt5)
		c.send(connectPacket(mqtt5))
		c.expectClosed("after a panic in the verifier")
		if counted(t, x.broker.metrics.panics) != 1 || x.broker.Connections() != 0 {
			t.Error("not counted, or something is left")
		}
	})
}

func TestASilentClientIsDisconnected(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		silent, slow := x.dial(mqtt311), x.dial(mqtt311)
		slow.send(connectPacket(mqtt311)[:10])
		time.Sleep(9900 * time.Millisecond)
		synctest.Wait()
		if silent.isClosed() || slow.isClosed() {
			t.Fatal("closed before ten seconds")
		}
		time.Sleep(200 * time.Millisecond)
		silent.expectClosed("no CONNECT in ten seconds")
		slow.expectClosed("half a CONNECT in ten seconds")
	})
}

func TestIdleConnectionsCannotKeepDevicesOut(t *testing.T) {
	inBubble(t, Config{MaxHandshakes: 3}, func(t *testing.T, x *bench) {
		var idle []*client
		for range 3 {
			idle = append(idle, x.dial(mqtt5))
			synctest.Wait()
		}
		c := x.connect(mqtt5)
		idle[0].expectClosed("the one that waited longest")
		synctest.Wait()
		if idle[1].isClosed() || idle[2].isClosed() || c.isClosed() {
			t.Error("more was closed than needed")
		}
	})
}

func TestConnectionLimit(t *testing.T) {
	forBoth(t, Config{Settings: Settings{MaxConnections: 1}}, func(t *testing.T, x *bench, v byte) {
		first := x.connect(v)
		second := x.dial(v)
		second.send(connectPacket(v, func(h *hello) { h.clientID, h.user = "weir:acme:dev2", "acme:tok2" }))
		want := []byte{0x20, 2, 0, 3}
		if v == mqtt5 {
			want = []byte{0x20, 3, 0, codeServerBusy, 0}
		}
		second.expect("over the limit", want)
		second.expectClosed("over the limit")
		again := x.connect(v) // a takeover is no new connection
		first.expectClosed("taken over")
		if again.isClosed() {
			t.Error("a takeover at the limit was refused")
		}
	})
}

// A credential that could not be checked may be the right one: the device is asked to come back, and not told that it is wrong.
func TestACredentialThatCannotBeCheckedIsNotRefused(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		x.verifier.err = fmt.Errorf("%w: the disk is on fire", ErrBusy)
		answer := []byte{0x20, 2, 0, 3}
		if v == mqtt5 {
			answer = refusedConnack(codeServerBusy)
		}
		x.expectRefused(v, connectPacket(v, func(h *hello) { h.user = "acme:tok9" }), answer...)
		x.connect(v) // whose credential is known
	})
}

func TestConnectionsOfOneDeviceAreBounded(t *testing.T) {
	inBubble(t, Config{MaxPerDevice: 2}, func(t *testing.T, x *bench) {
		suffix := func(s string) func(*hello) { return func(h *hello) { h.clientID = theClient + ":" + s } }
		a := x.connect(mqtt5, suffix("a"))
		x.connect(mqtt5, suffix("b"))
		c := x.dial(mqtt5)
		c.send(connectPacket(mqtt5, suffix("c")))
		c.expect("one too many", []byte{0x20, 3, 0, codeServerBusy, 0})
		x.connect(mqtt5, suffix("b")) // a takeover
		a.conn.Close()
		synctest.Wait()
		x.connect(mqtt5, suffix("c"))
		x.connect(mqtt5, func(h *hello) { h.clientID, h.user = "weir:acme:dev2", "acme:tok2" })
		if n := len(x.broker.devices.pubsub.perDevice); n != 2 {
			t.Errorf("%d devices counted", n)
		}
	})
}

func TestConnectionsInAnyStateAreBounded(t *testing.T) {
	inBubble(t, Config{Settings: Settings{MaxConnections: 1}, MaxHandshakes: 1}, func(t *testing.T, x *bench) {
		x.verifier.hook = func() { time.Sleep(3 * time.Second) }
		for range 2 {
			x.dial(mqtt5).send(connectPacket(mqtt5))
			synctest.Wait()
		}
		c := x.dial(mqtt5)
		c.expectClosed("one too many")
		time.Sleep(20 * time.Second)
		if n := counted(t, x.broker.metrics.refused.WithLabelValues("too-many")); n != 1 || x.broker.open.Load() != 1 {
			t.Errorf("%v refused, %d open", n, x.broker.open.Load())
		}
	})
}

// What breaks the protocol is counted as any other refusal.
func TestProtocolErrorsAreCounted(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		x.intake.hold = true
		c := x.connect(mqtt5)
		c.send(publishPacket(mqtt5, qos1, theEvents, 5, "M1"), publishPacket(mqtt5, qos1, theEvents, 5, "M2"))
		synctest.Wait()
		if !slices.Equal(x.intake.reasons(), []ingest.Reason{ReasonProtocol}) || x.intake.counted() != 1 {
			t.Errorf("counted %v of %d", x.intake.reasons(), x.intake.counted())
		}
		x.intake.settle(0, ingest.Answer{})
		c.expectClosed("a protocol error")
	})
}

// A window that does not open again does not hold a connection for ever.
func TestFullWindowOfADeadLog(t *testing.T) {
	inBubble(t, Config{ReceiveMaximum: 1}, func(t *testing.T, x *bench) {
		x.intake.hold = true
		c := x.connect(mqtt311, func(h *hello) { h.keepAlive = 20 })
		c.send(publishPacket(mqtt311, qos1, theEvents, 1, "{}"), publishPacket(mqtt311, qos1, theEvents, 2, "{}"))
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if c.isClosed() {
			t.Fatal("closed too early")
		}
		time.Sleep(2 * time.Second)
		c.expectClosed("a log that does not answer")
		if got := x.intake.transitions(); got != "CONNECTED connected" {
			t.Error(got)
		}
	})
}
