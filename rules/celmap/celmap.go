// Package celmap shows the readings of a sample to expressions.
package celmap

import (
	"math"
	"reflect"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"weir/model"
)

// Map is m of an expression: the readings of a sample as a map of double, in the order of the message, without building a map.
// Equality and conversion, which few expressions use, go through a real map.
type Map struct {
	Readings []model.Reading // the finite ones
	kept     []model.Reading // memory for them if others are among them
}

var _ traits.Mapper = (*Map)(nil)

// Bind makes it the map of some readings.
func (m *Map) Bind(readings []model.Reading) {
	m.Readings = readings
	for i := range readings {
		if !Finite(readings[i].Value) {
			m.keepFinite(readings)
			return
		}
	}
}

// Finite reports whether a value is a number that is not infinite.
func Finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func (m *Map) keepFinite(rs []model.Reading) {
	m.kept = m.kept[:0]
	for _, r := range rs {
		if Finite(r.Value) {
			m.kept = append(m.kept, r)
		}
	}
	m.Readings = m.kept
}

// Reading returns the reading of a metric, or nil.
func (m *Map) Reading(metric string) *model.Reading {
	for i := range m.Readings {
		if m.Readings[i].Metric == metric {
			return &m.Readings[i]
		}
	}
	return nil
}

// Find implements traits.Mapper.
func (m *Map) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	if r := m.Reading(string(name)); r != nil {
		return types.Double(r.Value), true
	}
	return nil, false
}

// Get implements traits.Indexer.
func (m *Map) Get(key ref.Val) ref.Val {
	if v, ok := m.Find(key); ok {
		return v
	}
	return types.NewErr("no such key: %v", key)
}

// Contains implements traits.Container.
func (m *Map) Contains(key ref.Val) ref.Val {
	_, ok := m.Find(key)
	return types.Bool(ok)
}

// Size implements traits.Sizer.
func (m *Map) Size() ref.Val { return types.Int(len(m.Readings)) }

// Iterator implements traits.Iterable, in the order of the message, so that a replay meets the same order.
func (m *Map) Iterator() traits.Iterator {
	keys := make([]string, len(m.Readings))
	for i := range m.Readings {
		keys[i] = m.Readings[i].Metric
	}
	return types.DefaultTypeAdapter.NativeToValue(keys).(traits.Lister).Iterator()
}

func (m *Map) plain() ref.Val {
	vals := make(map[string]float64, len(m.Readings))
	for _, r := range m.Readings {
		vals[r.Metric] = r.Value
	}
	return types.DefaultTypeAdapter.NativeToValue(vals)
}

// ConvertToNative implements ref.Val.
func (m *Map) ConvertToNative(t reflect.Type) (any, error) { return m.plain().ConvertToNative(t) }

// ConvertToType implements ref.Val.
func (m *Map) ConvertToType(t ref.Type) ref.Val { return m.plain().ConvertToType(t) }

// Equal implements ref.Val.
func (m *Map) Equal(other ref.Val) ref.Val { return m.plain().Equal(other) }

// Type implements ref.Val.
func (m *Map) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (m *Map) Value() any { return m.plain().Value() }
