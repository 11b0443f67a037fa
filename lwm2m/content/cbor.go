package content

import (
	"encoding/binary"
	"math"
	"unicode/utf8"
)

// Major types of CBOR (RFC 8949 section 3.1).
const (
	cborUnsigned = 0
	cborNegative = 1
	cborBytes    = 2
	cborText     = 3
	cborArray    = 4
	cborMap      = 5
	cborTag      = 6
	cborSimple   = 7
)

// Tags that a time may have (RFC 8949 section 3.4), and that of an object link in LwM2M.
const cborEpoch = 1

// maxDepth bounds the nesting of arrays, maps and tags.
const maxDepth = 8

// reader reads CBOR. After the first error everything that it returns is empty.
type reader struct {
	b     []byte
	err   error
	depth int
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = bad("CBOR: "+format, args...)
	}
	r.b = nil
}

// head reads the first bytes of an item. indefinite says that an array, a map or a text has no length.
func (r *reader) head() (major byte, info byte, n uint64) {
	if r.err != nil {
		return 0, 0, 0
	}
	if len(r.b) == 0 {
		r.fail("an item is cut off")
		return 0, 0, 0
	}
	major, info = r.b[0]>>5, r.b[0]&31
	r.b = r.b[1:]
	if info < 24 {
		return major, info, uint64(info)
	}
	if info == 31 && major >= cborBytes && major <= cborMap || info == 31 && major == cborSimple {
		return major, info, 0
	}
	if info > 27 {
		r.fail("a reserved length")
		return 0, 0, 0
	}
	size := 1 << (info - 24)
	if len(r.b) < size {
		r.fail("a length is cut off")
		return 0, 0, 0
	}
	for _, c := range r.b[:size] {
		n = n<<8 | uint64(c)
	}
	r.b = r.b[size:]
	return major, info, n
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail("%d bytes, %d are left", n, len(r.b))
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

// enter begins an array or a map and returns its length, -1 for one that ends with a break.
func (r *reader) enter(info byte, n uint64) int {
	if r.depth++; r.depth > maxDepth {
		r.fail("nested too deeply")
		return 0
	}
	if info == 31 {
		return -1
	}
	if n > uint64(len(r.b)) { // an item has a byte at least
		r.fail("%d items, %d bytes are left", n, len(r.b))
		return 0
	}
	return int(n)
}

// more reports whether another item of the array or map follows: i were read of n.
func (r *reader) more(i, n int) bool {
	if r.err != nil {
		return false
	}
	if n >= 0 {
		return i < n
	}
	if len(r.b) == 0 {
		r.fail("an item is cut off")
		return false
	}
	if r.b[0] == 0xff {
		r.b = r.b[1:]
		return false
	}
	return true
}

// item is a value that is no array and no map; null and undefined are of kind None.
func (r *reader) item() (v Value) {
	major, info, n := r.head()
	return r.scalar(major, info, n)
}

func (r *reader) scalar(major, info byte, n uint64) (v Value) {
	if r.err != nil {
		return v
	}
	switch major {
	case cborUnsigned:
		if n > math.MaxInt64 {
			return Value{Kind: Unsigned, Int: int64(n)}
		}
		return Value{Kind: Integer, Int: int64(n)}
	case cborNegative:
		if n > math.MaxInt64 {
			r.fail("a number below -2^63")
			return v
		}
		return Value{Kind: Integer, Int: -1 - int64(n)}
	case cborBytes, cborText:
		b := r.text(major, info, n)
		if major == cborBytes {
			return Value{Kind: Bytes, Bytes: b}
		}
		if !utf8.Valid(b) {
			r.fail("a text that is no UTF-8")
		}
		return Value{Kind: String, Text: string(b)}
	case cborTag:
		if r.depth++; r.depth > maxDepth {
			r.fail("nested too deeply")
			return v
		}
		inner := r.item()
		r.depth--
		if whole, ok := As(Time, inner); n == cborEpoch && ok {
			return whole
		}
		return inner
	case cborSimple:
		return r.simple(info, n)
	}
	r.fail("a value that is an array or a map")
	return v
}

// text reads a byte or text string, also one of several chunks.
func (r *reader) text(major, info byte, n uint64) []byte {
	if info != 31 {
		return r.take(n)
	}
	var out []byte
	for r.more(0, -1) {
		m, i, size := r.head()
		if m != major || i == 31 {
			r.fail("a chunk of another kind")
			return nil
		}
		out = append(out, r.take(size)...)
	}
	return out
}

func (r *reader) simple(info byte, n uint64) (v Value) {
	switch info {
	case 20, 21:
		return Value{Kind: Boolean, Bool: info == 21}
	case 22, 23:
		return v
	case 25:
		return Value{Kind: Float, Float: half(uint16(n))}
	case 26:
		return Value{Kind: Float, Float: float64(math.Float32frombits(uint32(n)))}
	case 27:
		return Value{Kind: Float, Float: math.Float64frombits(n)}
	}
	r.fail("an unknown simple value")
	return v
}

// half reads a floating-point number of 16 bits (RFC 8949 appendix D).
func half(b uint16) float64 {
	exponent, mantissa := int(b>>10&31), float64(b&1023)
	var v float64
	switch exponent {
	case 0:
		v = math.Ldexp(mantissa, -24)
	case 31:
		if v = math.Inf(1); mantissa != 0 {
			v = math.NaN()
		}
	default:
		v = math.Ldexp(mantissa+1024, exponent-25)
	}
	if b>>15 != 0 {
		return -v
	}
	return v
}

// skip passes over an item of any kind.
func (r *reader) skip() {
	major, info, n := r.head()
	switch {
	case r.err != nil:
	case major == cborArray || major == cborMap:
		count := r.enter(info, n)
		for i := 0; r.more(i, count); i++ {
			if r.skip(); major == cborMap {
				r.skip()
			}
		}
		r.depth--
	case major == cborTag:
		if r.depth++; r.depth > maxDepth {
			r.fail("nested too deeply")
			return
		}
		r.skip()
		r.depth--
	default:
		r.scalar(major, info, n)
	}
}

func (m *Models) decodeCBORValue(base Path, b []byte) (Value, error) {
	r := reader{b: b}
	v := r.item()
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes follow the value", len(r.b))
	}
	if r.err != nil {
		return Value{}, r.err
	}
	return fitting(m.KindOf(base), v), nil
}

