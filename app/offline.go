package app

import (
	"context"
	"errors"
	"log/slog"

	"weir/config"
	"weir/internal/dirlock"
	"weir/store"
	"weir/store/sqlite"
)

// Offline opens a data directory in which nothing runs. Changes wait in the control table for the next start.
func Offline(ctx context.Context, cfg config.Config, getenv func(string) string, logger *slog.Logger) (Operator, error) {
	if err := makeDataDir(cfg.DataDir); err != nil {
		return nil, err
	}
	lock, err := dirlock.Acquire(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	st, err := sqlite.Open(ctx, dbPath(cfg.DataDir), sqlite.Options{Logger: logger})
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	o := &offline{cfg: cfg, lock: lock, store: st}
	in := &Instance{cfg: cfg}
	vault, err := openVault(ctx, st, in.rootKeyPath(), getenv("WEIR_ROOT_KEY"), func(w string) { logger.Warn(w) })
	if err == nil {
		o.rooms, err = newRooms(ctx, cfg, roomDeps{store: st, writer: store.Direct{Store: st}, vault: vault, logger: logger, limits: in.ruleLimits()})
	}
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

type offline struct {
	rooms
	cfg   config.Config
	lock  *dirlock.Lock
	store *sqlite.DB
}

func (o *offline) CreateAdmin(ctx context.Context, a NewAdmin) (*AdminCreated, error) {
	return o.createAdmin(ctx, a)
}

func (o *offline) CreateTenant(ctx context.Context, t NewTenant) (*TenantCreated, error) {
	return o.createTenant(ctx, t)
}

func (o *offline) AddDevice(ctx context.Context, d NewDevice) (*DeviceAdded, error) {
	out, err := o.addDevice(ctx, d)
	if err == nil {
		out.Instance = o.cfg.Instance.ID
	}
	return out, err
}

func (o *offline) Close() error { return errors.Join(o.store.Close(), o.lock.Close()) }

var _ Operator = (*offline)(nil)
