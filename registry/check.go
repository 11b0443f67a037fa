package registry

import (
	"encoding/json"

	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// checkObject refuses JSON that is not an object. It returns the object's members.
func checkObject(field, s string) (map[string]json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(s), &members); err != nil || members == nil {
		return nil, model.Invalid(field, "must be a JSON object")
	}
	return members, nil
}

// checkStrings refuses JSON that is not an array of strings. It returns the strings.
func checkStrings(field, s string) ([]string, error) {
	var entries []*string
	if err := json.Unmarshal([]byte(s), &entries); err != nil || entries == nil {
		return nil, model.Invalid(field, "must be a JSON array of strings")
	}
	values := make([]string, len(entries))
	for i, e := range entries {
		if e == nil {
			return nil, model.Invalid(field, "must be a JSON array of strings")
		}
		values[i] = *e
	}
	return values, nil
}

// checkCount refuses one more row of a kind under an owner that has as many as it may. self is the row that is written, 0
// for a new one.
func checkCount[T any](tx store.Tx, k *entity.Kind[T], tenant int64, column string, owner, self, limit int64, what string) error {
	n, err := k.Table.Count(tx, tenant, store.Eq(column, owner), store.Ne("id", self))
	if err == nil && n >= limit {
		err = model.Errorf(model.CodeLimitExceeded, "at most %d %s", limit, what)
	}
	return err
}

// admitRows returns the Admit of a kind of which a tenant may have only as many rows as limit says; key is its configuration key.
func admitRows[T any](kind func() *entity.Kind[T], key string, limit func() int64) func(*store.Change, int64) error {
	return func(c *store.Change, n int64) error {
		have, err := kind().Table.Count(c, c.By.TenantID)
		if maximum := limit(); err == nil && have+n > maximum {
			err = model.OverLimit(key, "a tenant has at most %d", maximum)
		}
		return err
	}
}

// admitCounted is admitRows for a kind that may have so many rows that a count over all of them would cost: their number is
// stored. The kind's Removing is removeCounted.
func admitCounted(table, key string, limit func() int64) func(*store.Change, int64) error {
	return func(c *store.Change, n int64) error {
		have, err := store.AddRows(c, c.By.TenantID, table, n)
		if maximum := limit(); err == nil && have > maximum {
			err = model.OverLimit(key, "a tenant has at most %d", maximum)
		}
		return err
	}
}

// removeCounted is the Removing of a kind whose Admit is admitCounted.
func removeCounted[T any](table string) func(*store.Change, *T) error {
	return func(c *store.Change, _ *T) error {
		_, err := store.AddRows(c, c.By.TenantID, table, -1)
		return err
	}
}

// unique drops repeated keys.
func unique(keys []string) []string {
	seen := make(map[string]bool, len(keys))
	var out []string
	for _, key := range keys {
		if !seen[key] {
			seen[key] = true
			out = append(out, key)
		}
	}
	return out
}

// text is an optional text, "" for none.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
