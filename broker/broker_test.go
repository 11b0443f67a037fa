package broker

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weir/ingest"
	"weir/internal/test/conformance"
)

var bothVersions = []byte{mqtt311, mqtt5}

func forBoth(t *testing.T, cfg Config, test func(*testing.T, *bench, byte)) {
	for _, v := range bothVersions {
		t.Run(map[byte]string{mqtt311: "3.1.1", mqtt5: "5.0"}[v], func(t *testing.T) {
			inBubble(t, cfg, func(t *testing.T, x *bench) { test(t, x, v) })
		})
	}
}

func TestPublishIsAcknowledgedOnlyWhenTheIntakeHasAnswered(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		x.intake.hold = true
		c := x.connect(v)
		c.send(publishPacket(v, qos1, theEvents, 7, `{"a":1}`))
		time.Sleep(30 * time.Second) // of the bubble's clock
		c.expect("while the intake holds the answer")
		x.intake.settle(0, ingest.Answer{Outcome: ingest.Stored, Offset: 1})
		c.expect("once it is stored", puback(7))
	})
}

func TestAnswersOutOfOrderAreAcknowledgedInOrder(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		x.intake.hold = true
		c := x.connect(v)
		for id := range byte(4) {
			c.send(publishPacket(v, qos1, theEvents, uint16(id)+1, "{}"))
		}
		synctest.Wait()
		x.intake.settle(3, ingest.Answer{})
		x.intake.settle(1, ingest.Answer{})
		c.expect("while the first is open")
		x.intake.settle(0, ingest.Answer{})
		c.expect("after the first", puback(1), puback(2))
		x.intake.settle(2, ingest.Answer{})
		c.expect("after the third", puback(3), puback(4))
	})
}

func TestWhatIsNotStoredIsNotAcknowledgedAndTheClientIsSentToReconnect(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		x.intake.hold = true
		c := x.connect(v)
		c.send(publishPacket(v, qos1, theEvents, 1, "{}"), publishPacket(v, qos1, theEvents, 2, "{}"), publishPacket(v, qos1, theEvents, 3, "{}"))
		synctest.Wait()
		x.intake.settle(1, ingest.Answer{Outcome: ingest.Withheld})
		x.intake.settle(2, ingest.Answer{})
		x.intake.settle(0, ingest.Answer{})
		want := [][]byte{puback(1)}
		if v == mqtt5 {
			want = append(want, disconnect(codeServerBusy))
		}
		c.expect("one stored, one failed, one stored", want...)
		c.expectClosed("after a failed write")
		if got := x.intake.transitions(); got != "CONNECTED connected" {
			t.Errorf("Weir's own failure became presence: %s", got)
		}
	})
}

// The refusals of the intake as MQTT can say them: a reason to MQTT 5; to 3.1.1, which knows none, the end of the connection.
func TestRefusalsAreReportedAsTheVersionAllows(t *testing.T) {
	for _, tc := range []struct {
		reason ingest.Reason
		code   byte
	}{
		{ingest.ReasonUndecodable, codePayloadInvalid},
		{ingest.ReasonTooManyReadings, codePayloadInvalid},
		{ingest.ReasonNotAuthorized, codeNotAuthorized},
		{ingest.ReasonCeiling, codeQuotaExceeded},
		{ingest.ReasonUnauthenticated, codeQuotaExceeded},
		{"some-new-reason", codeUnspecified},
	} {
		t.Run(string(tc.reason), func(t *testing.T) {
			forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
				x.intake.answer = func(*ingest.Arrival) ingest.Answer {
					return ingest.Answer{Outcome: ingest.Refused, Reason: tc.reason, Text: "because"}
				}
				c := x.connect(v)
				c.send(publishPacket(v, qos1, theEvents, 9, "{}"))
				if v == mqtt5 {
					c.expect("refused", pubackReason(9, tc.code, "because"))
				} else {
					c.expect("refused")
					c.expectClosed("a refusal that cannot be told")
				}
			})
		})
	}
}

func TestDroppedByRuleIsAcknowledged(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		x.intake.answer = func(*ingest.Arrival) ingest.Answer {
			return ingest.Answer{Outcome: ingest.Dropped, Reason: ingest.ReasonCeiling}
		}
		c := x.connect(v)
		c.send(publishPacket(v, qos1, theEvents, 9, "{}"))
		c.expect("dropped", puback(9))
	})
}

