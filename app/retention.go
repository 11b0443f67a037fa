package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/config"
	"weir/internal/faults"
	"weir/model"
	"weir/store"
)

const (
	sweepEvery = time.Hour
	// sweepStep is how many rows one transaction removes, so that the writer is held for a few milliseconds; sweepPause is
	// what others have in between.
	sweepStep  = 100
	sweepPause = 5 * time.Millisecond
	// A clock that leaps is not believed at once by what cannot be undone: nothing is removed for sweepRest after it went
	// forward by more than clockLeap, or at a start by more than absence since the newest message.
	clockLeap = time.Hour
	absence   = 30 * 24 * time.Hour
	sweepRest = 24 * time.Hour
)

// retention removes history whose time is over.
type retention struct {
	in      *Instance
	removed *prometheus.CounterVec
	steady  steadyClock
}

// keeping is how long each kind of history is kept; 0: for ever.
func keeping(h config.History) map[store.Retained]time.Duration {
	days := func(n int) time.Duration { return time.Duration(n) * 24 * time.Hour }
	locations := h.LocationRetentionDays
	if locations == 0 {
		locations = h.EventRetentionDays
	}
	return map[store.Retained]time.Duration{store.KeptReadings: days(h.EventRetentionDays), store.KeptEvents: days(h.EventRetentionDays),
		store.KeptDetections: days(h.EventRetentionDays), store.KeptLocations: days(locations), store.KeptAudit: h.AuditRetention,
		store.KeptDeadLetters: h.DeadLetterRetention}
}

func newRetention(in *Instance) *retention {
	r := &retention{in: in, removed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_history_removed_total",
		Help: "Rows and readings removed because their retention ended, by kind."}, []string{"kind"})}
	for _, k := range store.AllKept {
		r.removed.WithLabelValues(string(k))
	}
	in.metrics.MustRegister(r.removed)
	r.steady.newest = in.applier.Received()
	return r
}

// run sweeps every hour, and when the configuration says so anew, until ctx ends.
func (r *retention) run(ctx context.Context) error {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		if now, ok := r.now(); ok {
			r.sweep(ctx, now, *r.in.obeyed())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.in.retention:
		case <-t.C:
		}
	}
}

// now is the time by which things are old; ok is false while the clock cannot be trusted with that.
func (r *retention) now() (_ model.Nanos, ok bool) {
	wall, mono := r.in.look()
	if r.in.clock.Doubt() != "" || !r.steady.look(model.NanosOf(wall), mono) {
		r.in.log.Warn("nothing is removed for its age: the clock has leapt or cannot be believed; it is looked at again within the hour", "clock", wall.UTC().Format(time.RFC3339))
		return 0, false
	}
	return model.NanosOf(wall), true
}

func (r *retention) sweep(ctx context.Context, now model.Nanos, cfg config.Config) {
	keep := keeping(cfg.History)
	for _, k := range store.AllKept {
		if keep[k] <= 0 {
			continue
		}
		if err := r.remove(ctx, k, now.Micros()-storeMicros(keep[k])); err != nil && ctx.Err() == nil {
			r.in.log.Warn("old history could not be removed; it is tried again in an hour", "kind", string(k), "error", err)
		}
	}
}

// remove removes a kind in small steps.
func (r *retention) remove(ctx context.Context, k store.Retained, before model.Micros) error {
	var all int64
	for {
		var step store.Removal
		err := r.in.store.Write(ctx, store.Results, func(tx store.Tx) (err error) {
			step, err = store.RemoveBefore(tx, k, before, sweepStep)
			return err
		})
		if err != nil {
			return err
		}
		faults.Point("retention.step")
		r.removed.WithLabelValues(string(k)).Add(float64(step.Entries))
		if all += step.Entries; step.Rows == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(sweepPause):
		}
	}
	if all > 0 {
		r.in.log.Info("history was removed, its time was over", "kind", string(k), "removed", all, "before", before.Nanos().Time().Format(time.RFC3339))
	}
	return nil
}

// steadyClock notices when the wall leaps forward against the monotonic time.
type steadyClock struct {
	newest model.Nanos // newest stamp before the start, 0 when there is none
	offset model.Nanos // of the wall to the monotonic time
	seen   bool
	until  time.Duration // monotonic: rest
}

// look reports whether the wall has gone on steadily.
func (s *steadyClock) look(wall model.Nanos, mono time.Duration) bool {
	offset := wall - model.Nanos(mono)
	leapt := s.seen && offset-s.offset > model.Nanos(clockLeap) || !s.seen && s.newest != 0 && wall-s.newest > model.Nanos(absence)
	if s.offset, s.seen = offset, true; leapt {
		s.until = mono + sweepRest
	}
	return mono >= s.until
}
