package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/backup"
	"weir/health"
	"weir/ingest"
	"weir/internal/build"
	"weir/internal/hub"
	"weir/internal/rootkey"
	"weir/model"
	"weir/rules"
	"weir/series"
	"weir/spool/bolt"
	"weir/store"
	"weir/store/sqlite"
)

func (in *Instance) startLock(context.Context, context.Context) error {
	var err error
	if in.lock, err = takeDataDir(in.cfg.DataDir); err == nil {
		in.warn(in.cfg.Warnings())
		if err = in.startFiles(); err != nil {
			err = errors.Join(err, in.lock.Close())
		}
	}
	return err
}

func (in *Instance) stopLock(context.Context) error { return in.lock.Close() }

func (in *Instance) startStore(ctx, _ context.Context) error {
	var err error
	if noDatabase(in.cfg.DataDir) {
		if err := orphaned(in.cfg.DataDir); err != nil {
			return err
		}
	}
	if in.store, err = sqlite.Open(ctx, dbPath(in.cfg.DataDir), sqlite.Options{CacheBytes: in.budget.Parts[partStoreCache],
		Logger: in.log, Registerer: in.metrics}); err != nil {
		return err
	}
	in.vault, err = openVault(ctx, in.store, in.rootKeyPath(), in.opt.Getenv("WEIR_ROOT_KEY"), func(warning string) { in.log.Warn(warning) })
	if err != nil {
		return errors.Join(err, in.store.Close())
	}
	return nil
}

// openVault reads the root key, makes it when nothing was ever sealed, and ties the store to it.
func openVault(ctx context.Context, st store.Store, path, env string, warn func(string)) (*store.Vault, error) {
	var sealedUnder string
	if err := st.Read(ctx, func(tx store.Tx) (err error) {
		sealedUnder, err = store.RootKeyID(tx)
		return err
	}); err != nil {
		return nil, err
	}
	k, err := rootkey.Load(rootkey.Options{File: path, Env: env, SealedUnder: sealedUnder})
	if err != nil {
		return nil, err
	}
	for _, w := range k.Warnings {
		warn(w)
	}
	v := store.NewVault(k.Key)
	return v, st.Write(ctx, store.Durable, v.Claim)
}

func (in *Instance) stopStore(context.Context) error { return in.store.Close() }

// startSpool opens the log and holds it against the store: both carry one pair id, and the log must reach as far as the
// results do.
func (in *Instance) startSpool(ctx, _ context.Context) error {
	p, err := in.readPairing(ctx)
	if err != nil {
		return err
	}
	if !p.known {
		if err := orphaned(in.cfg.DataDir); err != nil {
			return err
		}
	}
	in.listen = ingest.NewListening(in.elapsed)
	in.doors = ingest.NewTransportCounts(in.listen)
	unclean, written := in.wasUnclean(), lastWritten(spoolPath(in.cfg.DataDir))
	in.backups.last.Store(readLastBackup(in.cfg.DataDir))
	restored, err := backup.ReadRestored(in.cfg.DataDir)
	if err != nil {
		return err
	}
	in.last = LastStop{Clean: !unclean || restored != nil}
	machine := health.ThisMachine()
	if !in.last.Clean {
		in.last.Evidence = evidence(readRunning(in.cfg.DataDir), machine.Traces())
	}
	in.noteRunning(machine)
	log := bolt.Options{UnsyncedBytes: in.budget.Parts[partUnsynced], TailBytes: in.budget.Parts[partTail],
		MaxBytes: int64(in.cfg.Ingest.SpoolMaxBytes), MaxRecords: int64(in.cfg.Ingest.SpoolMaxMessages), CommitInterval: time.Duration(in.cfg.Spool.CommitInterval),
		Sync: in.opt.Sync, Meta: in.doors, Logger: in.log, Registerer: in.metrics}
	if restored != nil {
		log.NewEpoch, log.MinEpoch = true, restored.Epoch
	}
	if err = in.openLog(&p, log); err != nil {
		return err
	}
	in.clock = ingest.NewClock(ingest.ClockConfig{Boot: in.boot, Now: in.look, Built: build.Time(), Synchronized: synchronized, Log: in.spool,
		Logger: in.log, Registry: in.metrics})
	if err := in.pair(ctx, &p); err != nil {
		return errors.Join(err, in.spool.Close())
	}
	// What was trimmed inside the oldest span is back after a restart.
	if err := in.spool.Trim(p.head); err != nil {
		return errors.Join(err, in.spool.Close())
	}
	if restored != nil {
		if err := in.takeUp(ctx, restored); err != nil {
			return errors.Join(err, in.spool.Close())
		}
	}
	if err := in.takeStock(ctx, written); err != nil {
		return errors.Join(err, in.spool.Close())
	}
	return nil
}

