package operate

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"

	"weir/config"
)

// Directory is a data directory in which nothing runs. Verbs that can be answered there take its lock.
type Directory struct {
	Config config.Config
	Getenv func(string) string
	Log    *slog.Logger
	Wiring Wiring

	entities *Entities // nil until Open
	closers  []io.Closer
}

// Open takes the lock and opens the database for the verbs about entities, until Close.
func (d *Directory) Open(ctx context.Context) error {
	_, err := d.open(ctx)
	return err
}

func (d *Directory) open(ctx context.Context) (*Entities, error) {
	if d.entities != nil {
		return d.entities, nil
	}
	lock, err := takeOwnDataDir(d.Config.DataDir)
	if err != nil {
		return nil, err
	}
	e, st, err := d.Wiring.OpenEntities(ctx, d.Config, d.Getenv, d.Log)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	d.entities, d.closers = e, []io.Closer{st, lock}
	return e, nil
}

// Close closes what Open has opened.
func (d *Directory) Close() (err error) {
	for _, c := range d.closers {
		err = errors.Join(err, c.Close())
	}
	d.entities, d.closers = nil, nil
	return err
}

// Exists reports whether a data directory holds anything, or may: an error of the look is for Open to report.
func Exists(cfg config.Config) bool {
	_, err := os.Stat(DBPath(cfg.DataDir))
	return !errors.Is(err, os.ErrNotExist)
}
