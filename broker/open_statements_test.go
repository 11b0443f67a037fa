package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stage is where a statement of the standard is tried: a server and whoever connects to it.
type stage struct {
	*testing.T
	x *bench
	v byte
}

func (s *stage) client(id string, options ...func(*hello)) *client {
	s.Helper()
	c, _ := s.x.open(s.v, id, options...)
	return c
}

func (s *stage) present(id string, options ...func(*hello)) bool {
	s.Helper()
	_, present := s.x.open(s.v, id, options...)
	return present
}

// code is an answer as the version can give it: the DISCONNECT of MQTT 5, nothing before the end in 3.1.1.
func (s *stage) ends(c *client, what string, code byte) {
	s.Helper()
	if s.v == mqtt5 {
		c.expect(what, disconnect(code))
	} else {
		c.expect(what)
	}
	c.expectClosed(what)
}

// unsubscribe and its answer; the codes are of MQTT 5.
func unsub(version byte, id byte, filters ...string) []byte {
	b := []byte{0, id}
	if version == mqtt5 {
		b = append(b, 0)
	}
	for _, f := range filters {
		b = append(b, str(f)...)
	}
	return packet(0xA2, b...)
}

const (
	only5   = mqtt5
	only311 = mqtt311
	both    = 0
)

// openStatement is one of the standard, under its number in MQTT 5.0 (3.1.1 has the same under another one, unless version says
// which of them has it), with what shows that it is kept.
type openStatement struct {
	clause, says string
	version      byte
	try          func(s *stage)
}

// Statements about a server that offers everything, each tried with raw packets. What the other tests of the open topics show
// is not repeated.
func TestOpenTopicsKeepTheStatementsOfTheStandard(t *testing.T) {
	for _, statements := range [][]openStatement{connectionStatements(), sessionStatements(), publishStatements(), deliveryStatements(), subscriptionStatements(), textStatements()} {
		for _, st := range statements {
			t.Run(st.clause+" "+st.says, func(t *testing.T) {
				for _, v := range bothVersions {
					if st.version == both || st.version == v {
						inOpen(t, OpenConfig{}, func(t *testing.T, x *bench) { st.try(&stage{t, x, v}) })
					}
				}
			})
		}
	}
}

// connectionStatements are about connections: CONNECT, keep-alive, AUTH and PINGREQ.
func connectionStatements() []openStatement {
	return []openStatement{
		{"MQTT-3.1.2-22", "silence for one and a half keep-alives ends the connection", both, func(s *stage) {
			c := s.client("c", func(h *hello) { h.keepAlive = 10 })
			time.Sleep(14 * time.Second)
			c.send([]byte{0xC0, 0})
			c.expect("in time", []byte{0xD0, 0})
			time.Sleep(16 * time.Second)
			s.ends(c, "too late", codeKeepAliveTimeout)
		}},
		{"MQTT-3.1.3-5", "client ids of 1 to 23 letters and digits are accepted", both, func(s *stage) {
			for _, id := range []string{"a", "0123456789abcdefghijklm", "NOPQRSTUVWXYZnopqrstuvw"} {
				s.client(id)
			}
		}},
		{"MQTT-3.1.3-6", "without a client id the server assigns one", only5, func(s *stage) { s.client("") }},
		{"MQTT-3.1.4-3", "the earlier connection with the client id is closed with 0x8E", both, func(s *stage) {
			c := s.client("c")
			s.client("c")
			s.ends(c, "taken over", codeSessionTakenOver)
		}},
		{"MQTT-3.1.0-2", "a second CONNECT is a protocol error", both, func(s *stage) {
			c := s.client("c")
			c.send(connectPacket(s.v))
			s.ends(c, "second CONNECT", codeProtocolError)
		}},
		{"MQTT-3.2.2-16", "the CONNACK has the assigned client id", only5, func(s *stage) {
			c := s.x.dial(mqtt5)
			c.send(connectPacket(mqtt5, func(h *hello) { h.clientID, h.noUser = "", true }))
			synctest.Wait()
			if got := c.take(); len(got) != 1 || !strings.Contains(string(got[0]), autoName) {
				s.Errorf("% x", got)
			}
		}},
		{"MQTT-3.12.4-1", "PINGREQ is answered", both, func(s *stage) {
			c := s.client("c")
			c.send([]byte{0xC0, 0})
			c.expect("PINGRESP", []byte{0xD0, 0})
		}},
		{"MQTT-4.12.0-1", "an authentication method is refused with 0x8C", only5, func(s *stage) {
			c := s.x.dial(mqtt5)
			c.send(connectPacket(mqtt5, func(h *hello) { h.noUser, h.props = true, slices.Concat([]byte{propAuthMethod}, str("m")) }))
			c.expect("0x8C", []byte{0x20, 3, 0, codeBadAuthMethod, 0})
		}},
		{"section 3.1.2.11.7", "no reason string if the client disabled problem information", only5, func(s *stage) {
			c := s.client("c", func(h *hello) { h.props = []byte{propRequestProblemInfo, 0} })
			c.send(pub(s.v, qos1, theEvents, 1, "x"))
			c.expect("the code alone", []byte{0x40, 3, 0, 1, codeNotAuthorized})
		}},
	}
}

