package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

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
	}
	return err
}

func (in *Instance) stopLock(context.Context) error { return in.lock.Close() }

func (in *Instance) startStore(ctx, _ context.Context) error {
	var err error
	if in.store, err = sqlite.Open(ctx, dbPath(in.cfg.DataDir), sqlite.Options{CacheBytes: in.memory.Open("store cache", in.memory.Share(40, 4<<20, 32<<20)).Budget(),
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
	var pair [16]byte
	var paired bool
	var head model.Offset
	if err := in.store.Read(ctx, func(tx store.Tx) (err error) {
		if pair, paired, err = store.PairID(tx); err != nil {
			return err
		}
		head, _, err = store.HeadState(tx)
		return err
	}); err != nil {
		return err
	}
	in.listen = ingest.NewListening(in.elapsed)
	in.doors = ingest.NewDoors(in.listen)
	unclean, written := in.wasUnclean(), lastWritten(spoolPath(in.cfg.DataDir))
	in.backups.last.Store(readLastBackup(in.cfg.DataDir))
	restored, err := backup.LookRestored(in.cfg.DataDir)
	if err != nil {
		return err
	}
	in.unclean = unclean && restored == nil
	unsynced := in.memory.Open("unsynced appends", in.memory.Share(30, 4<<20, 8<<20))
	tail := in.memory.Open("log tail", in.memory.Share(30, 4<<20, 8<<20))
	log := bolt.Options{UnsyncedBytes: unsynced.Budget(), TailBytes: tail.Budget(),
		MaxBytes: int64(in.cfg.Ingest.SpoolMaxBytes), CommitInterval: time.Duration(in.cfg.Spool.CommitInterval),
		Sync: in.opt.Sync, Meta: in.doors, MinOffset: head, PairID: pair, Logger: in.log, Registerer: in.metrics}
	if restored != nil {
		log.NewEpoch, log.MinEpoch = true, restored.Epoch
	}
	if in.spool, err = bolt.Open(spoolPath(in.cfg.DataDir), log); err != nil {
		return err
	}
	in.clock = ingest.NewClock(ingest.ClockConfig{Boot: in.boot, Now: in.look, Built: build.Time(), Synchronized: synchronized, Log: in.spool,
		Logger: in.log, Registry: in.metrics})
	if !paired {
		id := in.spool.PairID()
		if err := in.store.Write(ctx, store.Durable, func(tx store.Tx) error { return store.SetPairID(tx, id) }); err != nil {
			return errors.Join(err, in.spool.Close())
		}
	}
	// What was trimmed inside the oldest span is back after a restart.
	if err := in.spool.Trim(head); err != nil {
		return errors.Join(err, in.spool.Close())
	}
	if restored != nil {
		if err := in.takeUp(ctx, restored); err != nil {
			return errors.Join(err, in.spool.Close())
		}
	}
	if in.unclean {
		in.log.Warn("the last stop was not a clean one; refusals of its last moments may not be counted")
		if err := in.markGap(ctx, written); err != nil {
			return errors.Join(err, in.spool.Close())
		}
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

// markGap notes from when on the doors' refusals may be missing in the ledger: since the log was last written.
func (in *Instance) markGap(ctx context.Context, from model.Micros) error {
	return in.store.Write(ctx, store.Results, func(tx store.Tx) error {
		return store.AddLedgerGap(tx, store.LedgerGap{From: from, To: model.MicrosOf(time.Now())})
	})
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
	return os.WriteFile(cleanPath(in.cfg.DataDir), nil, 0o600)
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

func (in *Instance) ruleLimits() rules.Limits {
	d := in.cfg.Detection
	return rules.Limits{MaxDuration: d.MaxRuleDuration, MaxRules: d.MaxRulesPerTenant, MaxKeys: d.MaxKeysPerTenant}
}

// startApplier loads the results, applies what the log holds behind them, and gives changes that were made while nothing
// ran their place.
func (in *Instance) startApplier(ctx, life context.Context) error {
	head := in.memory.Open("head", in.memory.Share(100, 4<<20, 64<<20))
	var err error
	if in.series, err = series.Open(ctx, series.Config{SeriesPerDevice: in.cfg.Limits.SeriesPerDevice, SeriesPerTenant: in.cfg.Limits.SeriesPerTenant},
		in.store, series.Options{Account: head, Logger: in.log, Registerer: in.metrics}); err != nil {
		return err
	}
	in.edges, in.readings = hub.New[model.Edge]("detections", in.metrics), hub.New[series.Point]("measurements", in.metrics)
	in.tap = ingest.NewTap(func() model.Nanos { return in.stamp().Wall }, in.metrics)
	in.applier, err = ingest.NewApplier(ctx, in.applyConfig(head.Budget()), ingest.ApplyDeps{Log: in.spool, Store: in.store, Doors: in.doors, Listening: in.listen,
		Series: in.series, Rules: rules.NewEngine(in.compiler, in.metrics), Controller: in.control, Clock: in.clock, Logger: in.log, Registry: in.metrics,
		Edges: in.edges.Publish, Readings: in.readings.Publish, Watched: in.readings.Busy, Tap: in.tap})
	if err != nil {
		return err
	}
	in.life = liveLives{in}
	in.goes(life, "applier", in.applier.Run)
	if err := in.caughtUp(ctx); err != nil {
		return err
	}
	in.listen.Resume(in.applier.Heard())
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
		HeadBytes: headBytes, DedupeWindow: c.Ingest.DedupeWindow, DedupeMaxBytes: int64(c.Ingest.DedupeMaxBytes),
		StrangersBytes: strangersBytes, CommitRetry: time.Second}
}

// caughtUp waits until everything that was acknowledged before is applied.
func (in *Instance) caughtUp(ctx context.Context) error {
	began, told := time.Now(), time.Now()
	for !in.applier.CaughtUp() {
		select {
		case err := <-in.failed:
			return err
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
	for in.applier.Applied() < last && in.applier.Failing() == "" {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}
