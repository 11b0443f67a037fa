package app

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"weir/backup"
	"weir/config"
	"weir/edge"
	"weir/model"
	"weir/operate"
	"weir/spool"
	"weir/spool/bolt"
	"weir/store/sqlite"
)

// This file alone knows which database and which log engine an instance has.

type (
	storeDriver  = operate.Store
	logDriver    = operate.Log
	storeOptions = sqlite.Options
	logOptions   = bolt.Options
)

func openStore(ctx context.Context, dir string, o storeOptions) (*sqlite.DB, error) {
	return sqlite.Open(ctx, operate.DBPath(dir), o)
}

// beginning says why a log began a new life, and what lies between the two.
type beginning struct {
	copied     bool // the log is a copy: nothing is lost
	why        string
	last, next model.Offset
	damage     error
}

// openSpool opens the log of a directory. The beginning is nil when the log goes on.
func openSpool(dir string, o logOptions) (logDriver, *beginning, error) {
	l, err := bolt.Open(operate.SpoolPath(dir), o)
	if err != nil {
		return nil, nil, err
	}
	b := l.Began()
	if b == nil {
		return l, nil, nil
	}
	return l, &beginning{copied: b.Why == bolt.Copied, why: string(b.Why), last: b.Last, next: b.Next, damage: b.Err}, nil
}

// logFileName is the name of the file of the log that begins with a record.
func logFileName(first model.Offset) string { return bolt.FileName(first) }

// logAtRest is the log in a folder that nothing has open.
func logAtRest(dir string) (*bolt.Resting, error) { return bolt.AtRest(dir) }

// AtRest is a data directory in which nothing runs, for the verbs that can be answered there.
func AtRest(cfg config.Config, getenv func(string) string, log *slog.Logger) *operate.Directory {
	return &operate.Directory{Config: cfg, Getenv: getenv, Log: log, Wiring: wiring{ownTransports(), cfg}}
}

// wiring implements operate.Wiring.
type wiring struct {
	transports []Transport
	cfg        config.Config
}

func (wiring) InspectStore(ctx context.Context, path string) (backup.Inspector, error) {
	i, err := sqlite.Inspect(ctx, path)
	if err != nil {
		return nil, err
	}
	return inspector{i}, nil
}

// inspector implements backup.Inspector.
type inspector struct{ *sqlite.Inspector }

func (i inspector) Pending() int { return i.Inspector.Pending }

func (wiring) InspectLog(ctx context.Context, dir string) (*backup.LogInventory, error) {
	inv, err := bolt.Inspect(ctx, dir)
	if err != nil {
		return nil, err
	}
	return new(backup.LogInventory(*inv)), nil
}

func (wiring) LogAtRest(dir string) (backup.LogSource, error) {
	l, err := bolt.AtRest(dir)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (wiring) WalkLog(ctx context.Context, dir string, from model.Offset, f func(*spool.Batch) error) error {
	return bolt.Walk(ctx, dir, from, f)
}

func (wiring) OpenEntities(ctx context.Context, cfg config.Config, getenv func(string) string, log *slog.Logger) (*operate.Entities, io.Closer, error) {
	// The same refusals as at a start: an offline command must not make a database beside a log.
	if err := refuseEdge(cfg.DataDir); err != nil {
		return nil, nil, err
	}
	if noDatabase(cfg.DataDir) {
		if err := orphaned(cfg.DataDir); err != nil {
			return nil, nil, err
		}
	}
	st, err := openStore(ctx, cfg.DataDir, storeOptions{Logger: log})
	if err != nil {
		return nil, nil, operate.Unreadable(cfg.DataDir, err)
	}
	e, err := restingEntities(ctx, cfg, st, getenv, log)
	if err != nil {
		return nil, nil, errors.Join(err, st.Close())
	}
	return e, st, nil
}

// OpenEdge implements operate.Wiring.
func (wiring) OpenEdge(cfg config.Config, getenv func(string) string, log *slog.Logger) (*edge.Edge, error) {
	in := NewEdge(cfg, Options{Logger: log, Getenv: getenv})
	if err := in.open(); err != nil {
		return nil, err
	}
	return in.edge, nil
}

func (w wiring) TransportOf(source string) string {
	for _, k := range w.transports {
		// Most transports have one source; those with several decide by themselves.
		if k.Owns != nil && k.Owns(w.cfg, source) || k.Owns == nil && k.Source == source {
			return k.Name
		}
	}
	return ""
}

func (w wiring) Listeners(cfg config.Config) operate.Listeners { return listenersOf(cfg, w.transports) }

func (wiring) Plan(cfg config.Config) operate.Plan {
	return operate.Plan{Memory: MemoryLimit(cfg), Runtime: RuntimeLimit(cfg), MQTTConnections: NewBudget(MemoryLimit(cfg)).mqttConnections(cfg.Broker.MaxConnections)}
}
