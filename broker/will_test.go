package broker

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"weir/ingest"
)

func TestAWillThatCannotBeStoredIsCounted(t *testing.T) {
	for _, tc := range []struct {
		fate   ingest.Outcome
		reason ingest.Reason
	}{{ingest.Withheld, ingest.ReasonBackpressure}, {ingest.Refused, ingest.ReasonUnavailable}, {ingest.Dropped, ingest.ReasonCeiling}, {ingest.Stored, ""}} {
		forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
			x.intake.answer = func(*ingest.Arrival) ingest.Answer { return ingest.Answer{Outcome: tc.fate, Reason: tc.reason} }
			x.connect(v, leaves(v, 0, 0)).conn.Close()
			x.expectStored("will")
			if n := counted(t, x.broker.metrics.wills.WithLabelValues(outcomeWord(tc.fate))); n != 1 {
				t.Errorf("%v wills are counted as %s", n, outcomeWord(tc.fate))
			}
		})
	}
}

// A full log holds a will no longer than a CONNECT may take, and the stop of Weir no longer than the stop is given.
func TestAWillWaitsForRoomNoLongerThanItMay(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		x.intake.block = func(ctx context.Context) { <-ctx.Done() }
		withheld := func() float64 { return counted(t, x.broker.metrics.wills.WithLabelValues("withheld")) }
		x.connect(v, leaves(v, 0, 0)).conn.Close()
		time.Sleep(9 * time.Second)
		if synctest.Wait(); withheld() != 0 {
			t.Error("given up early")
		}
		time.Sleep(time.Second)
		if synctest.Wait(); withheld() != 1 {
			t.Error("not given up")
		}
		x.connect(v, leaves(v, 0, 0))
		x.connect(v, leaves(v, 30, 60), func(h *hello) {
			h.clientID, h.user, h.will = "weir:acme:dev2", "acme:tok2", []string{"weir/acme/devices/dev2/events", "another"}
		}).conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_ = x.broker.Close(ctx) // whether the wait for the first of them is called late does not matter here
		if synctest.Wait(); time.Since(began) > time.Second || withheld() != 3 {
			t.Errorf("after %v %v wills are counted", time.Since(began), withheld())
		}
	})
}

// A client whose CONNACK cannot be written was let in: it has taken the place of the one before, and called its will off.
func TestAWillWhoseConnectionNeverBegan(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		conn := x.ln.dial() // nobody reads it
		_, _ = conn.Write(connectPacket(v, leaves(v, 0, 0)))
		synctest.Wait()
		conn.Close()
		x.expectStored("will")
	})
}

func TestAReaderThatIsTooSlowLeavesItsWill(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, x *bench) {
		c := x.ln.dial()
		_, _ = c.Write(connectPacket(mqtt311, leaves(mqtt311, 0, 0)))
		if _, err := c.Read(make([]byte, 4)); err != nil { // the CONNACK, and nothing from here on
			t.Fatal(err)
		}
		_, _ = c.Write(pingreq)
		time.Sleep(12 * time.Second)
		x.expectStored("will")
		if n := counted(t, x.broker.metrics.disconnects.WithLabelValues(causeSlowReader.word)); n != 1 {
			t.Errorf("%v slow readers", n)
		}
		c.Close()
	})
}

func TestWhatIsNotStoredLeavesItsWill(t *testing.T) {
	forBoth(t, Config{}, func(t *testing.T, x *bench, v byte) {
		x.intake.answer = func(a *ingest.Arrival) ingest.Answer {
			if a.PacketID > 0 {
				return ingest.Answer{Outcome: ingest.Withheld, Reason: ingest.ReasonUnavailable}
			}
			return ingest.Answer{}
		}
		c := x.connect(v, leaves(v, 0, 0))
		c.send(publishPacket(v, qos1, theEvents, 1, "reading"))
		synctest.Wait()
		c.expectEnd(codeServerBusy)
		if got := x.intake.bodies(); !slices.Equal(got, []string{"reading", "will"}) {
			t.Errorf("the intake got %q", got)
		}
	})
}

func TestOpenTopicsCountTheWillsTheyDoNotPublish(t *testing.T) {
	inOpen(t, OpenConfig{}, func(t *testing.T, x *bench) {
		x.open(mqtt5, "a", func(h *hello) { h.will = []string{"a/state", "gone"} })
		c, _ := x.open(mqtt5, "b", func(h *hello) {
			h.will, h.willProps, h.props = []string{"b/state", "gone"}, prop32(propWillDelay, 60), prop32(propSessionExpiry, 90)
		})
		c.conn.Close()
		synctest.Wait()
		x.stop()
		if n := counted(t, x.broker.general.metrics.refused.WithLabelValues(openStopping)); n != 2 {
			t.Errorf("%v wills are counted", n)
		}
	})
}
