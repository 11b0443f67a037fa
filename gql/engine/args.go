package engine

import (
	"fmt"
	"maps"
	"reflect"
	"sync"
)

// Args holds the coerced arguments of a field or the fields of an input object: exactly those that were sent or have a
// default. Values are nil, string (String, ID and enums), int (Int), float64, bool, []any and, for input objects,
// map[string]any. The values are shared and must not be changed.
type Args struct{ m map[string]any }

// Has reports whether name was sent, as null or with a value.
func (a Args) Has(name string) bool { _, ok := a.m[name]; return ok }

// IsNull reports whether name was sent as null.
func (a Args) IsNull(name string) bool { v, ok := a.m[name]; return ok && v == nil }

// String returns the argument, "" when absent or null.
func (a Args) String(name string) string { v, _ := a.m[name].(string); return v }

// Text returns an optional string, nil when absent or null.
func (a Args) Text(name string) *string {
	if s, ok := a.m[name].(string); ok {
		return &s
	}
	return nil
}

// Int returns the argument, 0 when absent or null.
func (a Args) Int(name string) int { v, _ := a.m[name].(int); return v }

// Bool returns the argument, false when absent or null.
func (a Args) Bool(name string) bool { v, _ := a.m[name].(bool); return v }

// Strings returns a list argument without its nulls, nil when absent or null.
func (a Args) Strings(name string) []string {
	list, ok := a.m[name].([]any)
	if !ok {
		return nil
	}
	out := make([]string, 0, len(list))
	for _, v := range list {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// Object returns an input object, empty when absent or null.
func (a Args) Object(name string) Args { m, _ := a.m[name].(map[string]any); return Args{m} }

// Map returns all values.
func (a Args) Map() map[string]any { return a.m }

// Patch returns the fields of an input object that were sent, nil standing for null: an update's three states.
func (a Args) Patch(name string) map[string]any {
	m, _ := a.m[name].(map[string]any)
	return maps.Clone(m)
}

// Decode fills the struct that dst points to from the fields with a tag gql:"name", those of embedded structs included.
// Absent leaves a field alone; null too, except that it clears a pointer, a slice and a map and marks an Opt. Types may
// be those of Args or named after them, any integer kind for Int, structs for input objects, pointers and Opt around
// these and slices of these. An error is a mistake in the calling code, never in the request.
func (a Args) Decode(dst any) error {
	v := reflect.ValueOf(dst)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("engine: Decode into %T, want a pointer to a struct", dst)
	}
	return decodeStruct(a.m, v.Elem())
}

func decodeStruct(m map[string]any, dst reflect.Value) error {
	for _, f := range taggedFields(dst.Type()) {
		v, ok := m[f.name]
		if !ok {
			continue
		}
		if err := decodeValue(v, dst.FieldByIndex(f.index)); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

func decodeValue(v any, dst reflect.Value) error {
	if o, ok := dst.Addr().Interface().(optional); ok {
		if v == nil {
			o.setNull()
			return nil
		}
		return decodeValue(v, reflect.ValueOf(o.target()).Elem())
	}
	if v == nil {
		switch dst.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
			dst.SetZero()
		}
		return nil
	}
	switch dst.Kind() {
	case reflect.Pointer:
		p := reflect.New(dst.Type().Elem())
		if err := decodeValue(v, p.Elem()); err != nil {
			return err
		}
		dst.Set(p)
		return nil
	case reflect.Interface:
		if dst.NumMethod() == 0 {
			dst.Set(reflect.ValueOf(v))
			return nil
		}
	}
	switch v := v.(type) {
	case map[string]any:
		switch {
		case dst.Kind() == reflect.Struct:
			return decodeStruct(v, dst)
		case dst.Type() == reflect.TypeFor[map[string]any]():
			dst.Set(reflect.ValueOf(maps.Clone(v)))
			return nil
		}
	case []any:
		if dst.Kind() == reflect.Slice {
			return decodeSlice(v, dst)
		}
	case string:
		if dst.Kind() == reflect.String {
			dst.SetString(v)
			return nil
		}
	case bool:
		if dst.Kind() == reflect.Bool {
			dst.SetBool(v)
			return nil
		}
	case float64:
		if dst.CanFloat() {
			dst.SetFloat(v)
			return nil
		}
	case int:
		return decodeInt(v, dst)
	}
	return fmt.Errorf("%T does not fit into %s", v, dst.Type())
}

func decodeInt(v int, dst reflect.Value) error {
	switch {
	case dst.CanInt() && !dst.OverflowInt(int64(v)):
		dst.SetInt(int64(v))
	case dst.CanUint() && v >= 0 && !dst.OverflowUint(uint64(v)):
		dst.SetUint(uint64(v))
	case dst.CanFloat():
		dst.SetFloat(float64(v))
	default:
		return fmt.Errorf("%d does not fit into %s", v, dst.Type())
	}
	return nil
}

func decodeSlice(list []any, dst reflect.Value) error {
	out := reflect.MakeSlice(dst.Type(), len(list), len(list))
	for i, v := range list {
		if err := decodeValue(v, out.Index(i)); err != nil {
			return fmt.Errorf("%d: %w", i, err)
		}
	}
	dst.Set(out)
	return nil
}

// taggedField is a Go field that a schema field is read from or written to.
type taggedField struct {
	name     string
	index    []int
	typ      reflect.Type
	omitZero bool // tag gql:"name,omitzero": the zero value is shown as null
	never    bool // always shown as null
}

// structFields caches the tagged fields per struct type. They follow from the type alone and the program has a fixed
// number of types, so all servers of a process share the cache and it needs no bound.
var structFields sync.Map // reflect.Type → []taggedField

func taggedFields(t reflect.Type) []taggedField {
	if fs, ok := structFields.Load(t); ok {
		return fs.([]taggedField)
	}
	var fs []taggedField
	for _, f := range reflect.VisibleFields(t) {
		tag, ok := f.Tag.Lookup("gql")
		if !ok || !f.IsExported() {
			continue
		}
		name, omit := cutTag(tag)
		fs = append(fs, taggedField{name: name, index: f.Index, typ: f.Type, omitZero: omit})
	}
	structFields.Store(t, fs)
	return fs
}
