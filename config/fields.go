package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"weir/internal/yamldoc"
)

// fieldKind says what a key holds.
type fieldKind uint8

const (
	fieldScalar fieldKind = iota
	fieldList
	fieldSection
	// A secret's key has others next to it, which say where its value is.
	fieldSecretFile       // key_file: in that file
	fieldSecretEnv        // key_env: in that variable
	fieldSecretCredential // key_credential: in that file of $CREDENTIALS_DIRECTORY, where systemd puts it
)

// references are the kinds that say where a secret stands, and how the keys of such end.
var references = []struct {
	kind   fieldKind
	suffix string
}{{fieldSecretFile, "_file"}, {fieldSecretEnv, "_env"}, {fieldSecretCredential, "_credential"}}

// field is a key of the configuration and where its value goes.
type field struct {
	kind  fieldKind
	value reflect.Value
	tag   reflect.StructTag
}

func (f field) secret() bool { return f.value.Type() == reflect.TypeFor[Secret]() }

// reference reports whether the key says where a secret stands, not what it is.
func (f field) reference() bool { return f.kind >= fieldSecretFile }

func (f field) doc() string      { return f.tag.Get("doc") }
func (f field) reloadable() bool { return f.tag.Get("reload") == "yes" }
func (f field) enum() []string   { return strings.Fields(f.tag.Get("enum")) }

// path is the key under which it is known where a value was given: a secret is one key, however it is spelled.
func (f field) path(path string) string {
	for _, r := range references {
		if f.kind == r.kind {
			return strings.TrimSuffix(path, r.suffix)
		}
	}
	return path
}

// fieldOf finds the field of a struct that a key names.
func fieldOf(in reflect.Value, key string) (field, bool) {
	for sf, v := range in.Fields() {
		name := sf.Tag.Get("yaml")
		if name == "" { // no key
			continue
		}
		f := field{kind: kindOf(v), value: v, tag: sf.Tag}
		if name == key {
			return f, true
		}
		for _, r := range references {
			if f.secret() && key == name+r.suffix {
				f.kind = r.kind
				return f, true
			}
		}
	}
	return field{}, false
}

func kindOf(v reflect.Value) fieldKind {
	switch {
	case v.Type() == reflect.TypeFor[Secret]():
		return fieldScalar
	case v.Kind() == reflect.Struct:
		return fieldSection
	case v.Type() == reflect.TypeFor[[]string]():
		return fieldList
	}
	return fieldScalar
}

// fieldAt follows a path of keys. A path that continues after a value names nothing.
func fieldAt(in reflect.Value, path string) (field, bool) {
	head, rest, more := strings.Cut(path, ".")
	f, ok := fieldOf(in, head)
	if !ok || !more {
		return f, ok
	}
	if f.kind != fieldSection {
		return field{}, false
	}
	return fieldAt(f.value, rest)
}

func names(in reflect.Value) []string {
	var out []string
	for sf, v := range in.Fields() {
		name := sf.Tag.Get("yaml")
		if name == "" {
			continue
		}
		out = append(out, name)
		if v.Type() == reflect.TypeFor[Secret]() {
			for _, r := range references {
				out = append(out, name+r.suffix)
			}
		}
	}
	return out
}

// leaves calls f for every key that holds a value.
func leaves(in reflect.Value, path string, f func(string, field)) {
	for _, name := range names(in) {
		fd, _ := fieldOf(in, name)
		if fd.kind == fieldSection {
			leaves(fd.value, yamldoc.Join(path, name), f)
			continue
		}
		f(yamldoc.Join(path, name), fd)
	}
}

// shownSecret is what commands show in place of a secret.
const shownSecret = "(set)"

// set parses text into the field and returns what is wrong with it. A list stands in one text with commas between.
func (f field) set(text string) string {
	if f.kind == fieldList {
		f.setList(splitList(text))
		return ""
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
	case *[]string:
		*p = strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
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

// setList sets a list. An empty one is nil, so that two of them are alike.
func (f field) setList(items []string) {
	if len(items) == 0 {
		items = nil
	}
	f.value.Set(reflect.ValueOf(items))
}

// splitList takes a list out of a variable or a flag.
func splitList(text string) []string {
	var items []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

func ofConfig(c *Config) reflect.Value { return reflect.ValueOf(c).Elem() }