// sessionStatements are about sessions and wills.
func sessionStatements() []openStatement {
	return []openStatement{
		{"MQTT-3.1.2-4", "a clean start discards the existing session", both, func(s *stage) {
			c := s.client("c", resumable)
			c.subscribed("t", 1)
			c.conn.Close()
			synctest.Wait()
			if s.present("c") {
				s.Error("it was not discarded")
			}
		}},
		{"MQTT-3.1.2-5", "without a session a new one is created, and Session Present is 0", both, func(s *stage) {
			if s.present("c", resumable) {
				s.Error("there was one")
			}
		}},
		{"MQTT-3.1.2-23", "the session is kept for the requested time", both, func(s *stage) {
			c := s.client("c", resumable)
			c.conn.Close()
			time.Sleep(900 * time.Second)
			if !s.present("c", resumable) {
				s.Error("it is gone")
			}
		}},
		{"MQTT-3.1.2-10", "the will is discarded after it was published", both, func(s *stage) {
			r := s.client("r")
			r.subscribed("w", 0)
			for range 2 {
				s.client("c", resumable, func(h *hello) { h.will = []string{"w", "x"} }).conn.Close()
				r.expect("once", pub(s.v, 0, "w", 0, "x"))
			}
			s.client("c", resumable).conn.Close()
			r.expect("not again")
		}},
		{"MQTT-3.1.2-17", "a will is published with the retain flag of the CONNECT", both, func(s *stage) {
			s.client("c", func(h *hello) { h.will = []string{"w", "x"} }).conn.Close()
			synctest.Wait()
			s.client("r").subscribed("w", 0)
		}},
		{"MQTT-3.1.3-7 of 3.1.1", "no client id with a clean session is accepted", only311, func(s *stage) { s.client("") }},
		{"section 3.14.2.1", "DISCONNECT with 0x04 requests the will", only5, func(s *stage) {
			r := s.client("r")
			r.subscribed("w", 0)
			s.client("c", func(h *hello) { h.will = []string{"w", "x"} }).send([]byte{0xE0, 1, 4})
			r.expect("the will", pub(s.v, 0, "w", 0, "x"))
		}},
		{"MQTT-3.14.4-3", "a normal DISCONNECT discards the will, also a delayed one", only5, func(s *stage) {
			r := s.client("r", func(h *hello) { h.keepAlive = 600 })
			r.subscribed("w", 0)
			s.client("c", resumable, func(h *hello) {
				h.will, h.willProps = []string{"w", "x"}, []byte{propWillDelay, 0, 0, 0, 5}
			}).send([]byte{0xE0, 0})
			time.Sleep(20 * time.Second)
			r.expect("none")
		}},
		{"section 3.1.2.11.2", "DISCONNECT may not raise a session expiry of 0", only5, func(s *stage) {
			c := s.client("c")
			c.send([]byte{0xE0, 7, 0, 5, propSessionExpiry, 0, 0, 0, 1})
			s.ends(c, "a protocol error", codeProtocolError)
		}},
	}
}

