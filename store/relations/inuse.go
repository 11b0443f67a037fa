package relations

import (
	"math"
	"slices"

	"weir/model"
	"weir/store"
)

// The keys of SHARED attributes of devices that selectors name are kept with a row id: the values of the devices up to it are in the
// metadata view, whatever their type, and those of the others are not. Numbers are in it anyway.

// AllDevices is the row id of a key whose values are all in the view.
const AllDevices = math.MaxInt64

// KeysInUse returns the keys of a tenant, each with the row id up to which its values are in the view.
func KeysInUse(tx store.Tx, tenant int64) (map[string]int64, error) {
	rows, err := tx.Query(`SELECT key, through FROM attribute_keys_in_use WHERE tenant_id = ?`, tenant)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	keys := map[string]int64{}
	for rows.Next() {
		var key string
		var through int64
		if err := rows.Scan(&key, &through); err != nil {
			return nil, err
		}
		keys[key] = through
	}
	return keys, rows.Err()
}

// TenantsWithKeys returns the row ids of the tenants that have keys.
func TenantsWithKeys(tx store.Tx) ([]int64, error) {
	return columnOf[int64](tx, `SELECT DISTINCT tenant_id FROM attribute_keys_in_use ORDER BY 1`)
}

// KeyReaches reports whether the value of a device under a key is in the view whatever its type.
func KeyReaches(tx store.Tx, tenant int64, key string, device int64) (reaches bool, err error) {
	err = tx.QueryRow(`SELECT EXISTS (SELECT 1 FROM attribute_keys_in_use WHERE tenant_id = ? AND key = ? AND through >= ?)`, tenant, key, device).Scan(&reaches)
	return reaches, err
}

// ReachKey notes that the values of the devices up to a row id are in the view, and no others. With 0 the key is no longer in use.
func ReachKey(tx store.Tx, tenant int64, key string, through int64) (err error) {
	if through > 0 {
		_, err = tx.Exec(`INSERT INTO attribute_keys_in_use (tenant_id, key, through) VALUES (?, ?, ?)
			ON CONFLICT (tenant_id, key) DO UPDATE SET through = excluded.through`, tenant, key, through)
	} else {
		_, err = tx.Exec(`DELETE FROM attribute_keys_in_use WHERE tenant_id = ? AND key = ?`, tenant, key)
	}
	return err
}

// otherThanNumbers are the SHARED attributes of devices under a key whose values are no numbers, between two row ids of devices. They
// have an index of their own.
const otherThanNumbers = ` FROM attributes INDEXED BY attributes_other_than_numbers WHERE tenant_id = ? AND entity_type = 'device' AND scope = 'SHARED' AND key = ?
	AND entity_id > ? AND entity_id <= ? AND (number_value IS NULL OR value_type NOT IN ('LONG', 'DOUBLE'))`

// CountOtherThanNumbers counts, up to limit, the devices after a row id that have a SHARED attribute of a key whose value is no number.
func CountOtherThanNumbers(tx store.Tx, tenant int64, key string, after, limit int64) (n int64, err error) {
	err = tx.QueryRow(`SELECT count(*) FROM (SELECT 1`+otherThanNumbers+` LIMIT ?)`, tenant, key, after, int64(AllDevices), limit).Scan(&n)
	return n, err
}

// OtherThanNumbers calls f for the first devices after a row id, at most limit of them (-1: all), that have a SHARED attribute of a key
// whose value is no number, in the order of their row ids.
func OtherThanNumbers(tx store.Tx, tenant int64, key string, after, limit int64, f func(device int64, value model.AttributeView) error) error {
	rows, err := tx.Query(`SELECT entity_id, value_type, text_value, number_value`+otherThanNumbers+` ORDER BY entity_id LIMIT ?`, tenant, key, after, int64(AllDevices), limit)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var device int64
		var valueType string
		var text *string
		var number *float64
		if err := rows.Scan(&device, &valueType, &text, &number); err != nil {
			return err
		}
		if err := f(device, AttributeValue(valueType, text, number)); err != nil {
			return err
		}
	}
	return rows.Err()
}

// LastOtherThanNumbers returns the last devices up to a row id, at most limit of them, that OtherThanNumbers would find, the last first.
func LastOtherThanNumbers(tx store.Tx, tenant int64, key string, through, limit int64) ([]int64, error) {
	return columnOf[int64](tx, `SELECT entity_id`+otherThanNumbers+` ORDER BY entity_id DESC LIMIT ?`, tenant, key, 0, through, limit)
}

// AttributeValue is the value of a row of attributes as resolution reads it.
func AttributeValue(valueType string, text *string, number *float64) model.AttributeView {
	v := model.AttributeView{V: 1}
	switch {
	case valueType == "STRING":
		v.Text = text
	case number == nil:
	case valueType == "BOOLEAN":
		v.Bool = new(*number != 0)
	default:
		v.Number = number
	}
	return v
}

// Memberships returns the tokens of the static groups that a device is a member of, sorted.
func Memberships(tx store.Tx, tenant, device int64) ([]string, error) {
	// the index is named as in addAnchors
	tokens, err := columnOf[string](tx, `SELECT r.source_token FROM `+table+` r INDEXED BY entity_relationships_target
		CROSS JOIN entity_relationship_types t ON t.id = r.type_id
		WHERE r.tenant_id = ? AND r.target_type = 'device' AND r.target_id = ? AND r.source_type = ? AND t.token = ?`,
		tenant, device, GroupType, MemberRelation)
	slices.Sort(tokens)
	return slices.Compact(tokens), err
}

// DevicesIn returns the row ids of the devices that are members of a static group.
func DevicesIn(tx store.Tx, tenant, group int64) ([]int64, error) {
	m := Members{Tenant: tenant, Type: "device", Group: group}
	q := m.targets()
	q.text = `SELECT DISTINCT r.target_id FROM ` + q.text + ` ORDER BY 1`
	return q.ids(tx, nil)
}

// columnOf reads a statement that gives one column.
func columnOf[T any](tx store.Tx, query string, args ...any) (all []T, err error) {
	return store.Column[T](tx, query, args...)
}
