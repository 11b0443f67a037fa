package relations

import (
	"cmp"
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

// addAnchors reads by the index of the relationships' sources alone: the planner, which knows nothing of the values, would rather walk
// all relationships of the tenant, in the order of an index over their targets, to save itself a sort.
func addAnchors(tx store.Tx, anchors map[int64][]model.Anchor, tenant int64, devices []int64) error {
	args := []any{tenant}
	for _, id := range devices {
		args = append(args, id)
	}
	rows, err := tx.Query(`SELECT r.source_id, r.target_type, r.target_token FROM `+table+` r INDEXED BY entity_relationships_source
		CROSS JOIN entity_relationship_types t ON t.id = r.type_id
		WHERE r.tenant_id = ? AND r.source_type = 'device' AND r.source_id IN (?`+strings.Repeat(", ?", len(devices)-1)+`) AND t.tracked = 1`, args...)
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
	for _, id := range devices {
		anchors[id] = sorted(anchors[id])
	}
	return rows.Err()
}

// sorted are anchors in the order of type and token, each once; nil where there is none.
func sorted(all []model.Anchor) []model.Anchor {
	slices.SortFunc(all, func(a, b model.Anchor) int { return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Token, b.Token)) })
	return slices.Compact(all)
}

// AnchoredTo returns the row ids of the devices of which a tracked relationship leads to an entity.
func AnchoredTo(tx store.Tx, tenant int64, entityType string, id int64) ([]int64, error) {
	return store.Column[int64](tx, `SELECT DISTINCT r.source_id FROM `+table+` r INDEXED BY entity_relationships_target
		CROSS JOIN entity_relationship_types t ON t.id = r.type_id
		WHERE r.tenant_id = ? AND r.target_type = ? AND r.target_id = ? AND r.source_type = 'device' AND t.tracked = 1 ORDER BY 1`, tenant, entityType, id)
}

// HavingType returns the row ids of the devices that have relationships of a type, at most limit of them.
func HavingType(tx store.Tx, tenant, relationshipType, limit int64) ([]int64, error) {
	return store.Column[int64](tx, `SELECT DISTINCT r.source_id FROM `+table+` r INDEXED BY entity_relationships_of_type
		WHERE r.type_id = ? AND r.tenant_id = ? AND r.source_type = 'device' ORDER BY 1 LIMIT ?`, relationshipType, tenant, limit)
}
