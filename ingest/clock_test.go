package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/test/draws"
	"weir/model"
	"weir/series"
	"weir/spool"
	"weir/store"
	"weir/store/sqlite"
)

var (
	noon   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	wayOld = time.Date(1970, 1, 1, 0, 0, 8, 0, time.UTC)
)

// withoutTime is a world whose box has no battery: it starts in 1970.
func withoutTime(w *world) {
	w.built = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	w.clock.wall = wayOld
}

// begin is what an instance does once everything of the log is applied.
func (w *world) begin() {
	w.t.Helper()
	w.apply()
	w.time.Begin(w.applier.Received())
}

func (w *world) look() { w.t.Helper(); w.must(w.time.Sample(context.Background())) }

// waits reports whether the applier stands still for want of a time of day.
func (w *world) waits() bool {
	w.t.Helper()
	r, err := w.log.Reader(w.applier.Applied() + 1)
	w.must(err)
	defer r.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for {
		b, err := r.TryNext()
		w.must(err)
		if b == nil {
			return false
		}
		ended := make(chan error, 1)
		go func() { ended <- w.applier.apply(ctx, b) }()
		for w.applier.times.waiting.Load() == nil && len(ended) == 0 {
			runtime.Gosched()
		}
		cancelled := w.applier.times.waiting.Load() != nil
		if cancelled {
			cancel()
		}
		if err := <-ended; cancelled {
			return true
		} else if err != nil {
			w.t.Fatal(err)
		}
	}
}

// times are the event and receive times of a device's readings, oldest value first.
func (w *world) times(device int64) []string {
	w.t.Helper()
	page, err := w.applier.deps.Series.Measurements(context.Background(), series.Query{TenantID: 1, Device: &device, Page: series.Page{Number: 1, Size: 1000}})
	w.must(err)
	var out []string
	for _, e := range page.Events {
		out = append(out, fmt.Sprintf("%v %s %s", e.Value, e.Occurred.Nanos().Time().Format(time.RFC3339), e.Received.Nanos().Time().Format(time.RFC3339)))
	}
	slices.Sort(out)
	return out
}

func (w *world) holds(got []string, want ...string) {
	w.t.Helper()
	if !slices.Equal(got, want) {
		w.t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func sentAt(v float64, at string) string {
	return measurement("temp", v, fmt.Sprintf(`,"occurredTime":%q`, at))
}

func TestABoxWithoutATimeOfDayKeepsWhatComesInUntilItKnowsOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutTime)
	w.begin()
	w.furnish(1)
	w.apply() // a change of the registry needs no time of day
	w.clock.advance(10 * time.Second)
	for _, body := range []string{temp(1), sentAt(2, "2026-03-01T11:59:12Z"), sentAt(3, "2024-01-01T00:00:00Z")} {
		if an := w.send(w.arrival(1, body)); an.Outcome != Stored {
			t.Fatalf("%+v", an)
		}
	}
	w.clock.advance(40 * time.Second)
	w.look()
	if !w.waits() || w.time.Doubt() == "" {
		t.Fatal("what came in without a time of day was applied")
	}
	if l := w.ledger(); l[store.OutcomeWaiting] != 3 {
		t.Errorf("the ledger says %v", l)
	}
	w.clock.step(noon) // the time server answers: fifty years forward
	w.look()
	if w.waits() || w.time.Doubt() != "" {
		t.Fatalf("the time of day is known and the applier waits: %q", w.time.Doubt())
	}
	w.send(w.arrival(1, temp(4)))
	w.apply()
	w.holds(w.times(1),
		"1 2026-03-01T11:59:20Z 2026-03-01T11:59:20Z",
		"2 2026-03-01T11:59:12Z 2026-03-01T11:59:20Z",
		"4 2026-03-01T12:00:00Z 2026-03-01T12:00:00Z")
	if l := w.ledger(); l[store.OutcomeStored] != 3 || l[store.OutcomeDeadLetter] != 1 || l[store.OutcomeWaiting] != 0 {
		t.Errorf("the ledger says %v", l)
	}
	lines, err := w.applier.Ledger().Lines(t.Context(), store.LedgerFilter{})
	w.must(err)
	for _, l := range lines { // whatever hour it proved to be, a message ends in the one that it was counted in
		if l.Outcomes[store.OutcomeWaiting].Messages != 0 || l.Received.Messages == 0 {
			t.Errorf("hour %d: %+v", l.Hour, l)
		}
	}
}

