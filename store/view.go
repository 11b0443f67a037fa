package store

import "weir/model"

// ViewRow is one row of the metadata view, with the span of the log in which it is effective.
type ViewRow struct {
	Kind model.ViewKind
	Key  string
	From model.Offset
	Body []byte
}

// SetView sets the body of (kind, key) from offset on; a nil body ends the row there. Setting it again with the same
// offset, as a replay does, changes nothing.
func SetView(tx Tx, kind model.ViewKind, key string, body []byte, from model.Offset) error {
	if _, err := tx.Exec(`UPDATE view_rows SET to_offset = ? WHERE kind = ? AND key = ? AND to_offset IS NULL AND from_offset < ?`,
		int64(from), string(kind), key, int64(from)); err != nil {
		return err
	}
	if body == nil {
		_, err := tx.Exec(`DELETE FROM view_rows WHERE kind = ? AND key = ? AND from_offset = ?`, string(kind), key, int64(from))
		return err
	}
	_, err := tx.Exec(`INSERT INTO view_rows (kind, key, from_offset, body) VALUES (?, ?, ?, ?)
		ON CONFLICT (kind, key, from_offset) DO UPDATE SET body = excluded.body`, string(kind), key, int64(from), body)
	return err
}

// ViewAsOf calls f for each row that is effective at offset, in no promised order.
func ViewAsOf(tx Tx, at model.Offset, f func(ViewRow) error) error {
	rows, err := tx.Query(`SELECT kind, key, from_offset, body FROM view_rows
		WHERE from_offset <= ? AND (to_offset IS NULL OR to_offset > ?)`, int64(at), int64(at))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var r ViewRow
		var from int64
		if err := rows.Scan((*string)(&r.Kind), &r.Key, &from, &r.Body); err != nil {
			return err
		}
		r.From = model.Offset(from)
		if err := f(r); err != nil {
			return err
		}
	}
	return rows.Err()
}
