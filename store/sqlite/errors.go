package sqlite

import (
	"errors"
	"fmt"
	"io"
	"strings"

	modernc "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"weir/store"
)

// Primary result codes are the low byte of an extended one.
const primaryMask = 0xff

// translate converts a driver's error into the error of the store.
func translate(err error) error {
	if err == nil || err == io.EOF || errors.Is(err, store.ErrDamaged) || errors.Is(err, store.ErrFull) {
		return err
	}
	e, ok := errors.AsType[*modernc.Error](err)
	if !ok {
		return err
	}
	switch code := e.Code(); {
	case code == sqlite3.SQLITE_CONSTRAINT_UNIQUE, code == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, code == sqlite3.SQLITE_CONSTRAINT_ROWID:
		return uniqueError(e)
	case code&primaryMask == sqlite3.SQLITE_CORRUPT, code&primaryMask == sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w: %w", store.ErrDamaged, err)
	case code&primaryMask == sqlite3.SQLITE_FULL, code == sqlite3.SQLITE_IOERR_SHMSIZE: // the latter: no space next to the file
		return fmt.Errorf("%w (%w)", store.ErrFull, err)
	case code&primaryMask == sqlite3.SQLITE_READONLY, unwritable(code):
		return fmt.Errorf("%w (%w)", store.ErrUnwritable, err)
	}
	return err
}

// unwritable reports whether a code says that a file could not be written. Failed syncs are not among them, see syncFailed.
func unwritable(code int) bool {
	switch code {
	case sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_TRUNCATE, sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_DELETE:
		return true
	}
	return false
}

// uniqueError reads table and columns from "… UNIQUE constraint failed: t.a, t.b (2067)". For an index over an
// expression the text names only the index: it is returned as the table, without columns.
func uniqueError(e *modernc.Error) *store.UniqueError {
	u := &store.UniqueError{Err: e}
	_, list, ok := strings.Cut(e.Error(), "constraint failed: ")
	for ok && strings.Contains(list, "constraint failed: ") {
		_, list, ok = strings.Cut(list, "constraint failed: ")
	}
	if i := strings.LastIndex(list, " ("); i >= 0 {
		list = list[:i]
	}
	if name, ok := strings.CutPrefix(list, "index "); ok {
		u.Table = strings.Trim(name, "'")
		return u
	}
	for part := range strings.SplitSeq(list, ", ") {
		table, column, ok := strings.Cut(part, ".")
		if ok {
			u.Table = table
			u.Columns = append(u.Columns, column)
		}
	}
	return u
}

// syncFailed reports whether err means that a file could not be synced. Earlier writes may be lost without another
// error, so nothing written through this open file is durable any more.
func syncFailed(err error) bool {
	e, ok := errors.AsType[interface {
		error
		Code() int
	}](err)
	return ok && (e.Code() == sqlite3.SQLITE_IOERR_FSYNC || e.Code() == sqlite3.SQLITE_IOERR_DIR_FSYNC)
}
