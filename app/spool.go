package app

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/backup"
	"weir/health"
	"weir/ingest"
	"weir/ingest/links"
	"weir/internal/build"
	"weir/model"
	"weir/operate"
	"weir/spool"
	"weir/store"
)

// logStore is the log, and what its records need: a clock, and counts that travel in its batches.
type logStore struct {
	*base
	store    *database
	log      logDriver
	trims    *spool.Trims // nil: the applier alone trims the log
	began    *beginning   // nil: the log goes on
	counts   *ingest.TransportCounts
	links    *links.Links
	clock    *ingest.Clock
	writes   *spool.Budget
	gap      *ingest.LogGap // what of the log is known to be lost since the start
	changes  uint64         // of the registry, as of the start
	foreign  string         // where a log of another store was set aside, "" when there was none
	lastStop operate.LastStop
	// incomplete says that a part above the log failed to stop: counts that it had may not be in the log.
	incomplete bool
}

// Start opens the log and holds it against the store: both carry one pair id, and the log must reach as far as the
// results do.
func (s *logStore) Start(ctx, _ context.Context) error {
	// The store says which log belongs to it and how far its results reach.
	p, err := s.readPairing(ctx)
	if err != nil {
		return err
	}
	if !p.known {
		if err := orphaned(s.cfg.DataDir); err != nil {
			return err
		}
	}
	// Counts and listening spans travel in the batches of the log, so they come first.
	s.links = links.New(s.elapsed)
	s.counts = ingest.NewTransportCounts(s.links)
	// Look at the traces of the last process before this one writes any.
	unclean := s.wasUnclean()
	written := lastWritten(operate.SpoolPath(s.cfg.DataDir))
	restored, err := backup.ReadRestored(s.cfg.DataDir)
	if err != nil {
		return err
	}
	// A restored directory has no clean mark, and no process of it was killed.
	s.lastStop = operate.LastStop{Clean: !unclean || restored != nil}
	machine := health.ThisMachine()
	if !s.lastStop.Clean {
		s.lastStop.Evidence = operate.Evidence(operate.ReadRunning(s.cfg.DataDir), machine.Traces())
	}
	// From here on the directory says that this process runs.
	s.noteRunning(machine)
	s.writes = spool.NewBudget(s.cfg.Spool.BudgetSettings)
	log := logOptions{
		Stretch:        s.writes.Interval,
		UnsyncedBytes:  s.budget.of(unsyncedShare),
		TailBytes:      s.budget.of(tailShare),
		Capacity:       s.cfg.Ingest.Capacity,
		CommitSettings: s.cfg.Spool.CommitSettings,
		Sync:           s.opt.Sync,
		Meta:           s.counts,
		Logger:         s.base.log,
		Registerer:     s.metrics,
	}
	if restored != nil {
		log.NewEpoch, log.MinEpoch = true, restored.Epoch
	}
	if err = s.openLog(&p, log); err != nil {
		return err
	}
	// Where there is an uplink, its reader shares the trims: before the first trim.
	s.shareTrims()
	s.clock = ingest.NewClock(ingest.ClockConfig{
		Boot:         s.boot,
		Now:          s.readClock,
		Built:        build.Time(),
		Synchronized: synchronized,
		Log:          s.log,
		Logger:       s.base.log,
		Registry:     s.metrics,
	})
	// Store the identity of the log before anything is appended to it.
	if err := s.pair(ctx, &p); err != nil {
		return errors.Join(err, s.log.Close())
	}
	// What was trimmed inside the oldest span is back after a restart.
	if err := s.log.Trim(p.head); err != nil {
		return errors.Join(err, s.log.Close())
	}
	if restored != nil {
		if err := s.takeUp(ctx, restored); err != nil {
			return errors.Join(err, s.log.Close())
		}
	}
	// From when on may refusals be missing: the earlier of the newest record and the newest file.
	if at := s.lastRecorded(); at > 0 {
		written = min(written, at) // a full disk may have been written to in vain since
	}
	if err := s.takeStock(ctx, written); err != nil {
		return errors.Join(err, s.log.Close())
	}
	return nil
}

// takeUp begins a new life on a copy. What the original did after the copy was made is not known here, refusals among it:
// that span is a gap of the ledger.
func (s *logStore) takeUp(ctx context.Context, r *backup.Restored) error {
	s.base.log.Info("this directory was restored from a backup; going on in a new epoch", "made", r.Created, "restored", r.At, "epoch", s.log.Epoch())
	gap := store.LedgerGap{From: model.MicrosOf(r.Created), To: max(model.MicrosOf(r.Created), model.MicrosOf(time.Now()))}
	if err := s.store.db.Write(ctx, store.Durable, func(tx store.Tx) error { return store.AddLedgerGap(tx, gap) }); err != nil {
		return err
	}
	return backup.TakenUp(s.cfg.DataDir)
}

