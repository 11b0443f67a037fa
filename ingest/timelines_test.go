package ingest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/internal/test/fixture"
	"weir/model"
)

// missing raises after five minutes without a reading, hot above 50, and both order a command.
func missingAndHot() []model.RuleView {
	const command = `{"type":"sendCommand","sendCommand":{"command":"stop","payload":"{}"}}`
	return []model.RuleView{doing(model.RuleView{Token: "missing", Definition: `{"name":"n","type":"absence","timeout":"5m","lateness":"0s"}`}, command),
		doing(thresholdRule("hot", "temp", "gt", 50), command)}
}

// TestWhatWeirItselfCausesIsNoSilence: a device is connected and sends all the time, and for an hour Weir cannot hear it. Nothing fires, before
// the next reading or after it, and a device that then falls silent, and leaves, is missed as ever.
func TestWhatWeirItselfCausesIsNoSilence(t *testing.T) {
	t.Parallel()
	hour := func(w *world, step time.Duration, each func()) {
		for at := time.Duration(0); at < time.Hour; at += step {
			w.clock.advance(step)
			each()
			w.must(w.intake.keepCounts(context.Background())) // the counts' batches bring the time, as the waker's would
			w.tick()
		}
	}
	for name, happens := range map[string]func(w *world){
		"its tenant is refused by its ceiling": func(w *world) {
			w.ceiling.left = 0
			hour(w, 5*time.Second, func() {
				if an := w.send(w.arrival(1, temp(1))); an.Reason != ReasonCeiling {
					w.t.Fatalf("%+v", an)
				}
			})
			h, err := w.applier.RuleHealth(context.Background(), "acme", "boiler")
			if held := w.applier.HeldTenants(); err != nil || len(h) != 3 || !h[0].ClockHeld || len(held) != 1 || held[0].Tenant != "acme" || held[0].For < 59*time.Minute {
				w.t.Errorf("held %v, health %+v, %v", held, h, err)
			}
			w.ceiling.left = -1
		},
		"the log has no room": func(w *world) {
			defer w.counts.links.Waits("acme")()
			hour(w, time.Minute, func() {})
		},
		"the link is cut": func(w *world) {
			w.counts.links.Link("plant").Down()
			hour(w, time.Minute, func() {})
			w.counts.links.Link("plant").Up()
		},
		"its tenant is disabled, and it is still backing off afterwards": func(w *world) {
			w.change(row(model.ViewTenant, "acme", model.TenantView{V: 1, ID: 1}))
			hour(w, time.Minute, func() {})
			if held := w.applier.HeldTenants(); len(held) != 0 {
				w.t.Errorf("a disabled tenant is a finding: %v", held)
			}
			w.change(row(model.ViewTenant, "acme", model.TenantView{V: 1, ID: 1, Enabled: true}))
			w.clock.advance(9 * time.Minute)
		},
		"Weir is off": func(w *world) {
			w.writeHead()
			w.clock.advance(time.Hour)
			w.restart()
			w.begin()
			w.counts.links.Link("plant").Up()
		},
		"Weir was restarted, and it is still backing off": func(w *world) {
			w.restart()
			w.begin()
			w.counts.links.Link("plant").Up()
			w.clock.advance(9 * time.Minute)
		},
		"the clock of the gateway is set back by an hour": func(w *world) {
			wall, _ := w.clock.now()
			w.clock.step(wall.Add(-time.Hour))
			hour(w, time.Minute, func() { w.plant(wall.Add(w.since()), 1) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(w *world) { w.cfg.RestartGrace, w.built = 10*time.Minute, noon.AddDate(-1, 0, 0) })
			w.furnish(1, append(missingAndHot(), model.RuleView{Token: "gone", Definition: `{"name":"n","type":"connectivity"}`})...)
			w.begin()
			w.counts.links.Link("plant").Up()
			w.mark()
			w.claim(1, model.Connected, 1)
			for range 10 {
				w.clock.advance(time.Minute)
				w.plant(noon.Add(w.since()), 1)
			}
			w.apply()
			happens(w)
			w.clock.advance(time.Minute)
			w.plant(noon.Add(w.since()), 1)
			w.apply()
			if len(w.edges) != 0 {
				t.Fatalf("fired: %+v", w.edges)
			}
			w.clock.advance(4*time.Minute + 59*time.Second)
			w.tick()
			if len(w.edges) != 0 {
				t.Errorf("fired before its time: %+v", w.edges)
			}
			w.clock.advance(time.Second)
			if w.tick(); len(w.edges) != 1 || w.edges[0].Rule != "missing" {
				t.Errorf("the device is not missed: %+v", w.edges)
			}
			w.claim(1, model.Disconnected, 1)
			if w.apply(); len(w.edges) != 2 || w.edges[1].Rule != "gone" {
				t.Errorf("it is not known that the device is gone: %+v", w.edges)
			}
		})
	}
}

