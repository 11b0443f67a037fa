package broker

import (
	"slices"
	"testing"
	"testing/synctest"

	"weir/ingest"
)

// TestADeviceReportIsHandedIn: at either QoS, and as a will; that of another device is refused as its events are.
func TestADeviceReportIsHandedIn(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		c := x.connect(v, func(h *hello) { h.will = []string{theReports, `{"attributes":{"on":false}}`} })
		c.send(publishPacket(v, 0, theReports, 0, `{"attributes":{}}`), publishPacket(v, qos1, theReports, 1, `{"attributes":{"fw":"1"}}`), publishPacket(v, qos1, theEvents, 2, "{}"))
		c.expect("published", puback(1), puback(2))
		c.conn.Close()
		synctest.Wait()
		if got := x.intake.bodies(); !slices.Equal(got, []string{`{"attributes":{}}`, `{"attributes":{"fw":"1"}}`, "{}", `{"attributes":{"on":false}}`}) {
			t.Fatalf("%q", got)
		}
		for i, want := range []bool{true, true, false, true} {
			if a := x.intake.arrivals[i]; a.Reports != want || a.Flat || a.Topic != "dev1" || a.Conn.DeviceID != 1 {
				t.Errorf("%d: %+v", i, a)
			}
		}
	})
}

func TestAReportOfAnotherDeviceIsRefused(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		c := x.connect(mqtt5)
		c.send(publishPacket(mqtt5, qos1, "weir/acme/device-reports/dev2", 1, `{"attributes":{}}`))
		c.expect("refused", pubackReason(1, codeNotAuthorized, "not the topic of this connection's device: it sends events to "+theEvents))
		synctest.Wait()
		if len(x.intake.arrivals) != 0 || !slices.Equal(x.intake.refused, []ingest.Reason{ingest.ReasonNotAuthorized}) {
			t.Errorf("%d arrivals, refused %v", len(x.intake.arrivals), x.intake.refused)
		}
	})
}
