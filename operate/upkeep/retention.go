// Package upkeep is what an instance does to what it keeps, without being asked: history whose time is over is removed, blocks
// are merged, and a database is read through after a stop that was not clean.
package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/config"
	"weir/ingest"
	"weir/internal/faults"
	"weir/model"
	"weir/series"
	"weir/store"
)

const (
	sweepEvery = time.Hour
	// sweepPlan is how many rows are found at a time, in the order in which their removal writes least. sweepRows is how many
	// of them one transaction removes: the more, the fewer pages are written more than once. It removes fewer on a machine on
	// which that takes longer than sweepHold; others have the writer for sweepPause in between, and twice as long as a step took.
	sweepPlan  = 16_384
	sweepRows  = 1000
	sweepMin   = 100
	sweepHold  = 25 * time.Millisecond
	sweepPause = 5 * time.Millisecond
	// A clock that leaps is not believed at once by what cannot be undone: nothing is removed for sweepRest after it went
	// forward by more than clockLeap, or at a start by more than absence since the newest message.
	clockLeap = time.Hour
	absence   = 30 * 24 * time.Hour
	sweepRest = 24 * time.Hour
)

// Maintained is what the upkeep works on.
type Maintained struct {
	Store     Store
	Series    *series.Series
	Applier   *ingest.Applier
	Clock     *ingest.Clock
	Effective func() *config.Config
	// Look returns what the system's clock says and the monotonic time since the start.
	Look func() (time.Time, time.Duration)
	// Disk returns what is free on the disk of the database, without its free pages, and what of it must stay free.
	Disk    func() (free, reserve int64, err error)
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Store is the database.
type Store interface {
	store.Store
	Check(ctx context.Context) error
	// GiveBack gives free pages, of so many bytes at most, back to the file system; it returns how many bytes that were.
	GiveBack(ctx context.Context, bytes int64) (int64, error)
	// FreeSpace frees the space that is kept for removals on a full disk.
	FreeSpace()
}

// Retention removes history whose time is over.
type Retention struct {
	Maintained
	removed *prometheus.CounterVec
	steady  steadyClock
	wake    chan struct{}
	rows    int // of a step
}

// Wake asks for a sweep now: a time has changed.
func (r *Retention) Wake() {
	select {
	case r.wake <- struct{}{}:
	default: // one is asked for already
	}
}

// keeping is how long each kind of history is kept; 0: for ever.
func keeping(c config.Config) map[store.Retained]time.Duration {
	h := c.History
	days := func(n int) time.Duration { return time.Duration(n) * 24 * time.Hour }
	locations := h.LocationRetentionDays
	if locations == 0 {
		locations = h.EventRetentionDays
	}
	return map[store.Retained]time.Duration{store.KeptReadings: days(h.EventRetentionDays), store.KeptEvents: days(h.EventRetentionDays),
		store.KeptDetections: days(h.EventRetentionDays), store.KeptLocations: days(locations), store.KeptAudit: h.AuditRetention,
		store.KeptDeadLetters: h.DeadLetterRetention, store.KeptMetadata: days(c.Detection.PreviewDays)}
}

// NewRetention returns the sweep of the history of an instance.
func NewRetention(k Maintained) *Retention {
	r := &Retention{Maintained: k, wake: make(chan struct{}, 1), rows: sweepRows, removed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_history_removed_total",
		Help: "Rows and readings removed because their retention ended, by kind."}, []string{"kind"})}
	for _, k := range store.AllKept {
		r.removed.WithLabelValues(string(k))
	}
	k.Metrics.MustRegister(r.removed)
	return r
}

// Run sweeps every hour, and when Wake is called, until ctx ends.
func (r *Retention) Run(ctx context.Context) error {
	r.steady.newest = max(r.steady.newest, r.Applier.Received())
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		if now, ok := r.now(); ok {
			r.sweep(ctx, now, *r.Effective())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-t.C:
		}
	}
}

// now is the time by which things are old; ok is false while the clock cannot be trusted with that.
func (r *Retention) now() (_ model.Nanos, ok bool) {
	wall, mono := r.Look()
	if r.Clock.Doubt() != "" || !r.steady.look(model.NanosOf(wall), mono) {
		r.Log.Warn("nothing is removed for its age: the clock has leapt or cannot be believed; it is looked at again within the hour", "clock", wall.UTC().Format(time.RFC3339))
		return 0, false
	}
	return model.NanosOf(wall), true
}

