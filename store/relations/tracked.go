package relations

import (
	"slices"
	"strings"

	"weir/model"
	"weir/store"
)

// maxIn is the maximum number of devices in one statement.
const maxIn = 512

// Anchors returns what the tracked relationships of some devices lead to, by the row id of the device: in the order of type and
// token, each once.
func Anchors(tx store.Tx, tenant int64, devices ...int64) (map[int64][]model.Anchor, error) {
	anchors := make(map[int64][]model.Anchor, len(devices))
	for some := range slices.Chunk(devices, maxIn) {
		if err := addAnchors(tx, anchors, tenant, some); err != nil {
			return nil, err
		}
	}
	return anchors, nil
}

func addAnchors(tx store.Tx, anchors map[int64][]model.Anchor, tenant int64, devices []int64) error {
	args := []any{tenant}
	for _, id := range devices {
		args = append(args, id)
	}
	rows, err := tx.Query(`SELECT DISTINCT r.source_id, r.target_type, r.target_token FROM `+table+` r JOIN entity_relationship_types t ON t.id = r.type_id
		WHERE r.tenant_id = ? AND r.source_type = 'device' AND r.source_id IN (?`+strings.Repeat(", ?", len(devices)-1)+`) AND t.tracked = 1 ORDER BY 1, 2, 3`, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var a model.Anchor
		if err := rows.Scan(&id, &a.Type, &a.Token); err != nil {
			return err
		}
		anchors[id] = append(anchors[id], a)
	}
	return rows.Err()
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
	return store.Column[int64](tx, `SELECT DISTINCT r.source_id FROM `+table+` r JOIN entity_relationship_types t ON t.id = r.type_id
		WHERE r.tenant_id = ? AND r.source_type = 'device' AND `+condition+` ORDER BY 1`, args...)
}
