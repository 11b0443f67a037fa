package app

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"weir/config"
	"weir/internal/dirlock"
	"weir/store"
	"weir/store/sqlite"
)

// Offline opens a data directory in which nothing runs. Changes wait in the control table for the next start.
func Offline(ctx context.Context, cfg config.Config, getenv func(string) string, logger *slog.Logger) (Operator, error) {
	lock, err := takeOwnDataDir(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	if noDatabase(cfg.DataDir) {
		if err := orphaned(cfg.DataDir); err != nil {
			return nil, errors.Join(err, lock.Close())
		}
	}
	st, err := sqlite.Open(ctx, dbPath(cfg.DataDir), sqlite.Options{Logger: logger})
	if err != nil {
		return nil, errors.Join(unreadable(cfg.DataDir, err), lock.Close())
	}
	o := &offline{lock: lock, store: st}
	in := &Instance{cfg: cfg, budget: NewBudget(MemoryLimit(cfg))}
	vault, err := openVault(ctx, st, in.rootKeyPath(), getenv("WEIR_ROOT_KEY"), func(w string) { logger.Warn(w) })
	if err == nil {
		o.rooms, err = newRooms(ctx, cfg, roomDeps{store: st, writer: store.Direct{Store: st}, vault: vault, logger: logger, limits: in.ruleLimits(), addrs: &Addresses{}})
	}
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	o.life = storedLives{st}
	return o, nil
}

// Exists reports whether a data directory holds anything, or may: what cannot be looked at is for Offline to tell.
func Exists(cfg config.Config) bool {
	_, err := os.Stat(dbPath(cfg.DataDir))
	return !errors.Is(err, os.ErrNotExist)
}

type offline struct {
	rooms
	lock  *dirlock.Lock
	store *sqlite.DB
}

func (o *offline) Close() error { return errors.Join(o.store.Close(), o.lock.Close()) }

var _ Operator = (*offline)(nil)
