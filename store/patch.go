package store

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"weir/model"
)

// set puts the value of a patch into a field of row, or refuses it by the field's rules. Errors are *model.Error with the
// field, except those of the store.
func (f *Field) set(tx Tx, tenantID int64, row reflect.Value, v any) error {
	if s, ok := v.(string); ok && s == "" && f.EmptyClears {
		v = nil
	}
	if v == nil {
		if !f.Clear {
			return model.Invalid(f.Label, "null is refused")
		}
		row.FieldByIndex(f.index).SetZero()
		return nil
	}
	if f.Ref != "" {
		return f.setRef(tx, tenantID, row, v)
	}
	value, err := f.value(v)
	if err != nil {
		return err
	}
	f.put(row, value)
	return nil
}

// check puts the value of a patch into a field of row as set does, but for references, of which it checks the form.
func (f *Field) check(row reflect.Value, v any) error {
	token, isText := v.(string)
	switch {
	case f.Ref == "" || v == nil || isText && token == "" && f.EmptyClears:
		return f.set(nil, 0, row, v)
	case !isText:
		return model.Invalid(f.Label, "a token was expected")
	}
	return model.CheckToken(f.Label, token)
}

// put sets a field to a value of its type without the pointer.
func (f *Field) put(row, value reflect.Value) {
	to := row.FieldByIndex(f.index)
	if f.null {
		p := reflect.New(f.typ)
		p.Elem().Set(value)
		value = p
	}
	to.Set(value)
}

// get is the inverse of put: the value as a patch holds it. The zero value of a clearable field without a pointer
// means null.
func (f *Field) get(v reflect.Value) any {
	switch {
	case f.null && v.IsNil(), f.Clear && !f.null && !f.List && v.IsZero():
		return nil
	case f.null:
		v = v.Elem()
	}
	switch {
	case f.List, f.typ == microsType:
	case isInt(f.typ.Kind()):
		return v.Int()
	case f.typ.Kind() == reflect.String:
		return v.String()
	}
	return v.Interface()
}

// Nullable reports whether the column may be null.
func (f *Field) Nullable() bool { return f.null }

// Type is the Go type of the field's values, without a pointer.
func (f *Field) Type() reflect.Type { return f.typ }

// setRef resolves a token. An unknown one is the caller's mistake, not a missing record.
func (f *Field) setRef(tx Tx, tenantID int64, row reflect.Value, v any) error {
	token, ok := v.(string)
	if !ok {
		return model.Invalid(f.Label, "a token was expected")
	}
	id, err := refID(tx, f.Ref, f.Shared, tenantID, token)
	if err != nil {
		return err
	}
	if id == 0 {
		return model.Invalid(f.Label, "%s does not exist", quoted(token))
	}
	f.put(row, reflect.ValueOf(id).Convert(f.typ))
	return nil
}

