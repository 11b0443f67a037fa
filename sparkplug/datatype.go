package sparkplug

import "math"

// DataType is the type of a metric, with the numbers of Sparkplug B (6.4.16).
type DataType uint8

// The data types.
const (
	Unknown DataType = iota
	Int8
	Int16
	Int32
	Int64
	UInt8
	UInt16
	UInt32
	UInt64
	Float
	Double
	Boolean
	String
	DateTime
	Text
	UUID
	DataSet
	Bytes
	File
	Template
	PropertySet
	PropertySetList
	Int8Array
	Int16Array
	Int32Array
	Int64Array
	UInt8Array
	UInt16Array
	UInt32Array
	UInt64Array
	FloatArray
	DoubleArray
	BooleanArray
	StringArray
	DateTimeArray
)

// isNumber reports whether values of the type are measurements.
func (t DataType) isNumber() bool { return t >= Int8 && t <= Boolean || t == DateTime }

// isText reports whether values of the type are attributes of the type STRING.
func (t DataType) isText() bool { return t == String || t == Text || t == UUID }

// isJSON reports whether values of the type are attributes of the type JSON.
func (t DataType) isJSON() bool { return t == DataSet || t == Template || t.isArray() }

func (t DataType) isArray() bool { return t >= Int8Array && t <= DateTimeArray }

// number returns the value as a measurement of the type: integers with the sign and the width of the type, DateTime in milliseconds since
// 1970, a boolean as 0 or 1. ok is false for a value that is none of the type, or not finite. Integers may come in either of the two
// fields, as edge nodes differ in that.
func (v *Value) number(t DataType) (n float64, ok bool) {
	switch v.Form {
	case FormInt, FormLong:
		return integer(t, v.Bits)
	case FormFloat:
		n = float64(math.Float32frombits(uint32(v.Bits)))
	case FormDouble:
		n = math.Float64frombits(v.Bits)
	case FormBool:
		return float64(v.Bits), t == Boolean
	default:
		return 0, false
	}
	return n, (t == Float || t == Double) && !math.IsNaN(n) && !math.IsInf(n, 0)
}

// integer returns bits as a number of the type.
func integer(t DataType, bits uint64) (float64, bool) {
	switch t {
	case Int8:
		return float64(int8(bits)), true
	case Int16:
		return float64(int16(bits)), true
	case Int32:
		return float64(int32(bits)), true
	case Int64, DateTime:
		return float64(int64(bits)), true
	case UInt8:
		return float64(uint8(bits)), true
	case UInt16:
		return float64(uint16(bits)), true
	case UInt32:
		return float64(uint32(bits)), true
	case UInt64:
		return float64(bits), true
	}
	return 0, false
}
