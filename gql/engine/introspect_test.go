package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/internal/test/conformance"
)

func TestIntrospectionIsOffByDefaultAndTypenameIsNot(t *testing.T) {
	w := newWorld(t, Config{})
	for _, query := range []string{`{ __schema { types { name } } }`, `{ __type(name: "Device") { name } }`, `{ ping a: __schema { queryType { name } } }`,
		`{ ...F } fragment F on Query { ... { __type(name: "X") { name } } }`, `query A { ping } query B { __schema { types { name } } }`} {
		got := w.do(query, ``)
		if !strings.HasPrefix(got, `{"errors":[{"message":"introspection is disabled`) || !strings.Contains(got, `"code":"INTROSPECTION_DISABLED"`) {
			t.Errorf("%s: %s", query, got)
		}
	}
	got := w.do(`{ __typename device(token: "d1") { __typename } }`, ``)
	if got != `{"data":{"__typename":"Query","device":{"__typename":"Device"}}}` {
		t.Error(got)
	}
	if got := w.do(`mutation { __typename touch(token: "x") { __typename } }`, ``); got != `{"data":{"__typename":"Mutation","touch":{"__typename":"Device"}}}` {
		t.Error(got)
	}
	// As in every area: no schema file asks for more than the engine's own switch.
	conformance.Shown(t, "S3-106")
}

// The document that explorers send (graphql-js getIntrospectionQuery, all options).
const introspectionQuery = `query IntrospectionQuery { __schema { description queryType { name } mutationType { name } subscriptionType { name }
  types { ...FullType } directives { name description isRepeatable locations args(includeDeprecated: true) { ...InputValue } } } }
fragment FullType on __Type { kind name description specifiedByURL isOneOf
  fields(includeDeprecated: true) { name description args(includeDeprecated: true) { ...InputValue } type { ...TypeRef } isDeprecated deprecationReason }
  inputFields(includeDeprecated: true) { ...InputValue } interfaces { ...TypeRef }
  enumValues(includeDeprecated: true) { name description isDeprecated deprecationReason } possibleTypes { ...TypeRef } }
fragment InputValue on __InputValue { name description type { ...TypeRef } defaultValue isDeprecated deprecationReason }
fragment TypeRef on __Type { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name ofType { kind name } } } } } } } } }`

type introspected struct {
	Schema struct {
		QueryType, MutationType, SubscriptionType *struct{ Name string }
		Types                                     []introspectedType
		Directives                                []struct {
			Name string
			Args []introspectedValue
		}
	} `json:"__schema"`
}

type introspectedType struct {
	Kind, Name                string
	Description               *string
	Fields                    []introspectedField
	InputFields               []introspectedValue
	EnumValues                []struct{ Name string }
	Interfaces, PossibleTypes []introspectedRef
}

type introspectedField struct {
	Name              string
	Args              []introspectedValue
	Type              introspectedRef
	IsDeprecated      bool
	DeprecationReason *string
}

type introspectedValue struct {
	Name         string
	Type         introspectedRef
	DefaultValue *string
}

type introspectedRef struct {
	Kind, Name string
	OfType     *introspectedRef
}

func (r introspectedRef) String() string {
	switch r.Kind {
	case "NON_NULL":
		return r.OfType.String() + "!"
	case "LIST":
		return "[" + r.OfType.String() + "]"
	}
	return r.Name
}

func (v introspectedValue) String() string {
	if v.DefaultValue != nil {
		return fmt.Sprintf("%s: %s = %s", v.Name, v.Type, *v.DefaultValue)
	}
	return fmt.Sprintf("%s: %s", v.Name, v.Type)
}

