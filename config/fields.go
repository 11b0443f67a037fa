package config

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

type fieldKind uint8

const (
	fieldScalar fieldKind = iota
	fieldSection
	fieldSecretFile // key_file beside a secret's key: the value stands in that file
	fieldSecretEnv  // key_env: the value is that variable's
)

// field is a key of the configuration and where its value goes.
type field struct {
	kind  fieldKind
	value reflect.Value
	doc   string
}

func (f field) secret() bool { return f.value.Type() == reflect.TypeFor[Secret]() }

// path is the key under which it is known where a value was given: a secret is one key, however it is spelled.
func (f field) path(path string) string {
	switch f.kind {
	case fieldSecretFile:
		return strings.TrimSuffix(path, "_file")
	case fieldSecretEnv:
		return strings.TrimSuffix(path, "_env")
	}
	return path
}

// fieldOf finds the field of a struct that a key names.
func fieldOf(in reflect.Value, key string) (field, bool) {
	for sf, v := range in.Fields() {
		name := sf.Tag.Get("yaml")
		f := field{value: v, doc: sf.Tag.Get("doc")}
		switch {
		case name == key && v.Kind() == reflect.Struct && !f.secret():
			f.kind = fieldSection
			return f, true
		case name == key:
			return f, true
		case f.secret() && key == name+"_file":
			f.kind = fieldSecretFile
			return f, true
		case f.secret() && key == name+"_env":
			f.kind = fieldSecretEnv
			return f, true
		}
	}
	return field{}, false
}

// fieldAt follows a path of keys.
func fieldAt(in reflect.Value, path string) (field, bool) {
	head, rest, more := strings.Cut(path, ".")
	f, ok := fieldOf(in, head)
	if !ok || !more {
		return f, ok
	}
	return fieldAt(f.value, rest)
}

func names(in reflect.Value) []string {
	var out []string
	for sf, v := range in.Fields() {
		name := sf.Tag.Get("yaml")
		out = append(out, name)
		if v.Type() == reflect.TypeFor[Secret]() {
			out = append(out, name+"_file", name+"_env")
		}
	}
	return out
}

// leaves calls f for every key that holds a value.
func leaves(in reflect.Value, path string, f func(string, field)) {
	for _, name := range names(in) {
		fd, _ := fieldOf(in, name)
		if fd.kind == fieldSection {
			leaves(fd.value, join(path, name), f)
			continue
		}
		f(join(path, name), fd)
	}
}

// set parses text into the field and returns what is wrong with it. quoted tells a string from a number or a word.
func (f field) set(text string, quoted bool, src Source) string {
	switch f.kind {
	case fieldSecretFile:
		return f.fromFile(text, src)
	case fieldSecretEnv:
		return f.fromVariable(text, src)
	}
	if u, ok := f.value.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if err := u.UnmarshalText([]byte(text)); err != nil {
			return err.Error()
		}
		return ""
	}
	switch p := f.value.Addr().Interface().(type) {
	case *string:
		*p = text
	case *bool:
		if text != "true" && text != "false" {
			return "must be true or false"
		}
		*p = text == "true"
	case *int:
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || len(text) > 1 && text[0] == '0' {
			return "must be a whole number"
		}
		*p = int(n)
	case *float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return "must be a number"
		}
		*p = n
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return "must be a duration such as 30s, 5m or 24h"
		}
		*p = d
	default:
		return fmt.Sprintf("has a type that cannot be set: %T", p)
	}
	return ""
}

func (f field) fromFile(path string, src Source) string {
	b, err := src.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("the file of the secret cannot be read: %v", err)
	}
	return f.reveal(strings.TrimRight(string(b), "\r\n"), "the file of the secret is empty")
}

func (f field) fromVariable(name string, src Source) string {
	i := slices.IndexFunc(src.Environ, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
	if i < 0 {
		return fmt.Sprintf("the variable %s is not set", name)
	}
	return f.reveal(src.Environ[i][len(name)+1:], fmt.Sprintf("the variable %s is empty", name))
}

func (f field) reveal(value, empty string) string {
	if value == "" {
		return empty
	}
	f.value.Set(reflect.ValueOf(NewSecret(value)))
	return ""
}

// nearest returns the name that differs least from s, "" when none is near.
func nearest(s string, names []string) string {
	best, least := "", len(s)/3+2
	for _, n := range slices.Sorted(slices.Values(names)) {
		if d := distance(s, n); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance is the number of letters to insert, remove or change.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

func ofConfig(c *Config) reflect.Value { return reflect.ValueOf(c).Elem() }
