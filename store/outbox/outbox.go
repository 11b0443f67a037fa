// Package outbox is the SQL of what goes out: the orders of rules, in the order in which they were written, until they are performed
// or given up. Package actions performs them.
//
//	outbox.go   rows: how they come, wait and go
//	letters.go  orders that were given up, as dead letters, and how they come back
//	waiting.go  what waits, as people ask for it
package outbox

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"weir/model"
	"weir/store"
)

// size is what a row takes: its body, and 256 bytes for the rest, indexes included.
const size = `length(body) + 256`

// Head is a row without what is to be performed: what a schedule needs of it.
type Head struct {
	ID       int64
	TenantID int64
	Kind     string
	Target   string
	DeviceID int64
	Attempts int // that failed
	Due      model.Micros
	Received model.Micros
	Expires  model.Micros // 0: never
	Bytes    int64
}

// Row is an order that waits.
type Row struct {
	Head
	Order    model.Order
	Dispatch model.Dispatch
	Error    string // of the newest attempt
}

// Answer is the kind of the rows that no rule has ordered: answers of devices to commands that were not there, which are tried again.
const Answer = "commandResponse"

// Add writes an order.
func Add(tx store.Tx, o *model.Order) error {
	_, err := tx.Exec(`INSERT INTO outbox (tenant_id, idem_key, kind, target, device_id, log_offset, occurred, received, expires_at, body)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, o.TenantID, o.Key, o.Kind, o.Target, o.DeviceID, int64(o.Edge.Offset), int64(o.Occurred), int64(o.Received.Micros()),
		orNull(o.Expires), string(o.Body))
	return err
}

// AddOnce writes an order unless there is one with its idempotency key, and reports whether it did.
func AddOnce(tx store.Tx, o *model.Order) (bool, error) {
	n, err := tx.Exec(`INSERT INTO outbox (tenant_id, idem_key, kind, target, device_id, log_offset, occurred, received, expires_at, body)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`, o.TenantID, o.Key, o.Kind, o.Target, o.DeviceID, int64(o.Edge.Offset), int64(o.Occurred), int64(o.Received.Micros()),
		orNull(o.Expires), string(o.Body))
	return n > 0, err
}

func orNull(at model.Micros) any {
	if at == 0 {
		return nil
	}
	return int64(at)
}

const headColumns = `id, tenant_id, kind, target, device_id, attempts, due_at, received, coalesce(expires_at, 0), ` + size

func (h *Head) fields() []any {
	return []any{&h.ID, &h.TenantID, &h.Kind, &h.Target, &h.DeviceID, &h.Attempts, (*int64)(&h.Due), (*int64)(&h.Received), (*int64)(&h.Expires), &h.Bytes}
}

func heads(tx store.Tx, query string, args ...any) (found []Head, err error) {
	rows, err := tx.Query(`SELECT `+headColumns+` FROM outbox `+query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var h Head
		if err := rows.Scan(h.fields()...); err != nil {
			return nil, err
		}
		found = append(found, h)
	}
	return found, rows.Err()
}

// After returns the rows behind an id, at most limit of them, in order. Ids only grow.
func After(tx store.Tx, id int64, limit int) ([]Head, error) {
	return heads(tx, `WHERE id > ? ORDER BY id LIMIT ?`, id, limit)
}

// Next returns the rows of a target behind an id and up to another, at most limit of them, in order.
func Next(tx store.Tx, tenant int64, kind, target string, after, upto int64, limit int) ([]Head, error) {
	return heads(tx, `WHERE tenant_id = ? AND kind = ? AND target = ? AND id > ? AND id <= ? ORDER BY id LIMIT ?`, tenant, kind, target, after, upto, limit)
}

// Waits counts the rows of a target up to an id.
func Waits(tx store.Tx, tenant int64, kind, target string, upto int64) (n int64, err error) {
	err = tx.QueryRow(`SELECT count(*) FROM outbox WHERE tenant_id = ? AND kind = ? AND target = ? AND id <= ?`, tenant, kind, target, upto).Scan(&n)
	return n, err
}

// Newest returns the newest rows of a target behind an id and up to another, at most limit of them, newest first.
func Newest(tx store.Tx, tenant int64, kind, target string, after, upto int64, limit int) ([]Head, error) {
	return heads(tx, `WHERE tenant_id = ? AND kind = ? AND target = ? AND id > ? AND id <= ? ORDER BY id DESC LIMIT ?`, tenant, kind, target, after, upto, limit)
}

// Key is a target of a tenant.
type Key struct{ Kind, Target string }

// Count counts the rows of a tenant by target.
func Count(tx store.Tx, tenant int64) (map[Key]int64, error) {
	rows, err := tx.Query(`SELECT kind, target, count(*) FROM outbox WHERE tenant_id = ? GROUP BY kind, target`, tenant)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := map[Key]int64{}
	for rows.Next() {
		var k Key
		var n int64
		if err := rows.Scan(&k.Kind, &k.Target, &n); err != nil {
			return nil, err
		}
		found[k] = n
	}
	return found, rows.Err()
}

// Read returns a row, nil when there is none any more. ErrDamaged says that its body does not have the form that Weir writes.
func Read(tx store.Tx, id int64) (*Row, error) {
	r := &Row{}
	var offset int64
	err := tx.QueryRow(`SELECT `+headColumns+`, idem_key, log_offset, occurred, body, error FROM outbox WHERE id = ?`, id).
		Scan(append(r.fields(), &r.Order.Key, &offset, (*int64)(&r.Order.Occurred), &r.Order.Body, &r.Error)...)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, err
	}
	o := &r.Order
	o.TenantID, o.Kind, o.Target, o.DeviceID, o.Expires, o.Edge.Offset = r.TenantID, r.Kind, r.Target, r.DeviceID, r.Expires, model.Offset(offset)
	o.Received = model.Nanos(int64(r.Received) * 1000)
	if err := json.Unmarshal(o.Body, &r.Dispatch); err != nil {
		return r, fmt.Errorf("%w: outbox %d: %w", store.ErrDamaged, id, err)
	}
	return r, nil
}

// Retry notes a failed attempt, and when the next one is due.
func Retry(tx store.Tx, id int64, due model.Micros, cause string) error {
	_, err := tx.Exec(`UPDATE outbox SET attempts = attempts + 1, due_at = ?, error = ? WHERE id = ?`, int64(due), cause, id)
	return err
}

// Rewrite stores the dispatch of a row, and its body with it.
func Rewrite(tx store.Tx, r *Row) (err error) {
	if r.Order.Body, err = json.Marshal(&r.Dispatch); err != nil {
		return err
	}
	_, err = tx.Exec(`UPDATE outbox SET body = ? WHERE id = ?`, string(r.Order.Body), r.ID)
	return err
}

// Remove removes a row that is done with. False says that there is none any more.
func Remove(tx store.Tx, id int64) (bool, error) {
	n, err := tx.Exec(`DELETE FROM outbox WHERE id = ?`, id)
	return n > 0, err
}

// RemoveOfDevice removes what waits for a device, or was ordered by it of the given kinds, and returns how many rows that were.
func RemoveOfDevice(tx store.Tx, device int64, kinds ...string) (n int64, err error) {
	for _, kind := range kinds {
		removed, err := tx.Exec(`DELETE FROM outbox WHERE device_id = ? AND kind = ?`, device, kind)
		if err != nil {
			return n, err
		}
		n += removed
	}
	return n, nil
}

// Attempt runs fn in a part of the transaction of its own: when it fails, nothing of it is kept, and the transaction goes on. The second
// error is one of the transaction itself.
func Attempt(tx store.Tx, fn func() error) (failed, err error) {
	if _, err := tx.Exec(`SAVEPOINT attempt`); err != nil {
		return nil, err
	}
	if failed = fn(); failed != nil {
		if _, err := tx.Exec(`ROLLBACK TO attempt`); err != nil {
			return failed, err
		}
	}
	_, err = tx.Exec(`RELEASE attempt`)
	return failed, err
}

// metaSynced is the key of the id of the newest row that a barrier has covered.
const metaSynced = "outbox_synced"

// Barrier writes something, so that a durable transaction syncs what results before it have written, and returns the id of the
// newest row: up to it, rows survive a power cut once the transaction is committed.
func Barrier(tx store.Tx) (upto int64, err error) {
	if err = tx.QueryRow(`SELECT coalesce(max(id), 0) FROM outbox`).Scan(&upto); err != nil {
		return 0, err
	}
	return upto, store.SetMetaInt(tx, metaSynced, upto)
}