func (r *Retention) sweep(ctx context.Context, now model.Nanos, cfg config.Config) {
	keep := keeping(cfg)
	for _, k := range store.AllKept {
		if keep[k] <= 0 {
			continue
		}
		if err := r.remove(ctx, k, endOf(k, now.Micros()-storeMicros(keep[k]))); err != nil && ctx.Err() == nil {
			r.Log.Warn("old history could not be removed; it is tried again in an hour", "kind", string(k), "error", err)
		}
	}
	excess := func(tx store.Tx) (*store.Expired, error) {
		return store.FindExcess(tx, int64(cfg.Detection.PreviewBytes), sweepPlan)
	}
	if n, err := r.removeAll(ctx, store.KeptMetadata, excess); err != nil && ctx.Err() == nil {
		r.Log.Warn("what the registry said before could not be removed; it is tried again in an hour", "error", err)
	} else if n > 0 {
		r.Log.Info("the oldest of what the registry said before was removed, it took more than detection.preview_bytes", "removed", n)
	}
}

// endOf is the time before which a kind is removed when what is older than t is over. What devices send goes by whole UTC days: so a
// sweep finds many rows of each series, whose index entries share pages; each hour, it would write a page for each row.
func endOf(k store.Retained, t model.Micros) model.Micros {
	switch k {
	case store.KeptReadings, store.KeptEvents, store.KeptLocations:
		day := storeMicros(24 * time.Hour)
		return t - (t%day+day)%day
	}
	return t
}

// remove removes a kind in steps.
func (r *Retention) remove(ctx context.Context, k store.Retained, before model.Micros) error {
	all, err := r.removeAll(ctx, k, func(tx store.Tx) (*store.Expired, error) { return store.FindExpired(tx, k, before, sweepPlan) })
	if err == nil && all > 0 {
		r.Log.Info("history was removed, its time was over", "kind", string(k), "removed", all, "before", before.Nanos().Time().Format(time.RFC3339))
	}
	return err
}

// removeAll removes what is found until there is nothing left of it.
func (r *Retention) removeAll(ctx context.Context, k store.Retained, find func(store.Tx) (*store.Expired, error)) (all int64, err error) {
	for {
		var found *store.Expired
		if err := r.Store.Read(ctx, func(tx store.Tx) (err error) {
			found, err = find(tx)
			return err
		}); err != nil {
			return all, err
		}
		gone, err := r.removeFound(ctx, k, found)
		all += gone.Entries
		if err != nil || gone.Rows == 0 {
			return all, err
		}
	}
}

// removeFound removes rows in steps of as many as hold the writer for a moment.
func (r *Retention) removeFound(ctx context.Context, k store.Retained, found *store.Expired) (all store.Removal, err error) {
	for found.Rows() > 0 {
		_, began := r.Look()
		step, err := r.step(ctx, found)
		if err != nil {
			return all, err
		}
		faults.Point("retention.step")
		_, ended := r.Look()
		took := ended - began
		if r.rows = min(r.rows+r.rows/4, sweepRows); took > sweepHold {
			r.rows = max(r.rows/2, sweepMin)
		}
		r.removed.WithLabelValues(string(k)).Add(float64(step.Entries))
		all.Rows, all.Entries = all.Rows+step.Rows, all.Entries+step.Entries
		select {
		case <-ctx.Done():
			return all, ctx.Err()
		case <-time.After(max(sweepPause, 2*took)):
		}
	}
	return all, nil
}

// step removes some rows, on a full disk with the space that is kept for that.
func (r *Retention) step(ctx context.Context, found *store.Expired) (done store.Removal, err error) {
	rows := r.rows
	write := func() error {
		return r.Store.Write(ctx, store.Results, func(tx store.Tx) (err error) {
			done, err = found.Remove(tx, rows)
			return err
		})
	}
	if err = write(); errors.Is(err, store.ErrFull) {
		r.Store.FreeSpace()
		rows = sweepMin
		err = write()
	}
	return done, err
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

// storeMicros is d in the unit of stored times.
func storeMicros(d time.Duration) model.Micros { return model.Micros(d.Microseconds()) }