func TestArrivalCarriesWhatTheIntakeNeeds(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		c := x.connect(v, func(h *hello) { h.keepAlive = 40 })
		c.send(publishPacket(v, qos1|dup, theEvents, 5, `{"x":1}`), publishPacket(v, 0, theEvents, 0, `{"y":2}`))
		synctest.Wait()
		if len(x.intake.seenArrivals()) != 2 {
			t.Fatalf("%d arrivals", len(x.intake.seenArrivals()))
		}
		a, q0 := x.intake.seenArrivals()[0], x.intake.seenArrivals()[1]
		if a.Transport != ingest.TransportMQTT || a.Source != "mqtt1" || a.Tenant != "acme" || a.Topic != "dev1" || string(a.Body) != `{"x":1}` ||
			a.ClientID != theClient || a.PacketID != 5 || !a.Dup || a.Conn.DeviceID != 1 || a.Conn.Credential != 101 {
			t.Errorf("arrival %+v", a)
		}
		if a.CannotRefuse != (v == mqtt311) || !q0.CannotRefuse {
			t.Errorf("mute: QoS 1 %v, QoS 0 %v", a.CannotRefuse, q0.CannotRefuse)
		}
		if want := 20 * time.Second; q0.CeilingWait != want || (v == mqtt311) != (a.CeilingWait == want) {
			t.Errorf("patience: QoS 1 %v, QoS 0 %v, want half the keep-alive where nobody can be told", a.CeilingWait, q0.CeilingWait)
		}
		if v == mqtt5 && a.CeilingWait != 0 {
			t.Errorf("an MQTT 5 client waits %v although it can be told", a.CeilingWait)
		}
	})
}

func TestQoS0IsNeverAnswered(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		for _, fate := range []ingest.Outcome{ingest.Stored, ingest.Refused, ingest.Dropped, ingest.Withheld} {
			x.intake.answer = func(*ingest.Arrival) ingest.Answer { return ingest.Answer{Outcome: fate, Reason: ingest.ReasonCeiling} }
			c := x.connect(v)
			c.send(publishPacket(v, 0, theEvents, 0, "{}"))
			c.send([]byte{0xC0, 0})
			c.expect("after a PINGREQ", []byte{0xD0, 0})
		}
	})
}

// Other devices' topics, foreign tenants, topics that nobody has: each answered in its turn and counted.
func TestForbiddenPublishIsRefusedInItsTurn(t *testing.T) {
	for _, topic := range []string{"weir/acme/devices/dev2/events", "weir/globex/devices/dev1/events", "other/acme/devices/dev1/events",
		theEvents + "/", "$SYS/broker/version", "$share/g/x", theCommands, "x"} {
		forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
			x.intake.hold = true
			c := x.connect(v)
			c.send(publishPacket(v, qos1, theEvents, 1, "{}"), publishPacket(v, qos1, topic, 2, "{}"))
			c.expect("while the one before is open")
			x.intake.settle(0, ingest.Answer{})
			if v == mqtt5 {
				c.expect("forbidden", puback(1), pubackReason(2, codeNotAuthorized, "not the topic of this connection's device: it sends events to "+theEvents))
				c.send(publishPacket(v, 0, topic, 0, "{}"), []byte{0xC0, 0})
				c.expect("forbidden at QoS 0 is silent", []byte{0xD0, 0})
				if !slices.Equal(x.intake.reasons(), []ingest.Reason{ingest.ReasonNotAuthorized, ingest.ReasonNotAuthorized}) || x.intake.counted() != 2 {
					t.Errorf("counted %v of %d received", x.intake.reasons(), x.intake.counted())
				}
			} else {
				c.expect("forbidden", puback(1))
				c.expectClosed("a forbidden publish")
				if !slices.Equal(x.intake.reasons(), []ingest.Reason{ingest.ReasonNotAuthorized}) || x.intake.counted() != 1 {
					t.Errorf("counted %v of %d received", x.intake.reasons(), x.intake.counted())
				}
			}
			if n := len(x.intake.bodies()); n != 1 {
				t.Errorf("%d messages reached the intake", n)
			}
			conformance.Shown(t, "S2-025")
		})
	}
}

func TestForbiddenQoS0PublishEndsA311Connection(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		c := x.connect(mqtt311)
		c.send(publishPacket(mqtt311, 0, "weir/acme/devices/dev2/events", 0, "{}"))
		c.expectClosed("a forbidden publish")
	})
}

// An answer to a command goes to the intake as such, and is acknowledged once it is stored.
func TestAnswersToCommandsGoToTheIntake(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		c := x.connect(v)
		c.send(publishPacket(v, 0, theResponses, 0, "a"))
		c.expect("at QoS 0")
		c.send(publishPacket(v, qos1, theResponses, 3, "b"))
		c.expect("at QoS 1", puback(3))
		got := x.intake.seenArrivals()
		if len(got) != 2 || !got[0].Answers || !got[1].Answers || got[1].Topic != "dev1" || got[1].PacketID != 3 || got[1].Reports || got[1].Flat {
			t.Errorf("the intake got %+v", got)
		}
	})
}

func TestSubscribeOnlyToTheOwnCommands(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		c := x.connect(v)
		c.send(subscribePacket(v, 4, theCommands, "weir/acme/device-commands/dev2", "#", "weir/+/device-commands/dev1",
			"$share/g/"+theCommands, "$SYS/#", theEvents, "weir/acme/device-commands/#"))
		want := []byte{1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80}
		if v == mqtt5 {
			want = []byte{1, codeNotAuthorized, codeWildNotSupported, codeWildNotSupported, codeSharedNotSupported, codeWildNotSupported,
				codeNotAuthorized, codeWildNotSupported}
		}
		c.expect("SUBACK", subackPacket(v, 4, want...))
		conformance.Shown(t, "S2-025")
	})
}

