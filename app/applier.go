package app

import (
	"context"
	"fmt"
	"slices"
	"time"

	"weir/actions"
	"weir/health"
	"weir/ingest"
	"weir/internal/hub"
	"weir/internal/ranges"
	"weir/internal/setting"
	"weir/internal/throttle"
	"weir/model"
	"weir/rules"
	"weir/series"
	"weir/store"
)

// applier follows the log: readings, rules, and all other results.
type applier struct {
	*base
	store    *database
	spool    *logStore
	entities *entities
	uplink   *uplink
	ingest   *ingest.Applier
	series   *series.Series
	edges    *hub.Hub[model.Edge]
	readings *hub.Hub[series.Point]
	tap      *ingest.Tap
	rates    *ingest.Rates
	drain    *actions.Drain
	throttle *throttle.Throttle
}

// checkpointsInLog is how many checkpoints a full log would be worth: each makes room for as much as it covers, so room comes back in
// steps that are small beside what senders are slowed by before the log is full.
const checkpointsInLog = 8

// keepUnanswered keeps the dead letter of an answer of a device whose command was not there in time.
func (a *applier) keepUnanswered(tx store.Tx, d *store.DeadLetter, r *model.Response) error {
	return a.ingest.Unanswered(tx, d, r)
}

// Start loads the results, begins to apply what the log holds after them, and appends the changes that were made while
// nothing ran. What was acknowledged before is applied in the background while devices are served; queries wait for it.
func (a *applier) Start(ctx, life context.Context) error {
	var err error
	// Readings are opened before the applier that writes them.
	if a.series, err = series.Open(ctx, series.Config{Settings: a.cfg.Limits.Settings},
		a.store.db, series.Options{
			Applier:    a.store.db.For(store.Applier),
			Scans:      a.store.db.For(store.Scans),
			Account:    a.accounts[headShare.Name],
			Logger:     a.log,
			Registerer: a.metrics,
		}); err != nil {
		return err
	}
	a.entities.Standing = func() []actions.Standing { return a.drain.Standing() }
	// Streams and figures that the applier feeds: they exist before its first record.
	a.edges, a.readings = hub.New[model.Edge]("detections", a.metrics), hub.New[series.Point]("measurements", a.metrics)
	a.tap = ingest.NewTap(func() model.Nanos { return a.spool.clock.Stamp().Wall }, a.metrics)
	a.tap.Unproven = ingest.NewUnprovenSenders(a.metrics)
	a.rates = ingest.NewRates(a.metrics)
	a.throttle = throttle.New()
	// Orders of rules are carried out by the drain. The entities need it early, to count the orders of deleted devices.
	a.drain = actions.New(actions.Config{Settings: a.cfg.Connectors, LetterSettings: a.cfg.Limits.LetterSettings}, actions.Deps{
		Store:      a.store.db.For(store.Applier),
		Tenants:    a.entities.Govern,
		Kinds:      append(a.entities.orderKinds(), actions.Answers(a.entities.Commands, a.keepUnanswered)),
		Logger:     a.log,
		Registerer: a.metrics,
	})
	a.entities.drain.Store(a.drain)
	// This loads the checkpoint of every result; replay has not begun.
	a.ingest, err = ingest.NewApplier(ctx, a.config(a.accounts[headShare.Name].Budget()), ingest.ApplyDeps{
		Log:         a.spool.log,
		Store:       a.store.db.For(store.Applier),
		Queries:     a.store.db,
		Counts:      a.spool.counts,
		Series:      a.series,
		Rules:       rules.NewEngine(a.entities.compiler, a.metrics),
		Answers:     a.entities.Commands,
		Controller:  a.entities.control,
		Registrar:   a.entities.Registry,
		Clock:       a.spool.clock,
		Gap:         a.spool.gap,
		Changes:     &a.spool.changes,
		Logger:      a.log,
		Registry:    a.metrics,
		Projections: slices.Concat(projections(a.brought), a.opt.Projections, a.uplink.projections()),
		Ordered:     a.drain.Wake,
		Edges:       a.edges.Publish,
		Readings:    a.readings.Publish,
		Watched:     a.readings.Busy,
		Tap:         a.tap,
		Rates:       a.rates,
		Throttle:    a.throttle,
	})
	if err != nil {
		return err
	}
	// From here on the states of devices can be asked.
	a.entities.metadata.Store(a.ingest)
	// Clock and listening time go on from the newest times of the log. Its end usually says them.
	end, known := ingest.EndOf(a.spool.log)
	a.runPart(life, "applier", a.run)
	if !known {
		// The end of the log does not say the time: the listeners wait until what it holds is applied.
		if err := a.caughtUp(ctx); err != nil || ctx.Err() != nil {
			return err
		}
	}
	// Listening time goes on where the log or, where its end is older, the results left off.
	a.spool.links.Resume(max(end.Listening, a.ingest.ListeningTime()))
	// From here on something is stamped that goes into the log.
	a.spool.clock.Begin(max(end.Received, a.ingest.Received()))
	// Only records of this start wait for its clock: a log that is full of older ones must not end that wait.
	a.runPart(life, "clock", a.afterReplay(a.spool.clock.Run))
	a.runPart(life, "timers", a.afterReplay(a.ingest.Waker(a.spool.links, a.spool.clock.Stamp).Run))
	// Append the changes of an offline directory before the controller takes new ones, so that they stay in order.
	if err := a.entities.control.Drain(ctx); err != nil {
		return fmt.Errorf("changes that were made while nothing ran: %w", err)
	}
	// From here on changes reach the log as they are made.
	a.runPart(life, "controller", a.entities.control.Run)
	a.runPart(life, "actions", a.drain.Run)
	// Capabilities see only complete results.
	for _, c := range a.brought {
		if c.Run != nil {
			a.runPart(life, c.Name, a.afterReplay(c.Run))
		}
	}
	return nil
}

