package engine

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/vektah/gqlparser/v2/ast"
)

func cutTag(tag string) (name string, omitZero bool) {
	name, opts, _ := strings.Cut(tag, ",")
	return name, opts == "omitzero"
}

// TypeNamer is implemented by values of one Go type that are bound to several schema types.
type TypeNamer interface{ GraphQLType() string }

var dynamicType = reflect.TypeFor[map[string]any]()

// Binding is one Go type that is bound to a schema type.
type Binding struct {
	goType reflect.Type // a struct, or map[string]any
	fields map[string]taggedField
}

// NewBinding binds the Go type of a sample, a struct with tagged fields or map[string]any.
func NewBinding(sample any) (*Binding, error) {
	t := reflect.TypeOf(sample)
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == dynamicType {
		return &Binding{goType: t}, nil
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%T is neither a struct nor map[string]any", sample)
	}
	b := &Binding{goType: t, fields: map[string]taggedField{}}
	for _, f := range taggedFields(t) {
		if _, dup := b.fields[f.name]; dup {
			return nil, fmt.Errorf("%s has two fields tagged %q", t, f.name)
		}
		b.fields[f.name] = f
	}
	return b, nil
}

// Show has a schema field read from the Go field of another name.
func (b *Binding) Show(name, goField string) {
	f, _ := b.goType.FieldByName(goField)
	b.fields[name] = taggedField{name: name, index: f.Index, typ: f.Type}
}

// Hide has a schema field not read from the Go field that is tagged with its name.
func (b *Binding) Hide(name string) { delete(b.fields, name) }

// Only has no fields read but those that keep reports.
func (b *Binding) Only(keep func(name string) bool) {
	maps.DeleteFunc(b.fields, func(name string, _ taggedField) bool { return !keep(name) })
}

// Null has a schema field shown as null.
func (b *Binding) Null(name string) { b.fields[name] = taggedField{name: name, never: true} }

// accessor reads one schema field from values of one Go type.
type accessor func(src reflect.Value) any

// accessorFor returns how to read field f of the schema type from values of the binding, or an error with the reason
// why its Go type cannot be shown.
func (b *Binding) accessorFor(schema *ast.Schema, f *ast.FieldDefinition) (accessor, error) {
	if b.fields == nil {
		return func(src reflect.Value) any { return src.Interface().(map[string]any)[f.Name] }, nil
	}
	tf, ok := b.fields[f.Name]
	if !ok {
		return nil, fmt.Errorf("%s has no field tagged gql:%q", b.goType, f.Name)
	}
	if tf.never {
		if f.Type.NonNull {
			return nil, fmt.Errorf("%s.%s is always null", b.goType, f.Name)
		}
		return func(reflect.Value) any { return nil }, nil
	}
	if err := checkShown(schema, f.Type, tf.typ); err != nil {
		return nil, fmt.Errorf("%s: %w", b.goType, err)
	}
	index, omit := tf.index, tf.omitZero
	return func(src reflect.Value) any {
		v, err := src.FieldByIndexErr(index)
		if err != nil || omit && v.IsZero() { // err: a nil embedded pointer
			return nil
		}
		return v.Interface()
	}, nil
}

var (
	stringerType = reflect.TypeFor[fmt.Stringer]()
	timeType     = reflect.TypeFor[time.Time]()
)

// checkShown returns an error unless values of the Go type can be shown as the schema type.
func checkShown(schema *ast.Schema, t *ast.Type, g reflect.Type) error {
	for g.Kind() == reflect.Pointer {
		g = g.Elem()
	}
	if g.Kind() == reflect.Interface || g.Kind() == reflect.Func {
		return nil // known at run time only
	}
	if t.Elem != nil {
		if g.Kind() != reflect.Slice && g.Kind() != reflect.Array {
			return fmt.Errorf("%s cannot be shown as %s", g, t)
		}
		return checkShown(schema, t.Elem, g.Elem())
	}
	def := schema.Types[t.NamedType]
	ok := false
	switch {
	case def.Kind == ast.Enum, t.NamedType == "String":
		ok = g.Kind() == reflect.String || g == timeType || g.Implements(stringerType)
	case t.NamedType == "ID":
		ok = g.Kind() == reflect.String || isInteger(g) || g.Implements(stringerType)
	case t.NamedType == "Int":
		ok = isInteger(g)
	case t.NamedType == "Float":
		ok = isInteger(g) || g.Kind() == reflect.Float32 || g.Kind() == reflect.Float64
	case t.NamedType == "Boolean":
		ok = g.Kind() == reflect.Bool
	default:
		ok = g.Kind() == reflect.Struct || g == dynamicType
	}
	if !ok {
		return fmt.Errorf("%s cannot be shown as %s", g, t)
	}
	return nil
}

func isInteger(g reflect.Type) bool {
	return g.Kind() >= reflect.Int && g.Kind() <= reflect.Uint64
}
