// Package upkeep is what an instance does to what it keeps, without being asked: history whose time is over is removed, blocks
// are merged, and a database is read through after a stop that was not clean.
package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"slices"
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
	// Scrub makes the files hold nothing that was removed before, a step of so many bytes with each call of what it returns; left is 0
	// once that is done, and stays the same while a reader delays it.
	Scrub(bytes int64) func(context.Context) (left int64, err error)
	// FreeSpace frees the space that is kept for removals on a full disk.
	FreeSpace()
}

// Retention removes history whose time is over.
type Retention struct {
	Maintained
	removed *prometheus.CounterVec
	steady  steadyClock
	wake    chan struct{}
	rows    int  // of a step
	dropped bool // snapshots were removed whose pages may be there

	keptBytes, keptSnapshots prometheus.Gauge
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
	previews := days(c.Detection.PreviewDays)
	return map[store.Retained]time.Duration{store.KeptReadings: days(h.EventRetentionDays), store.KeptEvents: days(h.EventRetentionDays),
		store.KeptDetections: days(h.EventRetentionDays), store.KeptLocations: days(locations), store.KeptAudit: h.AuditRetention,
		store.KeptDeadLetters: h.DeadLetterRetention, store.KeptAlarmEvents: h.AlarmEventRetention, store.KeptCommands: h.CommandRetention, store.KeptMetadata: previews, store.KeptListening: previews, store.KeptSnapshots: previews}
}

// NewRetention returns the sweep of the history of an instance.
func NewRetention(k Maintained) *Retention {
	r := &Retention{Maintained: k, wake: make(chan struct{}, 1), rows: sweepRows, removed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_history_removed_total",
		Help: "Rows and readings removed because their retention ended, by kind."}, []string{"kind"})}
	for _, k := range store.AllKept {
		r.removed.WithLabelValues(string(k))
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_eventprocessing_previews_kept_" + name, Help: help})
	}
	r.keptBytes = gauge("bytes", "Size of what is kept for previews of rules besides history, as of the last sweep: what the registry said before, listening spans, snapshots.")
	r.keptSnapshots = gauge("snapshots", "Snapshots of the state of rules that are kept for previews, as of the last sweep.")
	k.Metrics.MustRegister(r.removed, r.keptBytes, r.keptSnapshots)
	return r
}

// Run sweeps every hour, and when Wake is called, until ctx ends.
func (r *Retention) Run(ctx context.Context) error {
	r.steady.newest = max(r.steady.newest, r.Applier.Received())
	t := time.NewTicker(faults.Wait("retention.every", sweepEvery))
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
		if err := r.remove(ctx, k, over(k, now.Micros(), keep)); err != nil && ctx.Err() == nil {
			r.Log.Warn("old history could not be removed; it is tried again in an hour", "kind", string(k), "error", err)
		}
	}
	if err := r.trimPreviews(ctx, int64(cfg.Detection.PreviewBytes), over(store.KeptSnapshots, now.Micros(), keep)); err != nil && ctx.Err() == nil {
		r.Log.Warn("what is kept for previews of rules could not be removed; it is tried again in an hour", "error", err)
	}
}

// over is the time before which a kind is removed. What previews need besides readings is of no use without them.
func over(k store.Retained, now model.Micros, keep map[store.Retained]time.Duration) model.Micros {
	before := endOf(k, now-storeMicros(keep[k]))
	if readings := keep[store.KeptReadings]; readings > 0 && slices.Contains(store.KeptForPreviews[:], k) {
		before = max(before, endOf(store.KeptReadings, now-storeMicros(readings)))
	}
	return before
}

// trimPreviews removes the oldest of what is kept for previews until it fits into so many bytes, and the pages of snapshots that are gone.
func (r *Retention) trimPreviews(ctx context.Context, bytes int64, before model.Micros) error {
	all := int64(0)
	for _, k := range store.KeptForPreviews {
		n, err := r.removeAll(ctx, k, func(tx store.Tx) (*store.Expired, error) { return store.FindExcess(tx, k, bytes, sweepPlan) })
		if err != nil {
			return err
		}
		all += n
	}
	if all > 0 {
		r.Log.Info("the oldest of what is kept for previews of rules was removed, it took more than detection.preview_bytes", "removed", all)
		if err := r.remove(ctx, store.KeptSnapshots, before); err != nil { // those for which the metadata is gone
			return err
		}
	}
	if err := r.sweepPages(ctx); err != nil {
		return err
	}
	return r.Store.Read(ctx, func(tx store.Tx) error {
		use, err := store.UsedByPreviews(tx)
		r.keptBytes.Set(float64(use.Bytes))
		r.keptSnapshots.Set(float64(use.Snapshots))
		return err
	})
}

// sweepPages removes the pages of snapshots that were removed. One that is left where the process ends goes with the next checkpoint.
func (r *Retention) sweepPages(ctx context.Context) error {
	for after := ""; r.dropped; {
		if err := r.Store.Write(ctx, store.Results, func(tx store.Tx) error {
			_, gen, err := store.CheckpointState(tx)
			if err == nil {
				after, err = store.SweepRulePages(tx, gen, after)
			}
			return err
		}); err != nil {
			return err
		}
		r.dropped = after != ""
		faults.Point("retention.pages")
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(sweepPause):
		}
	}
	return nil
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
	var step store.Removal
	err = r.inSteps(ctx, &r.rows, found.Rows, func(tx store.Tx, limit int) (err error) {
		step, err = found.Remove(tx, limit)
		return err
	}, func() {
		faults.Point("retention.step")
		r.dropped = r.dropped || k == store.KeptSnapshots && step.Rows > 0
		r.removed.WithLabelValues(string(k)).Add(float64(step.Entries))
		all.Rows, all.Entries = all.Rows+step.Rows, all.Entries+step.Entries
	})
	return all, err
}

// inSteps removes rows until none are left, in steps of as many as hold the writer for a moment; rows is that number, which
// follows the machine. On a full disk it uses the space that is kept for that. removed is called after each step.
func (k *Maintained) inSteps(ctx context.Context, rows *int, left func() int, remove func(tx store.Tx, limit int) error, removed func()) error {
	for left() > 0 {
		_, began := k.Look()
		if err := k.step(ctx, *rows, remove); err != nil {
			return err
		}
		removed()
		_, ended := k.Look()
		took := ended - began
		if *rows = min(*rows+*rows/4, sweepRows); took > sweepHold {
			*rows = max(*rows/2, sweepMin)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(sweepPause, 2*took)):
		}
	}
	return nil
}

// step removes some rows, on a full disk with the space that is kept for that.
func (k *Maintained) step(ctx context.Context, rows int, remove func(tx store.Tx, limit int) error) error {
	write := func() error {
		return k.Store.Write(ctx, store.Results, func(tx store.Tx) error { return remove(tx, rows) })
	}
	err := write()
	if errors.Is(err, store.ErrFull) {
		k.Store.FreeSpace()
		rows = sweepMin
		err = write()
	}
	return err
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