// publishStatements are about PUBLISH and retained messages.
func publishStatements() []openStatement {
	return []openStatement{
		{"MQTT-3.3.1-3", "DUP is not forwarded", both, func(s *stage) {
			r, w := s.client("r"), s.client("w")
			r.subscribed("t", 1)
			w.send(pub(s.v, qos1|dup, "t", 9, "x"))
			r.expect("without DUP", pub(s.v, qos1, "t", 1, "x"))
		}},
		{"MQTT-3.3.1-5", "a retained message replaces the earlier one, at its own QoS", both, func(s *stage) {
			s.client("w").send(pub(s.v, qos2|retain, "t", 1, "old"), pub(s.v, retain, "t", 0, "new"))
			synctest.Wait()
			c := s.client("c")
			c.send(sub(s.v, 1, "t", 2))
			c.expect("the last", subackPacket(s.v, 1, 2), pub(s.v, retain, "t", 0, "new"))
		}},
		{"MQTT-3.3.1-8", "a message without the retain flag is not retained and removes none", both, func(s *stage) {
			s.client("w").send(pub(s.v, retain, "t", 0, "kept"), pub(s.v, 0, "t", 0, "x"), pub(s.v, 0, "t", 0, ""))
			synctest.Wait()
			c := s.client("c")
			c.send(sub(s.v, 1, "t", 0))
			c.expect("it is there", subackPacket(s.v, 1, 0), pub(s.v, retain, "t", 0, "kept"))
		}},
		{"MQTT-3.3.1-7", "an empty retained message is not stored", both, func(s *stage) {
			s.client("w").send(pub(s.v, retain, "t", 0, ""))
			synctest.Wait()
			s.client("c").subscribed("t", 0)
		}},
		{"section 3.3.3", "a payload may be empty", both, func(s *stage) {
			r := s.client("r")
			r.subscribed("t", 2)
			s.client("w").send(pub(s.v, qos2, "t", 1, ""))
			r.expect("empty", pub(s.v, qos2, "t", 1, ""))
		}},
		{"MQTT-3.3.4-1", "QoS 1 is answered with PUBACK, 2 with PUBREC, 0 not at all, also without a subscriber", both, func(s *stage) {
			w := s.client("w")
			w.send(pub(s.v, 0, "t", 0, "x"), pub(s.v, qos1, "t", 1, "x"), pub(s.v, qos2, "t", 2, "x"))
			w.expect("answers", puback(1), ack(pktPubrec, 2))
		}},
	}
}