// synchronized reports whether the system says that its clock is kept right.
func synchronized() bool {
	ok, _, err := health.ThisMachine().ClockState()
	return ok && err == nil
}

// wasUnclean reports whether the process before ended without closing, and removes the mark.
func (s *logStore) wasUnclean() bool {
	_, err := os.Stat(operate.CleanPath(s.cfg.DataDir))
	// The mark is removed at once: it holds for one start.
	first := errors.Is(err, os.ErrNotExist)
	if err := os.Remove(operate.CleanPath(s.cfg.DataDir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.base.log.Warn("the marker of a clean stop cannot be removed", "error", err)
	}
	if _, err := os.Stat(operate.SpoolPath(s.cfg.DataDir)); errors.Is(err, os.ErrNotExist) {
		return false // the first start
	}
	return first
}

// takeStock reports how the last stop was. After one that was not clean it notes from when on refusals may be
// missing in the ledger: since the log was last written.
func (s *logStore) takeStock(ctx context.Context, from model.Micros) (err error) {
	read := func(tx store.Tx) (err error) {
		s.lastStop.Unclean, _, err = store.MetaInt(tx, metaUncleanStops)
		return err
	}
	if s.lastStop.Clean {
		err = s.store.db.Read(ctx, read)
	} else {
		err = s.store.db.Write(ctx, store.Results, func(tx store.Tx) (err error) {
			if s.lastStop.Unclean, err = countUnclean(tx); err != nil {
				return err
			}
			return store.AddLedgerGap(tx, store.LedgerGap{From: from, To: model.MicrosOf(time.Now())})
		})
		s.base.log.Warn("the last stop was not a clean one; refusals of its last moments may not be counted", "evidence", s.lastStop.Evidence, "unclean_stops", s.lastStop.Unclean)
	}
	unclean, now := s.lastStop.Unclean, 0.0
	if !s.lastStop.Clean {
		now = 1
	}
	return errors.Join(err, s.metrics.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "weir_unclean_stops_total",
		Help: "Stops that were not clean, since the database was created."}, func() float64 { return float64(unclean) })),
		s.metrics.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_last_stop_unclean",
			Help: "1 when the previous process ended without a clean stop."}, func() float64 { return now })))
}

// lastRecorded is when the newest record of the log was received, 0 where it cannot be read.
func (s *logStore) lastRecorded() model.Micros {
	_, last := s.log.Bounds()
	// An unreadable end is no error here: the caller has the time of the file instead.
	r, err := s.log.Reader(last)
	if err != nil {
		return 0
	}
	defer r.Close()
	b, err := r.TryNext()
	if err != nil || b == nil || len(b.Records) == 0 {
		return 0
	}
	newest, err := model.DecodeRecord(b.Records[len(b.Records)-1].Data)
	if err != nil {
		return 0
	}
	return newest.Received.Wall.Micros()
}

// lastWritten is when a file in a directory was last written, now when none is there.
func lastWritten(dir string) model.Micros {
	newest := model.Micros(0)
	entries, _ := os.ReadDir(dir) // what cannot be read was not written
	for _, e := range entries {
		if fi, err := e.Info(); err == nil {
			newest = max(newest, model.MicrosOf(fi.ModTime()))
		}
	}
	if newest == 0 {
		newest = model.MicrosOf(time.Now())
	}
	return newest
}

// Stop implements component. The stop is marked as a clean one only where everything above the log stopped without an error:
// else the next start marks the span as a gap of the ledger.
func (s *logStore) Stop(context.Context) error {
	if err := s.log.Close(); err != nil || s.incomplete {
		return err
	}
	// Write the mark of a clean stop before the note of the running process goes: between the two both are there, which
	// reads as clean.
	if err := os.WriteFile(operate.CleanPath(s.cfg.DataDir), nil, 0o600); err != nil {
		return err
	}
	if err := os.Remove(operate.RunningPath(s.cfg.DataDir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// noteRunning writes the note for the next start. It is for people alone: an instance that cannot write it runs all the same.
func (s *logStore) noteRunning(m health.Machine) {
	b, err := json.Marshal(operate.Running{PID: os.Getpid(), Since: s.started.UTC(), Traces: m.Traces()})
	if err == nil {
		err = os.WriteFile(operate.RunningPath(s.cfg.DataDir), b, 0o600)
	}
	if err != nil {
		s.base.log.Warn("what runs cannot be noted for the next start", "error", err)
	}
}

const metaUncleanStops = "unclean_stops"

// countUnclean counts one more stop that was not clean, in the transaction that marks the gap.
func countUnclean(tx store.Tx) (int64, error) {
	n, _, err := store.MetaInt(tx, metaUncleanStops)
	if err != nil {
		return 0, err
	}
	return n + 1, store.SetMetaInt(tx, metaUncleanStops, n+1)
}