func TestAClockBeforeTheNewestRecordIsNotBelieved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.begin()
	w.furnish(1)
	w.send(w.arrival(1, temp(1)))
	w.begin()
	w.finishHead(w.applier) // nothing is left in the log: the store remembers the newest stamp
	w.restart()
	w.clock.step(noon.Add(-time.Hour))
	w.begin()
	w.send(w.arrival(1, temp(2)))
	if !w.waits() {
		t.Fatal("a clock an hour before the newest record was believed")
	}
	w.clock.step(noon.Add(time.Minute))
	w.look()
	w.apply()
	w.holds(w.times(1), "1 2026-03-01T12:00:00Z 2026-03-01T12:00:00Z", "2 2026-03-01T12:01:00Z 2026-03-01T12:01:00Z")
}

func TestASynchronizedClockIsBelievedBeforeTheNewestRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.built = noon.Add(-24 * time.Hour) })
	w.begin()
	w.furnish(1)
	w.clock.step(noon.AddDate(50, 0, 0)) // somebody's mistake, while something came in
	w.send(w.arrival(1, temp(1)))
	w.apply()
	w.restart()
	w.clock.step(noon)
	w.begin()
	w.send(w.arrival(1, temp(2)))
	if !w.waits() {
		t.Fatal("a clock fifty years before the newest record was believed")
	}
	w.time.cfg.Synchronized = func() bool { return true }
	w.look()
	w.apply()
	w.send(w.arrival(1, temp(3)))
	w.send(w.arrival(1, sentAt(4, "2026-03-01T11:00:00Z")))
	w.apply()
	// Receive stamps do not go back; event times are right.
	w.holds(w.times(1), "1 2076-03-01T12:00:00Z 2076-03-01T12:00:00Z", "2 2026-03-01T12:00:00Z 2076-03-01T12:00:00Z",
		"3 2026-03-01T12:00:00Z 2076-03-01T12:00:00Z", "4 2026-03-01T11:00:00Z 2076-03-01T12:00:00Z")
}

func TestAStepBackDoesNotTouchTheTimesOfDevices(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.built = noon.AddDate(-1, 0, 0) })
	w.furnish(1)
	w.begin()
	w.send(w.arrival(1, temp(1)))
	w.clock.step(noon.AddDate(0, -3, 0)) // a wrong step back: devices know better
	w.clock.advance(20 * time.Minute)
	w.send(w.arrival(1, sentAt(2, "2026-03-01T12:20:00Z")))
	w.clock.step(wayOld) // no time of day at all
	w.send(w.arrival(1, temp(3)))
	if w.time.Doubt() == "" {
		t.Error("a clock that went back is believed")
	}
	w.clock.step(noon.Add(30 * time.Minute))
	w.send(w.arrival(1, temp(4)))
	if why := w.time.Doubt(); why != "" {
		t.Error(why)
	}
	w.apply()
	w.holds(w.times(1), "1 2026-03-01T12:00:00Z 2026-03-01T12:00:00Z", "2 2026-03-01T12:20:00Z 2026-03-01T12:10:00Z",
		"3 2026-03-01T12:10:00Z 2026-03-01T12:10:00Z", "4 2026-03-01T12:30:00Z 2026-03-01T12:30:00Z")
}

func TestAStepForwardThatIsUndoneCostsNoReading(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1)
	w.begin()
	w.clock.step(noon.AddDate(50, 0, 0))
	w.send(w.arrival(1, temp(1)))
	w.clock.step(noon)
	for i, body := range []string{temp(2), sentAt(3, "2026-03-01T11:59:00Z"), sentAt(4, "2024-03-01T11:59:00Z")} {
		if an := w.send(w.arrival(1, body)); an.Outcome != Stored {
			t.Fatalf("%d: %+v", i, an)
		}
	}
	w.apply()
	w.holds(w.times(1), "1 2076-03-01T12:00:00Z 2076-03-01T12:00:00Z", "2 2026-03-01T12:00:00Z 2076-03-01T12:00:00Z",
		"3 2026-03-01T11:59:00Z 2076-03-01T12:00:00Z")
	if l := w.ledger(); l[store.OutcomeDeadLetter] != 1 {
		t.Errorf("the ledger says %v", l)
	}
}

