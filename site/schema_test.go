package site

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/internal/yamldoc"
)

// asSchema is the schema as a program that reads it sees it.
func asSchema(t *testing.T) map[string]any {
	t.Helper()
	b, err := json.Marshal(Schema())
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// against holds a document against a schema: of JSON Schema that much which ours uses; any other word fails.
func against(schema any, at string, v any) (faults []string) {
	s, ok := schema.(map[string]any)
	if !ok {
		return nil // true
	}
	fault := func(format string, args ...any) { faults = append(faults, at+": "+fmt.Sprintf(format, args...)) }
	for word, says := range s {
		switch word {
		case "$schema", "title", "description":
		case "type":
			types, several := says.([]any)
			if !several {
				types = []any{says}
			}
			if is := typeName(v); !slices.Contains(types, any(is)) && (is != "integer" || !slices.Contains(types, any("number"))) {
				fault("is a %s, not %v", is, says)
			}
		case "enum":
			if !slices.Contains(says.([]any), v) {
				fault("is none of %v", says)
			}
		case "pattern":
			if text, ok := v.(string); ok && !regexp.MustCompile(says.(string)).MatchString(text) {
				fault("%q does not match %s", text, says)
			}
		case "minLength", "maxLength":
			if text, ok := v.(string); ok {
				if n := float64(len([]rune(text))); word == "minLength" && n < says.(float64) || word == "maxLength" && n > says.(float64) {
					fault("has a length of %v", n)
				}
			}
		case "minimum", "maximum":
			if n, ok := v.(float64); ok && (word == "minimum" && n < says.(float64) || word == "maximum" && n > says.(float64)) {
				fault("%v is beyond the %s of %v", n, word, says)
			}
		case "maxItems":
			if list, ok := v.([]any); ok && float64(len(list)) > says.(float64) {
				fault("has %d items", len(list))
			}
		case "items":
			list, _ := v.([]any)
			for i, item := range list {
				faults = append(faults, against(says, fmt.Sprintf("%s[%d]", at, i), item)...)
			}
		case "required":
			if m, ok := v.(map[string]any); ok {
				for _, name := range says.([]any) {
					if _, has := m[name.(string)]; !has {
						fault("%s is missing", name)
					}
				}
			}
		case "properties", "additionalProperties":
			m, _ := v.(map[string]any)
			properties, _ := s["properties"].(map[string]any)
			for name, value := range m {
				p, named := properties[name]
				if named && word == "properties" {
					faults = append(faults, against(p, yamldoc.Join(at, name), value)...)
				}
				if !named && word == "additionalProperties" && says == false {
					faults = append(faults, yamldoc.Join(at, name)+": is not allowed")
				}
			}
		default:
			fault("the schema uses %s", word)
		}
	}
	return faults
}

func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case float64:
		if v != math.Trunc(v) {
			return "number"
		}
	}
	return "integer"
}

// plain is a document as JSON would have it.
func plain(n *yamldoc.Node) any {
	switch n.Kind {
	case yamldoc.Map:
		m := map[string]any{}
		for _, e := range n.Entries {
			m[e.Key] = plain(e.Value)
		}
		return m
	case yamldoc.List:
		l := []any{}
		for _, item := range n.Items {
			l = append(l, plain(item))
		}
		return l
	case yamldoc.Scalar:
		var v any
		if n.Quoted || json.Unmarshal([]byte(n.Text), &v) != nil {
			return n.Text
		}
		return v
	}
	return nil
}

func faultsOf(t *testing.T, schema map[string]any, text string) []string {
	t.Helper()
	root, problems := yamldoc.Parse("site.yaml", []byte(text))
	if len(problems) > 0 {
		return []string{problems.Lines()}
	}
	return against(schema, "", plain(root))
}

func TestTheSchemaTakesWhatTheReaderTakes(t *testing.T) {
	t.Parallel()
	schema := asSchema(t)
	texts := map[string]string{
		"the sound file": sound, "the plant": plantFile, "a fleet": fleetFile("A", 3),
		"nulls and numbers as texts": "version: 1\ntiers:\nidentities: [{email: a@b, firstName: null, lastName: 7}]\ntenants: [{token: 12, name: true, config: '{}', devices: [{token: d, metadata: [1], externalId: 12}]}]\n",
		"a list of devices":          "version: 1\ntenants: [{token: a, devicesFrom: [{file: fleet.csv, deviceTypeToken: t}]}]\n",
	}
	examples, err := filepath.Glob(filepath.Join("..", "examples", "*", "site.yaml"))
	if err != nil || len(examples) < 3 {
		t.Fatal(examples, err)
	}
	for _, file := range examples {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = string(b)
	}
	w := newWorld(t)
	w.apply(w.read(plantFile, plantEnv...), Options{})
	d, err := w.Export(t.Context(), operator, "")
	if err != nil {
		t.Fatal(err)
	}
	texts["an export"] = d.YAML()
	for name, text := range texts {
		if faults := faultsOf(t, schema, text); len(faults) > 0 {
			t.Errorf("%s: the schema says %v", name, faults)
		}
		if _, _, err := Read(Source{WithoutSecrets: true, ReadFile: gallerySource(text).ReadFile}, "site.yaml"); err != nil && !strings.Contains(name, "examples") {
			t.Errorf("%s: the reader says %v", name, err)
		}
	}
}

// What one value alone shows, the schema refuses, too.
func TestTheSchemaRefusesMisspeltKeysAndWrongValues(t *testing.T) {
	t.Parallel()
	schema := asSchema(t)
	for _, name := range []string{"misspelt field", "misspelt list", "data type of another product", "time-out below the minimum", "unit that is too long", "scope that is not there",
		"color that is not there", "unknown credential type", "token with a blank", "number as a text", "newer version", "null where one is refused",
		"misspelt key of a rule", "misspelt key of a condition", "unknown op", "unknown severity"} {
		i := slices.IndexFunc(alterations, func(a alteration) bool { return a.name == name })
		if i < 0 {
			t.Fatal(name)
		}
		if faults := faultsOf(t, schema, alter(t, sound, alterations[i])); len(faults) == 0 {
			t.Errorf("%s: the schema finds nothing", name)
		}
	}
	if faults := faultsOf(t, schema, "version: 1\nidentities: [{email: a@b, password: s3cret}]\n"); len(faults) == 0 {
		t.Error("a secret in the file is let through")
	}
}

// The schema has every key that the reader knows, and no other.
func TestEveryKeyOfTheFormatIsInTheSchema(t *testing.T) {
	t.Parallel()
	f := DefaultFormat()
	var walk func(k *kind, s map[string]any)
	walk = func(k *kind, s map[string]any) {
		properties := s["properties"].(map[string]any)
		known := k.keys()
		for _, key := range known {
			if properties[key] == nil {
				t.Errorf("%s of a %s is missing", key, k.name)
			}
		}
		for key := range properties {
			if field := k.field(key); !slices.Contains(known, key) && key != keyVersion && (field == nil || !field.secret) {
				t.Errorf("%s of a %s is not known to the reader", key, k.name)
			}
		}
		for _, inner := range k.lists {
			walk(inner, properties[inner.list].(map[string]any)["items"].(map[string]any))
		}
	}
	walk(f.root, asSchema(t))
}
