package sparkplug

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Payload is a message of a node or device, decoded from the Protocol Buffers message org.eclipse.tahu.protobuf.Payload of
// Sparkplug 3.0.
type Payload struct {
	Timestamp uint64 // milliseconds since 1970; 0: none
	Seq       uint8
	HasSeq    bool
	Metrics   []Metric
}

// Metric is one metric of a payload.
type Metric struct {
	Name       string
	Alias      uint64
	Timestamp  uint64 // milliseconds since 1970; 0: none
	Type       DataType
	HasAlias   bool
	Historical bool
	Null       bool
	Good       bool // no quality is given, or it is 192
	Value
}

// Value is the value of a metric. Numbers are kept as they travel; what they mean depends on the type (see number).
type Value struct {
	Form Form
	Bits uint64 // of FormInt, FormLong, FormFloat, FormDouble, FormBool
	Text string // of FormString; the bytes of FormBytes; JSON of FormJSON, "" where it is larger than maxJSON
}

// Form is the field in which a value travels.
type Form uint8

// The forms of values. FormJSON stands for data sets and templates, which are turned into JSON where they are decoded.
const (
	FormNone Form = iota
	FormInt       // 32 bits
	FormLong      // 64 bits
	FormFloat
	FormDouble
	FormBool
	FormString
	FormBytes
	FormJSON
	FormOther // an extension
)

// ErrPayload is returned for bytes that are no payload of Sparkplug B, or one beyond the bounds.
var ErrPayload = errors.New("sparkplug: malformed payload")

// Bounds of a payload.
const (
	maxPayload   = 1 << 20 // bytes
	maxMetrics   = 16_384  // in one message
	maxName      = 128     // characters of the name of a metric
	maxTemplates = 8       // templates within one another
	maxJSON      = 4 << 10 // bytes of a data set, template or array as JSON; a larger one is not kept
	goodQuality  = 192
)

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrPayload, fmt.Sprintf(format, args...))
}

