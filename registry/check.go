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
