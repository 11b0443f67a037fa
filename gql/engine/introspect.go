package engine

import (
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

// introspection answers __schema and __type from the schema file itself, so that the answer equals the published schema.
type introspection struct {
	schema *ast.Schema
	kinds  map[string]map[string]answerFunc
}

type answerFunc func(src any, args Args) any

func newIntrospection(schema *ast.Schema) *introspection {
	in := &introspection{schema: schema}
	in.kinds = map[string]map[string]answerFunc{
		"__Schema": in.schemaFields(), "__Type": in.typeFields(), "__Field": in.fieldFields(),
		"__InputValue": in.inputFields(), "__EnumValue": in.enumFields(), "__Directive": in.directiveFields(),
	}
	return in
}

// answer adds the answers to the operation's introspection to data.
func (in *introspection) answer(op *Operation, vars map[string]any, data map[string]any) {
	w := introspector{in: in, vars: vars}
	var found asked
	for _, q := range op.introspection {
		if !slices.ContainsFunc(q.around, func(d ast.DirectiveList) bool { return !w.included(d) }) {
			found.add(q.field)
		}
	}
	for _, key := range found.keys {
		f := found.fields[key]
		var v any = in.schema
		if f.Name == "__type" {
			v = nil
			if def := in.schema.Types[w.args(f).String("name")]; def != nil {
				v = &ast.Type{NamedType: def.Name}
			}
		}
		data[key] = w.value(f.Definition.Type.Name(), v, found.below[key])
	}
}

// asked holds the fields of one selection by response key, with all selections below each.
type asked struct {
	keys   []string
	fields map[string]*ast.Field
	below  map[string]ast.SelectionSet
}

func (a *asked) add(f *ast.Field) {
	if a.fields == nil {
		a.fields, a.below = map[string]*ast.Field{}, map[string]ast.SelectionSet{}
	}
	if a.fields[f.Alias] == nil {
		a.keys = append(a.keys, f.Alias)
		a.fields[f.Alias] = f
	}
	a.below[f.Alias] = append(a.below[f.Alias][:len(a.below[f.Alias]):len(a.below[f.Alias])], f.SelectionSet...)
}

type introspector struct {
	in   *introspection
	vars map[string]any
}

func (w *introspector) args(f *ast.Field) Args {
	c := literalCoercer{schema: w.in.schema, vars: w.vars, run: true}
	return c.arguments(f.Definition.Arguments, f.Arguments, f.Position)
}

func (w *introspector) included(dirs ast.DirectiveList) bool {
	for _, d := range dirs {
		c := literalCoercer{schema: w.in.schema, vars: w.vars, run: true}
		is := c.arguments(d.Definition.Arguments, d.Arguments, d.Position).Bool("if")
		if d.Name == "skip" && is || d.Name == "include" && !is {
			return false
		}
	}
	return true
}

// value shows src, whose introspection type is typ.
func (w *introspector) value(typ string, src any, set ast.SelectionSet) any {
	switch v := src.(type) {
	case nil:
		return nil
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = w.value(typ, x, set)
		}
		return out
	}
	if len(set) == 0 {
		return src // a leaf
	}
	var found asked
	w.collect(set, &found)
	out := make(map[string]any, len(found.keys))
	for _, key := range found.keys {
		f := found.fields[key]
		if f.Name == "__typename" {
			out[key] = typ
			continue
		}
		out[key] = w.value(f.Definition.Type.Name(), w.in.kinds[typ][f.Name](src, w.args(f)), found.below[key])
	}
	return out
}

// collect gathers the fields of a selection. Introspection has no abstract types, so every fragment applies.
func (w *introspector) collect(set ast.SelectionSet, into *asked) {
	for _, s := range set {
		below, dirs := parts(s)
		if !w.included(dirs) {
			continue
		}
		if f, ok := s.(*ast.Field); ok {
			into.add(f)
		} else {
			w.collect(below, into)
		}
	}
}

func (in *introspection) schemaFields() map[string]answerFunc {
	root := func(def *ast.Definition) answerFunc {
		return func(any, Args) any {
			if def == nil {
				return nil
			}
			return &ast.Type{NamedType: def.Name}
		}
	}
	return map[string]answerFunc{
		"description": func(any, Args) any { return textOrNull(in.schema.Description) },
		"types": func(any, Args) any {
			var out []any
			for _, name := range sortedKeys(in.schema.Types) {
				out = append(out, &ast.Type{NamedType: name})
			}
			return out
		},
		"queryType": root(in.schema.Query), "mutationType": root(in.schema.Mutation), "subscriptionType": root(in.schema.Subscription),
		"directives": func(any, Args) any {
			var out []any
			for _, name := range sortedKeys(in.schema.Directives) {
				out = append(out, in.schema.Directives[name])
			}
			return out
		},
	}
}

