package sqlite

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
)

// SparePath is the path of the spare file of a database.
func SparePath(path string) string { return path + "-spare" }

// KeepSpare keeps some space of the disk for changes on a disk that has become full: a file of that size, which FreeSpace
// removes. One that is there already stays as it is.
func (db *DB) KeepSpare(bytes int64) error {
	db.spare.Lock()
	defer db.spare.Unlock()
	path := SparePath(db.path)
	if fileBytes(path) > 0 {
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

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