func TestWindowIsEnforced(t *testing.T) {
	t.Run("5.0 is told 0x93", func(t *testing.T) {
		inBubble(t, Config{ReceiveMaximum: 3}, func(t *testing.T, x *bench) {
			x.intake.hold = true
			c := x.connect(mqtt5)
			for id := range uint16(4) {
				c.send(publishPacket(mqtt5, qos1, theEvents, id+1, "{}"))
			}
			c.expect("while the first three are open")
			for i := range 3 {
				x.intake.settle(i, ingest.Answer{})
			}
			c.expect("after them", puback(1), puback(2), puback(3), disconnect(codeReceiveMaximum))
			c.expectClosed("an overrun window")
		})
	})
	t.Run("3.1.1 waits", func(t *testing.T) {
		inBubble(t, Config{ReceiveMaximum: 3}, func(t *testing.T, x *bench) {
			x.intake.hold = true
			c := x.connect(mqtt311)
			go func() {
				for id := range uint16(5) {
					c.send(publishPacket(mqtt311, qos1, theEvents, id+1, "{}"))
				}
			}()
			synctest.Wait()
			if n := len(x.intake.bodies()); n != 3 {
				t.Fatalf("%d messages taken with a window of 3", n)
			}
			x.intake.settle(0, ingest.Answer{})
			c.expect("one acknowledged", puback(1))
			if n := len(x.intake.bodies()); n != 4 {
				t.Fatalf("%d messages taken after one acknowledgement", n)
			}
			for i := 1; i < 4; i++ {
				x.intake.settle(i, ingest.Answer{})
			}
			c.expect("the rest", puback(2), puback(3), puback(4))
			x.intake.settle(4, ingest.Answer{})
			c.expect("the last", puback(5))
		})
	})
}

// A client that repeats a publish while the first is still in flight gets one PUBACK: a second one could be taken for
// that of the next message with the same identifier.
func TestRepeatInFlightIsAcknowledgedOnce(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		x.intake.hold = true
		c := x.connect(v)
		c.send(publishPacket(v, qos1, theEvents, 5, "M1"), publishPacket(v, qos1|dup, theEvents, 5, "M1"))
		synctest.Wait()
		x.intake.settle(0, ingest.Answer{})
		c.expect("the first is stored", puback(5))
		c.send(publishPacket(v, qos1, theEvents, 5, "M2"))
		synctest.Wait()
		x.intake.settle(1, ingest.Answer{})
		c.expect("the repeat is stored, M2 is not")
		x.intake.settle(2, ingest.Answer{})
		c.expect("M2 is stored", puback(5))
	})
}

func TestIdentifierInUseIsAProtocolError(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		x.intake.hold = true
		c := x.connect(v)
		c.send(publishPacket(v, qos1, theEvents, 5, "M1"), publishPacket(v, qos1, theEvents, 5, "M2"))
		synctest.Wait()
		x.intake.settle(0, ingest.Answer{})
		want := [][]byte{puback(5)}
		if v == mqtt5 {
			want = append(want, disconnect(codeProtocolError))
		}
		c.expect("two messages with one identifier", want...)
		c.expectClosed("an identifier in use")
	})
}

func TestLargePublishArrivesWhole(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		c := x.connect(v)
		body := make([]byte, 1<<20-64)
		for i := range body {
			body[i] = byte('a' + i%26)
		}
		c.send(publishPacket(v, qos1, theEvents, 1, string(body)), publishPacket(v, qos1, theEvents, 2, "next"))
		c.expect("both", puback(1), puback(2))
		if got := x.intake.bodies(); got[0] != string(body) || got[1] != "next" {
			t.Error("the payload was changed on the way")
		}
	})
}

func TestCloseAnswersWhatIsPendingFirst(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		x.intake.hold = true
		c := x.connect(v)
		c.send(publishPacket(v, qos1, theEvents, 1, "{}"))
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- x.broker.Close(context.Background()) }()
		c.expect("while the answer is held")
		select {
		case err := <-closed:
			t.Fatalf("Close returned %v with an answer pending", err)
		default:
		}
		x.intake.settle(0, ingest.Answer{})
		want := [][]byte{puback(1)}
		if v == mqtt5 {
			want = append(want, disconnect(codeShuttingDown))
		}
		c.expect("then", want...)
		c.expectClosed("Close")
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if got := x.intake.transitions(); got != "CONNECTED connected" {
			t.Errorf("Weir's own stop became presence: %s", got)
		}
	})
}

func TestCloseGivesUpWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newBench(t, Config{}, nil)
		x.intake.hold = true
		c := x.connect(mqtt5)
		c.send(publishPacket(mqtt5, qos1, theEvents, 1, "{}"))
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		synctest.Wait()
		if err := x.broker.Close(ctx); err != context.DeadlineExceeded {
			t.Errorf("Close = %v", err)
		}
		c.expectClosed("Close")
		for _, p := range c.take() {
			if p[0]>>4 == pktPuback {
				t.Error("acknowledged without an answer")
			}
		}
	})
}
