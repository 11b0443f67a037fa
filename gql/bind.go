package gql

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/vektah/gqlparser/v2/ast"

	"weir/store/entity"
)

func cutTag(tag string) (name string, omitZero bool) {
	name, opts, _ := strings.Cut(tag, ",")
	return name, opts == "omitzero"
}

// TypeNamer is implemented by values of one Go type that are bound to several schema types.
type TypeNamer interface{ GraphQLType() string }

var dynamicType = reflect.TypeFor[map[string]any]()

// binding is one Go type that is bound to a schema type.
type binding struct {
	goType reflect.Type // a struct, or map[string]any
	fields map[string]taggedField
}

func newBinding(sample any) (*binding, error) {
	t := reflect.TypeOf(sample)
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == dynamicType {
		return &binding{goType: t}, nil
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%T is neither a struct nor map[string]any", sample)
	}
	b := &binding{goType: t, fields: map[string]taggedField{}}
	for _, f := range taggedFields(t) {
		if _, dup := b.fields[f.name]; dup {
			return nil, fmt.Errorf("%s has two fields tagged %q", t, f.name)
		}
		b.fields[f.name] = f
	}
	return b, nil
}

// rowBinding binds the rows of a kind: the fields of the row, and those whose tag names a field of the API. References
// have a tag too, but it is the name under which requests set them. Secrets are shown as null.
func rowBinding(kind entity.Any) *binding {
	t := reflect.TypeOf(kind.New()).Elem()
	b := &binding{goType: t, fields: map[string]taggedField{"deletedAt": {name: "deletedAt", never: true}}} // rows are deleted for good
	for name, goName := range map[string]string{"id": "ID", "createdAt": "CreatedAt", "updatedAt": "UpdatedAt"} {
		f, _ := t.FieldByName(goName)
		b.fields[name] = taggedField{name: name, index: f.Index, typ: f.Type}
	}
	for _, f := range taggedFields(t) {
		b.fields[f.name] = f
	}
	for _, f := range kind.Info().Fields {
		switch {
		case f.Ref != "", f.Hidden:
			delete(b.fields, f.Name)
		case f.Secret:
			b.fields[f.Name] = taggedField{name: f.Name, never: true}
		}
	}
	return b
}

// accessor reads one schema field from values of one Go type.
type accessor func(src reflect.Value) any

// accessorFor returns how to read field f of the schema type from values of the binding, or an error with the reason
// why its Go type cannot be shown.
func (b *binding) accessorFor(schema *ast.Schema, f *ast.FieldDefinition) (accessor, error) {
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
