package content

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// The kinds of TLV entries (OMA-TS-LightweightM2M_Core 7.4.3): bits 7 and 6 of the first byte.
const (
	tlvInstance         = 0
	tlvResourceInstance = 1
	tlvMultiple         = 2
	tlvResource         = 3
)

type tlv struct {
	kind  byte
	id    uint16
	value []byte
}

// nextTLV reads the first entry and returns the bytes behind it.
func nextTLV(b []byte) (e tlv, rest []byte, err error) {
	head := b[0]
	b = b[1:]
	e.kind = head >> 6
	idBytes := 1 + int(head>>5&1)
	if len(b) < idBytes {
		return e, nil, bad("TLV: an id is cut off")
	}
	for _, c := range b[:idBytes] {
		e.id = e.id<<8 | uint16(c)
	}
	b = b[idBytes:]
	length := int(head & 7)
	if n := int(head >> 3 & 3); n > 0 {
		if len(b) < n {
			return e, nil, bad("TLV: a length is cut off")
		}
		length = 0
		for _, c := range b[:n] {
			length = length<<8 | int(c)
		}
		b = b[n:]
	}
	if length > len(b) {
		return e, nil, bad("TLV: an entry of %d bytes, %d are left", length, len(b))
	}
	e.value = b[:length:length]
	return e, b[length:], nil
}

