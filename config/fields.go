package config

import (
	"reflect"
	"strings"

	"weir/internal/setting"
	"weir/internal/yamldoc"
)

// fieldKind says what a key holds.
type fieldKind uint8

const (
	fieldScalar fieldKind = iota
	fieldList
	fieldTexts // names that the operator chooses, and their texts
	fieldSection
	fieldSections // a list of sections, each with a path of its own: sources[0]
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
	of    reflect.StructField
}

func (f field) secret() bool { return f.value.Type() == reflect.TypeFor[setting.Secret]() }

// reference reports whether the key says where a secret stands, not what it is.
func (f field) reference() bool { return f.kind >= fieldSecretFile }

func (f field) doc() string      { return f.of.Tag.Get("doc") }
func (f field) reloadable() bool { return f.of.Tag.Get("reload") == "yes" }
func (f field) enum() []string   { return strings.Fields(f.of.Tag.Get("enum")) }

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
	for sf, v := range setting.Keys(in) {
		name := sf.Tag.Get("yaml")
		f := field{kind: kindOf(v), value: v, of: sf}
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
	case setting.IsSection(v):
		return fieldSection
	case setting.IsSections(v):
		return fieldSections
	case v.Type() == reflect.TypeFor[[]string]():
		return fieldList
	case v.Type() == reflect.TypeFor[setting.Texts]():
		return fieldTexts
	}
	return fieldScalar
}

// fieldAt follows a path of keys. A path that continues after a value names nothing.
func fieldAt(in reflect.Value, path string) (field, bool) {
	head, rest, more := strings.Cut(path, ".")
	name, i, member := memberOf(head)
	f, ok := fieldOf(in, name)
	if ok && member {
		if f.kind != fieldSections || i >= f.value.Len() {
			return field{}, false
		}
		f = field{kind: fieldSection, value: f.value.Index(i), of: f.of}
	}
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
	for sf, v := range setting.Keys(in) {
		name := sf.Tag.Get("yaml")
		out = append(out, name)
		if v.Type() == reflect.TypeFor[setting.Secret]() {
			for _, r := range references {
				out = append(out, name+r.suffix)
			}
		}
	}
	return out
}

// leaves calls f for every key that holds a value. A list of sections is one while it has no member.
func leaves(in reflect.Value, path string, f func(string, field)) {
	for _, name := range names(in) {
		fd, _ := fieldOf(in, name)
		full := yamldoc.Join(path, name)
		switch {
		case fd.kind == fieldSection:
			leaves(fd.value, full, f)
		case fd.kind == fieldSections && fd.value.Len() > 0:
			for i := range fd.value.Len() {
				leaves(fd.value.Index(i), memberPath(full, i), f)
			}
		default:
			f(full, fd)
		}
	}
}

// shownSecret is what commands show in place of a secret.
const shownSecret = "(set)"

// set parses text into the field and returns what is wrong with it. The items of a list are separated by commas.
func (f field) set(text string) string {
	switch f.kind {
	case fieldList:
		f.setList(splitList(text))
		return ""
	case fieldTexts:
		return f.setTexts(splitList(text))
	case fieldSections:
		return "is a list of sections: set the keys of its members"
	}
	if err := setting.Parse(f.value, text); err != nil {
		return err.Error()
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

// setTexts sets texts from items such as name=text.
func (f field) setTexts(items []string) string {
	texts := setting.Texts{}
	for _, item := range items {
		name, text, ok := strings.Cut(item, "=")
		if !ok || name == "" {
			return "must be items such as name=text, with commas between"
		}
		texts[strings.TrimSpace(name)] = strings.TrimSpace(text)
	}
	f.keepTexts(texts)
	return ""
}

// keepTexts sets texts. Without one they are nil, so that two of them are alike.
func (f field) keepTexts(texts setting.Texts) {
	if len(texts) == 0 {
		texts = nil
	}
	f.value.Set(reflect.ValueOf(texts))
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
