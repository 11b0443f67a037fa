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

// translate gives a driver's error the meaning it has for the rooms above.
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
	case code&primaryMask == sqlite3.SQLITE_FULL, code == sqlite3.SQLITE_IOERR_SHMSIZE: // the latter: no room beside the file
		return fmt.Errorf("%w (%w)", store.ErrFull, err)
	}
	return err
}

// uniqueError reads table and columns out of "… UNIQUE constraint failed: t.a, t.b (2067)". For an index over an
// expression the text names the index alone: it takes the table's place and there are no columns.
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

// syncFailed reports whether err says that a file could not be synced. What was written before may be lost without a
// further word, so no promise can be made on this open file again.
func syncFailed(err error) bool {
	e, ok := errors.AsType[interface {
		error
		Code() int
	}](err)
	return ok && (e.Code() == sqlite3.SQLITE_IOERR_FSYNC || e.Code() == sqlite3.SQLITE_IOERR_DIR_FSYNC)
}