// deliveryStatements are about acknowledgements, packet identifiers, order and the receive maximum.
func deliveryStatements() []openStatement {
	return []openStatement{
		{"MQTT-3.6.2-1", "a PUBREL for an unknown identifier is answered", both, func(s *stage) {
			c := s.client("c")
			c.send(ack(pktPubrel, 5))
			if s.v == mqtt5 {
				c.expect("0x92", []byte{0x70, 3, 0, 5, codeIdentifierNotFound})
			} else {
				c.expect("PUBCOMP", ack(pktPubcomp, 5))
			}
		}},
		{"section 4.3.3", "a PUBREC for an unknown identifier is answered", both, func(s *stage) {
			c := s.client("c")
			c.send(ack(pktPubrec, 5))
			if s.v == mqtt5 {
				c.expect("0x92", []byte{0x62, 3, 0, 5, codeIdentifierNotFound})
			} else {
				c.expect("PUBREL", ack(pktPubrel, 5))
			}
		}},
		{"MQTT-4.3.2-5", "after its PUBACK an identifier is free for another message", both, func(s *stage) {
			r, w := s.client("r"), s.client("w")
			r.subscribed("t", 0)
			w.send(pub(s.v, qos1, "t", 1, "a"), pub(s.v, qos1|dup, "t", 1, "b"))
			w.expect("both", puback(1), puback(1))
			r.expect("both", pub(s.v, 0, "t", 0, "a"), pub(s.v, 0, "t", 0, "b"))
		}},
		{"MQTT-4.3.3-12", "after its PUBREL an identifier is free for another message, QoS 2 or not", both, func(s *stage) {
			r, w := s.client("r"), s.client("w")
			r.subscribed("t", 0)
			w.send(pub(s.v, qos2, "t", 1, "a"), ack(pktPubrel, 1), pub(s.v, qos2, "t", 1, "b"), ack(pktPubrel, 1))
			w.expect("both", ack(pktPubrec, 1), ack(pktPubcomp, 1), ack(pktPubrec, 1), ack(pktPubcomp, 1))
			r.expect("both", pub(s.v, 0, "t", 0, "a"), pub(s.v, 0, "t", 0, "b"))
		}},
		{"MQTT-4.3.3-4", "a PUBREC with an error ends the exchange", only5, func(s *stage) {
			r := s.client("r", resumable)
			r.subscribed("t", 2)
			s.client("w").send(pub(s.v, qos2, "t", 1, "x"))
			synctest.Wait()
			r.take()
			r.send([]byte{0x50, 3, 0, 1, codeQuotaExceeded})
			r.expect("no PUBREL")
			r.conn.Close()
			synctest.Wait()
			s.client("r", resumable).expect("and no repeat")
		}},
		{"MQTT-4.3.3-10", "a publish at QoS 2 is recognised on the next connection until its PUBREL", both, func(s *stage) {
			r, w := s.client("r"), s.client("w", resumable)
			r.subscribed("t", 0)
			w.send(pub(s.v, qos2, "t", 1, "x"))
			synctest.Wait()
			w.conn.Close()
			synctest.Wait()
			w = s.client("w", resumable)
			w.send(pub(s.v, qos2|dup, "t", 1, "x"), ack(pktPubrel, 1))
			w.expect("answered", ack(pktPubrec, 1), ack(pktPubcomp, 1))
			r.expect("once", pub(s.v, 0, "t", 0, "x"))
		}},
		{"MQTT-4.5.0-1", "both directions have their own identifiers", both, func(s *stage) {
			c := s.client("c")
			c.subscribed("t", 2)
			c.send(pub(s.v, qos2, "t", 1, "x"))
			c.expectInAnyOrder("both under 1", ack(pktPubrec, 1), pub(s.v, qos2, "t", 1, "x"))
			c.send(ack(pktPubrec, 1), ack(pktPubrel, 1), ack(pktPubcomp, 1))
			c.expect("both end", ack(pktPubrel, 1), ack(pktPubcomp, 1))
		}},
		{"MQTT-4.6.0-5", "messages of one topic and QoS keep their order", both, func(s *stage) {
			r, w := s.client("r"), s.client("w")
			r.subscribed("t", 1)
			var want [][]byte
			for i := range 40 {
				w.send(pub(s.v, qos1, "t", uint16(i+1), fmt.Sprint(i)))
				want = append(want, pub(s.v, qos1, "t", uint16(i+1), fmt.Sprint(i)))
			}
			r.expect("in order", want...)
		}},
		{"MQTT-4.9.0-1", "at most Receive Maximum messages at QoS 1 and 2 are in flight; each answer allows one more", only5, func(s *stage) {
			r := s.client("r", func(h *hello) { h.props = []byte{propReceiveMaximum, 0, 2} })
			r.subscribed("t", 2)
			w := s.client("w")
			for i := range uint16(5) {
				w.send(pub(s.v, qos1, "t", i+1, "x"))
			}
			r.expect("two", pub(s.v, qos1, "t", 1, "x"), pub(s.v, qos1, "t", 2, "x"))
			r.send(puback(2), puback(2), puback(9)) // what is not under way opens nothing
			r.expect("one more", pub(s.v, qos1, "t", 3, "x"))
			r.send(puback(1), puback(3))
			r.expect("two more", pub(s.v, qos1, "t", 4, "x"), pub(s.v, qos1, "t", 5, "x"))
		}},
		{"MQTT-4.9.0-3", "other packets are handled while the send quota is used up", only5, func(s *stage) {
			r := s.client("r", func(h *hello) { h.props = []byte{propReceiveMaximum, 0, 1} })
			r.subscribed("t", 1)
			s.client("w").send(pub(s.v, qos1, "t", 1, "x"), pub(s.v, qos1, "t", 2, "x"))
			synctest.Wait()
			r.take()
			r.send([]byte{0xC0, 0}, sub(s.v, 3, "u", 0))
			r.expect("answers", []byte{0xD0, 0}, subackPacket(s.v, 3, 0))
		}},
	}
}

