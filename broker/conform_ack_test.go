package broker

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"weir/ingest"
)

func TestAcknowledgementsConform(t *testing.T) { conforms(t, ackCases) }

var ackCases = []conformCase{
	{"4.3.2-4 2.2.1-5 3.4.2-1", "a PUBACK with the identifier, only after the message is durable", 0, Config{}, func(x *bench, v byte) {
		x.intake.hold = true
		c := x.connect(v)
		for _, id := range []uint16{1, 0x1234, 65535} {
			c.send(publishPacket(v, qos1, theEvents, id, "{}"))
		}
		c.expect("nothing is stored yet")
		for i := range 3 {
			x.intake.settle(i, ingest.Answer{})
		}
		c.expect("stored", puback(1), []byte{0x40, 2, 0x12, 0x34}, []byte{0x40, 2, 0xff, 0xff})
	}},
	{"4.6.0-2", "PUBACKs in the order of the PUBLISHes, refusals included", 0, Config{}, func(x *bench, v byte) {
		x.intake.hold = true
		c := x.connect(v)
		for id := range uint16(6) {
			c.send(publishPacket(v, qos1, theEvents, id+1, "{}"))
		}
		synctest.Wait()
		for _, i := range []int{5, 3, 1, 4, 2} {
			x.intake.settle(i, ingest.Answer{})
			c.expect("while the first is open")
		}
		x.intake.settle(0, ingest.Answer{})
		c.expect("in order", puback(1), puback(2), puback(3), puback(4), puback(5), puback(6))
	}},
	{"3.4.2-1 3.4.2-2 4.13.2-1", "each refusal has a code that is valid in a PUBACK", mqtt5, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		for reason, code := range map[ingest.Reason]byte{
			ingest.ReasonUndecodable: codePayloadInvalid, ingest.ReasonTooManyReadings: codePayloadInvalid, ingest.ReasonNotAuthorized: codeNotAuthorized,
			ingest.ReasonDisabledTenant: codeNotAuthorized, ingest.ReasonCeiling: codeQuotaExceeded, ingest.ReasonUnauthenticated: codeQuotaExceeded, ingest.ReasonThrottled: codeQuotaExceeded,
			ingest.ReasonNoConsumer: codeImplementation, "anything else": codeUnspecified,
		} {
			x.intake.answer = func(*ingest.Arrival) ingest.Answer {
				return ingest.Answer{Outcome: ingest.Refused, Reason: reason, Text: "because"}
			}
			c.send(publishPacket(v, qos1, theEvents, 1, "{}"))
			c.expect(string(reason), pubackReason(1, code, "because"))
		}
	}},
	{"3.4.2-2 3.1.2-24 3.1.2-29", "a reason string only if it fits and is requested", mqtt5, Config{}, func(x *bench, v byte) {
		text := strings.Repeat("r", 25) // 10 bytes stand before it
		x.intake.answer = func(*ingest.Arrival) ingest.Answer {
			return ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonUndecodable, Text: text}
		}
		for _, tc := range []struct {
			props []byte
			told  bool
		}{{prop32(propMaximumPacketSize, 36), true}, {prop32(propMaximumPacketSize, 33), false}, {prop8(propRequestProblemInfo, 0), false}, {prop8(propRequestProblemInfo, 1), true}} {
			c := x.connect(v, func(h *hello) { h.props = tc.props })
			c.send(publishPacket(v, qos1, theEvents, 1, "{}"))
			want := []byte{0x40, 3, 0, 1, codePayloadInvalid}
			if tc.told {
				want = pubackReason(1, codePayloadInvalid, text)
			}
			c.expect("refused", want)
		}
	}},
	{"3.3.4-7 3.3.4-8", "more messages in flight than the Receive Maximum", mqtt5, Config{ReceiveMaximum: 4}, func(x *bench, v byte) {
		x.intake.hold = true
		c, got := x.connack(v)
		if !strings.Contains(string(got), string(prop16(propReceiveMaximum, 4))) {
			x.t.Fatalf("CONNACK % x", got)
		}
		for id := range uint16(4) {
			c.send(publishPacket(v, qos1, theEvents, id+1, "{}"))
		}
		c.send(pingreq, subscribePacket(v, 9, theCommands), publishPacket(v, 0, theEvents, 0, "QoS 0 does not count"))
		c.expect("the window is full, other packets pass", pingresp, subackPacket(v, 9, 1))
		for i := range 4 {
			x.intake.settle(i, ingest.Answer{})
		}
		c.expect("room again", puback(1), puback(2), puback(3), puback(4))
		for id := range uint16(5) {
			c.send(publishPacket(v, qos1, theEvents, id+11, "{}"))
		}
		synctest.Wait()
		for i := range 4 { // the message at QoS 0 took a place in between
			x.intake.settle(5+i, ingest.Answer{})
		}
		c.expect("what was taken is acknowledged before the end", puback(11), puback(12), puback(13), puback(14), disconnect(codeReceiveMaximum))
		c.expectClosed("an overrun window")
	}},
	{"2.2.1-3 4.3.2-1", "an identifier in use", 0, Config{}, func(x *bench, v byte) {
		x.intake.hold = true
		c := x.connect(v)
		c.send(publishPacket(v, qos1, theEvents, 5, "M1"), publishPacket(v, qos1, theEvents, 5, "M2"))
		synctest.Wait()
		x.intake.settle(0, ingest.Answer{})
		if v == mqtt5 {
			c.expect("the first is acknowledged", puback(5), disconnect(codeProtocolError))
		} else {
			c.expect("the first is acknowledged", puback(5))
		}
		c.expectClosed("an identifier in use")
		x.expectStored("M1")
	}},
	{"4.3.3-8 4.3.3-10 4.3.3-11 4.3.3-12 3.6.2-1 3.7.2-1 2.2.1-5", "an exchange at QoS 2 if it is allowed", 0, Config{Settings: Settings{AllowQoS2: true}}, func(x *bench, v byte) {
		c := x.connect(v)
		for range 2 {
			c.send(publishPacket(v, qos2, theEvents, 3, "M"), publishPacket(v, qos2|dup, theEvents, 3, "M"))
			c.expect("once stored, twice answered", []byte{0x50, 2, 0, 3}, []byte{0x50, 2, 0, 3})
			c.send([]byte{0x62, 2, 0, 3})
			c.expect("released", []byte{0x70, 2, 0, 3})
		}
		x.expectStored("M", "M")
	}},
	{"4.3.3-9 3.5.2-1", "a negative PUBREC ends the exchange", mqtt5, Config{Settings: Settings{AllowQoS2: true}}, func(x *bench, v byte) {
		x.intake.answer = func(*ingest.Arrival) ingest.Answer {
			return ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonCeiling}
		}
		c := x.connect(v)
		for range 2 {
			c.send(publishPacket(v, qos2, theEvents, 3, "M"))
			c.expect("refused", []byte{0x50, 3, 0, 3, codeQuotaExceeded})
		}
		x.expectStored("M", "M")
	}},
	{"3.6.1-1", "a PUBREL with other flags", 0, Config{Settings: Settings{AllowQoS2: true}}, func(x *bench, v byte) {
		for _, flags := range []byte{0, 1, 3, 4, 15} {
			c := x.connect(v)
			c.send([]byte{0x60 | flags, 2, 0, 1})
			c.expectEnd(codeMalformed)
		}
	}},
	{"4.3.2-3 4.4.0-2", "PUBACKs for messages that were never sent are no error", 0, Config{}, func(x *bench, v byte) {
		c := x.connect(v)
		c.send(puback(9), pingreq)
		if v == mqtt5 {
			c.send([]byte{0x40, 3, 0, 9, codeUnspecified}, []byte{0x40, 4, 0, 9, 0, 0})
		}
		c.expect("nothing of it", pingresp)
		if c.isClosed() {
			x.t.Error("closed")
		}
	}},
	{"4.13.1-1", "an error that no PUBACK can report ends the connection after the earlier PUBACKs", 0, Config{}, func(x *bench, v byte) {
		x.intake.hold = true
		c := x.connect(v)
		for id := range uint16(3) {
			c.send(publishPacket(v, qos1, theEvents, id+1, "{}"))
		}
		synctest.Wait()
		x.intake.settle(2, ingest.Answer{})
		x.intake.settle(1, ingest.Answer{Outcome: ingest.Withheld})
		x.intake.settle(0, ingest.Answer{})
		want := [][]byte{puback(1)}
		if v == mqtt5 {
			want = append(want, disconnect(codeServerBusy))
		}
		synctest.Wait()
		if got := c.take(); !slices.EqualFunc(got, want, slices.Equal) {
			x.t.Errorf("answered % x", got)
		}
		c.expectClosed("not stored")
	}},
}
