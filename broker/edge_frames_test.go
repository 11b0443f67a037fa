package broker

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"weir/ingest"
	"weir/internal/edgewire"
	"weir/model"
)

const edgeInstall = "00112233445566778899aabbccddeeff"

// framePacket is a PUBLISH of a frame.
func framePacket(t *testing.T, id byte, ms ...edgewire.FrameMessage) []byte {
	t.Helper()
	w := &edgewire.FrameWriter{}
	if err := w.Begin(uint64(id), edgeInstall, 3); err != nil {
		t.Fatal(err)
	}
	for i := range ms {
		if !w.Add(&ms[i]) {
			t.Fatal("no room")
		}
	}
	b, err := w.Frame()
	if err != nil {
		t.Fatal(err)
	}
	return rawFramePacket(id, b)
}

func rawFramePacket(id byte, body []byte) []byte {
	return packet(pktPublish<<4|qos1, slices.Concat(str("weir/acme/edges/dev1/frames"), []byte{0, id, 0}, body)...)
}

// TestAFrameOfAnEdge: each message of it goes to the intake by itself; it is acknowledged once all have their outcome, and what was refused is named.
func TestAFrameOfAnEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newBenchWith(t, Config{}, Deps{Edges: edgesOfDev1{}})
		defer x.stop()
		x.intake.answer = func(a *ingest.Arrival) ingest.Answer {
			if string(a.Body) == "bad" {
				return ingest.Answer{Outcome: ingest.Refused, Reason: ingest.ReasonUndecodable}
			}
			return ingest.Answer{}
		}
		c := x.dial(mqtt5)
		c.send(connectPacket(mqtt5))
		synctest.Wait()
		c.take()
		c.send(subscribePacket(mqtt5, 1, "weir/acme/edges/dev1/down"))
		synctest.Wait()
		c.take()
		message := func(number uint64, kind byte, device, body string) edgewire.FrameMessage {
			return edgewire.FrameMessage{Number: number, Kind: kind, Device: device, Payload: []byte(body)}
		}
		c.send(framePacket(t, 2, message(5, edgewire.FrameEvents, "dev2", "{}"), message(6, edgewire.FrameTelemetry, "by-external-id", "[]"), message(7, edgewire.FrameReports, "dev2", "{}"), message(8, edgewire.FrameResponses, "dev2", "{}")))
		c.expect("all are taken", puback(2))
		got := x.intake.seenArrivals()
		if len(got) != 4 {
			t.Fatalf("%d arrivals", len(got))
		}
		for i, a := range got {
			if a.Transport != ingest.TransportUplink || a.Link != "edge:"+edgeInstall+":3" || a.Number != uint64(5+i) || a.Flat != (i == 1) || a.Reports != (i == 2) || a.Answers != (i == 3) || a.Conn.Device != a.Topic {
				t.Errorf("%d: %+v", i, a)
			}
		}
		if got[1].Topic != "dev3" {
			t.Errorf("%+v", got[1])
		}
		c.send(framePacket(t, 3, message(9, edgewire.FrameEvents, "dev2", "{}"), message(10, edgewire.FrameEvents, "dev2", "bad"), message(11, edgewire.FrameEvents, "other", "{}")))
		synctest.Wait()
		answer := string(slices.Concat(c.take()...))
		if !strings.Contains(answer, `{"kind":"framed","frame":3,"codes":"AJmH"}`) || !strings.Contains(answer, string([]byte{0, 3, edgewire.CodeSomeRefused})) {
			t.Errorf("%q", answer)
		}
		before := len(x.intake.seenArrivals())
		c.send(rawFramePacket(4, []byte("\x01no frame")))
		c.expect("it is refused whole", pubackReason(4, codePayloadInvalid, "not a frame of an edge"))
		if n := len(x.intake.seenArrivals()); n != before {
			t.Errorf("%d messages of it were taken", n-before)
		}
		c.send(framePacket(t, 5, message(12, edgewire.FrameEvents, "broken", "{}")))
		c.expectClosed("what cannot be found out is sent again")
	})
}

// TestAnEdgeTellsWhoComesAndGoes: the transitions of devices for which it may speak go to the intake, in their order.
func TestAnEdgeTellsWhoComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newBenchWith(t, Config{}, Deps{Edges: edgesOfDev1{}})
		defer x.stop()
		c := x.dial(mqtt5)
		c.send(connectPacket(mqtt5))
		synctest.Wait()
		c.take()
		before := len(x.intake.presence)
		c.send(upPacket(2, `{"kind":"presence","transitions":[{"device":"dev2","state":"CONNECTED","sessionId":"5","occurredTime":"2026-11-27T08:00:00Z"},
			{"device":"other","state":"CONNECTED","sessionId":"6","occurredTime":"2026-11-27T08:00:00Z"},{"device":"dev2","state":"DISCONNECTED","reason":"timeout","sessionId":"5","occurredTime":"2026-11-27T08:00:01Z"}]}`))
		c.expect("all are synced", puback(2))
		got := x.intake.presence[before:]
		if len(got) != 2 || got[0].State != model.Connected || got[0].Session != 5 || got[1].State != model.Disconnected || got[1].Reason != "timeout" {
			t.Errorf("%+v", got)
		}
		c.send(upPacket(3, `{"kind":"presence","transitions":[{"device":"dev2","state":"x","sessionId":"5","occurredTime":"2026-11-27T08:00:00Z"}]}`))
		c.expect("it is refused", pubackReason(3, codePayloadInvalid, unknownTopic))
	})
}

// TestASiteSpeaksToWeir: the edges of rules that it has judged go to the intake, those of devices for which it may not speak are left out; it gets what it is to follow.
func TestASiteSpeaksToWeir(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newBenchWith(t, Config{}, Deps{Edges: edgesOfDev1{}})
		defer x.stop()
		c := x.connect(mqtt5)
		c.send(subscribePacket(mqtt5, 1, "weir/acme/edges/dev1/down"))
		c.expect("SUBACK", subackPacket(mqtt5, 1, 1))
		const install = "00112233445566778899aabbccddeeff"
		firing := func(id, device string) string {
			return `{"id":"` + id + `","device":"` + device + `","profile":"p","rule":"r","signal":"RAISED","occurredTime":"2026-11-27T08:00:00Z","value":1}`
		}
		c.send(upPacket(2, `{"kind":"firings","installId":"`+install+`","epoch":3,"firings":[`+firing("5", "dev2")+`,`+firing("6", "other")+`,`+firing("7", "dev2")+`]}`))
		c.expect("all are synced", puback(2))
		if want := []string{"dev2 p/r raised firings:" + install + ":3 5", "dev2 p/r raised firings:" + install + ":3 7"}; !slices.Equal(x.intake.firings, want) {
			t.Errorf("%q, want %q", x.intake.firings, want)
		}
		c.send(upPacket(3, `{"kind":"firings","installId":"`+install+`","epoch":3,"firings":[`+firing("5", "dev2")+`,`+firing("5", "dev2")+`]}`))
		c.expect("it is refused", pubackReason(3, codePayloadInvalid, unknownTopic))
		c.send(upPacket(4, `{"kind":"site","nonce":"n1"}`))
		synctest.Wait()
		if got := string(slices.Concat(c.take()...)); !strings.Contains(got, string(puback(4))) || !strings.Contains(got, `{"kind":"sitePart","nonce":"n1","digest":"`) || !strings.Contains(got, `"parts":1,"body":"`) {
			t.Errorf("the answer is %q", got)
		}
	})
}
