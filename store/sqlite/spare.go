package sqlite

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
)

// spareBytes is the size of the spare file: the write-ahead log of some hundred deletes.
const spareBytes = 4 << 20

// SparePath is the path of the spare file of a database.
func SparePath(path string) string { return path + "-spare" }

// KeepSpare keeps some space of the disk for changes on a disk that has become full: a file of that size, which MakeRoom
// removes. free is what the disk has beyond the space that must stay free.
func (db *DB) KeepSpare(free int64) error {
	db.spare.Lock()
	defer db.spare.Unlock()
	path := SparePath(db.path)
	if fileBytes(path) >= spareBytes || free < 2*spareBytes {
		return nil
	}
	b := make([]byte, spareBytes)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // no file system stores it in less space
	err := os.WriteFile(path, b, 0o600)
	if err != nil {
		return errors.Join(err, removeIfThere(path)) // half of it is of no use
	}
	return nil
}

// MakeRoom makes room on a full disk: it removes the spare file and writes the write-ahead log back, whose space the next
// writes use again.
func (db *DB) MakeRoom() {
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