// Decode decodes a payload. The payload holds no byte of b.
func Decode(b []byte) (*Payload, error) {
	if len(b) > maxPayload {
		return nil, malformed("%d bytes, more than %d", len(b), maxPayload)
	}
	p := &Payload{}
	n := 0
	err := fields(b, func(f *field) error {
		if f.num == 2 {
			n++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if n > maxMetrics {
		return nil, malformed("%d metrics, more than %d", n, maxMetrics)
	}
	p.Metrics = make([]Metric, 0, n)
	return p, fields(b, func(f *field) (err error) {
		switch f.num {
		case 1:
			p.Timestamp, err = f.varint()
		case 2:
			var m Metric
			if m, err = decodeMetric(f, 0); err == nil {
				p.Metrics = append(p.Metrics, m)
			}
		case 3:
			var seq uint64
			if seq, err = f.varint(); err == nil && seq > math.MaxUint8 {
				err = malformed("seq %d, more than 255", seq)
			}
			p.Seq, p.HasSeq = uint8(seq), true
		}
		return err
	})
}

// field is a field of a message as it is visited.
type field struct {
	num   protowire.Number
	kind  protowire.Type
	value uint64 // of the kinds VarintType, Fixed32Type, Fixed64Type
	bytes []byte // of BytesType
}

// fields visits the fields of a message in their order. Groups, which Sparkplug does not have, are skipped.
func fields(b []byte, visit func(*field) error) error {
	var f field
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 || !num.IsValid() {
			return malformed("a field without a valid tag")
		}
		b = b[n:]
		f = field{num: num, kind: kind}
		switch kind {
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var v uint32
			v, n = protowire.ConsumeFixed32(b)
			f.value = uint64(v)
		case protowire.Fixed64Type:
			f.value, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, kind, b)
		}
		if n < 0 {
			return malformed("field %d ends too early", num)
		}
		b = b[n:]
		if kind == protowire.StartGroupType {
			continue
		}
		if err := visit(&f); err != nil {
			return err
		}
	}
	return nil
}

func (f *field) expect(kind protowire.Type) error {
	if f.kind != kind {
		return malformed("field %d has the wire type %d instead of %d", f.num, f.kind, kind)
	}
	return nil
}

func (f *field) varint() (uint64, error)  { return f.value, f.expect(protowire.VarintType) }
func (f *field) fixed32() (uint64, error) { return f.value, f.expect(protowire.Fixed32Type) }
func (f *field) fixed64() (uint64, error) { return f.value, f.expect(protowire.Fixed64Type) }
func (f *field) raw() ([]byte, error)     { return f.bytes, f.expect(protowire.BytesType) }

// bool reads a boolean: any number but 0 is true, as Protocol Buffers have it.
func (f *field) bool() (bool, error) { return f.value != 0, f.expect(protowire.VarintType) }

func (f *field) text() (string, error) {
	if err := f.expect(protowire.BytesType); err != nil {
		return "", err
	}
	if !utf8.Valid(f.bytes) {
		return "", malformed("field %d is not UTF-8", f.num)
	}
	return string(f.bytes), nil
}

// decodeMetric decodes the metric that a field holds, depth templates below the payload.
func decodeMetric(in *field, depth int) (m Metric, err error) {
	b, err := in.raw()
	if err != nil {
		return m, err
	}
	m.Good = true
	var structure *field // a data set or template: read when the type is known
	err = fields(b, func(f *field) (err error) {
		switch f.num {
		case 1:
			if m.Name, err = f.text(); err == nil && utf8.RuneCountInString(m.Name) > maxName {
				err = malformed("the name of a metric has more than %d characters: %q", maxName, cut(m.Name))
			}
		case 2:
			m.Alias, err = f.varint()
			m.HasAlias = true
		case 3:
			m.Timestamp, err = f.varint()
		case 4:
			var t uint64
			t, err = f.varint()
			m.Type = DataType(min(t, math.MaxUint8))
		case 5:
			m.Historical, err = f.bool()
		case 7:
			m.Null, err = f.bool()
		case 9:
			m.Good, err = decodeQuality(f)
		case 10, 11, 12, 13, 14, 15, 16, 17, 18, 19:
			structure = nil
			if f.num == 17 || f.num == 18 {
				structure = &field{num: f.num, kind: f.kind, bytes: f.bytes}
			}
			m.Value, err = decodeValue(f)
		}
		return err
	})
	if err == nil && structure != nil {
		m.Text, err = decodeStructure(structure, depth)
	}
	return m, err
}

// decodeValue decodes the value of a metric. Of a data set or template it knows the form only.
func decodeValue(f *field) (v Value, err error) {
	switch f.num {
	case 10:
		v.Form = FormInt
		v.Bits, err = f.varint()
		v.Bits = uint64(uint32(v.Bits))
	case 11:
		v.Form = FormLong
		v.Bits, err = f.varint()
	case 12:
		v.Form = FormFloat
		v.Bits, err = f.fixed32()
	case 13:
		v.Form = FormDouble
		v.Bits, err = f.fixed64()
	case 14:
		v.Form = FormBool
		var set bool
		if set, err = f.bool(); set {
			v.Bits = 1
		}
	case 15:
		v.Form = FormString
		v.Text, err = f.text()
	case 16:
		v.Form = FormBytes
		var raw []byte
		raw, err = f.raw()
		v.Text = string(raw)
	case 17, 18:
		v.Form = FormJSON
		err = f.expect(protowire.BytesType)
	default:
		v.Form = FormOther
	}
	return v, err
}

// decodeQuality reads the properties of a metric and returns whether its quality is good: not given, or 192
// (tck-id-payloads-propertyset-quality-value-value).
func decodeQuality(in *field) (good bool, err error) {
	b, err := in.raw()
	if err != nil {
		return false, err
	}
	keys, values, at := 0, 0, -1
	good = true
	err = fields(b, func(f *field) (err error) {
		if f.num == 1 {
			var key []byte
			if key, err = f.raw(); string(key) == "Quality" {
				at = keys
			}
			keys++
		}
		return err
	})
	if err != nil {
		return false, err
	}
	err = fields(b, func(f *field) (err error) {
		if f.num != 2 {
			return nil
		}
		if values++; values-1 == at {
			good, err = decodeIsGood(f)
		} else {
			_, err = f.raw()
		}
		return err
	})
	if err == nil && keys != values {
		err = malformed("%d keys and %d values of properties", keys, values)
	}
	return good, err
}

func decodeIsGood(in *field) (good bool, err error) {
	b, err := in.raw()
	if err != nil {
		return false, err
	}
	good = true
	err = fields(b, func(f *field) error {
		if f.num == 3 || f.num == 4 {
			good = f.kind == protowire.VarintType && uint32(f.value) == goodQuality
		}
		return nil
	})
	return good, err
}

// appendRebirth appends the payload of the one command that is sent: NCMD with Node Control/Rebirth = true, by name, without seq
// (tck-id-operational-behavior-data-commands-ncmd-rebirth-name, -value, -rebirth-name-aliases, payloads-ncmd-timestamp, payloads-ncmd-seq).
func appendRebirth(b []byte, milliseconds uint64) []byte {
	var m []byte
	m = protowire.AppendTag(m, 1, protowire.BytesType)
	m = protowire.AppendString(m, rebirthMetric)
	m = protowire.AppendTag(m, 3, protowire.VarintType)
	m = protowire.AppendVarint(m, milliseconds)
	m = protowire.AppendTag(m, 4, protowire.VarintType)
	m = protowire.AppendVarint(m, uint64(Boolean))
	m = protowire.AppendTag(m, 14, protowire.VarintType)
	m = protowire.AppendVarint(m, 1)

	b = protowire.AppendTag(b, 1, protowire.VarintType)
	b = protowire.AppendVarint(b, milliseconds)
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	return protowire.AppendBytes(b, m)
}

// rebirthMetric is the metric by which a node is asked for its births.
const rebirthMetric = "Node Control/Rebirth"
