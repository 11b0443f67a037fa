package sparkplug

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// decodeStructure checks a data set (field 17 of a metric) or a template (18) and returns it as JSON, "" when that is larger than maxJSON.
func decodeStructure(f *field, depth int) (string, error) {
	out := &document{}
	err := out.structure(f, depth)
	return out.text(), err
}

// document is JSON that is being written. Beyond maxJSON nothing more is written; what remains is still checked.
type document struct {
	b    []byte
	over bool
}

func (d *document) text() string {
	if d.over {
		return ""
	}
	return string(d.b)
}

func (d *document) raw(s string) {
	if d.over = d.over || len(d.b)+len(s) > maxJSON; !d.over {
		d.b = append(d.b, s...)
	}
}

func (d *document) string(s string) {
	if d.over = d.over || len(d.b)+len(s) > maxJSON; d.over {
		return
	}
	quoted, err := json.Marshal(s)
	if err != nil {
		d.over = true
		return
	}
	d.raw(string(quoted))
}

// float writes a number of 32 or 64 bits; what JSON cannot hold becomes null.
func (d *document) float(n float64, bits int) {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		d.raw("null")
		return
	}
	d.raw(strconv.FormatFloat(n, 'g', -1, bits))
}

// list writes n members between two brackets.
func (d *document) list(brackets string, n int, member func(i int)) {
	d.raw(brackets[:1])
	for i := range n {
		if i > 0 {
			d.raw(",")
		}
		member(i)
	}
	d.raw(brackets[1:])
}

// value writes a value of a type; one of no known type is written as it travels.
func (d *document) value(v *Value, t DataType) {
	switch v.Form {
	case FormInt, FormLong:
		d.integer(t, v.Bits)
	case FormFloat:
		d.float(float64(math.Float32frombits(uint32(v.Bits))), 32)
	case FormDouble:
		d.float(math.Float64frombits(v.Bits), 64)
	case FormBool:
		d.raw(strconv.FormatBool(v.Bits != 0))
	case FormString:
		d.string(v.Text)
	case FormJSON:
		if d.over = d.over || v.Text == ""; !d.over {
			d.raw(v.Text)
		}
	case FormBytes:
		if array, ok := arrayJSON(t, v.Text); ok && array != "" {
			d.raw(array)
			return
		}
		d.raw("null")
	default:
		d.raw("null")
	}
}

// integer writes whole numbers whole: a float64 would round those of 64 bits.
func (d *document) integer(t DataType, bits uint64) {
	switch {
	case t == Int64 || t == DateTime:
		d.raw(strconv.FormatInt(int64(bits), 10))
	case t == Int8 || t == Int16 || t == Int32:
		n, _ := integer(t, bits)
		d.raw(strconv.FormatInt(int64(n), 10))
	case t == Boolean:
		d.raw(strconv.FormatBool(bits != 0))
	default:
		d.raw(strconv.FormatUint(bits, 10))
	}
}

func (d *document) structure(f *field, depth int) error {
	b, err := f.raw()
	switch {
	case err != nil:
		return err
	case f.num == 17:
		return d.dataSet(b)
	case depth >= maxTemplates:
		return malformed("more than %d templates within one another", maxTemplates)
	}
	return d.template(b, depth+1)
}