func (in *introspection) typeFields() map[string]answerFunc {
	// named returns the value of a property that only named types have.
	named := func(fn func(d *ast.Definition, args Args) any) answerFunc {
		return func(src any, args Args) any {
			t := src.(*ast.Type)
			if t.NonNull || t.Elem != nil {
				return nil
			}
			return fn(in.schema.Types[t.NamedType], args)
		}
	}
	return map[string]answerFunc{
		"kind":           func(src any, _ Args) any { return in.kind(src.(*ast.Type)) },
		"name":           named(func(d *ast.Definition, _ Args) any { return d.Name }),
		"description":    named(func(d *ast.Definition, _ Args) any { return textOrNull(d.Description) }),
		"specifiedByURL": named(func(d *ast.Definition, _ Args) any { return directiveArgument(d.Directives, "specifiedBy", "url") }),
		"fields":         named(in.fields),
		"interfaces":     named(in.interfaces),
		"possibleTypes":  named(in.possibleTypes),
		"enumValues":     named(in.enumValues),
		"inputFields": named(func(d *ast.Definition, args Args) any {
			if d.Kind != ast.InputObject {
				return nil
			}
			return visible(d.Fields, args, func(f *ast.FieldDefinition) ast.DirectiveList { return f.Directives })
		}),
		"ofType": func(src any, _ Args) any {
			switch t := src.(*ast.Type); {
			case t.NonNull:
				return &ast.Type{NamedType: t.NamedType, Elem: t.Elem}
			case t.Elem != nil:
				return t.Elem
			}
			return nil
		},
		"isOneOf": named(func(d *ast.Definition, _ Args) any {
			if d.Kind != ast.InputObject {
				return nil
			}
			return d.Directives.ForName("oneOf") != nil
		}),
	}
}

func (in *introspection) kind(t *ast.Type) string {
	switch {
	case t.NonNull:
		return "NON_NULL"
	case t.Elem != nil:
		return "LIST"
	}
	return string(in.schema.Types[t.NamedType].Kind)
}

func (in *introspection) fields(d *ast.Definition, args Args) any {
	if d.Kind != ast.Object && d.Kind != ast.Interface {
		return nil
	}
	own := slices.DeleteFunc(slices.Clone(d.Fields), func(f *ast.FieldDefinition) bool { return strings.HasPrefix(f.Name, "__") })
	return visible(own, args, func(f *ast.FieldDefinition) ast.DirectiveList { return f.Directives })
}

func (in *introspection) interfaces(d *ast.Definition, _ Args) any {
	if d.Kind != ast.Object && d.Kind != ast.Interface {
		return nil
	}
	return typeList(d.Interfaces)
}