func TestABootThatEndsBeforeItKnowsTheTimeCountsFromTheNewestStamp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutTime)
	w.furnish(1)
	w.begin()
	w.clock.advance(10 * time.Second)
	w.send(w.arrival(1, temp(1)))
	w.send(w.arrival(1, sentAt(2, "2026-03-01T11:59:00Z")))
	want := []string{"1 2026-01-01T00:00:10Z 2026-01-01T00:00:10Z", "2 2026-03-01T11:59:00Z 2026-01-01T00:00:10Z"}
	for range 2 { // the second start reads in the log what the first one wrote there
		w.restart()
		w.begin()
		w.holds(w.times(1), want...)
	}
	maps := 0
	w.batches(w.log, 1, func(b *spool.Batch) {
		for _, rec := range b.Records {
			if k, _, _ := model.PeekRecord(rec.Data); k == model.KindTimeMap {
				maps++
			}
		}
	})
	if maps != 1 {
		t.Errorf("%d time maps, want 1", maps)
	}
}

// fullLog is a log that says that it is nearly full.
type fullLog struct{ spool.Log }

func (l fullLog) Stats() spool.Stats {
	s := l.Log.Stats()
	s.Bytes = s.MaxBytes
	return s
}

func TestALogThatFillsUpWaitsForNoClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutTime)
	w.furnish(1)
	w.begin()
	w.send(w.arrival(1, sentAt(1, "2026-03-01T11:59:00Z")))
	w.time.cfg.Log = fullLog{w.log}
	w.look()
	w.apply()
	w.clock.advance(time.Minute)
	w.send(w.arrival(1, temp(2)))
	w.clock.step(noon)
	w.look()
	w.send(w.arrival(1, temp(3)))
	w.apply()
	w.holds(w.times(1), "1 2026-03-01T11:59:00Z 2026-01-01T00:00:00Z", "2 2026-01-01T00:01:00Z 2026-01-01T00:01:00Z",
		"3 2026-03-01T12:00:00Z 2026-03-01T12:00:00Z")
}

// TestAKillWhileTheTimeIsUnknownLeavesTheSameResults kills at random places a replay of a log that was written by two
// starts without a time of day, of which only the second came to know it.
func TestAKillWhileTheTimeIsUnknownLeavesTheSameResults(t *testing.T) {
	t.Parallel()
	for seed := range draws.Seeds(3) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			w := newWorld(t, smallHeads, withoutTime)
			release := w.log.HoldTrim()
			w.furnish(6, w.rulesOf(1)...)
			w.begin()
			w.traffic(seed, 120)
			release()
			w.restart()
			release = w.log.HoldTrim()
			w.begin()
			w.traffic(seed+100, 120)
			w.clock.step(noon)
			w.look()
			w.traffic(seed+200, 120)

			r := rand.New(rand.NewPCG(seed, 9))
			var want map[string][]string
			for _, deadly := range []bool{false, true} {
				db, err := sqlite.Open(context.Background(), filepath.Join(t.TempDir(), "weir.db"), sqlite.Options{})
				w.must(err)
				var a *Applier
				for {
					a = w.newApplier(w.log, db)
					a.times.clock = NewClock(ClockConfig{Boot: 99, Now: w.clock.now, Log: w.log, Logger: slog.New(slog.DiscardHandler)}) // a later start
					if deadly && w.killedWhileApplying(a, r) {
						a.checkpoints.end()
						_ = a.checkpoints.await()
						continue
					}
					w.applyTo(a, w.log)
					break
				}
				w.finishHead(a)
				if got := dump(t, db); deadly {
					compareDumps(t, got, want)
				} else if want = got; len(want["series_blocks"]) == 0 || len(want["edge_blocks"]) == 0 {
					t.Error("the traffic left nothing")
				}
				a.checkpoints.end()
				w.must(db.Close())
			}
			release()
		})
	}
}