// decodeTLV reads what a Read or a notification of base returns: instances, resources or instances of a resource. A client may wrap what
// was asked for: an instance in its own entry, an instance of a resource in that of the resource.
func (m *Models) decodeTLV(base Path, b []byte) (out []Record, err error) {
	if len(base) == 0 {
		return nil, bad("TLV for the root")
	}
	for len(b) > 0 {
		var e tlv
		if e, b, err = nextTLV(b); err != nil {
			return nil, err
		}
		switch {
		case e.kind == tlvInstance && len(base) <= 2:
			if len(base) == 2 && e.id != base[1] {
				return nil, bad("TLV: instance %d in an answer for %s", e.id, base)
			}
			out, err = m.tlvResources(out, base[:1].child(e.id), e.value)
		case e.kind == tlvMultiple || e.kind == tlvResource:
			if out, err = m.tlvOfResource(out, base, e); err != nil {
				return nil, err
			}
		case e.kind == tlvResourceInstance && len(base) >= 3:
			out, err = m.tlvValue(out, base[:3].child(e.id), e.value)
		default:
			err = bad("TLV: an entry of kind %d in an answer for %s", e.kind, base)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// tlvOfResource reads the entry of a resource. Where only the object was asked for, it is of the instance 0: some clients leave it out of
// single-instance objects.
func (m *Models) tlvOfResource(out []Record, base Path, e tlv) ([]Record, error) {
	var at Path
	switch len(base) {
	case 1:
		at = base.child(0, e.id)
	case 2:
		at = base.child(e.id)
	default:
		if e.id != base[2] {
			return nil, bad("TLV: resource %d in an answer for %s", e.id, base)
		}
		at = base[:3]
	}
	if e.kind == tlvMultiple {
		return m.tlvInstances(out, at, e.value)
	}
	return m.tlvValue(out, at, e.value)
}

func (m *Models) tlvResources(out []Record, instance Path, b []byte) ([]Record, error) {
	for len(b) > 0 {
		e, rest, err := nextTLV(b)
		if err != nil {
			return nil, err
		}
		b = rest
		switch e.kind {
		case tlvResource:
			out, err = m.tlvValue(out, instance.child(e.id), e.value)
		case tlvMultiple:
			out, err = m.tlvInstances(out, instance.child(e.id), e.value)
		default:
			err = bad("TLV: an entry of kind %d in an instance", e.kind)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (m *Models) tlvInstances(out []Record, resource Path, b []byte) ([]Record, error) {
	for len(b) > 0 {
		e, rest, err := nextTLV(b)
		if err != nil {
			return nil, err
		}
		if b = rest; e.kind != tlvResourceInstance {
			return nil, bad("TLV: an entry of kind %d in a resource with instances", e.kind)
		}
		if out, err = m.tlvValue(out, resource.child(e.id), e.value); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (m *Models) tlvValue(out []Record, at Path, b []byte) ([]Record, error) {
	if len(out) == MaxRecords {
		return nil, bad("more than %d values", MaxRecords)
	}
	kind, declared := m.kindOf(at)
	if declared && kind == Float && (len(b) == 1 || len(b) == 2) { // a number that the device has as an integer
		kind = Integer
	}
	v, err := fromTLV(kind, b)
	switch {
	case err != nil && declared:
		v = Value{Kind: Bytes, Bytes: b}
	case err != nil:
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	return append(out, Record{Path: at, Value: v}), nil
}

// fromTLV reads a value of a type. An integer without a byte, which clients send, is 0. A value of unknown type is opaque.
func fromTLV(kind Kind, b []byte) (Value, error) {
	switch kind {
	case Integer, Time, Unsigned:
		n, err := tlvInteger(kind, b)
		return Value{Kind: kind, Int: n}, err
	case Float:
		switch len(b) {
		case 4:
			return Value{Kind: Float, Float: float64(math.Float32frombits(binary.BigEndian.Uint32(b)))}, nil
		case 8:
			return Value{Kind: Float, Float: math.Float64frombits(binary.BigEndian.Uint64(b))}, nil
		}
		return Value{}, bad("TLV: a float of %d bytes", len(b))
	case Boolean:
		if len(b) != 1 || b[0] > 1 {
			return Value{}, bad("TLV: %x is no boolean", b)
		}
		return Value{Kind: Boolean, Bool: b[0] == 1}, nil
	case String:
		return Value{Kind: String, Text: string(b)}, nil
	case Link:
		if len(b) != 4 {
			return Value{}, bad("TLV: an object link of %d bytes", len(b))
		}
		return Value{Kind: Link, Text: fmt.Sprintf("%d:%d", binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]))}, nil
	}
	return Value{Kind: Bytes, Bytes: b}, nil
}

func tlvInteger(kind Kind, b []byte) (n int64, err error) {
	switch len(b) {
	case 0:
		return 0, nil
	case 1, 2, 4, 8:
	default:
		return 0, bad("TLV: an integer of %d bytes", len(b))
	}
	var bits uint64
	for _, c := range b {
		bits = bits<<8 | uint64(c)
	}
	if shift := 64 - 8*len(b); kind != Unsigned {
		return int64(bits<<shift) >> shift, nil
	}
	return int64(bits), nil
}

// appendTLV writes an entry.
func appendTLV(out []byte, e tlv) []byte {
	head := e.kind << 6
	id := []byte{byte(e.id)}
	if e.id > 255 {
		head |= 1 << 5
		id = []byte{byte(e.id >> 8), byte(e.id)}
	}
	var length []byte
	switch n := len(e.value); {
	case n < 8:
		head |= byte(n)
	case n < 1<<8:
		head |= 1 << 3
		length = []byte{byte(n)}
	case n < 1<<16:
		head |= 2 << 3
		length = []byte{byte(n >> 8), byte(n)}
	default:
		head |= 3 << 3
		length = []byte{byte(n >> 16), byte(n >> 8), byte(n)}
	}
	out = append(append(append(out, head), id...), length...)
	return append(out, e.value...)
}

// encodeTLV writes records below base, the instances and resources in the order of their ids.
func encodeTLV(base Path, records []Record) ([]byte, error) {
	sorted := slices.Clone(records)
	slices.SortStableFunc(sorted, func(a, b Record) int { return slices.Compare(a.Path, b.Path) })
	for _, r := range sorted {
		if len(r.Path) < 3 || !r.Path.Within(base) {
			return nil, fmt.Errorf("%s is no resource below %s", r.Path, base)
		}
	}
	var out []byte
	if len(base) >= 3 {
		return tlvEntries(out, sorted)
	}
	if len(base) == 2 {
		return tlvEntries(out, sorted)
	}
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && sorted[n].Path[1] == sorted[0].Path[1] {
			n++
		}
		inner, err := tlvEntries(nil, sorted[:n])
		if err != nil {
			return nil, err
		}
		out = appendTLV(out, tlv{tlvInstance, sorted[0].Path[1], inner})
		sorted = sorted[n:]
	}
	return out, nil
}

// tlvEntries writes the resources of one instance.
func tlvEntries(out []byte, records []Record) ([]byte, error) {
	for len(records) > 0 {
		n := 1
		for n < len(records) && records[n].Path[2] == records[0].Path[2] {
			n++
		}
		id := records[0].Path[2]
		if len(records[0].Path) == 3 {
			if n > 1 {
				return nil, fmt.Errorf("%s has two values", records[0].Path)
			}
			out = appendTLV(out, tlv{tlvResource, id, toTLV(records[0].Value)})
			records = records[1:]
			continue
		}
		var inner []byte
		for _, r := range records[:n] {
			inner = appendTLV(inner, tlv{tlvResourceInstance, r.Path[3], toTLV(r.Value)})
		}
		out = appendTLV(out, tlv{tlvMultiple, id, inner})
		records = records[n:]
	}
	return out, nil
}

// toTLV writes a value in as few bytes as its type allows.
func toTLV(v Value) []byte {
	switch v.Kind {
	case Integer, Time:
		switch n := v.Int; {
		case n == int64(int8(n)):
			return []byte{byte(n)}
		case n == int64(int16(n)):
			return binary.BigEndian.AppendUint16(nil, uint16(n))
		case n == int64(int32(n)):
			return binary.BigEndian.AppendUint32(nil, uint32(n))
		}
		return binary.BigEndian.AppendUint64(nil, uint64(v.Int))
	case Unsigned:
		switch n := uint64(v.Int); {
		case n < 1<<8:
			return []byte{byte(n)}
		case n < 1<<16:
			return binary.BigEndian.AppendUint16(nil, uint16(n))
		case n < 1<<32:
			return binary.BigEndian.AppendUint32(nil, uint32(n))
		}
		return binary.BigEndian.AppendUint64(nil, uint64(v.Int))
	case Float:
		if single := float32(v.Float); float64(single) == v.Float {
			return binary.BigEndian.AppendUint32(nil, math.Float32bits(single))
		}
		return binary.BigEndian.AppendUint64(nil, math.Float64bits(v.Float))
	case Boolean:
		if v.Bool {
			return []byte{1}
		}
		return []byte{0}
	case String:
		return []byte(v.Text)
	case Link:
		object, instance, _ := linkParts(v.Text)
		return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, object), instance)
	}
	return v.Bytes
}
