package relations

import (
	"weir/model"
	"weir/store"
)

// Anchors returns what the tracked relationships of a device lead to, in the order of type and token, each once.
func Anchors(tx store.Tx, tenant, device int64) (anchors []model.Anchor, err error) {
	rows, err := tx.Query(`SELECT DISTINCT r.target_type, r.target_token FROM `+table+` r JOIN entity_relationship_types t ON t.id = r.type_id
		WHERE r.tenant_id = ? AND r.source_type = 'device' AND r.source_id = ? AND t.tracked = 1 ORDER BY 1, 2`, tenant, device)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var a model.Anchor
		if err := rows.Scan(&a.Type, &a.Token); err != nil {
			return nil, err
		}
		anchors = append(anchors, a)
	}
	return anchors, rows.Err()
}

// AnchoredTo returns the row ids of the devices of which a tracked relationship leads to an entity.
func AnchoredTo(tx store.Tx, tenant int64, entityType string, id int64) ([]int64, error) {
	return devices(tx, `r.target_type = ? AND r.target_id = ? AND t.tracked = 1`, tenant, entityType, id)
}

// HavingType returns the row ids of the devices that have relationships of a type.
func HavingType(tx store.Tx, tenant, relationshipType int64) ([]int64, error) {
	return devices(tx, `r.type_id = ?`, tenant, relationshipType)
}

// devices returns the row ids of the devices at the source of those relationships that a condition holds for.
func devices(tx store.Tx, condition string, args ...any) (ids []int64, err error) {
	rows, err := tx.Query(`SELECT DISTINCT r.source_id FROM `+table+` r JOIN entity_relationship_types t ON t.id = r.type_id
		WHERE r.tenant_id = ? AND r.source_type = 'device' AND `+condition+` ORDER BY 1`, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
