package erase

import (
	"database/sql"
	"errors"
	"strconv"
	"strings"

	"weir/model"
	"weir/store"
)

// AuditErase is the operation of the journal with which an erase ends.
const AuditErase = "erase"

// Deletion is a tenant that was deleted and how far its erase has come.
type Deletion struct {
	ID int64
	Tenant
	Actor     string       // who deleted it
	Erased    model.Micros // since when nothing is left, 0: not yet
	Completed model.Micros // since when the token is free, 0: not yet
	Parts     []Progress   // in the order of Parts
}

// Progress is how far the erase of a part has come.
type Progress struct {
	Part       Part
	Rows       int64        // erased so far
	Complete   bool         // the newest pass left nothing
	Retaining  string       // what keeps the rest
	LastError  string       // of the newest pass
	Attempted  model.Micros // newest pass, 0: none yet
	CleanSince model.Micros // pass since which nothing was found, 0: none yet
}

// Rows is how many rows were erased.
func (d *Deletion) Rows() (n int64) {
	for i := range d.Parts {
		n += d.Parts[i].Rows
	}
	return n
}

// CleanSince is the time since which all parts are clean, 0 while one is not.
func (d *Deletion) CleanSince() (since model.Micros) {
	for i := range d.Parts {
		p := &d.Parts[i]
		if !p.Complete || p.CleanSince == 0 {
			return 0
		}
		since = max(since, p.CleanSince)
	}
	return since
}

// Begin marks a tenant as deleted and makes the journal of its erase. Its row stays, without name and values, as long as others may
// refer to it; nothing issued in it before notBefore counts.
func Begin(c *store.Change, t Tenant, notBefore model.Micros) error {
	at := int64(c.At)
	if _, err := c.Exec(`UPDATE tenants SET updated_at = ?, purge_epoch = ?, enabled = 0, not_before = ?, name = NULL, config = NULL,
		ai_external_enabled = NULL, ingest_messages_per_second = NULL, ingest_burst = NULL, outbound_messages_per_second = NULL, outbound_burst = NULL,
		ai_inference_requests_per_minute = NULL, ai_inference_burst = NULL, shed_priority = NULL, held_command_ceiling = NULL, geofence_ceiling = NULL,
		geofence_position_ceiling = NULL, geofence_position_budget = NULL, registry_bytes = NULL WHERE id = ?`, at, at, int64(notBefore), t.ID); err != nil {
		return err
	}
	if err := c.Audit(store.AuditEvent{Category: store.AuditMutation, Operation: store.AuditDelete, Table: "tenants",
		Key: strconv.FormatInt(t.ID, 10), Label: t.Token, Rows: 1}); err != nil {
		return err
	}
	id, err := c.Insert(`INSERT INTO tenant_erasures (removed_id, token, epoch, actor) VALUES (?, ?, ?, ?)`, t.ID, t.Token, at, c.Actor())
	if err != nil {
		return err
	}
	for _, p := range Parts {
		if _, err := c.Exec(`INSERT INTO tenant_erasure_stores (erasure_id, store, rows_erased, complete) VALUES (?, ?, 0, 0)`, id, string(p)); err != nil {
			return err
		}
	}
	return nil
}

// Reserved reports whether the token is that of a deleted tenant whose deletion is not complete.
func Reserved(tx store.Tx, token string) (reserved bool, err error) {
	err = tx.QueryRow(`SELECT EXISTS (SELECT 1 FROM tenant_erasures WHERE token = ? AND completed_at IS NULL)`, token).Scan(&reserved)
	return reserved, err
}

// Filter restricts List. "" and nil restrict nothing.
type Filter struct {
	Token     string
	Epoch     *model.Micros
	Completed *bool
}

// List returns a page of the deletions, newest first, and how many there are.
func List(tx store.Tx, page store.Page, f Filter) (found []Deletion, total int64, err error) {
	var conditions []string
	var args []any
	if f.Token != "" {
		conditions, args = append(conditions, "token = ?"), append(args, f.Token)
	}
	if f.Epoch != nil {
		conditions, args = append(conditions, "epoch = ?"), append(args, int64(*f.Epoch))
	}
	if f.Completed != nil {
		conditions, args = append(conditions, "(completed_at IS NOT NULL) = ?"), append(args, *f.Completed)
	}
	where := ""
	if len(conditions) > 0 {
		where = " WHERE " + strings.Join(conditions, " AND ")
	}
	if err := tx.QueryRow(`SELECT count(*) FROM tenant_erasures`+where, args...).Scan(&total); err != nil {
		return nil, 0, err
	}
	page = page.Norm()
	if found, err = list(tx, where+` ORDER BY epoch DESC, id DESC LIMIT ? OFFSET ?`, append(args, page.Size, page.Offset())...); err != nil {
		return nil, 0, err
	}
	for i := range found {
		if err := found[i].readParts(tx); err != nil {
			return nil, 0, err
		}
	}
	return found, total, nil
}

