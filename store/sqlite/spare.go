package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"

	"weir/store"
)

// SparePath is the path of the spare file of a database.
func SparePath(path string) string { return path + "-spare" }

// KeepSpare keeps some space of the disk for changes on a disk that has become full: a file of that size, which FreeSpace
// removes. One that is there already and is not smaller stays as it is.
func (db *DB) KeepSpare(bytes int64) error {
	db.spare.Lock()
	defer db.spare.Unlock()
	path := SparePath(db.path)
	if fileBytes(path) >= bytes {
		return nil
	}
	b := make([]byte, bytes)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // no file system stores it in less space
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return errors.Join(err, removeIfThere(path)) // half of it is of no use
	}
	return nil
}

// FreeSpace frees space on a full disk: it removes the spare file and writes the write-ahead log back, whose space the next
// writes use again.
func (db *DB) FreeSpace() {
	db.spare.Lock()
	defer db.spare.Unlock()
	if err := removeIfThere(SparePath(db.path)); err != nil {
		db.log.Warn("the spare file of the database cannot be removed", "error", err)
	}
	db.ckpt.run(db.ckpt.conn, "RESTART", restartWait)
}

// GiveBack gives free pages of the database, of so many bytes at most, back to the file system: the file gets smaller. It returns
// how many bytes that were: 0 when no page is free, and while a reader of an older state keeps the file from getting smaller.
func (db *DB) GiveBack(ctx context.Context, bytes int64) (given int64, err error) {
	if long, err := db.tooLong(ctx); err != nil || long {
		return 0, err
	}
	err = db.Write(ctx, store.Results, func(tx store.Tx) error {
		before, size, err := freePages(tx)
		if err != nil || before == 0 {
			return err
		}
		rows, err := tx.Query(fmt.Sprintf(`PRAGMA incremental_vacuum(%d)`, max(bytes/size, 1)))
		if err != nil {
			return err
		}
		for rows.Next() { // each frees a page
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
		after, _, err := freePages(tx)
		given = (before - after) * size
		tx.OnCommit(func() { db.freeBytes.Store(after * size) })
		return err
	})
	if err != nil || given == 0 {
		return 0, err
	}
	db.ckpt.run(db.ckpt.conn, "PASSIVE", checkpointWait) // which shortens the file
	return given, nil
}

// tooLong reports whether the file still contains pages that were given back, after an attempt to shorten it.
func (db *DB) tooLong(ctx context.Context) (long bool, err error) {
	for range 2 {
		var bytes int64
		if err := db.Read(ctx, func(tx store.Tx) error {
			return tx.QueryRow(`SELECT page_count * page_size FROM pragma_page_count, pragma_page_size`).Scan(&bytes)
		}); err != nil {
			return false, err
		}
		if long = fileBytes(db.path) > bytes; !long {
			return false, nil
		}
		db.ckpt.run(db.ckpt.conn, "PASSIVE", checkpointWait)
	}
	return true, nil
}

func freePages(tx store.Tx) (pages, size int64, err error) {
	err = tx.QueryRow(`SELECT freelist_count, page_size FROM pragma_freelist_count, pragma_page_size`).Scan(&pages, &size)
	return pages, size, err
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
