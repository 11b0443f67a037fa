package app

import (
	"context"
	"fmt"
	"time"

	"weir/ingest"
	"weir/internal/hub"
	"weir/internal/setting"
	"weir/internal/throttle"
	"weir/model"
	"weir/rules"
	"weir/series"
)

// applier follows the log: readings, rules, and all other results.
type applier struct {
	*base
	store    *database
	spool    *logStore
	entities *entities
	ingest   *ingest.Applier
	series   *series.Series
	edges    *hub.Hub[model.Edge]
	readings *hub.Hub[series.Point]
	tap      *ingest.Tap
	throttle *throttle.Throttle
}

// checkpointsInLog is how many checkpoints a full log would be worth: each makes room for as much as it covers, so room comes back in
// steps that are small beside what senders are slowed by before the log is full.
const checkpointsInLog = 8

// Start loads the results, applies what the log holds after them, and appends the changes that were made while
// nothing ran.
func (a *applier) Start(ctx, life context.Context) error {
	var err error
	if a.series, err = series.Open(ctx, series.Config{Settings: a.cfg.Limits.Settings},
		a.store.db, series.Options{Account: a.accounts[headShare.Name], Logger: a.log, Registerer: a.metrics}); err != nil {
		return err
	}
	a.edges, a.readings = hub.New[model.Edge]("detections", a.metrics), hub.New[series.Point]("measurements", a.metrics)
	a.tap = ingest.NewTap(func() model.Nanos { return a.spool.clock.Stamp().Wall }, a.metrics)
	a.throttle = throttle.New()
	a.ingest, err = ingest.NewApplier(ctx, a.config(a.accounts[headShare.Name].Budget()), ingest.ApplyDeps{Log: a.spool.log, Store: a.store.db, Counts: a.spool.counts,
		Series: a.series, Rules: rules.NewEngine(a.entities.compiler, a.metrics), Controller: a.entities.control, Clock: a.spool.clock, Gap: a.spool.gap, Changes: &a.spool.changes, Logger: a.log, Registry: a.metrics,
		Projections: a.opt.Projections, Edges: a.edges.Publish, Readings: a.readings.Publish, Watched: a.readings.Busy, Tap: a.tap, Throttle: a.throttle})
	if err != nil {
		return err
	}
	a.goes(life, "applier", a.ingest.Run)
	if err := a.caughtUp(ctx); err != nil {
		return err
	}
	a.spool.listening.Resume(a.ingest.ListeningTime())
	// From here on something is stamped that goes into the log.
	a.spool.clock.Begin(a.ingest.Received())
	a.goes(life, "clock", a.spool.clock.Run)
	if err := a.entities.control.Drain(ctx); err != nil {
		return fmt.Errorf("changes that were made while nothing ran: %w", err)
	}
	a.goes(life, "controller", a.entities.control.Run)
	return nil
}

func (a *applier) config(headBytes int64) ingest.ApplyConfig {
	c := a.cfg
	c.Ingest.DedupeMaxBytes = setting.Size(altIDBytes(a.budget, c))
	return ingest.ApplyConfig{TimeSettings: c.Ingest.TimeSettings, DedupeSettings: c.Ingest.DedupeSettings, CheckpointSettings: c.Spool.CheckpointSettings,
		DeadLetterSettings: c.Limits.DeadLetterSettings, LogBytes: int64(c.Ingest.Capacity.MaxBytes) / checkpointsInLog, LogRecords: c.Ingest.MaxRecords / checkpointsInLog,
		HeadBytes: headBytes, RepeatsBytes: a.budget.of(repeatShare), RejectedBytes: rejectedBytes, CommitRetry: time.Second}
}

// caughtUp waits until everything that was acknowledged before is applied.
func (a *applier) caughtUp(ctx context.Context) error {
	began, reported := time.Now(), time.Now()
	for !a.ingest.CaughtUp() {
		select {
		case err := <-a.failed:
			first, _ := a.spool.log.Bounds()
			return older(a.cfg.DataDir, err, a.ingest.Applied(), first)
		case <-ctx.Done():
			return nil
		case <-time.After(2 * time.Millisecond):
		}
		if time.Since(reported) > 2*time.Second {
			reported = time.Now()
			_, last := a.spool.log.Bounds()
			a.log.Info("applying what was acknowledged before the start", "applied", a.ingest.Applied(), "of", last, "since", time.Since(began).Round(time.Second).String())
		}
	}
	return nil
}

// Stop waits until the end of the log is applied; what the timeout does not cover is applied at the next start.
func (a *applier) Stop(ctx context.Context) error {
	_, last := a.spool.log.Bounds()
	for a.ingest.Applied() < last && a.ingest.Stalled() == "" {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}
