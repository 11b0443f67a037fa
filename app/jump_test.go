package app_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"weir/app"
	"weir/operate"
)

// TestAClockThatJumpsBothWays: by hours and by years, while it runs and over a restart. Every reading is acknowledged, each
// is stored once, and nothing waits once the time is right again.
func TestAClockThatJumpsBothWays(t *testing.T) {
	t.Parallel()
	began := time.Now()
	var shift atomic.Int64
	now := func() (time.Time, time.Duration) {
		mono := time.Since(began)
		return began.Add(mono).Add(time.Duration(shift.Load())), mono
	}
	in := runInstanceWith(t, app.Options{Now: now})
	client, err := operate.Dial(t.Context(), in.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const hour, year = time.Hour, 365 * 24 * time.Hour
	posts := 0
	for _, d := range []time.Duration{0, 3 * hour, -3 * hour, 2 * year, -2 * year, hour, 0} {
		shift.Store(int64(d))
		for range 3 {
			if code, _, err := in.post(); err != nil || code != http.StatusAccepted {
				t.Fatalf("shifted by %v: %d, %v", d, code, err)
			}
			posts++
		}
	}
	s := in.until(t, client, func(s *operate.Status) bool { return s.Log.Applied == s.Log.Last && s.Waiting == "" })
	if s.Unbalanced != 0 {
		t.Errorf("after the jumps: %+v", s)
	}
	stored := func(c *operate.Client) (n int64) {
		t.Helper()
		l, err := operate.ShowLedger.Ask(t.Context(), c, operate.LedgerQuery{})
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range l.Lines {
			n += line.Outcomes["stored"]
			if line.Missing != 0 {
				t.Errorf("%+v", line)
			}
		}
		return n
	}
	if n := stored(client); n != int64(posts) {
		t.Errorf("%d of %d are stored", n, posts)
	}
	in.stop()
	// Over the restart the clock falls back by years: what comes in is acknowledged and waits.
	shift.Store(int64(-5 * year))
	again := &instance{Instance: app.New(in.cfg, app.Options{Now: now}), cfg: in.cfg, device: in.device, token: in.token}
	again.run(t, context.Background())
	if code, _, err := again.post(); err != nil || code != http.StatusAccepted {
		t.Fatalf("after a restart with a clock that fell back: %d, %v", code, err)
	}
	posts++
	client, err = operate.Dial(t.Context(), in.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if s := again.until(t, client, func(s *operate.Status) bool { return s.Clock != "" }); !s.Ready {
		t.Errorf("%+v", s)
	}
	shift.Store(int64(3 * year)) // ahead of everything it has stamped
	again.until(t, client, func(s *operate.Status) bool { return s.Waiting == "" && s.Clock == "" && s.Log.Applied == s.Log.Last })
	if n := stored(client); n != int64(posts) {
		t.Errorf("%d of %d are stored", n, posts)
	}
}
