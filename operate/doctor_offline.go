package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"weir/auth"
	"weir/backup"
	"weir/config"
	"weir/health"
	"weir/ingest"
	"weir/internal/build"
	"weir/internal/dirlock"
	"weir/internal/rootkey"
	"weir/model"
	"weir/store"
)

// examine looks at a data directory in which nothing runs, and at the machine. It makes nothing that stays: no directory,
// no key, no migration; only the lock is held meanwhile, so that no instance starts meanwhile. A check ends with its timeout
// and reports what it could not look at.
func (d *Directory) examine(ctx context.Context, m health.Machine, timeout time.Duration) *health.Report {
	ctx, cancel := context.WithTimeout(ctx, allChecks*timeout)
	defer cancel()
	s := d.lookAtRest(ctx)
	s.timeout = timeout
	defer s.close()
	return health.Examine(ctx, timeout, s.checks(m))
}

// doctor is RunDoctor where nothing runs.
func (d *Directory) doctor(ctx context.Context, q DoctorQuery) (*health.Report, error) {
	return d.examine(ctx, health.ThisMachine(), cmp.Or(q.CheckTimeout, CheckTimeout)), nil
}

// atRest is a data directory in which nothing runs.
type atRest struct {
	cfg    config.Config
	getenv func(string) string

	wiring  Wiring
	timeout time.Duration // of a check
	lock    *dirlock.Lock
	locked  error // why the lock could not be had
	store   backup.Inspector
	opened  error // why the store could not be opened

	sealedUnder string
	pair        [16]byte
	paired      bool
	head        model.Offset
	log         *backup.LogInventory // nil until the check of the log has read it
}

// lookAtRest takes the lock and opens the store, where there is one.
func (d *Directory) lookAtRest(ctx context.Context) *atRest {
	cfg := d.Config
	s := &atRest{cfg: cfg, getenv: d.Getenv, wiring: d.Wiring}
	if absent(filepath.Join(cfg.DataDir, dirlock.Name)) && absent(DBPath(cfg.DataDir)) {
		// A lock that another user made, root for one, would keep the instance's own user out.
		s.locked, s.opened = fs.ErrNotExist, fs.ErrNotExist
		return s
	}
	if s.lock, s.locked = dirlock.Acquire(cfg.DataDir); s.locked != nil {
		s.opened = s.locked
		return s
	}
	if s.store, s.opened = d.Wiring.InspectStore(ctx, DBPath(cfg.DataDir)); s.opened != nil {
		return s
	}
	s.opened = s.store.Read(ctx, func(tx store.Tx) (err error) {
		if s.sealedUnder, err = store.RootKeyID(tx); err != nil {
			return err
		}
		if s.pair, s.paired, err = store.PairID(tx); err != nil {
			return err
		}
		s.head, _, err = store.CheckpointState(tx)
		return err
	})
	return s
}