// takeUp begins a new life on a copy. What the original did after the copy was made is not known here, refusals among it:
// that span is a gap of the ledger.
func (in *Instance) takeUp(ctx context.Context, r *backup.Restored) error {
	in.log.Info("this directory was restored from a backup; going on in a new epoch", "made", r.Created, "restored", r.At, "epoch", in.spool.Epoch())
	gap := store.LedgerGap{From: model.MicrosOf(r.Created), To: max(model.MicrosOf(r.Created), model.MicrosOf(time.Now()))}
	if err := in.store.Write(ctx, store.Durable, func(tx store.Tx) error { return store.AddLedgerGap(tx, gap) }); err != nil {
		return err
	}
	return backup.TakenUp(in.cfg.DataDir)
}

// synchronized reports whether the system says that somebody keeps its clock right.
func synchronized() bool {
	ok, _, err := health.ThisMachine().ClockState()
	return ok && err == nil
}

// wasUnclean reports whether the process before ended without closing, and forgets it.
func (in *Instance) wasUnclean() bool {
	_, err := os.Stat(cleanPath(in.cfg.DataDir))
	first := errors.Is(err, os.ErrNotExist)
	if err := os.Remove(cleanPath(in.cfg.DataDir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		in.log.Warn("the marker of a clean stop cannot be removed", "error", err)
	}
	if _, err := os.Stat(spoolPath(in.cfg.DataDir)); errors.Is(err, os.ErrNotExist) {
		return false // the first start
	}
	return first
}

// takeStock tells how the last stop was. After one that was not clean it notes from when on the doors' refusals may be
// missing in the ledger: since the log was last written.
func (in *Instance) takeStock(ctx context.Context, from model.Micros) (err error) {
	read := func(tx store.Tx) (err error) {
		in.last.Unclean, _, err = store.MetaInt(tx, metaUncleanStops)
		return err
	}
	if in.last.Clean {
		err = in.store.Read(ctx, read)
	} else {
		err = in.store.Write(ctx, store.Results, func(tx store.Tx) (err error) {
			if in.last.Unclean, err = countUnclean(tx); err != nil {
				return err
			}
			return store.AddLedgerGap(tx, store.LedgerGap{From: from, To: model.MicrosOf(time.Now())})
		})
		in.log.Warn("the last stop was not a clean one; refusals of its last moments may not be counted", "evidence", in.last.Evidence, "unclean_stops", in.last.Unclean)
	}
	unclean, now := in.last.Unclean, 0.0
	if !in.last.Clean {
		now = 1
	}
	return errors.Join(err, in.metrics.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "weir_unclean_stops_total",
		Help: "Stops that were not clean, since the database was created."}, func() float64 { return float64(unclean) })),
		in.metrics.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_last_stop_unclean",
			Help: "1 when the previous process ended without a clean stop."}, func() float64 { return now })))
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

