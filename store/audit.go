package store

import (
	"database/sql"

	"weir/model"
)

// Categories of the journal.
const (
	AuditMutation = "mutation"
	AuditAuth     = "auth"
)

// Operations of the journal.
const (
	AuditCreate      = "create"
	AuditUpdate      = "update"
	AuditDelete      = "delete"
	AuditLogin       = "login"
	AuditLoginFailed = "login_failed"
	AuditRefresh     = "refresh"
	AuditSignOut     = "sign_out"
)

// AuditEvent is a row of the journal: an actor, an operation and the changed row. It never holds a value of that row.
type AuditEvent struct {
	ID        int64        `gql:"id"`
	TenantID  int64        // 0: concerns the instance
	Occurred  model.Micros `gql:"occurredTime"`
	Category  string       `gql:"category"`
	Operation string       `gql:"operation"`
	Actor     string       `gql:"actor"`                // username, email or a service's subject; "system" for internal work
	Table     string       `gql:"tableName,omitzero"`   // "" for what changed no row
	Key       string       `gql:"entityPk,omitzero"`    // row id
	Label     string       `gql:"entityLabel,omitzero"` // token or another name that people use; never a secret
	Rows      int64        `gql:"rowsAffected"`         // changed
}

// Audit writes a row of the journal, unless the change is left out of it. Empty Occurred and Actor are filled from the change.
func (c *Change) Audit(e AuditEvent) error {
	if c.silent {
		return nil
	}
	if e.Actor == "" {
		e.Actor = c.Actor()
	}
	if e.Occurred == 0 {
		e.Occurred = c.At
	}
	_, err := c.Exec(`INSERT INTO audit_events
		(tenant_id, occurred_at, category, operation, actor, table_name, entity_pk, entity_label, rows_affected)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		e.TenantID, int64(e.Occurred), e.Category, e.Operation, e.Actor,
		orNull(e.Table), orNull(e.Key), orNull(e.Label), e.Rows)
	return err
}

func orNull(s string) sql.NullString { return sql.NullString{String: s, Valid: s != ""} }

// AuditFilter restricts ListAudit. Nil and "" restrict nothing.
type AuditFilter struct {
	TenantID  *int64        // nil: all of the instance
	Start     *model.Micros // both inclusive
	End       *model.Micros
	Category  string
	Operation string
	Actor     string
	ActorPart string // a part of the actor, in upper or lower case
	Tenant    string // token; an unknown one matches nothing
	Table     string
	Key       string
}

// ListAudit returns a page of the journal, newest first, and the number of all matching rows.
func ListAudit(tx Tx, page Page, f AuditFilter) (events []AuditEvent, total int64, err error) {
	var q where
	if f.TenantID != nil {
		q.add("tenant_id = ?", *f.TenantID)
	}
	if f.Start != nil {
		q.add("occurred_at >= ?", int64(*f.Start))
	}
	if f.End != nil {
		q.add("occurred_at <= ?", int64(*f.End))
	}
	for _, c := range []struct{ condition, value string }{
		{"category = ?", f.Category}, {"operation = ?", f.Operation}, {"actor = ?", f.Actor},
		{"instr(fold(actor), fold(?)) > 0", f.ActorPart}, {"tenant_id = (SELECT id FROM tenants WHERE token = ?)", f.Tenant},
		{"table_name = ?", f.Table}, {"entity_pk = ?", f.Key},
	} {
		if c.value != "" {
			q.add(c.condition, c.value)
		}
	}
	if err := tx.QueryRow(`SELECT count(*) FROM audit_events`+q.text(), q.args...).Scan(&total); err != nil {
		return nil, 0, err
	}
	limit, offset := page.bounds()
	rows, err := tx.Query(`SELECT id, tenant_id, occurred_at, category, operation, actor,
		coalesce(table_name, ''), coalesce(entity_pk, ''), coalesce(entity_label, ''), rows_affected
		FROM audit_events`+q.text()+` ORDER BY occurred_at DESC, id DESC LIMIT ? OFFSET ?`, append(q.args, limit, offset)...)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var e AuditEvent
		if err := rows.Scan(&e.ID, &e.TenantID, &e.Occurred, &e.Category, &e.Operation, &e.Actor,
			&e.Table, &e.Key, &e.Label, &e.Rows); err != nil {
			return nil, 0, err
		}
		events = append(events, e)
	}
	return events, total, rows.Err()
}