func absent(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

func (s *atRest) close() {
	if s.store != nil {
		_ = s.store.Close() // nothing was written
	}
	if s.lock != nil {
		_ = s.lock.Close()
	}
}

func (s *atRest) checks(m health.Machine) []health.Check {
	dir, plan, listeners := s.cfg.DataDir, s.wiring.Plan(s.cfg), s.wiring.Listeners(s.cfg)
	// Without the store nothing can be said of what it holds.
	stored := func(id string, look func(context.Context) health.Finding) health.Check {
		return health.Check{ID: id, Look: func(ctx context.Context) health.Finding {
			switch {
			case errors.Is(s.opened, fs.ErrNotExist):
				return health.Skip("there is no store yet")
			case s.opened != nil:
				return health.Skip("the store could not be opened")
			}
			return look(ctx)
		}}
	}
	// What is read of the store as this Weir has it waits for the migrations of its first start.
	current := func(id string, look func(context.Context) health.Finding) health.Check {
		return stored(id, func(ctx context.Context) health.Finding {
			if s.store.Pending() > 0 {
				return health.Skip("an older Weir wrote the store; start this one on it once")
			}
			return look(ctx)
		})
	}
	return slices.Concat([]health.Check{
		{ID: "instance", Look: func(context.Context) health.Finding { return s.nothingRuns() }},
		m.Directory(dir),
		m.FileModes(dir),
		m.FileSystemKind(dir),
		m.DiskKind(dir),
		m.Space(dir, int64(s.cfg.Ingest.Capacity.MaxBytes)-sizeOf(SpoolPath(dir))),
		m.Sync(dir),
		{ID: "root-key", Look: func(context.Context) health.Finding { return s.rootKey() }},
		{ID: "store", Look: s.storeFits},
		{ID: "log", Look: s.logReads},
		stored("log-losses", func(ctx context.Context) health.Finding { return lossFindingOf(ctx, s.store, dir, m.Now()) }),
		{ID: "last-stop", Look: func(context.Context) health.Finding { return s.lastStop(m) }},
		backupCheck(s.cfg, nil, m.Now),
		m.Clock(build.Time(), dir, SpoolPath(dir)),
		m.OpenFileLimit(plan.MQTTConnections),
		health.MemoryLimit(memoryOf(s.cfg, plan, s.runtimeLimit(plan))),
		health.PortsFree(listeners.configured()),
		names(s.cfg, listeners),
		health.Exposure(listeners.configured()),
	}, openTopicsChecks(listeners), devToolsChecks(s.getenv), restingCertificate(s.cfg, m.Now), []health.Check{
		health.DeviceAuth(string(s.cfg.Auth.DeviceAuth)),
		stored("sign-in", s.signIn),
		current("ledger", s.ledger),
		stored("backlog", func(context.Context) health.Finding { return s.backlog() }),
		stored("dead-letters", func(ctx context.Context) health.Finding { return deadLetterFinding(ctx, s.store, m.Now()) }),
		current("ceilings", func(ctx context.Context) health.Finding {
			return ceilings(ctx, ingest.NewStoredLedger(storeReader{s.store}), m.Now())
		}),
	})
}

func (s *atRest) nothingRuns() health.Finding {
	if e, ok := errors.AsType[*dirlock.LockedError](s.locked); ok {
		return health.Fail("it is starting, stopping or stuck: its log says which; try again in a minute", "%v, which does not answer on its socket", e)
	}
	return health.Good("none runs on this directory")
}

// runtimeLimit is what the Go runtime of an instance would be limited to.
func (s *atRest) runtimeLimit(plan Plan) int64 {
	if s.getenv("GOMEMLIMIT") != "" {
		return debug.SetMemoryLimit(-1) // the runtime has read it
	}
	return plan.Runtime
}

func (s *atRest) rootKey() health.Finding {
	o := rootkey.Options{File: RootKeyPath(s.cfg), Env: s.getenv("WEIR_ROOT_KEY"), SealedUnder: s.sealedUnder}
	if s.sealedUnder == "" && o.Env == "" {
		if absent(o.File) {
			return health.Good("none yet; the first start makes it")
		}
	}
	return rootKeyFinding(o)
}

func (s *atRest) storeFits(ctx context.Context) health.Finding {
	size := sizeOf(DBPath(s.cfg.DataDir))
	switch {
	case errors.Is(s.opened, fs.ErrNotExist):
		return health.Good("none yet; the first start makes it")
	case s.locked != nil:
		return health.Skip("not looked at: %v", s.locked)
	case errors.Is(s.opened, store.ErrVersion):
		return health.Fail("a newer Weir has written this directory: run that one, or a newer one", "%v", s.opened)
	case s.opened != nil:
		return health.Fail(StoreHint(s.cfg.DataDir), "%v", s.opened)
	}
	err := s.store.Check(ctx)
	switch {
	case ctx.Err() != nil:
		return health.Skip("%s on disk, format known%s, but not read to its end within %s: weir doctor --timeout 30m gives it longer",
			health.Bytes(size), s.pending(), s.timeout)
	case err != nil:
		return health.Fail(StoreHint(s.cfg.DataDir), "%v", err)
	}
	return health.Good("%s on disk, format known%s, whole", health.Bytes(size), s.pending())
}

func (s *atRest) pending() string {
	if s.store.Pending() == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s to come at the next start)", health.Count(s.store.Pending(), "migration"))
}

