package sqlite

import (
	"context"
	"errors"
	"fmt"

	"weir/store"
)

// suspect records the first error after which the file is not reliable: a page that differs from what was written, or a
// sync that failed. It stays until the database is opened again; reads and writes without such an error continue.
func (db *DB) suspect(err error) {
	if err == nil || !errors.Is(err, store.ErrDamaged) && !errors.Is(err, store.ErrUnsynced) || !db.doubt.CompareAndSwap(nil, &err) {
		return
	}
	if errors.Is(err, store.ErrUnsynced) {
		db.log.Error("a sync of the database failed: nothing is written to it until a restart", "error", err)
		return
	}
	db.log.Error("the database is damaged", "error", err)
}

// doubts returns the error that suspect has recorded.
func (db *DB) doubts() error {
	if e := db.doubt.Load(); e != nil {
		return *e
	}
	return nil
}

// Check reads the whole file and returns ErrDamaged when its pages are inconsistent. It ends with ctx.
func (db *DB) Check(ctx context.Context) error {
	var said string
	err := db.read(ctx, store.Bulk, func(tx store.Tx) error { return tx.QueryRow(`PRAGMA quick_check(1)`).Scan(&said) })
	if err == nil && said != "ok" {
		err = fmt.Errorf("%w: %s", store.ErrDamaged, said)
		db.suspect(err)
	}
	return err
}
