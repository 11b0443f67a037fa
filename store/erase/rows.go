package erase

import (
	"strings"

	"weir/store"
)

// Finder finds what is left of a tenant, table after table. The zero value of its place is the first one.
type Finder struct {
	Tenant Tenant
	at     int // in tables
}

// Found are rows of one table, to be removed.
type Found struct {
	Part   Part
	Table  string
	remove string
	of     []any // arguments of remove after the key
	keys   [][]any
}

// Next returns rows that are left, at most limit of them and of one table; nil when none are.
func (f *Finder) Next(tx store.Tx, limit int) (*Found, error) {
	for ; f.at < len(tables); f.at++ {
		t := &tables[f.at]
		keys, err := t.rowsOf(tx, f.Tenant, limit)
		if err != nil {
			return nil, err
		}
		if len(keys) > 0 {
			found := &Found{Part: t.part, Table: t.name, keys: keys, remove: `DELETE FROM ` + t.name + ` WHERE ` + strings.Join(t.key, ` = ? AND `) + ` = ?`}
			if t.where != "" { // an id may have become that of another row since
				found.remove, found.of = found.remove+` AND `+t.where, t.args(f.Tenant)
			}
			return found, nil
		}
	}
	return nil, nil
}

// Left counts the rows that are left of a tenant, by table.
func Left(tx store.Tx, of Tenant) (map[string]int, error) {
	left := map[string]int{}
	for i := range tables {
		keys, err := tables[i].rowsOf(tx, of, 1<<30)
		if err != nil {
			return nil, err
		}
		if len(keys) > 0 {
			left[tables[i].name] += len(keys)
		}
	}
	return left, nil
}

func (t *table) args(of Tenant) []any {
	if t.token {
		return []any{of.Token}
	}
	return []any{of.ID}
}

func (t *table) rowsOf(tx store.Tx, of Tenant, limit int) (keys [][]any, err error) {
	if t.find != nil {
		return t.find(tx, of, limit)
	}
	rows, err := tx.Query(`SELECT `+strings.Join(t.key, `, `)+` FROM `+t.name+` WHERE `+t.where+` LIMIT ?`, append(t.args(of), limit)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		key := make([]any, len(t.key))
		into := make([]any, len(t.key))
		for i := range key {
			into[i] = &key[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, rows.Err()
}

// Rows is how many rows are left to be removed.
func (f *Found) Rows() int { return len(f.keys) }

// Remove removes at most limit of the rows. When the transaction fails, they are found again.
func (f *Found) Remove(tx store.Tx, limit int) (removed int64, err error) {
	part := f.keys[:min(limit, len(f.keys))]
	f.keys = f.keys[len(part):]
	for _, key := range part {
		n, err := tx.Exec(f.remove, append(key[:len(key):len(key)], f.of...)...)
		if err != nil {
			return removed, err
		}
		removed += n
	}
	return removed, nil
}