func (in *Instance) stopSpool(context.Context) error {
	if err := in.spool.Close(); err != nil {
		return err
	}
	if err := os.WriteFile(cleanPath(in.cfg.DataDir), nil, 0o600); err != nil {
		return err
	}
	if err := os.Remove(runningPath(in.cfg.DataDir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// startRegistry reads who there is: tenants, identities, devices.
func (in *Instance) startRegistry(ctx, life context.Context) error {
	in.control = ingest.NewController(in.store, in.spool, in.stamp, in.log)
	var err error
	in.rooms, err = newRooms(ctx, in.cfg, roomDeps{store: in.store, writer: in.control, vault: in.vault, logger: in.log, registerer: in.metrics, certs: in.certs,
		limits: in.ruleLimits(), addrs: &in.addrs})
	if err != nil {
		return err
	}
	in.goes(life, "auth", in.auth.Run)
	return nil
}

// startApplier loads the results, applies what the log holds behind them, and gives changes that were made while nothing
// ran their place.
func (in *Instance) startApplier(ctx, life context.Context) error {
	var err error
	if in.series, err = series.Open(ctx, series.Config{SeriesPerDevice: in.cfg.Limits.SeriesPerDevice, SeriesPerTenant: in.cfg.Limits.SeriesPerTenant},
		in.store, series.Options{Account: in.head, Logger: in.log, Registerer: in.metrics}); err != nil {
		return err
	}
	in.edges, in.readings = hub.New[model.Edge]("detections", in.metrics), hub.New[series.Point]("measurements", in.metrics)
	in.tap = ingest.NewTap(func() model.Nanos { return in.stamp().Wall }, in.metrics)
	in.applier, err = ingest.NewApplier(ctx, in.applyConfig(in.head.Budget()), ingest.ApplyDeps{Log: in.spool, Store: in.store, Counts: in.doors, Listening: in.listen,
		Series: in.series, Rules: rules.NewEngine(in.compiler, in.metrics), Controller: in.control, Clock: in.clock, Gap: in.hole, Changes: &in.changes, Logger: in.log, Registry: in.metrics,
		Edges: in.edges.Publish, Readings: in.readings.Publish, Watched: in.readings.Busy, Tap: in.tap})
	if err != nil {
		return err
	}
	in.life = liveLives{in}
	in.goes(life, "applier", in.applier.Run)
	if err := in.caughtUp(ctx); err != nil {
		return err
	}
	in.listen.Resume(in.applier.ListeningTime())
	// From here on something is stamped that goes into the log.
	in.clock.Begin(in.applier.Received())
	in.goes(life, "clock", in.clock.Run)
	if err := in.control.Drain(ctx); err != nil {
		return fmt.Errorf("changes that were made while nothing ran: %w", err)
	}
	in.goes(life, "controller", in.control.Run)
	return nil
}

func (in *Instance) applyConfig(headBytes int64) ingest.ApplyConfig {
	c := in.cfg
	return ingest.ApplyConfig{MaxAge: c.Ingest.MaxAge, MaxFutureSkew: c.Ingest.MaxFutureSkew, ReplayBytes: int64(c.Spool.ReplayBytes), HeadAge: c.Spool.HeadAge,
		LogBytes: int64(c.Ingest.SpoolMaxBytes) / 4, LogRecords: int64(c.Ingest.SpoolMaxMessages) / 4, HeadBytes: headBytes, DedupeWindow: c.Ingest.DedupeWindow, DedupeMaxBytes: in.altIDs(), RepeatsBytes: in.budget.Parts[partRepeats],
		DeadLetters:    store.DeadLetterBound{Rows: int64(c.Limits.DeadLetters), Bytes: int64(c.Limits.DeadLetterBytes)},
		StrangersBytes: strangersBytes, CommitRetry: time.Second}
}

// caughtUp waits until everything that was acknowledged before is applied.
func (in *Instance) caughtUp(ctx context.Context) error {
	began, told := time.Now(), time.Now()
	for !in.applier.CaughtUp() {
		select {
		case err := <-in.failed:
			return in.older(err)
		case <-ctx.Done():
			return nil
		case <-time.After(2 * time.Millisecond):
		}
		if time.Since(told) > 2*time.Second {
			told = time.Now()
			_, last := in.spool.Bounds()
			in.log.Info("applying what was acknowledged before the start", "applied", in.applier.Applied(), "of", last, "since", time.Since(began).Round(time.Second).String())
		}
	}
	return nil
}

// stopApplier waits until the end of the log is applied; what the patience does not cover is applied at the next start.
func (in *Instance) stopApplier(ctx context.Context) error {
	_, last := in.spool.Bounds()
	for in.applier.Applied() < last && in.applier.Stalled() == "" {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}
