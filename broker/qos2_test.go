package broker

import (
	"slices"
	"testing"
	"testing/synctest"

	"weir/ingest"
)

func TestQoS2WhereItIsAllowed(t *testing.T) {
	forBoth(t, Config{Settings: Settings{AllowQoS2: true}, ReceiveMaximum: 2}, func(t *testing.T, x *bench, v byte) {
		x.intake.hold = true
		c := x.connect(v, func(h *hello) { h.will, h.flags = []string{theEvents, "will"}, h.flags|16 })
		pubrec := func(id byte) []byte { return []byte{0x50, 2, 0, id} }
		pubrel := func(id byte) []byte { return []byte{0x62, 2, 0, id} }
		pubcomp := func(id byte) []byte { return []byte{0x70, 2, 0, id} }

		c.send(publishPacket(v, qos2, theEvents, 1, "M1"), publishPacket(v, qos1, theEvents, 2, "M2"))
		synctest.Wait()
		x.intake.settle(1, ingest.Answer{})
		c.expect("while the first is open")
		x.intake.settle(0, ingest.Answer{})
		c.expect("PUBREC in its turn, only when it is stored", pubrec(1), puback(2))

		c.send(publishPacket(v, qos2|dup, theEvents, 1, "M1"))
		c.expect("a repeat before PUBREL is answered", pubrec(1))
		if got := x.intake.bodies(); !slices.Equal(got, []string{"M1", "M2"}) {
			t.Errorf("the intake got %q", got)
		}
		c.send(pubrel(1))
		c.expect("PUBREL", pubcomp(1))
		c.send(publishPacket(v, qos2, theEvents, 1, "M3"))
		synctest.Wait()
		x.intake.settle(2, ingest.Answer{})
		c.expect("the identifier is free again", pubrec(1))
		c.send(pubrel(1), pubrel(7))
		if v == mqtt5 {
			c.expect("an unknown PUBREL", pubcomp(1), []byte{0x70, 3, 0, 7, codeIdentifierNotFound})
			c.send(publishPacket(v, qos2, "weir/acme/devices/dev2/events", 3, "{}"))
			synctest.Wait()
			if got := c.take(); len(got) != 1 || got[0][0] != 0x50 || got[0][4] != codeNotAuthorized {
				t.Errorf("a forbidden topic: % x", got)
			}
		} else {
			c.expect("an unknown PUBREL", pubcomp(1), pubcomp(7))
		}
		for id := uint16(10); id < 12; id++ { // two that are never released fill the window
			c.send(publishPacket(v, qos2, theEvents, id, "{}"))
			synctest.Wait()
			x.intake.settle(int(id)-7, ingest.Answer{})
		}
		c.expect("two", pubrec(10), pubrec(11))
		c.send(publishPacket(v, qos1, theEvents, 12, "{}"))
		if v == mqtt5 {
			c.expect("over the window", disconnect(codeReceiveMaximum))
		}
		c.expectClosed("over the window")
	})
}

func TestIdentifierOfAnOpenQoS2ExchangeIsTaken(t *testing.T) {
	inBubble(t, Config{Settings: Settings{AllowQoS2: true}}, func(t *testing.T, x *bench) {
		c := x.connect(mqtt5)
		c.send(publishPacket(mqtt5, qos2, theEvents, 1, "M1"), publishPacket(mqtt5, qos1, theEvents, 1, "M2"))
		c.expect("another message with its identifier", []byte{0x50, 2, 0, 1}, disconnect(codeProtocolError))
		c.expectClosed("another message with its identifier")
	})
}

func TestConnackWhereQoS2IsAllowed(t *testing.T) {
	inBubble(t, Config{Settings: Settings{AllowQoS2: true}}, func(t *testing.T, x *bench) {
		c := x.dial(mqtt5)
		c.send(connectPacket(mqtt5))
		synctest.Wait()
		if slices.Contains(c.take()[0][5:], 36) {
			t.Error("a maximum QoS is announced")
		}
	})
}