// Open returns the deletions that are not complete, oldest first.
func Open(tx store.Tx) ([]Deletion, error) {
	found, err := list(tx, ` WHERE completed_at IS NULL ORDER BY id`)
	for i := range found {
		err = errors.Join(err, found[i].readParts(tx))
	}
	return found, err
}

// Incomplete returns the row ids of the tenants whose deletion is not complete, by token. Their rows are removed step by step, so what
// is counted of such a tenant need not agree with what is there.
func Incomplete(tx store.Tx) (map[string]int64, error) {
	found, err := list(tx, ` WHERE completed_at IS NULL`)
	ids := make(map[string]int64, len(found))
	for i := range found {
		ids[found[i].Token] = found[i].Tenant.ID
	}
	return ids, err
}

func list(tx store.Tx, rest string, args ...any) (found []Deletion, err error) {
	rows, err := tx.Query(`SELECT id, removed_id, token, epoch, actor, coalesce(erased_at, 0), coalesce(completed_at, 0) FROM tenant_erasures`+rest, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var d Deletion
		if err := rows.Scan(&d.ID, &d.Tenant.ID, &d.Token, &d.Epoch, &d.Actor, &d.Erased, &d.Completed); err != nil {
			return nil, err
		}
		found = append(found, d)
	}
	return found, rows.Err()
}

func (d *Deletion) readParts(tx store.Tx) error {
	for _, part := range Parts {
		p := Progress{Part: part}
		err := tx.QueryRow(`SELECT rows_erased, complete, coalesce(retaining, ''), coalesce(last_error, ''), coalesce(attempted_at, 0), coalesce(clean_since, 0)
			FROM tenant_erasure_stores WHERE erasure_id = ? AND store = ?`, d.ID, string(part)).
			Scan(&p.Rows, &p.Complete, &p.Retaining, &p.LastError, &p.Attempted, &p.CleanSince)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		d.Parts = append(d.Parts, p)
	}
	return nil
}

// Erased notes rows of a part that the transaction removes.
func Erased(tx store.Tx, deletion int64, part Part, rows int64) error {
	_, err := tx.Exec(`UPDATE tenant_erasure_stores SET rows_erased = rows_erased + ?, complete = 0, clean_since = NULL WHERE erasure_id = ? AND store = ?`,
		rows, deletion, string(part))
	return err
}

// Note notes what a pass has come to in a part. One that is complete and was so before stays clean since then.
func Note(tx store.Tx, deletion int64, p Progress) error {
	_, err := tx.Exec(`UPDATE tenant_erasure_stores SET complete = ?, retaining = ?, last_error = ?, attempted_at = ?,
		clean_since = CASE WHEN ? THEN coalesce(clean_since, ?) END WHERE erasure_id = ? AND store = ?`,
		p.Complete, orNull(p.Retaining), orNull(p.LastError), int64(p.Attempted), p.Complete, int64(p.Attempted), deletion, string(p.Part))
	return err
}

// Finish removes the row of the tenant, the last one that is left, and leaves one in the journal of the instance.
func Finish(c *store.Change, d *Deletion) error {
	if _, err := c.Exec(`DELETE FROM tenants WHERE id = ?`, d.Tenant.ID); err != nil {
		return err
	}
	if err := store.DropUsage(c, d.Tenant.ID); err != nil {
		return err
	}
	if _, err := c.Exec(`UPDATE tenant_erasures SET erased_at = ? WHERE id = ?`, int64(c.At), d.ID); err != nil {
		return err
	}
	return c.Audit(store.AuditEvent{Category: store.AuditMutation, Operation: AuditErase, Actor: d.Actor, Table: "tenants",
		Key: strconv.FormatInt(d.Tenant.ID, 10), Label: d.Token, Rows: d.Rows()})
}

// Complete frees the token.
func Complete(tx store.Tx, d *Deletion, at model.Micros) error {
	_, err := tx.Exec(`UPDATE tenant_erasures SET completed_at = ? WHERE id = ?`, int64(at), d.ID)
	return err
}

func orNull(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }
