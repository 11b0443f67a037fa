// Package relations is the SQL of relationships between entities, and of the groups that relationships and attributes make:
// their members, and what goes with an entity. Entities are named by the type under which the API shows them and their row
// id; their rows are in the table of the type.
package relations

import (
	"errors"

	"weir/store"
)

// GroupType is the type of groups, and MemberRelation the token of the relationship type that makes an entity a member of a
// static one.
const (
	GroupType      = "group"
	MemberRelation = "member"
)

// table holds the relationships.
const table = "entity_relationships"

// texts are its columns of strings, as the bytes of a tenant's rows are counted.
func texts() []string {
	return []string{"token", "source_type", "source_token", "target_type", "target_token", "metadata"}
}

// Remove removes the relationships of an entity that goes, at either end, with one row of the journal. label is the entity's
// name in it. It returns how many there were.
func Remove(c *store.Change, tenant int64, entityType string, id int64, label string) (removed int64, err error) {
	for _, end := range []string{"source", "target"} {
		n, err := removeEnd(c, tenant, end, entityType, id)
		if err != nil {
			return 0, err
		}
		removed += n
	}
	if removed == 0 {
		return 0, nil
	}
	return removed, c.Audit(store.AuditEvent{TenantID: tenant, Category: store.AuditMutation, Operation: store.AuditDelete, Table: table,
		Label: entityType + " " + label, Rows: removed})
}

func removeEnd(c *store.Change, tenant int64, end, entityType string, id int64) (removed int64, err error) {
	rows, err := c.Query(`DELETE FROM `+table+` WHERE tenant_id = ? AND `+end+`_type = ? AND `+end+`_id = ? RETURNING `+store.RowSize(texts()...),
		tenant, entityType, id)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var bytes int64
	for rows.Next() {
		var size int64
		if err := rows.Scan(&size); err != nil {
			return 0, err
		}
		bytes, removed = bytes+size, removed+1
	}
	return removed, errors.Join(rows.Err(), rows.Close(), c.Grown(tenant, -bytes))
}

// MaxTracked returns how many tracked relationships the device of a tenant has that has most, if those of one more type were
// tracked.
func MaxTracked(tx store.Tx, tenant, relationshipType int64) (n int64, err error) {
	err = tx.QueryRow(`SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM `+table+` r
		JOIN entity_relationship_types t ON t.id = r.type_id
		WHERE r.tenant_id = ? AND r.source_type = 'device' AND (t.tracked = 1 OR t.id = ?) GROUP BY r.source_id) AS counted`,
		tenant, relationshipType).Scan(&n)
	return n, err
}
