package store

import (
	"database/sql"
	"errors"

	"weir/model"
)

// HasRowEvent reports whether the event of a log position is stored as a row. A replay uses it to detect its own work.
func HasRowEvent(tx Tx, at model.Offset, index uint32) (bool, error) {
	var one int
	err := tx.QueryRow(`SELECT 1 FROM row_events WHERE log_offset = ? AND idx = ?`, int64(at), int64(index)).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