// refID returns the row id of a token, 0 when there is none.
func refID(tx Tx, table string, shared bool, tenantID int64, token string) (id int64, err error) {
	if !model.ValidToken(token) {
		return 0, nil
	}
	if shared {
		err = tx.QueryRow(`SELECT id FROM `+table+` WHERE token = ?`, token).Scan(&id)
	} else {
		err = tx.QueryRow(`SELECT id FROM `+table+` WHERE tenant_id = ? AND token = ?`, tenantID, token).Scan(&id)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return id, err
}

// value converts and checks the value of a patch that is neither null nor a reference.
func (f *Field) value(v any) (reflect.Value, error) {
	switch {
	case f.List:
		return f.list(v)
	case f.JSON:
		return f.document(v)
	case f.typ == microsType:
		return f.instant(v)
	}
	switch f.typ.Kind() {
	case reflect.String:
		s, ok := v.(string)
		if !ok {
			return reflect.Value{}, model.Invalid(f.Label, "a text was expected")
		}
		return reflect.ValueOf(s).Convert(f.typ), f.checkText(s)
	case reflect.Bool:
		b, ok := v.(bool)
		if !ok {
			return reflect.Value{}, model.Invalid(f.Label, "true or false was expected")
		}
		return reflect.ValueOf(b).Convert(f.typ), nil
	case reflect.Float64:
		return f.float(v)
	default:
		return f.integer(v)
	}
}

func (f *Field) checkText(s string) error {
	switch {
	case f.Token:
		return f.checkToken(f.Label, s)
	case f.NonEmpty && strings.TrimSpace(s) == "":
		return model.Invalid(f.Label, "must not be empty")
	case strings.ContainsRune(s, 0) || !utf8.ValidString(s):
		return model.Invalid(f.Label, "holds a character that cannot be stored")
	case f.Max > 0 && int64(len(s)) > f.Max && int64(utf8.RuneCountInString(s)) > f.Max:
		return model.Invalid(f.Label, "is longer than %d characters", f.Max)
	case f.OneOf != nil && !slices.Contains(f.OneOf, s):
		return model.Invalid(f.Label, "%s is none of %s", quoted(s), strings.Join(f.OneOf, ", "))
	}
	return nil
}

// document accepts JSON as a string, which is kept as it is, or as an object or a list.
func (f *Field) document(v any) (reflect.Value, error) {
	s, ok := v.(string)
	if !ok {
		b, err := json.Marshal(v)
		if err != nil {
			return reflect.Value{}, model.Invalid(f.Label, "is no JSON document")
		}
		s = string(b)
	}
	switch {
	case f.Max > 0 && int64(len(s)) > f.Max:
		return reflect.Value{}, model.OverLimit(f.Label, "is larger than %d bytes", f.Max)
	case !json.Valid([]byte(s)), !utf8.ValidString(s):
		return reflect.Value{}, model.Invalid(f.Label, "is no well-formed JSON document")
	case strings.TrimSpace(s) == "null":
		return reflect.Value{}, model.Invalid(f.Label, "the document null is refused")
	}
	return reflect.ValueOf(s).Convert(f.typ), nil
}

func (f *Field) instant(v any) (reflect.Value, error) {
	switch x := v.(type) {
	case model.Micros:
		return reflect.ValueOf(x), nil
	case string:
		t, err := model.ParseTime(x)
		if err != nil {
			return reflect.Value{}, model.Invalid(f.Label, "%s is no RFC 3339 time", quoted(x))
		}
		return reflect.ValueOf(model.MicrosOf(t)), nil
	}
	return reflect.Value{}, model.Invalid(f.Label, "a time was expected")
}

func (f *Field) list(v any) (reflect.Value, error) {
	var list []string
	switch x := v.(type) {
	case []string:
		list = slices.Clone(x)
	case []any:
		for _, e := range x {
			s, ok := e.(string)
			if !ok {
				return reflect.Value{}, model.Invalid(f.Label, "a list of texts was expected")
			}
			list = append(list, s)
		}
	default:
		return reflect.Value{}, model.Invalid(f.Label, "a list was expected")
	}
	switch {
	case f.NonEmpty && len(list) == 0:
		return reflect.Value{}, model.Invalid(f.Label, "must not be empty")
	case f.Max > 0 && int64(len(list)) > f.Max:
		return reflect.Value{}, model.Invalid(f.Label, "has more than %d entries", f.Max)
	}
	return reflect.ValueOf(list), nil
}

func (f *Field) float(v any) (reflect.Value, error) {
	var x float64
	switch n := v.(type) {
	case float64:
		x = n
	case int64:
		x = float64(n)
	case int:
		x = float64(n)
	default:
		return reflect.Value{}, model.Invalid(f.Label, "a number was expected")
	}
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return reflect.Value{}, model.Invalid(f.Label, "must be finite")
	case f.Min != nil && x < float64(*f.Min):
		return reflect.Value{}, model.Invalid(f.Label, "must be at least %d", *f.Min)
	case f.Max > 0 && x > float64(f.Max):
		return reflect.Value{}, model.Invalid(f.Label, "must be at most %d", f.Max)
	}
	return reflect.ValueOf(x).Convert(f.typ), nil
}

func (f *Field) integer(v any) (reflect.Value, error) {
	var n int64
	switch x := v.(type) {
	case int64:
		n = x
	case int:
		n = int64(x)
	case int32:
		n = int64(x)
	default:
		return reflect.Value{}, model.Invalid(f.Label, "a whole number was expected")
	}
	switch {
	case f.Min != nil && n < *f.Min:
		return reflect.Value{}, model.Invalid(f.Label, "must be at least %d", *f.Min)
	case f.Max > 0 && n > f.Max:
		return reflect.Value{}, model.Invalid(f.Label, "must be at most %d", f.Max)
	case reflect.Zero(f.typ).OverflowInt(n):
		return reflect.Value{}, model.Invalid(f.Label, "is too large")
	}
	return reflect.ValueOf(n).Convert(f.typ), nil
}

// quoted quotes a value for a message and shortens it to 40 characters.
func quoted(s string) string {
	const maximum = 40
	if utf8.RuneCountInString(s) <= maximum {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q…", string([]rune(s)[:maximum]))
}
