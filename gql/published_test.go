package gql_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2/ast"

	"weir/internal/test/conformance"
	"weir/internal/test/testweir"
)

// What introspection answers is what the published files say: kinds, descriptions, interfaces, fields with their arguments and
// defaults, values, and what is deprecated with its reason.
func TestIntrospectionShowsThePublishedSchemas(t *testing.T) {
	t.Parallel()
	w := &walk{Proc: testweir.Start(t, testweir.Options{Env: []string{"WEIR_GRAPHQL_DEV_TOOLS=true"}})}
	w.super = w.Identity()
	w.readSchemas(t)
	lines := 0
	for area, schema := range w.schemas {
		var published []string
		for _, def := range schema.Types {
			if !def.BuiltIn {
				published = append(published, writtenType(def)...)
			}
		}
		shown := w.introspected(t, area)
		slices.Sort(published)
		slices.Sort(shown)
		lines += len(published)
		for _, l := range published {
			if _, ok := slices.BinarySearch(shown, l); !ok {
				t.Errorf("%s: only the file says %s", area, l)
			}
		}
		for _, l := range shown {
			if _, ok := slices.BinarySearch(published, l); !ok {
				t.Errorf("%s: only introspection says %s", area, l)
			}
		}
	}
	if len(w.schemas) < 5 || lines < 500 {
		t.Errorf("only %d lines of %d areas", lines, len(w.schemas))
	}
	conformance.Shown(t, "S3-112", "S1-111")
}

// writtenType is a type of a published file: a line for itself and one for each of its members.
func writtenType(def *ast.Definition) []string {
	interfaces := slices.Sorted(slices.Values(def.Interfaces))
	types := slices.Sorted(slices.Values(def.Types)) // of a union
	lines := []string{typeLine(string(def.Kind), def.Name, def.Description, interfaces, types)}
	for _, f := range def.Fields {
		if strings.HasPrefix(f.Name, "__") {
			continue
		}
		m := schemaMember{name: f.Name, description: f.Description, of: f.Type.String(), standard: valueText(f.DefaultValue), deprecated: reasonOf(f.Directives)}
		for _, a := range f.Arguments {
			m.args = append(m.args, schemaMember{name: a.Name, description: a.Description, of: a.Type.String(), standard: valueText(a.DefaultValue),
				deprecated: reasonOf(a.Directives)})
		}
		lines = append(lines, def.Name+"."+m.String())
	}
	for _, v := range def.EnumValues {
		lines = append(lines, def.Name+"."+schemaMember{name: v.Name, description: v.Description, standard: "none", deprecated: reasonOf(v.Directives)}.String())
	}
	return lines
}

func typeLine(kind, name, description string, interfaces, types []string) string {
	return fmt.Sprintf("%s %s implements %q of %q: %s", kind, name, interfaces, types, description)
}

// schemaMember is a field, an argument or an enum value.
type schemaMember struct {
	name, description, of, standard, deprecated string
	args                                        []schemaMember
}

func (m schemaMember) String() string {
	var args strings.Builder
	for _, a := range m.args {
		args.WriteString("(" + a.String() + ")")
	}
	return fmt.Sprintf("%s%s: %s = %s, deprecated %q: %s", m.name, args.String(), m.of, m.standard, m.deprecated, m.description)
}

func valueText(v *ast.Value) string {
	if v == nil {
		return "none"
	}
	return v.String()
}

func reasonOf(dirs ast.DirectiveList) string {
	d := dirs.ForName("deprecated")
	if d == nil {
		return ""
	}
	if reason := d.Arguments.ForName("reason"); reason != nil {
		return reason.Value.Raw
	}
	return "No longer supported"
}

// introspected asks an area for its types, in the lines of writtenType.
func (w *walk) introspected(t *testing.T, area string) (lines []string) {
	t.Helper()
	const ref = `type { kind name ofType { kind name ofType { kind name ofType { kind name } } } }`
	const input = `name description defaultValue isDeprecated deprecationReason ` + ref
	var by caller
	if w.planes[area] == identityPlane {
		by.token = w.super
	}
	r := w.ask(t, area, by, `{ __schema { types { kind name description interfaces { name } possibleTypes { name }
		fields(includeDeprecated: true) { name description isDeprecated deprecationReason `+ref+` args(includeDeprecated: true) { `+input+` } }
		inputFields(includeDeprecated: true) { `+input+` }
		enumValues(includeDeprecated: true) { name description isDeprecated deprecationReason } } } }`, nil)
	var schema struct{ Types []shownType }
	if err := json.Unmarshal(r.Data["__schema"], &schema); err != nil {
		t.Fatalf("%s: %v: %s", area, err, r.raw)
	}
	for _, typ := range schema.Types {
		if strings.HasPrefix(typ.Name, "__") || slices.Contains([]string{"String", "Int", "Float", "Boolean", "ID"}, typ.Name) {
			continue
		}
		var interfaces, types []string
		for _, i := range typ.Interfaces {
			interfaces = append(interfaces, i.Name)
		}
		for _, p := range typ.PossibleTypes {
			if typ.Kind == string(ast.Union) {
				types = append(types, p.Name)
			}
		}
		slices.Sort(interfaces)
		slices.Sort(types)
		lines = append(lines, typeLine(typ.Kind, typ.Name, typ.Description, interfaces, types))
		for _, f := range slices.Concat(typ.Fields, typ.InputFields, typ.EnumValues) {
			lines = append(lines, typ.Name+"."+f.member().String())
		}
	}
	return lines
}

type shownType struct {
	Kind, Name, Description         string
	Interfaces, PossibleTypes       []struct{ Name string }
	Fields, InputFields, EnumValues []shownMember
}

type shownMember struct {
	Name, Description, DeprecationReason string
	DefaultValue                         *string
	IsDeprecated                         bool
	Type                                 *shownRef
	Args                                 []shownMember
}

func (m shownMember) member() schemaMember {
	out := schemaMember{name: m.Name, description: m.Description, of: m.Type.String(), standard: "none", deprecated: m.DeprecationReason}
	if m.DefaultValue != nil {
		out.standard = *m.DefaultValue
	}
	if m.IsDeprecated != (m.DeprecationReason != "") {
		out.deprecated = fmt.Sprintf("%t, %s", m.IsDeprecated, m.DeprecationReason)
	}
	for _, a := range m.Args {
		out.args = append(out.args, a.member())
	}
	return out
}

// shownRef is a type as introspection writes it, from the outside in.
type shownRef struct {
	Kind, Name string
	OfType     *shownRef
}

func (r *shownRef) String() string {
	switch {
	case r == nil: // an enum value has none
		return ""
	case r.Kind == "NON_NULL":
		return r.OfType.String() + "!"
	case r.Kind == "LIST":
		return "[" + r.OfType.String() + "]"
	}
	return r.Name
}
