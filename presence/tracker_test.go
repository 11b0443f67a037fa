package presence

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/model"
)

// tracked runs test with a tracker whose transitions are collected as words.
func tracked(t *testing.T, cfg TrackerConfig, test func(tr *Tracker, got func() []string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var all []string
		cfg.Source, cfg.Timing = "s1", Timing{Grace: time.Minute, Check: time.Hour}
		if cfg.MaxGraces == nil {
			cfg.MaxGraces = func() int { return 10 }
		}
		tr := NewTracker(cfg, TrackerDeps{Now: time.Now, Emit: func(_ context.Context, b model.Binding, p model.Presence) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, b.Device+" "+p.State.String()+" "+p.Reason)
		}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- tr.Run(ctx) }()
		time.Sleep(2 * time.Minute) // the grace of the start is over
		test(tr, func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		})
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

var d1 = model.Binding{Tenant: "acme", Device: "d1", DeviceID: 1}

func TestWhoseDoingTheEndWasDecidesTheTransition(t *testing.T) {
	for by, want := range map[By][2][]string{
		ByDevice: {{"d1 CONNECTED connected", "d1 DISCONNECTED lost"}, nil},
		ByWeir:   {{"d1 CONNECTED connected"}, {"d1 DISCONNECTED restart-timeout"}},
		ByLink:   {{"d1 CONNECTED connected"}, nil},
	} {
		tracked(t, TrackerConfig{}, func(tr *Tracker, got func() []string) {
			tr.Left(t.Context(), d1, tr.Arrived(t.Context(), d1), "lost", by)
			if !slices.Equal(got(), want[0]) {
				t.Errorf("%d: at once %q", by, got())
			}
			time.Sleep(2 * time.Minute)
			if !slices.Equal(got(), slices.Concat(want[0], want[1])) {
				t.Errorf("%d: after the grace %q", by, got())
			}
		})
	}
}

// Each connection has a higher number than the one before, also within one tick of the clock, and the end of an earlier one
// does not end a later one.
func TestALateEndIsIgnored(t *testing.T) {
	tracked(t, TrackerConfig{}, func(tr *Tracker, got func() []string) {
		first := tr.Arrived(t.Context(), d1)
		second := tr.Arrived(t.Context(), d1)
		if second != first+1 {
			t.Errorf("%d after %d", second, first)
		}
		tr.Left(t.Context(), d1, first, "lost", ByDevice)
		if want := []string{"d1 CONNECTED connected", "d1 CONNECTED connected"}; !slices.Equal(got(), want) {
			t.Errorf("%q", got())
		}
	})
}

func TestGracesAreBounded(t *testing.T) {
	tracked(t, TrackerConfig{MaxGraces: func() int { return 0 }}, func(tr *Tracker, got func() []string) {
		tr.Left(t.Context(), d1, tr.Arrived(t.Context(), d1), "shutdown", ByWeir)
		time.Sleep(2 * time.Minute)
		if want := []string{"d1 CONNECTED connected"}; !slices.Equal(got(), want) {
			t.Errorf("%q", got())
		}
	})
}

func TestASilentTrackerAssertsNothing(t *testing.T) {
	tracked(t, TrackerConfig{Silent: true}, func(tr *Tracker, got func() []string) {
		if n := tr.Arrived(t.Context(), d1); n != 0 || len(got()) > 0 {
			t.Errorf("session %d, %q", n, got())
		}
	})
}

// A device may have several connections at a time: it leaves with the last of them, whichever that is.
func TestTheLastConnectionOfADeviceDecides(t *testing.T) {
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		tracked(t, TrackerConfig{}, func(tr *Tracker, got func() []string) {
			sessions := []uint64{tr.Arrived(t.Context(), d1), tr.Arrived(t.Context(), d1)}
			tr.Left(t.Context(), d1, sessions[order[0]], "lost", ByDevice)
			if len(got()) != 2 {
				t.Errorf("%v: after the first end %q", order, got())
			}
			tr.Left(t.Context(), d1, sessions[order[1]], "lost", ByDevice)
			if want := []string{"d1 CONNECTED connected", "d1 CONNECTED connected", "d1 DISCONNECTED lost"}; !slices.Equal(got(), want) {
				t.Errorf("%v: %q", order, got())
			}
		})
	}
}
