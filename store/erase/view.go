package erase

import (
	"database/sql"
	"encoding/json"
	"strconv"
	"strings"

	"weir/model"
	"weir/store"
)

// ViewKey names an effective row of the metadata view.
type ViewKey struct {
	Kind model.ViewKind
	Key  string
}

// Effective returns rows of the view that are effective and belong to the tenant, at most limit of them in their order, after a row.
// That of the tenant itself is left out: what ends after it no longer finds its tenant.
func Effective(tx store.Tx, t Tenant, after ViewKey, limit int) (found []ViewKey, err error) {
	w, err := newViewWalk(tx, t)
	if err != nil {
		return nil, err
	}
	err = w.each(tx, `WHERE to_offset IS NULL AND (kind, key) > (?, ?)`, []any{string(after.Kind), after.Key}, func(k ViewKey, _ int64) bool {
		if k.Kind != model.ViewTenant {
			found = append(found, k)
		}
		return len(found) < limit
	})
	return found, err
}

// Passed reports whether nothing in the log after the checkpoint, nor in memory, can be of the tenant any more: the rows of the view
// that belong to it have ended at or before the checkpoint.
func Passed(tx store.Tx, t Tenant) (bool, error) {
	head, _, err := store.CheckpointState(tx)
	if err != nil {
		return false, err
	}
	w, err := newViewWalk(tx, t)
	if err != nil {
		return false, err
	}
	passed := true
	err = w.each(tx, `WHERE to_offset IS NULL OR to_offset > ?`, []any{int64(head)}, func(ViewKey, int64) bool {
		passed = false
		return false
	})
	return passed, err
}

func findViewRows(tx store.Tx, t Tenant, limit int) (found [][]any, err error) {
	w, err := newViewWalk(tx, t)
	if err != nil {
		return nil, err
	}
	err = w.each(tx, ``, nil, func(k ViewKey, from int64) bool {
		found = append(found, []any{string(k.Kind), k.Key, from})
		return len(found) < limit
	})
	return found, err
}

// viewWalk knows which rows of the view belong to a tenant: the row of a tenant by its key, those of devices by the beginning of
// their key, those of types by their row id, those of attributes by the row id of their device, those of geofences by the row id of
// the tenant, and all others by what their body says, which names the tenant by token or row id.
type viewWalk struct {
	Tenant
	types map[string]bool // row ids, those of removed ones included, which the journal knows
}

func newViewWalk(tx store.Tx, t Tenant) (*viewWalk, error) {
	w := &viewWalk{Tenant: t, types: map[string]bool{}}
	rows, err := tx.Query(`SELECT id FROM device_types WHERE tenant_id = ? UNION
		SELECT CAST(entity_pk AS INTEGER) FROM audit_events WHERE tenant_id = ? AND table_name = 'device_types' AND entity_pk IS NOT NULL`, t.ID, t.ID)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		w.types[strconv.FormatInt(id, 10)] = true
	}
	return w, rows.Err()
}

// ofDevice is whether the device whose row id the key of a view row begins with is the tenant's; of a removed one the journal says so.
const ofDevice = `COALESCE((SELECT d.tenant_id = ? FROM devices d WHERE d.id = CAST(key AS INTEGER)),
	EXISTS (SELECT 1 FROM audit_events a WHERE a.tenant_id = ? AND a.table_name = 'devices' AND a.entity_pk = CAST(CAST(key AS INTEGER) AS TEXT)))`

// each calls f with the rows of the tenant until it returns false.
func (w *viewWalk) each(tx store.Tx, where string, args []any, f func(k ViewKey, from int64) bool) error {
	rows, err := tx.Query(`SELECT kind, key, from_offset, CASE WHEN kind IN ('tenant', 'device', 'device-type', 'attribute') THEN NULL ELSE body END,
		CASE WHEN kind = 'attribute' THEN `+ofDevice+` END
		FROM view_rows `+where+` ORDER BY kind, key, from_offset`, append([]any{w.ID, w.ID}, args...)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var k ViewKey
		var from int64
		var body []byte
		var own sql.NullBool
		if err := rows.Scan((*string)(&k.Kind), &k.Key, &from, &body, &own); err != nil {
			return err
		}
		if (own.Bool || w.has(k, body)) && !f(k, from) {
			return nil
		}
	}
	return rows.Err()
}

func (w *viewWalk) has(k ViewKey, body []byte) bool {
	switch k.Kind {
	case model.ViewTenant:
		return k.Key == w.Token
	case model.ViewDevice:
		return strings.HasPrefix(k.Key, w.Token+"/")
	case model.ViewDeviceType:
		return w.types[k.Key]
	case model.ViewAttribute, model.ViewCheckpoint:
		return false
	case model.ViewFence, model.ViewFenceSet, model.ViewSite:
		id, _, _ := strings.Cut(k.Key, "/")
		return id == strconv.FormatInt(w.ID, 10)
	}
	var j jsonTenant
	return strings.HasPrefix(k.Key, w.Token+"/") || json.Unmarshal(body, &j) == nil && j.is(w.Tenant)
}