// claim says that a session of a device began or ended.
func (w *world) claim(device int, state model.PresenceState, session uint64) {
	w.t.Helper()
	done := make(chan Answer, 1)
	w.intake.Presence(context.Background(), TransportMQTT, "mqtt1", *w.arrival(device, "").Conn,
		model.Presence{State: state, Session: session, Occurred: w.clock.stamp().Wall}, func(a Answer) { done <- a })
	if a := <-done; a.Outcome != Stored {
		w.t.Fatalf("%+v", a)
	}
}

// since is the time that has passed since noon, whatever the wall clock says.
func (w *world) since() time.Duration { return w.clock.elapsed() - w.noonAt }

// mark says that it is noon.
func (w *world) mark() { w.noonAt = w.clock.elapsed() }

// tick appends a record that says nothing but its time.
func (w *world) tick() {
	w.t.Helper()
	w.must(appendClock(context.Background(), w.log, w.time.Stamp(), func(model.Offset, error) {}))
	w.must(w.log.Sync(context.Background()))
	w.apply()
}

// plant sends a reading of device 1 over the link, with the device's own time.
func (w *world) plant(at time.Time, v float64) {
	w.t.Helper()
	a := w.arrival(1, measurement("temp", v, fmt.Sprintf(`,"occurredTime":%q`, at.UTC().Format(time.RFC3339Nano))))
	a.Source = "plant"
	if an := w.send(a); an.Outcome != Stored {
		w.t.Fatalf("%+v", an)
	}
}

// TestNoCommandOnAReadingOfYesterday: a day's backlog after a day of silence fires what it would have fired live, besides the absence, and
// orders nothing; the actions that are left out are counted.
func TestNoCommandOnAReadingOfYesterday(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]time.Duration{"the clock is right": 0, "the clock of the gateway was set back by an hour": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(w *world) { w.built = noon.AddDate(-1, 0, 0) })
			w.furnish(1, missingAndHot()...)
			w.begin()
			w.mark()
			values := func(i int) float64 { return []float64{20, 80, 90, 30}[i%4] }
			w.plant(noon, 20)
			w.tick()
			w.clock.advance(24 * time.Hour)
			if back > 0 {
				w.tick()
				w.clock.step(noon.Add(24*time.Hour - back))
			}
			w.tick() // the absence
			orders := len(fixture.Rows(t, w.db, `SELECT id FROM outbox`))
			if len(w.edges) != 1 || w.edges[0].Rule != "missing" || w.edges[0].Occurred != model.MicrosOf(noon.Add(5*time.Minute)) {
				t.Fatalf("the silence: %+v", w.edges)
			}
			for i := range 20 * 60 {
				w.plant(noon.Add(time.Duration(i+1)*time.Minute), values(i))
			}
			w.apply()
			fired := 0
			for _, e := range w.edges {
				if e.Rule == "hot" {
					fired++
				}
			}
			if fired != 600 { // raised and resolved in every fourth minute
				t.Errorf("%d edges", fired)
			}
			if n := len(fixture.Rows(t, w.db, `SELECT id FROM outbox`)); n != orders {
				t.Errorf("%d commands on readings of yesterday", n-orders)
			}
			h, err := w.applier.RuleHealth(context.Background(), "acme", "boiler")
			if err != nil || len(h) != 2 || h[0].StaleActions != 300 {
				t.Errorf("health %+v, %v", h, err)
			}
			w.plant(noon.Add(w.since()), 99)
			w.apply()
			if n := len(fixture.Rows(t, w.db, `SELECT id FROM outbox`)); n != orders+1 {
				t.Errorf("%d commands on a reading of today", n-orders)
			}
		})
	}
}
