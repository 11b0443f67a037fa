package config

import (
	"maps"
	"reflect"
	"strings"
	"time"

	"weir/internal/setting"
)

// Schema is the JSON Schema (2020-12) of the configuration file, for editors and for programs that write one. What two
// keys must be to each other it does not say: weir config validate does.
func Schema() map[string]any {
	c := Default()
	s := schemaOf(ofConfig(&c))
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "Configuration of Weir"
	for from, to := range aliases {
		f, _ := fieldAt(ofConfig(&c), to)
		place(s, strings.Split(from, "."), maps.Clone(schemaOfKey(key{f, to})))
	}
	return s
}

// schemaOf describes a section. It may be left empty, as one is whose keys are all commented out.
func schemaOf(in reflect.Value) map[string]any {
	properties, exclusive := map[string]any{}, map[string]any{}
	for _, name := range names(in) {
		f, _ := fieldOf(in, name)
		switch {
		case f.kind == fieldSection:
			properties[name] = schemaOf(f.value)
		case f.kind == fieldSections:
			properties[name] = map[string]any{"type": []string{"array", "null"}, "items": schemaOf(setting.Member(f.value)), "description": f.doc(), "default": []any{}}
		case f.reference():
			properties[name] = map[string]any{"type": "string", "minLength": 1, "description": "Where " + f.path(name) + " stands: " + standsIn[f.kind] + "."}
		default:
			properties[name] = schemaOfKey(key{f, name})
		}
		if f.secret() {
			exclusive[name] = map[string]any{"properties": otherForms(f.path(name), name)}
		}
	}
	s := map[string]any{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
	if len(exclusive) > 0 {
		s["dependentSchemas"] = exclusive
	}
	return s
}

var standsIn = map[fieldKind]string{fieldSecretFile: "in a file", fieldSecretEnv: "in a variable", fieldSecretCredential: "in a systemd credential"}

// otherForms forbids the keys that would give the same secret in another way.
func otherForms(name, but string) map[string]any {
	others := map[string]any{}
	for _, suffix := range []string{"", "_file", "_env", "_credential"} {
		if name+suffix != but {
			others[name+suffix] = false
		}
	}
	return others
}

// place puts a key where its path leads.
func place(s map[string]any, path []string, leaf map[string]any) {
	properties := s["properties"].(map[string]any)
	if len(path) == 1 {
		leaf["description"] = "Another name. " + leaf["description"].(string)
		properties[path[0]] = leaf
		return
	}
	if properties[path[0]] == nil {
		properties[path[0]] = map[string]any{"type": []string{"object", "null"}, "properties": map[string]any{}, "additionalProperties": false}
	}
	place(properties[path[0]].(map[string]any), path[1:], leaf)
}

// What durations and sizes look like.
const (
	durationPattern = `([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)`
	sizePattern     = `[0-9]+ *(KiB|MiB|GiB|TiB)?`
)

func schemaOfKey(k key) map[string]any {
	s := typeOf(k)
	s["description"] = k.doc()
	if !k.secret() {
		s["default"] = k.json()
	}
	if words := k.enum(); len(words) > 0 {
		s["enum"] = words
	}
	if lowest, highest := k.bound("min"), k.bound("max"); s["type"] == "integer" && lowest != nil && highest != nil {
		s["minimum"], s["maximum"] = lowest.Int(), highest.Int()
	}
	return s
}

func typeOf(k key) map[string]any {
	switch k.value.Interface().(type) {
	case bool:
		return map[string]any{"type": "boolean"}
	case int, int64:
		return map[string]any{"type": "integer"}
	case float64:
		return map[string]any{"type": "number"}
	case []string:
		return map[string]any{"type": "array", "items": map[string]any{"type": "string", "minLength": 1}}
	case setting.Texts:
		return map[string]any{"type": []string{"object", "null"}, "additionalProperties": map[string]any{"type": []string{"string", "number", "boolean"}}}
	case time.Duration: // 0 needs no unit
		return map[string]any{"type": []string{"string", "integer"}, "pattern": "^(0|(" + durationPattern + ")+)$", "minimum": 0, "maximum": 0}
	case setting.Interval:
		return map[string]any{"type": []string{"string", "integer"}, "pattern": "^(auto|0|(" + durationPattern + ")+)$", "minimum": 0, "maximum": 0}
	case setting.Size:
		return map[string]any{"type": []string{"string", "integer"}, "pattern": "^" + sizePattern + "$", "minimum": 0}
	case setting.Memory:
		return map[string]any{"type": []string{"string", "integer"}, "pattern": "^(auto|" + sizePattern + ")$", "minimum": 32 << 20}
	}
	return map[string]any{"type": "string"}
}
