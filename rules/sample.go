package rules

import (
	"reflect"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"weir/model"
)

// Sample is an input as judges and expressions see it. The engine binds it to one input at a time and uses it again for
// the next, so that structured rules allocate nothing; what an expression reads is boxed once per input.
type Sample struct {
	*Input
	Clock  Clock  // of the device; for a Timer of a key without a device, of the key's rule
	Anchor string // token of the key's anchor, "" for a key without one

	metrics  metricMap
	at       *model.Reading // reading for which the index found the rule, nil for none
	device   ref.Val
	occurred ref.Val
}

var _ cel.Activation = (*Sample)(nil)

func (s *Sample) bind(in *Input) {
	s.Input, s.Anchor, s.at, s.device, s.occurred = in, "", nil, nil, nil
	s.metrics.bind(in)
}

// Metric returns the finite value of a metric, false when the sample does not carry one.
func (s *Sample) Metric(name string) (float64, bool) {
	if r := s.metrics.reading(name); r != nil {
		return r.Value, true
	}
	return 0, false
}

// assumed reports whether the sample is within the sizes that the static cost of an expression assumes. Names of
// metrics and tokens of devices cannot be longer: ingest refuses longer ones.
func (s *Sample) assumed() bool { return len(s.metrics.readings) <= assumedEntries }

// ResolveName implements cel.Activation.
func (s *Sample) ResolveName(name string) (any, bool) {
	switch name {
	case varMetrics:
		return &s.metrics, true
	case varDevice:
		if s.device == nil {
			s.device = types.String(s.Input.Device.Token)
		}
		return s.device, true
	case varOccurred:
		if s.occurred == nil {
			s.occurred = types.Timestamp{Time: s.Occurred.Time()}
		}
		return s.occurred, true
	}
	return nil, false
}

// Parent implements cel.Activation.
func (s *Sample) Parent() cel.Activation { return nil }

// metricMap is m: the readings of a sample as a map of double, in the order of the message, without building a map.
// Equality and conversion, which few expressions use, go through a real map.
type metricMap struct {
	readings []model.Reading
	kept     []model.Reading // memory for the finite ones if others are among them
}

var _ traits.Mapper = (*metricMap)(nil)

func (m *metricMap) bind(in *Input) {
	m.readings = nil
	if in.Kind != Measurement {
		return
	}
	m.readings = in.Readings
	for i := range in.Readings {
		if !finite(in.Readings[i].Value) {
			m.keepFinite(in.Readings)
			return
		}
	}
}

func (m *metricMap) keepFinite(rs []model.Reading) {
	m.kept = m.kept[:0]
	for _, r := range rs {
		if finite(r.Value) {
			m.kept = append(m.kept, r)
		}
	}
	m.readings = m.kept
}

// reading returns the reading of a metric, or nil.
func (m *metricMap) reading(metric string) *model.Reading {
	for i := range m.readings {
		if m.readings[i].Metric == metric {
			return &m.readings[i]
		}
	}
	return nil
}

// Find implements traits.Mapper.
func (m *metricMap) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	if r := m.reading(string(name)); r != nil {
		return types.Double(r.Value), true
	}
	return nil, false
}

// Get implements traits.Indexer.
func (m *metricMap) Get(key ref.Val) ref.Val {
	if v, ok := m.Find(key); ok {
		return v
	}
	return types.NewErr("no such key: %v", key)
}

// Contains implements traits.Container.
func (m *metricMap) Contains(key ref.Val) ref.Val {
	_, ok := m.Find(key)
	return types.Bool(ok)
}

// Size implements traits.Sizer.
func (m *metricMap) Size() ref.Val { return types.Int(len(m.readings)) }

// Iterator implements traits.Iterable, in the order of the message, so that a replay meets the same order.
func (m *metricMap) Iterator() traits.Iterator {
	keys := make([]string, len(m.readings))
	for i := range m.readings {
		keys[i] = m.readings[i].Metric
	}
	return types.DefaultTypeAdapter.NativeToValue(keys).(traits.Lister).Iterator()
}

func (m *metricMap) plain() ref.Val {
	vals := make(map[string]float64, len(m.readings))
	for _, r := range m.readings {
		vals[r.Metric] = r.Value
	}
	return types.DefaultTypeAdapter.NativeToValue(vals)
}

// ConvertToNative implements ref.Val.
func (m *metricMap) ConvertToNative(t reflect.Type) (any, error) { return m.plain().ConvertToNative(t) }

// ConvertToType implements ref.Val.
func (m *metricMap) ConvertToType(t ref.Type) ref.Val { return m.plain().ConvertToType(t) }

// Equal implements ref.Val.
func (m *metricMap) Equal(other ref.Val) ref.Val { return m.plain().Equal(other) }

// Type implements ref.Val.
func (m *metricMap) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (m *metricMap) Value() any { return m.plain().Value() }
