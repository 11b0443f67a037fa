package facts

import (
	"errors"
	"maps"
	"reflect"
	"slices"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// lookup is a map of an expression that is asked by key. The map itself is made for what few expressions do: to iterate, to compare.
type lookup[V string | float64] struct {
	find func(key string) (V, bool)
	all  func() map[string]V
}

var _ traits.Mapper = (*lookup[string])(nil)

func value(v any) ref.Val { return types.DefaultTypeAdapter.NativeToValue(v) }

// Find implements traits.Mapper.
func (m *lookup[V]) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	v, ok := m.find(string(name))
	if !ok {
		return nil, false
	}
	return value(v), true
}

// Get implements traits.Indexer.
func (m *lookup[V]) Get(key ref.Val) ref.Val {
	if v, ok := m.Find(key); ok {
		return v
	}
	return types.NewErr("no such key: %v", key)
}

// Contains implements traits.Container.
func (m *lookup[V]) Contains(key ref.Val) ref.Val {
	_, ok := m.Find(key)
	return types.Bool(ok)
}

// Size implements traits.Sizer.
func (m *lookup[V]) Size() ref.Val { return types.Int(len(m.all())) }

// Iterator implements traits.Iterable, in the order of the keys.
func (m *lookup[V]) Iterator() traits.Iterator {
	return value(slices.Sorted(maps.Keys(m.all()))).(traits.Lister).Iterator()
}

func (m *lookup[V]) plain() ref.Val { return value(m.all()) }

// ConvertToNative implements ref.Val.
func (m *lookup[V]) ConvertToNative(t reflect.Type) (any, error) { return m.plain().ConvertToNative(t) }

// ConvertToType implements ref.Val.
func (m *lookup[V]) ConvertToType(t ref.Type) ref.Val { return m.plain().ConvertToType(t) }

// Equal implements ref.Val.
func (m *lookup[V]) Equal(other ref.Val) ref.Val { return m.plain().Equal(other) }

// Type implements ref.Val.
func (m *lookup[V]) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (m *lookup[V]) Value() any { return m.plain().Value() }

var errNotNative = errors.New("geo can only be asked inFence")

// ConvertToNative implements ref.Val.
func (g *Geo) ConvertToNative(reflect.Type) (any, error) { return nil, errNotNative }

// ConvertToType implements ref.Val.
func (g *Geo) ConvertToType(ref.Type) ref.Val { return types.MaybeNoSuchOverloadErr(g) }

// Equal implements ref.Val.
func (g *Geo) Equal(other ref.Val) ref.Val { return types.Bool(ref.Val(g) == other) }

// Type implements ref.Val.
func (g *Geo) Type() ref.Type { return GeoType }

// Value implements ref.Val.
func (g *Geo) Value() any { return g }
