// Package content reads and writes what LwM2M devices send and are sent: values of resources in the formats of the enabler. Every
// function is pure: bytes to records and back.
//
//	path.go    paths of objects, instances, resources and resource instances
//	models.go  the types of the resources that are known; definition.go: files that describe others
//	tlv.go     TLV (LwM2M 1.0)
//	senml.go   SenML-JSON and SenML-CBOR (RFC 8428), and LwM2M JSON (LwM2M 1.0)
//	cbor.go    CBOR (RFC 8949), as far as values need it; LwM2M CBOR (LwM2M 1.2)
//	plain.go   text, opaque, and CBOR of one value
//	links.go   link format (RFC 6690)
//
// What a device sends is bounded by MaxRecords and by the size of its message.
package content

import (
	"errors"
	"fmt"
)

// Content formats (RFC 7252, RFC 8428, OMA-TS-LightweightM2M). The Old ones are those of clients before the numbers were registered.
const (
	Text      uint16 = 0
	LinkList  uint16 = 40
	Opaque    uint16 = 42
	CBOR      uint16 = 60
	SenMLJSON uint16 = 110
	SenMLCBOR uint16 = 112
	TLV       uint16 = 11542
	JSON      uint16 = 11543
	LwM2MCBOR uint16 = 11544

	oldText   uint16 = 1541
	oldTLV    uint16 = 1542
	oldJSON   uint16 = 1543
	oldOpaque uint16 = 1544
)

// Canonical returns the registered number of a format, whichever number a client uses for it.
func Canonical(format uint16) uint16 {
	switch format {
	case oldText:
		return Text
	case oldTLV:
		return TLV
	case oldJSON:
		return JSON
	case oldOpaque:
		return Opaque
	}
	return format
}

// Name returns the name of a format as metrics and results have it, "other" for one that is not known.
func Name(format uint16) string {
	switch Canonical(format) {
	case Text:
		return "text"
	case LinkList:
		return "link-format"
	case Opaque:
		return "opaque"
	case CBOR:
		return "cbor"
	case SenMLJSON:
		return "senml-json"
	case SenMLCBOR:
		return "senml-cbor"
	case TLV:
		return "tlv"
	case JSON:
		return "json"
	case LwM2MCBOR:
		return "lwm2m-cbor"
	}
	return "other"
}

// Named returns the format of a name, see Name.
func Named(name string) (format uint16, ok bool) {
	for _, f := range []uint16{Text, Opaque, CBOR, SenMLJSON, SenMLCBOR, TLV, JSON, LwM2MCBOR} {
		if Name(f) == name {
			return f, true
		}
	}
	return 0, false
}

// Names are the names of all formats that values come in.
func Names() []string {
	return []string{"text", "opaque", "cbor", "senml-json", "senml-cbor", "tlv", "json", "lwm2m-cbor", "other"}
}

// MaxRecords is how many values one message may carry.
const MaxRecords = 4096

// Kind is the type of a value.
type Kind uint8

// The types. None is that of a resource that is not known.
const (
	None Kind = iota
	Integer
	Unsigned
	Float
	Boolean
	String
	Time // seconds since 1970, as an Integer
	Bytes
	Link // an object link
)

// Value is a value of a resource. The field that belongs to Kind is set.
type Value struct {
	Kind  Kind
	Int   int64 // Integer, Time; Unsigned as its bits
	Float float64
	Bool  bool
	Text  string // String; Link as "object:instance"
	Bytes []byte
}

// Number returns the value as a number: booleans are 0 and 1. ok is false for what is none.
func (v Value) Number() (n float64, ok bool) {
	switch v.Kind {
	case Integer, Time:
		return float64(v.Int), true
	case Unsigned:
		return float64(uint64(v.Int)), true
	case Float:
		return v.Float, true
	case Boolean:
		if v.Bool {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// Record is a value with its path. At is when it held, in seconds since 1970, where HasTime is set.
type Record struct {
	Path    Path
	Value   Value
	At      float64
	HasTime bool
}

// ErrFormat says that a payload is not what its content format says. Errors of Decode wrap it.
var ErrFormat = errors.New("malformed payload")

// ErrUnknownFormat says that a content format is none that can be read.
var ErrUnknownFormat = errors.New("unknown content format")

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
}

// Decode reads a payload. base is the path that was asked for: formats that carry none need it. now is what relative times are
// added to, in seconds since 1970. The result refers to payload. Types that no model and no table knows are those that the format says.
func (m *Models) Decode(format uint16, base Path, payload []byte, now float64) ([]Record, error) {
	switch Canonical(format) {
	case Text:
		return single(base, m.decodeText(base, payload))
	case Opaque:
		return single(base, Value{Kind: Bytes, Bytes: payload})
	case CBOR:
		v, err := m.decodeCBORValue(base, payload)
		if err != nil {
			return nil, err
		}
		return single(base, v)
	case TLV:
		return m.decodeTLV(base, payload)
	case SenMLJSON:
		return m.decodeSenMLJSON(payload, now)
	case SenMLCBOR:
		return m.decodeSenMLCBOR(payload, now)
	case JSON:
		return m.decodeJSON(base, payload, now)
	case LwM2MCBOR:
		return m.decodeLwM2MCBOR(base, payload)
	}
	return nil, fmt.Errorf("%w %d", ErrUnknownFormat, format)
}

// Decode is that of Models for what is built in.
func Decode(format uint16, base Path, payload []byte, now float64) ([]Record, error) {
	return (*Models)(nil).Decode(format, base, payload, now)
}

// single is the record of a format that holds one value: it needs the path of a resource.
func single(base Path, v Value) ([]Record, error) {
	if len(base) < 3 {
		return nil, bad("a single value for %s, which is no resource", base)
	}
	return []Record{{Path: base, Value: v}}, nil
}

// Encode writes records in a format. base is the path that the request names; those of the records begin with it.
func Encode(format uint16, base Path, records []Record) ([]byte, error) {
	switch format {
	case Text, Opaque, CBOR:
		if len(records) != 1 {
			return nil, fmt.Errorf("%s holds one value, not %d", Name(format), len(records))
		}
		return encodePlain(format, records[0].Value)
	case TLV:
		return encodeTLV(base, records)
	case SenMLJSON:
		return encodeSenMLJSON(records)
	case SenMLCBOR:
		return encodeSenMLCBOR(records), nil
	}
	return nil, fmt.Errorf("%w %d", ErrUnknownFormat, format)
}