func (s *atRest) logReads(ctx context.Context) health.Finding {
	if s.locked != nil && !errors.Is(s.locked, fs.ErrNotExist) {
		return health.Skip("not looked at: %v", s.locked)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout*3/4) // so that what was read by then can be text
	defer cancel()
	inv, err := s.wiring.InspectLog(ctx, SpoolPath(s.cfg.DataDir))
	switch {
	case errors.Is(err, fs.ErrNotExist) && s.paired:
		return health.Fail("put it back if it was only moved; without it the next start goes on, and what the log alone held is gone", "the log is missing")
	case errors.Is(err, fs.ErrNotExist):
		return health.Good("none yet; the first start makes it")
	case err != nil:
		return health.Fail("keep the directory as it is and report it with weir bundle", "%v", err)
	case s.paired && inv.PairID != s.pair:
		return health.Fail("log and store of one directory belong together: bring both back from the same copy", "the log belongs to another store")
	}
	s.log = inv
	text := fmt.Sprintf("%s on disk, %s read", health.Bytes(inv.DiskBytes), batches(inv.Batches))
	if !inv.Complete {
		text += ", no time for all of them"
	}
	if inv.Last < s.head {
		return health.Warn("a part of the log was lost; the next start goes on above it", "%s; it ends at record %d, the store knows up to %d", text, inv.Last, s.head)
	}
	return health.Good("%s", text)
}

func (s *atRest) lastStop(m health.Machine) health.Finding {
	if absent(SpoolPath(s.cfg.DataDir)) {
		return health.Good("nothing has run here yet")
	}
	last := LastStop{Clean: !absent(CleanPath(s.cfg.DataDir))}
	if !last.Clean {
		last.Evidence = Evidence(ReadRunning(s.cfg.DataDir), m.Traces())
	}
	return last.finding()
}

func (s *atRest) signIn(ctx context.Context) health.Finding {
	var superuser, anyone bool
	if err := s.store.Read(ctx, func(tx store.Tx) (err error) {
		if superuser, err = auth.AnySuperuser(tx); err != nil {
			return err
		}
		anyone, err = store.AnyIdentity(tx)
		return err
	}); err != nil {
		return health.Skip("it cannot be read: %v", err)
	}
	return signIn(superuser || s.cfg.Auth.SuperuserEmail != "", anyone, s.cfg.DataDir)
}

// waiting is how many records the log holds that the store does not know.
func (s *atRest) waiting() uint64 {
	if s.log == nil || s.log.Last <= s.head {
		return 0
	}
	return uint64(s.log.Last - s.head)
}

func (s *atRest) ledger(ctx context.Context) health.Finding {
	if n := s.waiting(); n > 0 {
		return health.Skip("the log holds %s that the next start applies and counts", health.Count(n, "record"))
	}
	return ledgerFinding(ctx, ingest.NewStoredLedger(storeReader{s.store}))
}

func (s *atRest) backlog() health.Finding {
	if s.log == nil {
		return health.Skip("the log was not read")
	}
	return health.Good("%s for the next start to apply", health.Count(s.waiting(), "record"))
}

// storeReader lets what only reads use a read-only database as a store.
type storeReader struct{ backup.Inspector }

func (storeReader) Write(context.Context, store.Durability, func(store.Tx) error) error {
	return errors.ErrUnsupported
}

// WriteAll implements store.Store.
func (storeReader) WriteAll(_ context.Context, _ store.Durability, fns ...func(store.Tx) error) []error {
	return slices.Repeat([]error{errors.ErrUnsupported}, len(fns))
}

func (storeReader) Stats() store.Stats { return store.Stats{} }

// sizeOf is the length of a file, or of the files of a directory together.
func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	if !info.IsDir() {
		return info.Size()
	}
	var n int64
	entries, _ := os.ReadDir(path) // what cannot be read counts as nothing
	for _, e := range entries {
		if e.Type().IsRegular() {
			n += sizeOf(filepath.Join(path, e.Name()))
		}
	}
	return n
}

var _ store.Store = storeReader{}

func batches(n int) string {
	if n == 1 {
		return "1 batch"
	}
	return fmt.Sprintf("%d batches", n)
}
