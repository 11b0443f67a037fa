package sqlite

import (
	"context"
	"errors"
	"fmt"

	"weir/store"
)

// suspect notes the first error that says the file cannot be trusted any more: a page that is not what was written, or a
// sync that failed. It stays until the database is opened anew; reads and writes that do not meet it go on.
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

// doubts returns what suspect has noted.
func (db *DB) doubts() error {
	if e := db.doubt.Load(); e != nil {
		return *e
	}
	return nil
}

// Check reads the whole file and returns ErrDamaged when its pages do not hang together. It ends with ctx.
func (db *DB) Check(ctx context.Context) error {
	var said string
	err := db.Read(ctx, func(tx store.Tx) error { return tx.QueryRow(`PRAGMA quick_check(1)`).Scan(&said) })
	if err == nil && said != "ok" {
		err = fmt.Errorf("%w: %s", store.ErrDamaged, said)
		db.suspect(err)
	}
	return err
}
