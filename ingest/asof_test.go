package ingest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"weir/model"
)

// asking is a projection that asks something at each record.
type asking struct {
	ProjectionBase
	ask func()
}

func (p *asking) Record(context.Context, *Event, *Effects) error {
	p.ask()
	return nil
}

// The lag follows from the batch that is being applied: none after a quiet hour, and as much as its records are old while it is.
func TestAsOfIsTheTimeOfWhatIsBeingApplied(t *testing.T) {
	t.Parallel()
	p := &asking{ask: func() {}}
	w := newWorld(t, func(w *world) { w.projections = func() []Projection { return []Projection{p} } })
	w.furnish(1)
	w.apply()
	w.clock.advance(time.Hour)
	now := func() model.Nanos { return w.clock.stamp().Wall }
	if got := w.applier.AsOf(now()); got != now() || w.applier.Waiting() != 0 {
		t.Errorf("nothing waits, and it is as of %s", got.Time())
	}
	first := now()
	for range 3 {
		w.send(w.arrival(1, temp(1)))
		w.clock.advance(time.Minute)
	}
	if got := w.applier.AsOf(now()); got != now() || w.applier.Waiting() != 3 {
		t.Errorf("records have just come, %d wait, and it is as of %s", w.applier.Waiting(), got.Time())
	}
	var seen []model.Nanos
	p.ask = func() { seen = append(seen, w.applier.AsOf(now())) }
	w.apply()
	for i, got := range seen { // each was a batch of its own
		if want := first + model.Nanos(i)*model.Nanos(time.Minute); got != want {
			t.Errorf("record %d: as of %s, want %s", i, got.Time(), want.Time())
		}
	}
	if got := w.applier.AsOf(now()); got != now() || len(seen) != 3 {
		t.Errorf("all %d are applied, and it is as of %s", len(seen), got.Time())
	}
}

// A start is as of the checkpoint until it has applied something, and says how far it is.
func TestAReplayIsAsOfTheCheckpointAndSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1)
	for range 4 {
		w.send(w.arrival(1, temp(1)))
	}
	w.restart()
	w.clock.advance(time.Hour)
	now := w.clock.stamp().Wall
	if got := w.applier.AsOf(now); got >= now-model.Nanos(time.Hour) {
		t.Errorf("before anything is applied it is as of %s", got.Time())
	}
	_, last := w.log.Bounds()
	if r := w.applier.Replay(); r == nil || r.Applied != 0 || r.Records != int64(last) || w.applier.CaughtUp() {
		t.Errorf("at the start %+v", r)
	}
	w.apply()
	if r := w.applier.Replay(); r != nil || !w.applier.CaughtUp() {
		t.Errorf("afterwards %+v", r)
	}
}

// What EndOf reads of the log is what the applier finds by applying it.
func TestTheEndOfTheLogSaysTheTimeBeforeItIsApplied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if end, ok := EndOf(w.log); !ok || end != (LogEnd{}) {
		t.Errorf("an empty log: %+v, %v", end, ok)
	}
	w.furnish(1)
	for range 5 {
		w.clock.advance(time.Second)
		w.send(w.arrival(1, temp(1)))
	}
	end, ok := EndOf(w.log)
	w.apply()
	if !ok || end.Received != w.applier.Received() || end.Listening != w.applier.ListeningTime() || end.Listening < int64(5*time.Second) {
		t.Errorf("%+v, %v; applied, it is %s and %s", end, ok, w.applier.Received().Time(), time.Duration(w.applier.ListeningTime()))
	}
}

// Where the newest records have no time of day only the applier finds out.
func TestTheEndOfALogWithoutATimeOfDaySaysNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withoutTime)
	w.begin()
	w.furnish(1)
	w.send(w.arrival(1, temp(1)))
	if end, ok := EndOf(w.log); ok {
		t.Errorf("it says %+v", end)
	}
}

// While a start is replayed a mutation waits for its record to be in the log and no longer, afterwards until it is applied.
func TestAMutationWaitsForTheLogAloneWhileAStartIsReplayed(t *testing.T) {
	t.Parallel()
	passed := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	c := NewController(nil, nil, nil, slog.New(slog.DiscardHandler))
	first := c.reached(1)
	if c.appended(1); !passed(first) {
		t.Error("a mutation waits for the applier during the replay")
	}
	c.follow()
	second := c.reached(2)
	if c.appended(2); passed(second) {
		t.Error("a mutation returns before it is applied")
	}
	if c.Passed(2); !passed(second) {
		t.Error("a mutation waits although it is applied")
	}
}
