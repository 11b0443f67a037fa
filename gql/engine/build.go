package engine

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/graphql-go/graphql"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
)

// builder turns a schema and its registered fields into types of graphql-go. These types serve execution only: they have
// no arguments, no input types, no descriptions.
type builder struct {
	engine *Engine
	schema *ast.Schema
	types  map[string]graphql.Type
	used   map[string]bool // registered fields that the schema has
	errs   []error
}

func loadSchema(name, sdl string) (*ast.Schema, error) {
	schema, err := gqlparser.LoadSchema(&ast.Source{Name: name + ".graphql", Input: sdl})
	if err != nil {
		return nil, err
	}
	if schema.Query == nil {
		return nil, errors.New("the schema has no query root")
	}
	delete(schema.Directives, "defer") // gqlparser adds it; this server does not support it
	return schema, nil
}

func newEngine(a *Schema, schema *ast.Schema) (*Engine, error) {
	e := &Engine{Runtime: a.runtime, name: a.name, fields: a.fields, types: a.types, schema: schema, rules: validationRules(),
		introspection: newIntrospection(schema)}
	b := &builder{engine: e, schema: schema, types: map[string]graphql.Type{}, used: map[string]bool{}}
	b.checkRegistered()
	e.roots, e.shown, e.leaves = map[ast.Operation]*graphql.Schema{}, map[string]shownField{}, map[string]func(any) (any, error){}
	for op, def := range map[ast.Operation]*ast.Definition{
		ast.Query: schema.Query, ast.Mutation: schema.Mutation, ast.Subscription: schema.Subscription,
	} {
		if def != nil {
			e.roots[op] = b.executable(def)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(a.fields)) {
		if !b.used[key] {
			b.failf("%s has a resolver, but the schema has no such field", key)
		}
	}
	return e, errors.Join(b.errs...)
}

func (b *builder) failf(format string, args ...any) {
	b.errs = append(b.errs, fmt.Errorf(format, args...))
}

// checkRegistered reports bindings without a type or a field in the schema.
func (b *builder) checkRegistered() {
	for _, name := range slices.Sorted(maps.Keys(b.engine.types)) {
		def := b.schema.Types[name]
		if def == nil || def.Kind != ast.Object {
			b.failf("type %s is bound, but the schema has no such object type", name)
			continue
		}
		for _, bound := range b.engine.types[name] {
			for _, field := range slices.Sorted(maps.Keys(bound.fields)) {
				if def.Fields.ForName(field) == nil && !bound.fields[field].never {
					b.failf("%s has a field tagged gql:%q, but type %s has none", bound.goType, field, name)
				}
			}
		}
	}
}

// executable makes a schema whose query root is def. Mutations and subscriptions get a schema of their own too,
// because graphql-go batches thunks only in queries: their selections are executed as queries.
func (b *builder) executable(def *ast.Definition) *graphql.Schema {
	cfg := graphql.SchemaConfig{Query: b.object(def)}
	var abstract []graphql.Abstract
	for _, name := range slices.Sorted(maps.Keys(b.schema.Types)) {
		d := b.schema.Types[name]
		if strings.HasPrefix(name, "__") || d == b.schema.Query || d == b.schema.Mutation || d == b.schema.Subscription {
			continue
		}
		switch d.Kind {
		case ast.Object: // also those that are reachable only through an interface
			cfg.Types = append(cfg.Types, b.object(d))
		case ast.Interface, ast.Union:
			if t, ok := b.named(name).(graphql.Abstract); ok {
				abstract = append(abstract, t)
				cfg.Types = append(cfg.Types, b.named(name))
			}
		}
	}
	if len(b.errs) > 0 {
		return nil
	}
	s, err := graphql.NewSchema(cfg)
	if err != nil {
		b.failf("%w", err)
		return nil
	}
	// IsPossibleType fills a map on first use, without a lock: fill it before anything runs at the same time.
	for _, t := range abstract {
		for _, o := range s.PossibleTypes(t) {
			s.IsPossibleType(t, o)
		}
		s.IsPossibleType(t, cfg.Query)
	}
	return &s
}

func (b *builder) typ(t *ast.Type) graphql.Output {
	var o graphql.Output
	if t.Elem != nil {
		o = graphql.NewList(b.typ(t.Elem))
	} else {
		o = b.named(t.NamedType)
	}
	if t.NonNull {
		return graphql.NewNonNull(o)
	}
	return o
}

func (b *builder) named(name string) graphql.Output {
	if t, ok := b.types[name]; ok {
		return t.(graphql.Output)
	}
	def := b.schema.Types[name]
	switch def.Kind {
	case ast.Object:
		return b.object(def)
	case ast.Interface:
		return b.abstract(def)
	case ast.Union:
		return b.union(def)
	}
	show, err := leafShower(def)
	if err != nil {
		b.failf("%w", err)
		return graphql.String
	}
	t := leafType(def, show)
	b.types[name], b.engine.leaves[name] = t, show
	return t
}

func (b *builder) object(def *ast.Definition) *graphql.Object {
	if t, ok := b.types[def.Name]; ok {
		return t.(*graphql.Object)
	}
	cfg := graphql.ObjectConfig{Name: def.Name}
	fields := graphql.Fields{}
	cfg.Fields = graphql.FieldsThunk(func() graphql.Fields { return fields })
	cfg.Interfaces = graphql.InterfacesThunk(func() []*graphql.Interface {
		var is []*graphql.Interface
		for _, name := range def.Interfaces {
			if i, ok := b.named(name).(*graphql.Interface); ok {
				is = append(is, i)
			}
		}
		return is
	})
	t := graphql.NewObject(cfg)
	b.types[def.Name] = t
	for _, f := range def.Fields {
		if !strings.HasPrefix(f.Name, "__") {
			fields[f.Name] = &graphql.Field{Type: b.typ(f.Type), Resolve: b.resolver(def, f)}
		}
	}
	return t
}

func (b *builder) abstract(def *ast.Definition) *graphql.Interface {
	fields := graphql.Fields{}
	t := graphql.NewInterface(graphql.InterfaceConfig{Name: def.Name, ResolveType: b.typeOf(def),
		Fields: graphql.FieldsThunk(func() graphql.Fields { return fields })})
	b.types[def.Name] = t
	for _, f := range def.Fields {
		fields[f.Name] = &graphql.Field{Type: b.typ(f.Type)}
	}
	return t
}

func (b *builder) union(def *ast.Definition) *graphql.Union {
	t := graphql.NewUnion(graphql.UnionConfig{Name: def.Name, ResolveType: b.typeOf(def),
		Types: graphql.UnionTypesThunk(func() []*graphql.Object {
			var os []*graphql.Object
			for _, name := range def.Types {
				os = append(os, b.object(b.schema.Types[name]))
			}
			return os
		})})
	b.types[def.Name] = t
	return t
}

// typeOf returns the function that determines the object type of a value of an abstract type: the name that the value's
// GraphQLType returns, else the type that its Go type is bound to.
func (b *builder) typeOf(def *ast.Definition) graphql.ResolveTypeFn {
	byGo := map[reflect.Type]string{}
	for _, possible := range b.schema.GetPossibleTypes(def) {
		for _, bound := range b.engine.types[possible.Name] {
			if other, dup := byGo[bound.goType]; dup && !bound.goType.Implements(reflect.TypeFor[TypeNamer]()) {
				b.failf("%s shows as %s and as %s, which are both of %s: it must implement TypeNamer",
					bound.goType, other, possible.Name, def.Name)
			}
			byGo[bound.goType] = possible.Name
		}
	}
	return func(p graphql.ResolveTypeParams) *graphql.Object {
		name := ""
		if n, ok := p.Value.(TypeNamer); ok {
			name = n.GraphQLType()
		} else {
			name = byGo[reflect.Indirect(reflect.ValueOf(p.Value)).Type()]
		}
		o, _ := b.types[name].(*graphql.Object)
		return o // nil is an error of the field
	}
}

// resolver returns the executor's function for a field of an object type.
func (b *builder) resolver(def *ast.Definition, f *ast.FieldDefinition) graphql.FieldResolveFn {
	key := def.Name + "." + f.Name
	reg := b.engine.fieldOf(def, f.Name)
	root := def == b.schema.Query || def == b.schema.Mutation || def == b.schema.Subscription
	switch {
	case reg != nil:
		b.used[reg.String()] = true
		if (reg.subscribe != nil) != (def == b.schema.Subscription) {
			b.failf("%s: a subscription takes a Subscriber, any other field a Resolver", key)
		}
		if reg.subscribe != nil {
			return func(p graphql.ResolveParams) (any, error) { return p.Source.(event).value, nil }
		}
		return b.engine.run(reg)
	case root:
		b.failf("%s has no resolver", key)
		return nil
	}
	return b.read(def, f)
}

// read makes the function of a field that is read from the Go value.
func (b *builder) read(def *ast.Definition, f *ast.FieldDefinition) graphql.FieldResolveFn {
	bound := b.engine.types[def.Name]
	if len(bound) == 0 {
		b.failf("%s.%s has no resolver and no Go type is bound to %s", def.Name, f.Name, def.Name)
		return nil
	}
	accessors := make(map[reflect.Type]accessor, len(bound))
	for _, bt := range bound {
		acc, err := bt.accessorFor(b.schema, f)
		if err != nil {
			b.failf("%s.%s: %w", def.Name, f.Name, err)
			return nil
		}
		accessors[bt.goType] = acc
	}
	where := def.Name + "." + f.Name
	b.engine.shown[where] = shownField{read: accessors, leaf: b.engine.leaves[f.Type.Name()]}
	return func(p graphql.ResolveParams) (any, error) {
		sc := scopeFrom(p.Context)
		v := reflect.ValueOf(p.Source)
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		acc, ok := accessors[v.Type()]
		if !ok {
			return nil, sc.translate(where, fmt.Errorf("no Go field for values of %T", p.Source))
		}
		return sc.count(where, acc(v))
	}
}
