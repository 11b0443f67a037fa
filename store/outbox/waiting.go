package outbox

import (
	"cmp"
	"strings"

	"weir/model"
	"weir/store"
)

// Waiting is what waits for one target.
type Waiting struct {
	TenantID int64
	Key
	Rows, Bytes int64
	Devices     int64        // that ordered it
	Oldest      model.Micros // when the reading of its oldest order was received
	Tried       int64        // rows with a failed attempt
	Error       string       // of one of these
}

// Filter restricts what is listed. Zero fields restrict nothing.
type Filter struct {
	TenantID     int64
	Kind, Target string
	DeviceID     int64
}

func (f *Filter) where() (text string, args []any) {
	var conditions []string
	for _, c := range []struct {
		text  string
		value any
		given bool
	}{{"tenant_id = ?", f.TenantID, f.TenantID != 0}, {"kind = ?", f.Kind, f.Kind != ""}, {"target = ?", f.Target, f.Target != ""}, {"device_id = ?", f.DeviceID, f.DeviceID != 0}} {
		if c.given {
			conditions, args = append(conditions, c.text), append(args, c.value)
		}
	}
	return cmp.Or(strings.Join(conditions, " AND "), "1 = 1"), args
}

// Summary returns what waits by target, the longest first, at most limit of them, and how many rows wait for all.
func Summary(tx store.Tx, f Filter, limit int) (found []Waiting, all int64, err error) {
	where, args := f.where()
	if err := tx.QueryRow(`SELECT count(*) FROM outbox WHERE `+where, args...).Scan(&all); err != nil {
		return nil, 0, err
	}
	rows, err := tx.Query(`SELECT tenant_id, kind, target, count(*), sum(`+size+`), count(DISTINCT device_id), min(received), sum(CASE WHEN attempts > 0 THEN 1 ELSE 0 END), max(error)
		FROM outbox WHERE `+where+` GROUP BY tenant_id, kind, target ORDER BY min(received), tenant_id, kind, target LIMIT ?`, append(args, limit)...)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var w Waiting
		if err := rows.Scan(&w.TenantID, &w.Kind, &w.Target, &w.Rows, &w.Bytes, &w.Devices, (*int64)(&w.Oldest), &w.Tried, &w.Error); err != nil {
			return nil, 0, err
		}
		found = append(found, w)
	}
	return found, all, rows.Err()
}

// List returns the rows that wait, in order, at most limit of them. Those whose body is damaged have none.
func List(tx store.Tx, f Filter, limit int) (found []*Row, err error) {
	where, args := f.where()
	all, err := heads(tx, `WHERE `+where+` ORDER BY id LIMIT ?`, append(args, limit)...)
	if err != nil {
		return nil, err
	}
	for i := range all {
		r, err := Read(tx, all[i].ID)
		if r == nil {
			return nil, err
		}
		found = append(found, r)
	}
	return found, nil
}
