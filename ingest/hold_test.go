package ingest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/model"
	"weir/spool"
)

// brokenLog takes nothing: it cannot write, or its sync fails.
type brokenLog struct {
	paperLog
	sync bool
}

func (l *brokenLog) Append(_ context.Context, es ...spool.Entry) error {
	if !l.sync {
		return spool.ErrUnavailable
	}
	for _, e := range es {
		e.Done(0, spool.ErrUnavailable)
	}
	return nil
}

const holdTime = 10 * time.Second

// TestWhoVouchesAndWhoWaitsAreTwoThings: every combination of a device that is vouched for, a transport without refusals and a
// time to hold, at a log that is full.
func TestWhoVouchesAndWhoWaitsAreTwoThings(t *testing.T) {
	t.Parallel()
	for _, full := range []string{"disk", "log"} {
		for _, vouched := range []bool{false, true} {
			for _, mute := range []bool{false, true} {
				for _, holdFor := range []time.Duration{0, holdTime, -1} {
					t.Run(fmt.Sprintf("%s/vouched %v/mute %v/hold %v", full, vouched, mute, holdFor), func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) { held(t, full, vouched, mute, holdFor) })
					})
				}
			}
		}
	}
}

func held(t *testing.T, full string, vouched, mute bool, holdFor time.Duration) {
	turnedAway := "refused backpressure"
	if mute {
		turnedAway = "dropped backpressure"
	}
	offer := func(ctx context.Context) (got *atomic.Value, log *paperLog, d *dial) {
		g, log, d, _ := paperIntake(false)
		d.turn(full == "disk", full == "disk")
		log.full = full == "log"
		a := senders[4].arrival()
		if vouched {
			a.Topic, a.Body, a.Conn = "d1", []byte(temp(1)), &model.Binding{Tenant: "acme", Device: "d1", DeviceID: 1, Credential: 7}
		}
		a.CannotRefuse, a.HoldFor = mute, holdFor
		got = new(atomic.Value)
		got.Store("waits")
		go g.Accept(ctx, a, func(an Answer) { got.Store(ended(&an)) })
		synctest.Wait()
		return got, log, d
	}
	got, _, _ := offer(t.Context())
	if holdFor == 0 {
		if got.Load() != turnedAway {
			t.Errorf("not held: %s", got.Load())
		}
		return
	}
	if got.Load() != "waits" {
		t.Fatalf("held: %s", got.Load())
	}
	time.Sleep(holdTime - time.Millisecond)
	if synctest.Wait(); got.Load() != "waits" {
		t.Errorf("shortly before: %s", got.Load())
	}
	time.Sleep(time.Millisecond)
	synctest.Wait()
	if want := map[bool]string{true: turnedAway, false: "waits"}[holdFor > 0]; got.Load() != want {
		t.Errorf("after %v: %s, want %s", holdTime, got.Load(), want)
	}

	got, log, d := offer(t.Context())
	time.Sleep(holdTime / 2)
	log.mu.Lock()
	log.full = false
	log.mu.Unlock()
	d.turn(false, false)
	if synctest.Wait(); got.Load() != "stored" {
		t.Errorf("with room again: %s", got.Load())
	}

	ctx, gone := context.WithCancel(t.Context())
	got, _, _ = offer(ctx)
	gone()
	if synctest.Wait(); got.Load() != "withheld backpressure" {
		t.Errorf("the connection ended: %s", got.Load())
	}
}

// TestAMessageThatTheLogLosesIsLeftUnansweredWhereItsSenderWaits: when the hand-over fails, and when the sync does.
func TestAMessageThatTheLogLosesIsLeftUnansweredWhereItsSenderWaits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mute bool
		hold time.Duration
		want string
	}{{false, 0, "refused log-unavailable"}, {true, 0, "dropped log-unavailable"}, {false, time.Second, "withheld log-unavailable"},
		{true, time.Second, "withheld log-unavailable"}, {false, -1, "withheld log-unavailable"}, {true, -1, "withheld log-unavailable"}} {
		for _, sync := range []bool{false, true} {
			g, _, _, _ := paperIntake(false)
			g.deps.Log = &brokenLog{sync: sync}
			a := senders[4].arrival()
			a.CannotRefuse, a.HoldFor = c.mute, c.hold
			var got Answer
			g.Accept(t.Context(), a, func(an Answer) { got = an })
			var all Answer
			g.AcceptAll(t.Context(), []*Arrival{a, a}, func(an Answer, _ int) { all = an })
			if ended(&got) != c.want || ended(&all) != c.want {
				t.Errorf("mute %v, hold %v, sync fails %v: %s, an array: %s; want %s", c.mute, c.hold, sync, ended(&got), ended(&all), c.want)
			}
		}
	}
}

// TestAnArrayIsHeldAsAMessageIs: a transport that splits a large packet has it stored as soon as there is room.
func TestAnArrayIsHeldAsAMessageIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, log, d, _ := paperIntake(false)
		log.full = true
		a, b := senders[3].arrival(), senders[3].arrival()
		var got *Answer
		go g.AcceptAll(t.Context(), []*Arrival{a, b}, func(an Answer, _ int) { got = &an })
		if synctest.Wait(); got != nil {
			t.Fatalf("not held: %+v", got)
		}
		log.mu.Lock()
		log.full = false
		log.mu.Unlock()
		d.turn(false, false)
		if synctest.Wait(); ended(got) != "stored" {
			t.Errorf("with room again: %s", ended(got))
		}
		for _, n := range g.deps.Counts.lines.all {
			if n.waiting.Messages != 2 || n.parsed != 2 {
				t.Errorf("the counts: %+v", n)
			}
		}
	})
}

// TestAPacketIsReceivedAndEndsApart: what was received and has no outcome yet is counted as received only, and its outcome
// counts in the hour of its receipt.
func TestAPacketIsReceivedAndEndsApart(t *testing.T) {
	t.Parallel()
	g, _, _, _ := paperIntake(false)
	hour := int64(5)
	g.deps.Stamp = func() model.Stamp { return model.Stamp{Wall: model.Nanos(hour * int64(time.Hour))} }
	p := g.Received(TransportMQTT, "mqtt7", "acme", 10)
	if g.deps.Counts.Pending() || len(g.deps.Counts.lines.all) != 1 {
		t.Fatalf("received already ended: %v", g.deps.Counts.pending)
	}
	hour++
	g.shut.Store(true) // a stop between the two changes nothing
	g.Refuse(p, ReasonNoConsumer)
	l := line{tenant: "acme", transport: TransportMQTT, source: "mqtt7", hour: 5}
	if c := g.deps.Counts.pending; len(c) != 2 || c[l.key("received", "")].Messages != 1 || c[l.key("refused", ReasonNoConsumer)].Messages != 1 {
		t.Errorf("counted %v", c)
	}
	for l, n := range g.deps.Counts.lines.all {
		if *n != (tally{}) {
			t.Errorf("%+v is left on %+v", *n, l)
		}
	}
}