// dataSet writes {"columns": [names], "types": [numbers], "rows": [[values]]}. There are as many columns, types and values of each row as the
// data set says (tck-id-payloads-dataset-column-num-headers, -types-num, -parameter-...).
func (d *document) dataSet(b []byte) error {
	declared, has := uint64(0), false
	var columns []string
	var types []DataType
	var rows [][]byte
	err := fields(b, func(f *field) (err error) {
		switch f.num {
		case 1:
			has = true
			declared, err = f.varint()
		case 2:
			var name string
			name, err = f.text()
			columns = append(columns, name)
		case 3:
			types, err = appendTypes(types, f)
		case 4:
			var row []byte
			row, err = f.raw()
			rows = append(rows, row)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case has && declared != uint64(len(columns)) || len(types) != len(columns):
		return malformed("a data set of %d columns with %d names and %d types", declared, len(columns), len(types))
	}
	d.raw(`{"columns":`)
	d.list("[]", len(columns), func(i int) { d.string(columns[i]) })
	d.raw(`,"types":`)
	d.list("[]", len(types), func(i int) { d.raw(strconv.Itoa(int(types[i]))) })
	d.raw(`,"rows":`)
	d.list("[]", len(rows), func(i int) {
		if err == nil {
			err = d.row(rows[i], types)
		}
	})
	d.raw("}")
	return err
}

// appendTypes reads types, which may be packed into one field.
func appendTypes(types []DataType, f *field) ([]DataType, error) {
	if f.kind == protowire.VarintType {
		return append(types, DataType(min(f.value, math.MaxUint8))), nil
	}
	b, err := f.raw()
	for err == nil && len(b) > 0 {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return types, malformed("the types of a data set end too early")
		}
		types, b = append(types, DataType(min(v, math.MaxUint8))), b[n:]
	}
	return types, err
}

func (d *document) row(b []byte, types []DataType) error {
	n := 0
	d.raw("[")
	err := fields(b, func(f *field) error {
		if f.num != 1 {
			return nil
		}
		if n == len(types) {
			return malformed("a row of a data set has more values than columns")
		}
		element, err := f.raw()
		if err != nil {
			return err
		}
		// int 1, long 2, float 3, double 4, bool 5, string 6
		v, err := decodeOneOf(element, 1)
		if err != nil {
			return err
		}
		if n > 0 {
			d.raw(",")
		}
		d.value(&v, types[n])
		n++
		return nil
	})
	d.raw("]")
	if err == nil && n != len(types) {
		err = malformed("a row of a data set has %d values for %d columns", n, len(types))
	}
	return err
}

// decodeOneOf reads the value of a message whose fields int, long, float, double, bool and string begin at the number first.
func decodeOneOf(b []byte, first protowire.Number) (v Value, err error) {
	err = fields(b, func(f *field) (err error) {
		if f.num < first || f.num > first+5 {
			return nil
		}
		g := *f
		g.num += 10 - first // as in a metric
		v, err = decodeValue(&g)
		return err
	})
	return v, err
}

// template writes {"version", "templateRef", "isDefinition", "parameters": {name: value}, "metrics": {name: value}}, each of the first three
// only where it is given.
func (d *document) template(b []byte, depth int) error {
	var version, ref string
	var metrics []Metric
	var parameters [][]byte
	definition := false
	err := fields(b, func(f *field) (err error) {
		switch f.num {
		case 1:
			version, err = f.text()
		case 2:
			if len(metrics) >= maxMetrics {
				return malformed("a template has more than %d metrics", maxMetrics)
			}
			var m Metric
			m, err = decodeMetric(f, depth)
			metrics = append(metrics, m)
		case 3:
			var p []byte
			p, err = f.raw()
			parameters = append(parameters, p)
		case 4:
			ref, err = f.text()
		case 5:
			definition, err = f.bool()
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case definition && ref != "":
		return malformed("a template definition refers to a template")
	}
	d.raw(`{"isDefinition":` + strconv.FormatBool(definition))
	if version != "" {
		d.raw(`,"version":`)
		d.string(version)
	}
	if ref != "" {
		d.raw(`,"templateRef":`)
		d.string(ref)
	}
	d.raw(`,"parameters":`)
	d.list("{}", len(parameters), func(i int) {
		if err == nil {
			err = d.parameter(parameters[i])
		}
	})
	d.raw(`,"metrics":`)
	d.list("{}", len(metrics), func(i int) {
		m := &metrics[i]
		d.string(m.Name)
		d.raw(":")
		if m.Null {
			d.raw("null")
			return
		}
		d.value(&m.Value, m.Type)
	})
	d.raw("}")
	return err
}

func (d *document) parameter(b []byte) error {
	var name string
	var t DataType
	err := fields(b, func(f *field) (err error) {
		switch f.num {
		case 1:
			name, err = f.text()
		case 2:
			var n uint64
			n, err = f.varint()
			t = DataType(min(n, math.MaxUint8))
		}
		return err
	})
	if err != nil {
		return err
	}
	v, err := decodeOneOf(b, 3)
	d.string(name)
	d.raw(":")
	d.value(&v, t)
	return err
}

// arrayJSON returns an array of values, packed with the lowest byte first, as JSON, "" when that is larger than maxJSON. ok is false for a type that
// is no array, and for bytes that are none of it.
func arrayJSON(t DataType, packed string) (text string, ok bool) {
	d := &document{}
	b := []byte(packed)
	switch t {
	case BooleanArray:
		ok = d.booleans(b)
	case StringArray:
		ok = d.strings(b)
	default:
		ok = d.numbers(t, b)
	}
	return d.text(), ok
}

// widths are the bytes of one element.
var widths = map[DataType]int{Int8Array: 1, Int16Array: 2, Int32Array: 4, Int64Array: 8, UInt8Array: 1, UInt16Array: 2, UInt32Array: 4,
	UInt64Array: 8, FloatArray: 4, DoubleArray: 8, DateTimeArray: 8}

func (d *document) numbers(t DataType, b []byte) bool {
	width := widths[t]
	if width == 0 || len(b)%width != 0 {
		return false
	}
	d.list("[]", len(b)/width, func(i int) {
		var wide [8]byte
		copy(wide[:], b[i*width:(i+1)*width])
		bits := binary.LittleEndian.Uint64(wide[:])
		switch t {
		case FloatArray:
			d.float(float64(math.Float32frombits(uint32(bits))), 32)
		case DoubleArray:
			d.float(math.Float64frombits(bits), 64)
		case DateTimeArray:
			d.integer(DateTime, bits)
		default: // the types of the elements are in the same order
			d.integer(t-Int8Array+Int8, bits)
		}
	})
	return true
}

// booleans reads the number of values in four bytes, then eight of them in each byte, the first in its highest bit.
func (d *document) booleans(b []byte) bool {
	if len(b) < 4 {
		return false
	}
	n := uint64(binary.LittleEndian.Uint32(b))
	if b = b[4:]; (n+7)/8 != uint64(len(b)) {
		return false
	}
	if n > maxJSON {
		d.over = true
		return true
	}
	d.list("[]", int(n), func(i int) { d.raw(strconv.FormatBool(b[i/8]&(0x80>>(i%8)) != 0)) })
	return true
}

// strings reads texts that each end with NUL.
func (d *document) strings(b []byte) bool {
	if len(b) > 0 && b[len(b)-1] != 0 || !utf8.Valid(b) {
		return false
	}
	all := bytes.Split(b, []byte{0})
	all = all[:len(all)-1]
	if len(b) == 0 {
		all = nil
	}
	d.list("[]", len(all), func(i int) { d.string(string(all[i])) })
	return true
}
