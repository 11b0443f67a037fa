package pack

import (
	"math"
	"math/bits"
)

// A column of values is a head byte: a number of decimals, then the values as whole numbers of that many decimals; or
// xorValues, then the differences of their bits; or rawValues, for what has no pattern, then signs and exponents as whole
// numbers and the 52 bits of each mantissa.
const (
	MaxDecimals = 18
	xorValues   = 0x40
	rawValues   = 0x41

	mantissaBits = 52
)

var powersOfTen = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18}

// Unscaled is the value that is i at so many decimals.
func Unscaled(i int64, decimals uint8) float64 { return float64(i) / powersOfTen[decimals] }

// Scaled returns v as a whole number of decimals and whether that is v exactly, to the bit. A power of ten up to 10^22
// and a number below 2^53 are exact, so that their quotient is the float64 that the decimal text would parse to.
func Scaled(v float64, decimals int) (int64, bool) {
	s := math.RoundToEven(v * powersOfTen[decimals])
	if !(math.Abs(s) < 1<<53) {
		return 0, false
	}
	i := int64(s)
	return i, math.Float64bits(float64(i)/powersOfTen[decimals]) == math.Float64bits(v)
}

// AppendFloats appends a column of at least one value.
func (e *Encoder) AppendFloats(dst []byte, v []float64) []byte {
	if d, ok := e.Decimals(v); ok {
		return e.AppendInts(append(dst, byte(d)), e.ints, Plain, Delta)
	}
	start := len(dst)
	dst = appendXor(append(dst, xorValues), v)
	if len(dst)-start > 1+len(v)*mantissaBits/8 {
		if e.raw = e.appendRaw(e.raw[:0], v); len(e.raw) < len(dst)-start {
			return append(dst[:start], e.raw...)
		}
	}
	return dst
}

// appendRaw appends the form of values without a pattern, head byte included.
func (e *Encoder) appendRaw(dst []byte, v []float64) []byte {
	s := e.ints[:0]
	for _, x := range v {
		b := math.Float64bits(x)
		s = append(s, int64(b>>mantissaBits&(1<<11-1)<<1|b>>63))
	}
	e.ints = s
	w := BitWriter{dst: e.AppendInts(append(dst, rawValues), s, Plain)}
	for _, x := range v {
		w.write64(math.Float64bits(x)&(1<<mantissaBits-1), mantissaBits)
	}
	return w.Finish()
}

func decodeRaw(src []byte, v []float64, ints []int64) (rest []byte, err error) {
	if src, err = DecodeInts(src, ints); err != nil {
		return nil, err
	}
	r := BitReader{src: src}
	for i, x := range ints {
		if x < 0 || x >= 1<<12 {
			return nil, ErrForm
		}
		b := uint64(x)
		v[i] = math.Float64frombits(b&1<<63 | b>>1<<mantissaBits | r.read64(mantissaBits))
	}
	return r.End(src)
}

// Decimals finds the fewest decimals that all values have, and leaves the whole numbers in e.ints.
func (e *Encoder) Decimals(v []float64) (int, bool) {
	d := 0
	for _, x := range v {
		for {
			if _, ok := Scaled(x, d); ok {
				break
			}
			if d++; d > MaxDecimals {
				return 0, false
			}
		}
	}
	s := e.ints[:0]
	for _, x := range v {
		i, ok := Scaled(x, d)
		if !ok {
			return 0, false
		}
		s = append(s, i)
	}
	e.ints = s
	return d, true
}

// appendXor writes the first value's bits, then for each following one the bits in which it differs from the one before:
// a zero bit for none; else 1 and 0 and the bits inside the last window, or 1 and 1 and a new window (five bits of
// leading zeros, six of length less one) and its bits.
func appendXor(dst []byte, v []float64) []byte {
	w := BitWriter{dst: dst}
	w.Floats(v)
	return w.Finish()
}

// Floats writes at least one value as the bits in which it differs from the one before.
func (w *BitWriter) Floats(v []float64) {
	prev := math.Float64bits(v[0])
	w.write64(prev, 64)
	lead, length := uint(64), uint(0)
	for _, x := range v[1:] {
		b := math.Float64bits(x)
		diff := b ^ prev
		prev = b
		if diff == 0 {
			w.write(0, 1)
			continue
		}
		l, t := min(uint(bits.LeadingZeros64(diff)), 31), uint(bits.TrailingZeros64(diff))
		if own := 64 - l - t; lead > l || 64-lead-length > t || length > own+11 {
			lead, length = l, own
			w.write(3, 2)
			w.write(uint64(lead), 5)
			w.write(uint64(length-1), 6)
		} else {
			w.write(1, 2)
		}
		w.write64(diff>>(64-lead-length), length)
	}
}

// DecodeFloats reads a column of len(v) values into v. ints is scratch space of the same length.
func DecodeFloats(src []byte, v []float64, ints []int64) (rest []byte, err error) {
	if len(src) == 0 {
		return nil, ErrForm
	}
	head := src[0]
	if head == xorValues {
		return decodeXor(src[1:], v)
	}
	if head == rawValues {
		return decodeRaw(src[1:], v, ints)
	}
	if head > MaxDecimals {
		return nil, ErrForm
	}
	if rest, err = DecodeInts(src[1:], ints); err != nil {
		return nil, err
	}
	scale := powersOfTen[head]
	for i, x := range ints {
		v[i] = float64(x) / scale
	}
	return rest, nil
}

func decodeXor(src []byte, v []float64) (rest []byte, err error) {
	r := BitReader{src: src}
	r.Floats(v)
	return r.End(src)
}

// Floats reads what BitWriter.Floats wrote.
func (r *BitReader) Floats(v []float64) {
	prev := r.read64(64)
	v[0] = math.Float64frombits(prev)
	lead, length := uint(0), uint(0)
	for i := range v[1:] {
		if r.read(1) == 1 {
			if r.read(1) == 1 {
				lead = uint(r.read(5))
				length = uint(r.read(6)) + 1
			}
			if length == 0 || lead+length > 64 {
				r.over = true
				return
			}
			prev ^= r.read64(length) << (64 - lead - length)
		}
		v[i+1] = math.Float64frombits(prev)
	}
}