// fitting returns a value as one of the declared type where it can be one.
func fitting(kind Kind, v Value) Value {
	if as, ok := As(kind, v); ok && kind != Bytes {
		return as
	}
	return v
}

// decodeLwM2MCBOR reads LwM2M CBOR (OMA-TS-LightweightM2M_Core 1.2, 7.4.6): maps of maps by the numbers of the path, whose keys are a number
// or an array of several.
func (m *Models) decodeLwM2MCBOR(base Path, b []byte) (out []Record, err error) {
	r := reader{b: b}
	var walk func(at Path)
	walk = func(at Path) {
		major, info, n := r.head()
		if r.err != nil {
			return
		}
		if major != cborMap {
			v := r.scalar(major, info, n)
			switch {
			case r.err != nil || v.Kind == None:
			case len(at) < 3:
				r.fail("a value at %s, which is no resource", at)
			case len(out) == MaxRecords:
				r.fail("more than %d values", MaxRecords)
			default:
				out = append(out, Record{Path: at, Value: fitting(m.KindOf(at), v)})
			}
			return
		}
		count := r.enter(info, n)
		for i := 0; r.more(i, count); i++ {
			below, ok := r.key(at)
			if !ok {
				return
			}
			walk(below)
		}
		r.depth--
	}
	walk(nil)
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes follow", len(r.b))
	}
	for _, record := range out {
		if r.err == nil && !record.Path.Within(base) {
			r.fail("%s in an answer for %s", record.Path, base)
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	return out, nil
}

// key reads the key of a map: the path below another one.
func (r *reader) key(at Path) (Path, bool) {
	major, info, n := r.head()
	id := func(n uint64) bool {
		if n > math.MaxUint16 || len(at) == 4 {
			r.fail("a key that is no path")
			return false
		}
		at = at.child(uint16(n))
		return true
	}
	switch {
	case r.err != nil:
		return nil, false
	case major == cborUnsigned:
		return at, id(n)
	case major != cborArray:
		r.fail("a key that is no path")
		return nil, false
	}
	count := r.enter(info, n)
	for i := 0; r.more(i, count); i++ {
		major, _, n := r.head()
		if r.err != nil || major != cborUnsigned {
			r.fail("a key that is no path")
			return nil, false
		}
		if !id(n) {
			return nil, false
		}
	}
	r.depth--
	return at, r.err == nil
}

// appendCBORHead writes the first bytes of an item.
func appendCBORHead(out []byte, major byte, n uint64) []byte {
	major <<= 5
	switch {
	case n < 24:
		return append(out, major|byte(n))
	case n < 1<<8:
		return append(out, major|24, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(out, major|25), uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(out, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(out, major|27), n)
}

func appendCBORInt(out []byte, n int64) []byte {
	if n < 0 {
		return appendCBORHead(out, cborNegative, uint64(-1-n))
	}
	return appendCBORHead(out, cborUnsigned, uint64(n))
}

func appendCBORText(out []byte, s string) []byte {
	return append(appendCBORHead(out, cborText, uint64(len(s))), s...)
}

func appendCBORValue(out []byte, v Value) []byte {
	switch v.Kind {
	case Integer, Time:
		return appendCBORInt(out, v.Int)
	case Unsigned:
		return appendCBORHead(out, cborUnsigned, uint64(v.Int))
	case Float:
		if single := float32(v.Float); float64(single) == v.Float {
			return binary.BigEndian.AppendUint32(append(out, cborSimple<<5|26), math.Float32bits(single))
		}
		return binary.BigEndian.AppendUint64(append(out, cborSimple<<5|27), math.Float64bits(v.Float))
	case Boolean:
		if v.Bool {
			return append(out, cborSimple<<5|21)
		}
		return append(out, cborSimple<<5|20)
	case Bytes:
		return append(appendCBORHead(out, cborBytes, uint64(len(v.Bytes))), v.Bytes...)
	}
	return appendCBORText(out, v.Text)
}