func TestIntrospectionTellsTheWholeSchema(t *testing.T) {
	w := newWorld(t, Config{DevTools: true})
	resp := w.do(introspectionQuery, ``)
	var got struct {
		Data   introspected
		Errors []Error
	}
	if err := json.Unmarshal([]byte(resp), &got); err != nil || got.Errors != nil {
		t.Fatalf("%v %.400s", err, resp)
	}
	types := map[string]introspectedType{}
	for _, typ := range got.Data.Schema.Types {
		types[typ.Name] = typ
	}
	schema := w.engine.schema
	for name, def := range schema.Types {
		typ, ok := types[name]
		if !ok || typ.Kind != string(def.Kind) || def.Description != "" && (typ.Description == nil || *typ.Description != def.Description) {
			t.Errorf("%s: %+v", name, typ)
		}
		for _, f := range def.Fields {
			if strings.HasPrefix(f.Name, "__") {
				continue
			}
			if def.Kind == "INPUT_OBJECT" {
				want := fmt.Sprintf("%s: %s", f.Name, f.Type)
				if f.DefaultValue != nil {
					want += " = " + f.DefaultValue.String()
				}
				if !slices.ContainsFunc(typ.InputFields, func(v introspectedValue) bool { return v.String() == want }) {
					t.Errorf("%s has no %s: %v", name, want, typ.InputFields)
				}
				continue
			}
			i := slices.IndexFunc(typ.Fields, func(g introspectedField) bool { return g.Name == f.Name && g.Type.String() == f.Type.String() })
			if i < 0 {
				t.Errorf("%s has no %s: %s", name, f.Name, f.Type)
				continue
			}
			for j, a := range f.Arguments {
				if g := typ.Fields[i].Args[j]; g.Name != a.Name || g.Type.String() != a.Type.String() {
					t.Errorf("%s.%s(%s): %s", name, f.Name, a.Name, g)
				}
			}
		}
		for _, v := range def.EnumValues {
			if !slices.ContainsFunc(typ.EnumValues, func(e struct{ Name string }) bool { return e.Name == v.Name }) {
				t.Errorf("%s has no %s", name, v.Name)
			}
		}
	}
	if len(types) != len(schema.Types) {
		t.Errorf("%d types, want %d", len(types), len(schema.Types))
	}
	if fmt.Sprint(types["Entity"].PossibleTypes) != "[Device Kind]" || fmt.Sprint(types["Device"].Interfaces) != "[Entity]" ||
		fmt.Sprint(types["Anything"].PossibleTypes) != "[Device Kind]" {
		t.Errorf("%v %v", types["Entity"].PossibleTypes, types["Device"].Interfaces)
	}
	old := types["Device"].Fields[len(types["Device"].Fields)-1]
	if !old.IsDeprecated || *old.DeprecationReason != "use name" {
		t.Errorf("%+v", old)
	}
	if d := got.Data.Schema.Directives; len(d) != len(schema.Directives) || got.Data.Schema.MutationType.Name != "Mutation" {
		t.Errorf("%+v", d)
	}
}

func TestIntrospectionHeedsAliasesFragmentsAndDirectives(t *testing.T) {
	w := newWorld(t, Config{DevTools: true})
	got := w.do(`query($yes: Boolean!, $n: String!) {
		ping
		d: __type(name: $n) { ...T kind @skip(if: $yes) __typename }
		d: __type(name: $n) { enumValues { name } fields { n: name } }
		none: __type(name: "Nothing") { name }
		... @skip(if: $yes) { s: __schema { description } }
	} fragment T on __Type { name ... @include(if: $yes) { enumValues { v: name } } }`, `{"yes":true,"n":"State"}`)
	want := `{"data":{"ping":"pong","d":{"name":"State","enumValues":[{"v":"ACTIVE","name":"ACTIVE"},{"v":"RETIRED","name":"RETIRED"}],"__typename":"__Type","fields":null},"none":null}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got = w.do(`{ __type(name: "Device") { fields { name } } }`, ``)
	if strings.Contains(got, `"old"`) || !strings.Contains(got, `"token"`) {
		t.Error(got)
	}
	deep := `{ __schema { types { fields { type { fields { type { fields { type { fields { name } } } } } } } } } }`
	if got := w.do(deep, ``); !strings.Contains(got, "Maximum introspection depth exceeded") {
		t.Errorf("%.200s", got)
	}
}
