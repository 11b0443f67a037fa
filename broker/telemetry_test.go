package broker

import (
	"slices"
	"testing"
	"testing/synctest"

	"weir/ingest"
)

const theTelemetry = "weir/acme/devices/dev1/telemetry"

// TestTelemetryIsAFlatBody: at either QoS, and as a will; the topic of another device is refused as its events are.
func TestTelemetryIsAFlatBody(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		c := x.connect(v, func(h *hello) { h.will = []string{theTelemetry, `{"online":0}`} })
		c.send(publishPacket(v, 0, theTelemetry, 0, `{"temp":1}`), publishPacket(v, qos1, theTelemetry, 1, `{"temp":2}`), publishPacket(v, qos1, theEvents, 2, "{}"))
		c.expect("published", puback(1), puback(2))
		c.conn.Close()
		synctest.Wait()
		if got := x.intake.bodies(); !slices.Equal(got, []string{`{"temp":1}`, `{"temp":2}`, "{}", `{"online":0}`}) {
			t.Fatalf("%q", got)
		}
		for i, want := range []bool{true, true, false, true} {
			if a := x.intake.arrivals[i]; a.Flat != want || a.Topic != "dev1" || a.Conn.DeviceID != 1 {
				t.Errorf("%d: %+v", i, a)
			}
		}
	})
}

func TestTelemetryOfAnotherDeviceIsRefused(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		c := x.connect(mqtt5)
		c.send(publishPacket(mqtt5, 0, "weir/acme/devices/dev2/telemetry", 0, `{"temp":1}`))
		synctest.Wait()
		if len(x.intake.arrivals) != 0 || !slices.Equal(x.intake.refused, []ingest.Reason{ingest.ReasonNotAuthorized}) {
			t.Errorf("%d arrivals, refused %v", len(x.intake.arrivals), x.intake.refused)
		}
	})
}
