// Package past reads what is stored in the order of the log, and what the registry said at each place of it. Previews of rules use it.
package past

import (
	"database/sql"

	"weir/model"
	"weir/store"
)

// Row is a row of packed readings, without them.
type Row struct {
	ID              int64
	Series, Through int64 // of a chunk, both are its series; of a block, the first and the last one
	First, Last     model.Offset
	Readings        int64
	Block           bool
}

// Rows returns the rows of a tenant that hold readings of the records after one offset and up to another, and of other ones, too; at most
// limit of chunks and of blocks. more says that there are others.
func Rows(tx store.Tx, tenantID int64, gen uint64, after, upto model.Offset, limit int) (found []Row, more bool, err error) {
	for _, t := range [...]struct {
		table, series string
		block         bool
	}{{"series_chunks", "series, series", false}, {"series_blocks", "min_series, max_series", true}} {
		some, err := rowsOf(tx, t.block, `SELECT id, `+t.series+`, first_offset, last_offset, n FROM `+t.table+
			` WHERE tenant_id = ? AND last_offset > ? AND first_offset <= ? AND gen <= ? ORDER BY last_offset LIMIT ?`,
			tenantID, int64(after), int64(upto), int64(gen), limit+1)
		if err != nil {
			return nil, false, err
		}
		if len(some) > limit {
			some, more = some[:limit], true
		}
		found = append(found, some...)
	}
	return found, more, nil
}

func rowsOf(tx store.Tx, block bool, query string, args ...any) (found []Row, err error) {
	rows, err := tx.Query(query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		r := Row{Block: block}
		var first, last int64
		if err := rows.Scan(&r.ID, &r.Series, &r.Through, &first, &last, &r.Readings); err != nil {
			return nil, err
		}
		r.First, r.Last = model.Offset(first), model.Offset(last)
		found = append(found, r)
	}
	return found, rows.Err()
}

// LastWith returns an offset that is not below that of any record of a tenant which holds an event between two times, both inclusive; 0
// when there is none. Only the records that it may be short of by are those that are not in rows yet.
func LastWith(tx store.Tx, tenantID int64, gen uint64, from, to model.Micros) (last model.Offset, err error) {
	q := store.PackedScope{TenantID: tenantID, Gen: gen, From: from, To: to}
	where, args := q.Where()
	for _, s := range [...]struct {
		query string
		args  []any
	}{
		{`SELECT max(last_offset) FROM series_chunks WHERE ` + where, args},
		{`SELECT max(last_offset) FROM series_blocks WHERE ` + where, args},
		{`SELECT max(log_offset) FROM row_events WHERE tenant_id = ? AND type IN (0, 1, 3, 4) AND occurred_at >= ? AND occurred_at <= ?`,
			[]any{tenantID, int64(from), int64(to)}},
	} {
		var n sql.NullInt64
		if err := tx.QueryRow(s.query, s.args...).Scan(&n); err != nil {
			return 0, err
		}
		last = max(last, model.Offset(n.Int64))
	}
	return last, nil
}

// Count returns about how many readings a tenant has between two times: those of all rows that may have one of them.
func Count(tx store.Tx, tenantID int64, gen uint64, from, to model.Micros) (n int64, err error) {
	q := store.PackedScope{TenantID: tenantID, Gen: gen, From: from, To: to}
	where, args := q.Where()
	for _, table := range [...]string{"series_chunks", "series_blocks"} {
		var some int64
		if err := tx.QueryRow(`SELECT coalesce(sum(n), 0) FROM `+table+` WHERE `+where, args...).Scan(&some); err != nil {
			return 0, err
		}
		n += some
	}
	return n, nil
}

// Change is a row of the metadata view that is effective from an offset on, or that ends there: then it has no body.
type Change struct {
	Kind model.ViewKind
	Key  string
	Body []byte
	From model.Offset
}

// Place is an offset whose receive time is known.
type Place struct {
	Offset   model.Offset
	Received model.Micros
}

// View calls f with the rows of a kind whose keys begin with a prefix: those that are effective at an offset, with From 0, and those that become
// effective or end after it and up to another, in no promised order. The receive times of the latter go to known.
func View(tx store.Tx, kind model.ViewKind, prefix string, at, upto model.Offset, known func(Place), f func(Change) error) error {
	rows, err := tx.Query(`SELECT key, from_offset, began_at, to_offset, ended_at, body FROM view_rows
		WHERE kind = ? AND key >= ? AND key < ? AND from_offset <= ? AND (to_offset IS NULL OR to_offset > ?)`, string(kind), prefix, prefix+"\U0010FFFF", int64(upto), int64(at))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		c := Change{Kind: kind}
		var from int64
		var to, began, ended sql.NullInt64
		if err := rows.Scan(&c.Key, &from, &began, &to, &ended, &c.Body); err != nil {
			return err
		}
		if c.From = model.Offset(from); c.From <= at {
			c.From = 0
		} else if began.Valid {
			known(Place{c.From, model.Micros(began.Int64)})
		}
		if err := f(c); err != nil {
			return err
		}
		if !to.Valid || model.Offset(to.Int64) > upto {
			continue
		}
		if ended.Valid {
			known(Place{model.Offset(to.Int64), model.Micros(ended.Int64)})
		}
		if err := f(Change{Kind: kind, Key: c.Key, From: model.Offset(to.Int64)}); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Before returns the newest offset that is known to lie before a receive time, 0 when none does.
func Before(tx store.Tx, received model.Micros) (at model.Offset, err error) {
	for _, q := range [...]string{
		`SELECT max(to_offset) FROM view_rows WHERE to_offset IS NOT NULL AND ended_at < ?`,
		`SELECT max(log_offset) FROM listening_spans WHERE tenant_id = 0 AND received < ?`,
	} {
		var n sql.NullInt64
		if err := tx.QueryRow(q, int64(received)).Scan(&n); err != nil {
			return 0, err
		}
		at = max(at, model.Offset(n.Int64))
	}
	return at, nil
}
