package series

import (
	"math"
	"math/bits"
)

// A column of values is a head byte: a number of decimals, then the values as whole numbers of that many decimals; or
// xorValues, then the differences of their bits.
const (
	maxDecimals = 18
	xorValues   = 0x40
)

var powersOfTen = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18}

// scaled returns v as a whole number of decimals and whether that is v exactly, to the bit. A power of ten up to 10^22
// and a number below 2^53 are exact, so that their quotient is the float64 that the decimal text would parse to.
func scaled(v float64, decimals int) (int64, bool) {
	s := math.RoundToEven(v * powersOfTen[decimals])
	if !(math.Abs(s) < 1<<53) {
		return 0, false
	}
	i := int64(s)
	return i, math.Float64bits(float64(i)/powersOfTen[decimals]) == math.Float64bits(v)
}

// appendValues appends a column of at least one value.
func (e *encoder) appendValues(dst []byte, v []float64) []byte {
	if d, ok := e.decimals(v); ok {
		return e.appendInts(append(dst, byte(d)), e.ints[0], plainMode, deltaMode)
	}
	return appendXor(append(dst, xorValues), v)
}

// decimals finds the fewest decimals that all values have, and leaves the whole numbers in e.ints[0].
func (e *encoder) decimals(v []float64) (int, bool) {
	d := 0
	for _, x := range v {
		for {
			if _, ok := scaled(x, d); ok {
				break
			}
			if d++; d > maxDecimals {
				return 0, false
			}
		}
	}
	s := e.ints[0][:0]
	for _, x := range v {
		i, ok := scaled(x, d)
		if !ok {
			return 0, false
		}
		s = append(s, i)
	}
	e.ints[0] = s
	return d, true
}

// appendXor writes the first value's bits, then for each following one the bits in which it differs from the one before:
// a zero bit for none; else 1 and 0 and the bits inside the last window, or 1 and 1 and a new window (five bits of
// leading zeros, six of length less one) and its bits.
func appendXor(dst []byte, v []float64) []byte {
	w := bitWriter{dst: dst}
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
	return w.finish()
}

// decodeValues reads a column of len(v) values into v. ints is scratch space of the same length.
func decodeValues(src []byte, v []float64, ints []int64) (rest []byte, err error) {
	if len(src) == 0 {
		return nil, errForm
	}
	head := src[0]
	if head == xorValues {
		return decodeXor(src[1:], v)
	}
	if head > maxDecimals {
		return nil, errForm
	}
	if rest, err = decodeInts(src[1:], ints); err != nil {
		return nil, err
	}
	scale := powersOfTen[head]
	for i, x := range ints {
		v[i] = float64(x) / scale
	}
	return rest, nil
}

func decodeXor(src []byte, v []float64) (rest []byte, err error) {
	r := bitReader{src: src}
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
				return nil, errForm
			}
			prev ^= r.read64(length) << (64 - lead - length)
		}
		v[i+1] = math.Float64frombits(prev)
	}
	if r.over {
		return nil, errForm
	}
	return r.rest(src), nil
}
