package ingest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"weir/model"
	"weir/store"
)

// stopping ends the run of an applier while a record is with the projections.
type stopping struct {
	Projection
	at   model.Offset
	stop func()
}

func (s *stopping) Record(ctx context.Context, e *Event, out *Effects) error {
	if e.At.Offset == s.at && e.Change == nil {
		s.stop()
	}
	return s.Projection.Record(ctx, e, out)
}

// A run that ends within a batch has applied records that it can no longer commit. The last checkpoint may not hold them: they
// are applied again after the next start.
func TestARunThatEndsWithinABatchCountsNothingTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1, thresholdRule("hot", "temp", "gt", 80))
	for i := range 6 {
		w.send(w.arrival(1, temp(float64(70+20*(i%2)))))
	}
	_, last := w.log.Bounds()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.applier.wrap(func(p Projection) Projection { return &stopping{Projection: p, at: last - 2, stop: cancel} })
	if err := w.applier.Run(ctx); err != nil {
		t.Errorf("a run that ended: %v", err)
	}
	if ctx.Err() == nil {
		t.Fatal("the run did not come to the record")
	}
	w.restart()
	w.apply()
	if l := w.ledger(); l[store.OutcomeStored] != 6 || l[store.OutcomeReceived] != 6 {
		t.Errorf("the ledger: %v", l)
	}
}

// TestACheckpointRestsWhileRecordsWait, but not where the applier waits for it, nor beyond a stop.
func TestACheckpointRestsWhileRecordsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		behind := true
		c := &checkpointer{behind: func() bool { return behind }}
		ctx, stop := context.WithCancel(t.Context())
		rested := func(worked time.Duration) time.Duration {
			began := time.Now()
			c.rest(ctx, worked)
			return time.Since(began)
		}
		if got := rested(5 * time.Millisecond); got != 15*time.Millisecond {
			t.Errorf("after 5 ms it rested %s", got)
		}
		if got := rested(time.Second); got != maxRest {
			t.Errorf("after a second it rested %s", got)
		}
		c.awaited.Store(true)
		if got := rested(time.Second); got != 0 {
			t.Errorf("the applier waited %s", got)
		}
		c.awaited.Store(false)
		if behind = false; rested(time.Second) != 0 {
			t.Error("it rested while nothing waited")
		}
		behind = true
		if stop(); rested(time.Second) != 0 {
			t.Error("it rested after the end")
		}
	})
}