// subscriptionStatements are about SUBSCRIBE, UNSUBSCRIBE and shared subscriptions.
func subscriptionStatements() []openStatement {
	return []openStatement{
		{"MQTT-3.8.4-1", "SUBSCRIBE is answered with its identifier and a code for each filter in order", both, func(s *stage) {
			c := s.client("c")
			b := []byte{0, 7}
			if s.v == mqtt5 {
				b = append(b, 0)
			}
			for i, f := range []string{"a", "b", "c"} {
				b = append(append(b, str(f)...), byte(i))
			}
			c.send(packet(0x82, b...))
			c.expect("SUBACK", subackPacket(s.v, 7, 0, 1, 2))
		}},
		{"MQTT-3.8.4-3", "the same filter again replaces the earlier one", both, func(s *stage) {
			c := s.client("c")
			c.subscribed("t", 2)
			c.subscribed("t", 0)
			s.client("w").send(pub(s.v, qos2, "t", 1, "x"))
			c.expect("once, at the new QoS", pub(s.v, 0, "t", 0, "x"))
		}},
		{"MQTT-3.10.4-1", "filters are compared character by character", both, func(s *stage) {
			c := s.client("c")
			c.subscribed("a/+", 0)
			c.send(unsub(s.v, 2, "a/b", "A/+", "a/#"))
			c.expect("none of these", unsubackPacket(s.v, 2, codeNoSubscription, codeNoSubscription, codeNoSubscription))
			s.client("w").send(pub(s.v, 0, "a/b", 0, "x"))
			c.expect("still there", pub(s.v, 0, "a/b", 0, "x"))
			c.send(unsub(s.v, 3, "a/+", "a/+"))
			c.expect("MQTT-3.10.4-4, -6: in their order", unsubackPacket(s.v, 3, 0, codeNoSubscription))
			s.client("w").send(pub(s.v, 0, "a/b", 0, "x"))
			c.expect("MQTT-3.10.4-2: nothing more")
		}},
		{"MQTT-3.10.4-3", "an exchange in progress is completed after an UNSUBSCRIBE", both, func(s *stage) {
			c := s.client("c")
			c.subscribed("t", 2)
			s.client("w").send(pub(s.v, qos2, "t", 1, "x"))
			synctest.Wait()
			c.take()
			c.send(unsub(s.v, 2, "t"), ack(pktPubrec, 1))
			c.expect("both", unsubackPacket(s.v, 2, 0), ack(pktPubrel, 1))
		}},
		{"MQTT-4.8.2-3", "a shared subscription delivers at each member's requested QoS", both, func(s *stage) {
			c := s.client("c")
			c.subscribed("$share/g/t", 0)
			s.client("w").send(pub(s.v, qos1, "t", 1, "x"))
			c.expect("at QoS 0", pub(s.v, 0, "t", 0, "x"))
		}},
		{"section 4.8.2", "each group and each ordinary subscription receives a copy", both, func(s *stage) {
			c := s.client("c")
			c.subscribed("$share/g/t", 0)
			c.subscribed("$share/h/t", 0)
			c.subscribed("t", 0)
			s.client("w").send(pub(s.v, 0, "t", 0, "x"))
			one := pub(s.v, 0, "t", 0, "x")
			c.expect("three", one, one, one)
			c.send(unsub(s.v, 1, "$share/g/t", "$share/h/t"))
			c.expect("UNSUBACK", unsubackPacket(s.v, 1, 0, 0))
			s.client("w").send(pub(s.v, 0, "t", 0, "x"))
			c.expect("one", one)
		}},
	}
}

// textStatements are about names and filters.
func textStatements() []openStatement {
	return []openStatement{
		{"MQTT-4.7.3-1", "an empty filter is malformed", both, func(s *stage) {
			c := s.client("c")
			c.send(sub(s.v, 1, "", 0))
			s.ends(c, "an empty filter", codeMalformed)
		}},
		{"MQTT-4.7.3-4", "topic names are forwarded unchanged", both, func(s *stage) {
			r, w := s.client("r"), s.client("w")
			r.subscribed("#", 0)
			for _, name := range []string{"a//b", "/", "A b", "ä/é", "a/./../b", "\ufeffx", strings.Repeat("x", 60000)} {
				w.send(pub(s.v, 0, name, 0, "x"))
				r.expect(name[:1], pub(s.v, 0, name, 0, "x"))
			}
		}},
		{"MQTT-1.5.4-1", "a name that is not UTF-8, or contains U+0000, is malformed", both, func(s *stage) {
			for _, name := range []string{"\xc0\x80", "\xed\xa0\x80", "a\x00"} {
				c := s.client("c")
				c.send(pub(s.v, 0, name, 0, "x"))
				s.ends(c, "no UTF-8", codeMalformed)
			}
		}},
	}
}