func (a *applier) config(headBytes int64) ingest.ApplyConfig {
	c := a.cfg
	// The configuration asks for an amount; the memory budget may allow less.
	c.Ingest.DedupeMaxBytes = setting.Size(altIDBytes(a.budget, c))
	return ingest.ApplyConfig{
		TimeSettings:       c.Ingest.TimeSettings,
		DedupeSettings:     c.Ingest.DedupeSettings,
		CheckpointSettings: c.Spool.CheckpointSettings,
		DeadLetterSettings: c.Limits.DeadLetterSettings,
		LogBytes:           int64(c.Ingest.Capacity.MaxBytes) / checkpointsInLog,
		LogRecords:         c.Ingest.MaxRecords / checkpointsInLog,
		HeadBytes:          headBytes,
		RepeatsBytes:       a.budget.of(repeatShare),
		RejectedBytes:      rejectedBytes,
		CommitRetry:        time.Second,
		RestartGrace:       c.Presence.Grace,
	}
}

// run applies the log until life ends.
func (a *applier) run(life context.Context) error {
	err := a.ingest.Run(life)
	first, _ := a.spool.log.Bounds()
	return explainOlderStore(a.cfg.DataDir, err, a.ingest.Applied(), first)
}

// caughtUp waits until everything that was acknowledged before is applied.
func (a *applier) caughtUp(ctx context.Context) error {
	defer a.reporting("starting", a.progress)()
	select {
	case err := <-a.failed:
		return err
	case <-ctx.Done():
	case <-a.ingest.Replayed():
	}
	return nil
}

// Bounds of the wait for what an edge asks for, and how often it is looked at.
const (
	relayedWait = 5 * time.Second
	relayedTick = 10 * time.Millisecond
)

// relayed returns the numbers that are known of the link of an edge. complete says that every message that was acknowledged before the call is
// among them: the applier has reached it within five seconds.
func (a *applier) relayed(ctx context.Context, tenant, link string) (known ranges.Set, complete bool) {
	// Everything that was acknowledged up to this call is at or before last.
	_, last := a.spool.log.Bounds()
	tick := time.NewTicker(relayedTick)
	over := time.NewTimer(relayedWait)
	defer tick.Stop()
	defer over.Stop()
	// Poll: the applier signals nothing per record.
	for a.ingest.Applied() < last {
		select {
		case <-tick.C:
			continue
		case <-over.C:
		case <-ctx.Done():
		}
		return a.ingest.RelayedNumbers(tenant, link), false
	}
	return a.ingest.RelayedNumbers(tenant, link), true
}

// afterReplay runs a part once everything that was acknowledged before the start is applied.
func (a *applier) afterReplay(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-a.ingest.Replayed():
			return run(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// replayTimeLeft is how long the rest of a replay takes at its rate so far, 0 when that is not known.
func (a *applier) replayTimeLeft(r *ingest.Replay) time.Duration {
	if r.Applied == 0 {
		return 0
	}
	return time.Duration(float64(time.Since(a.started)) * float64(r.Records-r.Applied) / float64(r.Applied))
}

// progress says how far a start has come with what was acknowledged before it.
func (a *applier) progress() string {
	if r := a.ingest.Replay(); r != nil {
		return r.String()
	}
	return "what was acknowledged before the start is applied"
}

// Stop waits until the end of the log is applied, unless the start is still at what it found there; what the timeout does not
// cover is applied after the next start.
func (a *applier) Stop(ctx context.Context) error {
	// A stalled applier gets nowhere: do not wait for it. Records that are left are applied after the next start.
	for a.ingest.CaughtUp() && a.ingest.Waiting() > 0 && a.ingest.Stalled() == "" {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}

// waitsFor says what a stop waits for.
func (a *applier) waitsFor() string {
	return health.Count(a.ingest.Waiting(), "record") + " of the log left to apply"
}