func (in *introspection) possibleTypes(d *ast.Definition, _ Args) any {
	if d.Kind != ast.Interface && d.Kind != ast.Union {
		return nil
	}
	var names []string
	for _, p := range in.schema.GetPossibleTypes(d) {
		if p.Kind == ast.Object {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return typeList(names)
}

func (in *introspection) enumValues(d *ast.Definition, args Args) any {
	if d.Kind != ast.Enum {
		return nil
	}
	return visible(d.EnumValues, args, func(v *ast.EnumValueDefinition) ast.DirectiveList { return v.Directives })
}

func typeList(names []string) any {
	out := make([]any, len(names))
	for i, n := range names {
		out[i] = &ast.Type{NamedType: n}
	}
	return out
}

// visible leaves deprecated entries out unless the query includes them.
func visible[E any](list []E, args Args, directives func(E) ast.DirectiveList) any {
	out := []any{}
	for _, e := range list {
		if args.Bool("includeDeprecated") || directives(e).ForName("deprecated") == nil {
			out = append(out, e)
		}
	}
	return out
}

func (in *introspection) fieldFields() map[string]answerFunc {
	f := func(fn func(f *ast.FieldDefinition, args Args) any) answerFunc {
		return func(src any, args Args) any { return fn(src.(*ast.FieldDefinition), args) }
	}
	return map[string]answerFunc{
		"name":        f(func(f *ast.FieldDefinition, _ Args) any { return f.Name }),
		"description": f(func(f *ast.FieldDefinition, _ Args) any { return textOrNull(f.Description) }),
		"args": f(func(f *ast.FieldDefinition, args Args) any {
			return visible(f.Arguments, args, func(a *ast.ArgumentDefinition) ast.DirectiveList { return a.Directives })
		}),
		"type":              f(func(f *ast.FieldDefinition, _ Args) any { return f.Type }),
		"isDeprecated":      f(func(f *ast.FieldDefinition, _ Args) any { return f.Directives.ForName("deprecated") != nil }),
		"deprecationReason": f(func(f *ast.FieldDefinition, _ Args) any { return deprecation(f.Directives) }),
	}
}

// inputFields shows arguments and the fields of input objects.
func (in *introspection) inputFields() map[string]answerFunc {
	both := func(fn func(name, description string, t *ast.Type, def *ast.Value, dirs ast.DirectiveList) any) answerFunc {
		return func(src any, _ Args) any {
			if a, ok := src.(*ast.ArgumentDefinition); ok {
				return fn(a.Name, a.Description, a.Type, a.DefaultValue, a.Directives)
			}
			f := src.(*ast.FieldDefinition)
			return fn(f.Name, f.Description, f.Type, f.DefaultValue, f.Directives)
		}
	}
	return map[string]answerFunc{
		"name":        both(func(name, _ string, _ *ast.Type, _ *ast.Value, _ ast.DirectiveList) any { return name }),
		"description": both(func(_, d string, _ *ast.Type, _ *ast.Value, _ ast.DirectiveList) any { return textOrNull(d) }),
		"type":        both(func(_, _ string, t *ast.Type, _ *ast.Value, _ ast.DirectiveList) any { return t }),
		"defaultValue": both(func(_, _ string, _ *ast.Type, v *ast.Value, _ ast.DirectiveList) any {
			if v == nil {
				return nil
			}
			return v.String()
		}),
		"isDeprecated": both(func(_, _ string, _ *ast.Type, _ *ast.Value, dirs ast.DirectiveList) any {
			return dirs.ForName("deprecated") != nil
		}),
		"deprecationReason": both(func(_, _ string, _ *ast.Type, _ *ast.Value, dirs ast.DirectiveList) any { return deprecation(dirs) }),
	}
}

func (in *introspection) enumFields() map[string]answerFunc {
	v := func(fn func(v *ast.EnumValueDefinition) any) answerFunc {
		return func(src any, _ Args) any { return fn(src.(*ast.EnumValueDefinition)) }
	}
	return map[string]answerFunc{
		"name":              v(func(v *ast.EnumValueDefinition) any { return v.Name }),
		"description":       v(func(v *ast.EnumValueDefinition) any { return textOrNull(v.Description) }),
		"isDeprecated":      v(func(v *ast.EnumValueDefinition) any { return v.Directives.ForName("deprecated") != nil }),
		"deprecationReason": v(func(v *ast.EnumValueDefinition) any { return deprecation(v.Directives) }),
	}
}

func (in *introspection) directiveFields() map[string]answerFunc {
	d := func(fn func(d *ast.DirectiveDefinition, args Args) any) answerFunc {
		return func(src any, args Args) any { return fn(src.(*ast.DirectiveDefinition), args) }
	}
	return map[string]answerFunc{
		"name":         d(func(d *ast.DirectiveDefinition, _ Args) any { return d.Name }),
		"description":  d(func(d *ast.DirectiveDefinition, _ Args) any { return textOrNull(d.Description) }),
		"isRepeatable": d(func(d *ast.DirectiveDefinition, _ Args) any { return d.IsRepeatable }),
		"locations": d(func(d *ast.DirectiveDefinition, _ Args) any {
			out := make([]any, len(d.Locations))
			for i, l := range d.Locations {
				out[i] = string(l)
			}
			return out
		}),
		"args": d(func(d *ast.DirectiveDefinition, args Args) any {
			return visible(d.Arguments, args, func(a *ast.ArgumentDefinition) ast.DirectiveList { return a.Directives })
		}),
	}
}

func textOrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func deprecation(dirs ast.DirectiveList) any {
	if dirs.ForName("deprecated") == nil {
		return nil
	}
	if reason := directiveArgument(dirs, "deprecated", "reason"); reason != nil {
		return reason
	}
	return "No longer supported"
}

func directiveArgument(dirs ast.DirectiveList, name, arg string) any {
	if d := dirs.ForName(name); d != nil {
		if a := d.Arguments.ForName(arg); a != nil {
			return a.Value.Raw
		}
	}
	return nil
}
