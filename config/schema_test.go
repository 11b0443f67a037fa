package config

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/internal/yamldoc"
)

// asSchema returns a schema as a program that reads it would see it.
func asSchema(t *testing.T, s map[string]any) map[string]any {
	t.Helper()
	b, err := json.Marshal(s)
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
	if allowed, ok := schema.(bool); ok {
		if !allowed {
			return []string{at + ": is not allowed"}
		}
		return nil
	}
	s := schema.(map[string]any)
	fault := func(format string, args ...any) { faults = append(faults, at+": "+fmt.Sprintf(format, args...)) }
	for word, says := range s {
		switch word {
		case "$schema", "title", "description", "default":
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
		case "minLength":
			if text, ok := v.(string); ok && len(text) < int(says.(float64)) {
				fault("is too short")
			}
		case "minimum", "maximum":
			if n, ok := numberOf(v); ok && (word == "minimum" && n < says.(float64) || word == "maximum" && n > says.(float64)) {
				fault("%v is beyond the %s of %v", n, word, says)
			}
		case "items":
			for i, item := range asList(v) {
				faults = append(faults, against(says, fmt.Sprintf("%s[%d]", at, i), item)...)
			}
		case "properties", "additionalProperties":
			m, _ := v.(map[string]any)
			properties, _ := s["properties"].(map[string]any)
			for name, value := range m {
				p, named := properties[name]
				if named && word == "properties" {
					faults = append(faults, against(p, strings.TrimPrefix(at+"."+name, "."), value)...)
				}
				if !named && word == "additionalProperties" {
					faults = append(faults, against(says, strings.TrimPrefix(at+"."+name, "."), value)...)
				}
			}
		case "dependentSchemas":
			m, _ := v.(map[string]any)
			for name, then := range says.(map[string]any) {
				if _, given := m[name]; given {
					faults = append(faults, against(then, at, v)...)
				}
			}
		default:
			fault("the schema uses %s", word)
		}
	}
	return faults
}

func asList(v any) []any {
	l, _ := v.([]any)
	return l
}

func numberOf(v any) (float64, bool) {
	switch n := v.(type) {
	case uint64:
		return float64(n), true
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
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

func faultsOf(t *testing.T, schema map[string]any, text string) []string {
	t.Helper()
	root, problems := yamldoc.Parse("weir.yaml", []byte(text))
	if len(problems) > 0 {
		return []string{problems.Lines()}
	}
	return against(schema, "", plain(root))
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

func TestTheSchemaTakesWhatTheLoaderTakes(t *testing.T) {
	t.Parallel()
	schema := asSchema(t, Schema())
	files := map[string]string{"defaults": defaultsAsYAML(), "comments": "broker:\n  # enabled: true\n",
		"units":   "ingest: {max_body: 262144, spool_max_bytes: 2GiB, max_future_skew: 1m30.5s, max_age: 9000h}\nhistory: {dead_letter_retention: 0}\n",
		"memory":  "limits: {memory: 67108864}\nspool: {commit_interval: 5ms}\ngovernance: {ingest_messages_per_second: 12.5}\n",
		"alias":   "infrastructure: {messaging: {mqttFailClosed: true}}\n",
		"secrets": "auth: {service_secret_file: secret.txt}\n"}
	for _, p := range Profiles() {
		files[p.Name] = p.YAML()
	}
	for name, text := range files {
		if _, err := load(text); err != nil {
			t.Errorf("%s: the loader says %v", name, err)
		}
		if faults := faultsOf(t, schema, text); len(faults) > 0 {
			t.Errorf("%s: the schema says %v", name, faults)
		}
	}
}

func TestTheSchemaRefusesTheGallery(t *testing.T) {
	t.Parallel()
	schema := asSchema(t, Schema())
	// What one value alone does not show is the loader's.
	beyond := []string{"secret is not shown", "empty reference", "missing variable", "two spellings",
		"the same, the other way round", "what is shown is not the secret", "credentials are not there", "a credential is a name", "a password and no account"}
	for _, c := range gallery {
		if faults := faultsOf(t, schema, c.yaml); len(faults) == 0 != slices.Contains(beyond, c.name) {
			t.Errorf("%s: the schema says %v", c.name, faults)
		}
	}
}

func TestEveryKeyIsInTheSchemaWithItsDocAndDefault(t *testing.T) {
	t.Parallel()
	schema := asSchema(t, Schema())
	c := Default()
	for _, k := range c.keys() {
		at := schema
		for name := range strings.SplitSeq(k.path, ".") {
			at, _ = at["properties"].(map[string]any)[name].(map[string]any)
		}
		if at["description"] != k.doc() || k.doc() == "" {
			t.Errorf("%s is described as %v", k.path, at["description"])
		}
		if _, has := at["default"]; has == k.secret() {
			t.Errorf("%s: default %v", k.path, at["default"])
		}
		if at["default"] != nil {
			if faults := against(at, k.path, at["default"]); len(faults) > 0 {
				t.Errorf("the default does not fit: %v", faults)
			}
		}
	}
	lists := asSchema(t, schemaOf(reflect.ValueOf(new(withLists)).Elem()))
	for text, fits := range map[string]bool{"site: [a, b]\n": true, "site: []\n": true, "site: a\n": false, "site: [['a']]\n": false, "fence: {allowed: [x]}\n": true} {
		if faults := faultsOf(t, lists, text); len(faults) == 0 != fits {
			t.Errorf("%q: the schema says %v", text, faults)
		}
	}
}
