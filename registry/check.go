package registry

import (
	"encoding/json"
	"unicode/utf8"

	"weir/model"
	"weir/store"
)

// checkMax refuses a text longer than most characters.
func checkMax(field string, s *string, most int) error {
	if s != nil && utf8.RuneCountInString(*s) > most {
		return model.Invalid(field, "is longer than %d characters", most)
	}
	return nil
}

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

// checkRoom refuses one more row of table under an owner that has as many as it may. self is the row that is written, 0
// for a new one.
func checkRoom(tx store.Tx, table, column string, owner, self, most int64, what string) error {
	var n int64
	if err := tx.QueryRow(`SELECT count(*) FROM `+table+` WHERE `+column+` = ? AND id <> ?`, owner, self).Scan(&n); err != nil {
		return err
	}
	if n >= most {
		return model.Errorf(model.CodeLimitExceeded, "at most %d %s", most, what)
	}
	return nil
}

// text is an optional text, "" for none.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
