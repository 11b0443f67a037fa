package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"weir/internal/setting"
)

// key is one key that holds a value; a secret is one.
type key struct {
	field
	path string
}

// section is the path of what holds the key, "" at the top; name is the key in it.
func (k key) section() string {
	i := strings.LastIndexByte(k.path, '.')
	return k.path[:max(i, 0)]
}

func (k key) name() string { return k.path[strings.LastIndexByte(k.path, '.')+1:] }

// keys are all keys in the order of the struct.
func (c *Config) keys() []key { return keysOf(ofConfig(c)) }

func keysOf(in reflect.Value) []key {
	var out []key
	leaves(in, "", func(path string, f field) {
		if !f.reference() {
			out = append(out, key{f, path})
		}
	})
	return out
}

// text writes a value as a variable takes it, a secret never.
func text(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return duration(x)
	case []string:
		return strings.Join(x, ",")
	case setting.Texts:
		items := make([]string, 0, len(x))
		for _, name := range slices.Sorted(maps.Keys(x)) {
			items = append(items, name+"="+x[name])
		}
		return strings.Join(items, ",")
	}
	if setting.IsSections(v) {
		return ""
	}
	return fmt.Sprint(v.Interface())
}

// yaml writes a value as the file takes it, on one line.
func (k key) yaml() string {
	switch {
	case k.secret() && k.value.IsZero():
		return `""`
	case k.secret():
		return shownSecret
	case k.value.Kind() == reflect.String:
		return quoted(k.value.String())
	case k.kind == fieldList:
		items := make([]string, k.value.Len())
		for i := range items {
			items[i] = quoted(k.value.Index(i).String())
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	switch x := k.value.Interface().(type) {
	case setting.Texts:
		items := make([]string, 0, len(x))
		for _, name := range slices.Sorted(maps.Keys(x)) {
			items = append(items, quoted(name)+": "+quoted(x[name]))
		}
		return "{" + strings.Join(items, ", ") + "}"
	}
	if k.kind == fieldSections {
		return "[]"
	}
	return text(k.value)
}

// quoted writes a string in quotes, as JSON and YAML both read it.
func quoted(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always can be
	return strings.TrimSuffix(b.String(), "\n")
}

// json is a value as JSON takes it: sizes and durations as texts.
func (k key) json() any {
	switch x := k.value.Interface().(type) {
	case bool, int, int64, float64, string:
		return x
	case []string:
		if x == nil {
			return []string{}
		}
		return x
	case setting.Texts:
		if x == nil {
			return setting.Texts{}
		}
		return x
	}
	if k.kind == fieldSections {
		return []any{}
	}
	return text(k.value)
}

// duration drops the zeros that time.Duration writes after the unit that matters.
func duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
