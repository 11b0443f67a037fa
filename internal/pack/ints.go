package pack

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// A column of whole numbers is a head byte, two bits of mode and six of Rice parameter, then the mode's numbers, then
// the residuals. All arithmetic wraps, so that every int64 survives.
const (
	// Plain, Delta and DeltaOfDelta are the encodings that an encoder chooses from.
	Plain        = 0 // residuals to a base
	Delta        = 1 // the first value, then residuals of differences to a usual difference
	DeltaOfDelta = 2 // the first value and difference, then differences of differences
	constMode    = 3 // one value, for all

	riceNone   = 62 // every residual is 0 and none is written
	riceScaled = 63 // residuals are multiples of a number, which follows with the real parameter
	maxRice    = 56
)

// sampleSize is how many values a base or a usual difference is the median of.
const sampleSize = 31

// plan is one way to write a column.
type plan struct {
	mode      byte
	a, b      int64 // the mode's numbers
	residuals []int64
	gcd       uint64
	k         uint
	bits      int
}

// AppendInts appends a column of at least one value, in the cheapest of the given modes.
func (e *Encoder) AppendInts(dst []byte, v []int64, modes ...byte) []byte {
	if same(v) {
		return binary.AppendVarint(append(dst, constMode<<6), v[0])
	}
	var best plan
	for _, mode := range modes {
		p := e.plan(mode, v)
		if best.residuals == nil || p.bits < best.bits {
			best = p
		}
	}
	return best.append(dst)
}

func same(v []int64) bool {
	for _, x := range v[1:] {
		if x != v[0] {
			return false
		}
	}
	return true
}

func (e *Encoder) plan(mode byte, v []int64) plan {
	p := plan{mode: mode}
	r := e.residuals[mode][:0]
	switch mode {
	case Plain:
		p.a = e.median(v)
		for _, x := range v {
			r = append(r, x-p.a)
		}
	case Delta:
		for i, x := range v[1:] {
			r = append(r, x-v[i])
		}
		p.a, p.b = v[0], e.median(r)
		for i := range r {
			r[i] -= p.b
		}
	case DeltaOfDelta:
		d := v[1] - v[0]
		p.a, p.b = v[0], d
		for i, x := range v[2:] {
			next := x - v[i+1]
			r, d = append(r, next-d), next
		}
	}
	e.residuals[mode] = r
	p.residuals = r
	if r == nil {
		p.residuals = []int64{}
	}
	p.choose()
	return p
}

// median returns the median of some values spread over v.
func (e *Encoder) median(v []int64) int64 {
	s := e.sample[:0]
	step := max(1, len(v)/sampleSize)
	for i := 0; i < len(v) && len(s) < sampleSize; i += step {
		s = append(s, v[i])
	}
	slices.Sort(s)
	return s[len(s)/2]
}

// choose finds divisor and Rice parameter and what the residuals then cost.
func (p *plan) choose() {
	p.gcd = divisor(p.residuals)
	if p.gcd == 0 {
		p.k, p.bits = riceNone, 8
		return
	}
	var lengths [65]int // residuals by bit length
	for _, r := range p.residuals {
		lengths[bits.Len64(Zigzag(r/int64(p.gcd)))]++
	}
	p.k, p.bits = rice(&lengths, len(p.residuals))
	if p.gcd > 1 {
		p.bits += 32
	}
}

// riceCost is about how many bits the residuals take with parameter k: exact for those shorter than k bits.
func riceCost(lengths []int, k uint) int {
	all := 0
	for l, n := range lengths {
		switch over := l - int(k); {
		case over <= 0:
			all += n * (int(k) + 1)
		case over > 5:
			all += n * (riceEscape + 64)
		default:
			all += n * (int(k) + 1 + 3<<over/4)
		}
	}
	return all
}

// divisor is the greatest number that divides all residuals, 0 when all are 0.
func divisor(v []int64) uint64 {
	g := uint64(0)
	for _, x := range v {
		if x == math.MinInt64 {
			return 1
		}
		a := uint64(x)
		if x < 0 {
			a = uint64(-x)
		}
		if a == 0 || g != 0 && a%g == 0 {
			continue
		}
		for a != 0 {
			g, a = a, g%a
		}
		if g == 1 {
			return 1
		}
	}
	return g
}

func (p *plan) append(dst []byte) []byte {
	if p.gcd > 1 {
		dst = binary.AppendUvarint(append(dst, p.mode<<6|riceScaled), p.gcd)
		dst = append(dst, byte(p.k))
	} else {
		dst = append(dst, p.mode<<6|byte(p.k))
	}
	dst = binary.AppendVarint(dst, p.a)
	if p.mode != Plain {
		dst = binary.AppendVarint(dst, p.b)
	}
	if p.k == riceNone {
		return dst
	}
	w := BitWriter{dst: dst}
	for _, r := range p.residuals {
		w.rice(Zigzag(r/int64(p.gcd)), p.k)
	}
	return w.Finish()
}

// DecodeInts reads a column of len(v) values, at least one, into v.
func DecodeInts(src []byte, v []int64) (rest []byte, err error) {
	if len(src) == 0 {
		return nil, ErrForm
	}
	mode, k, scale := src[0]>>6, uint(src[0]&63), int64(1)
	src = src[1:]
	var a, b int64
	if k == riceScaled {
		var g uint64
		if g, src, err = Uvarint(src); err != nil || g > math.MaxInt64 || len(src) == 0 {
			return nil, ErrForm
		}
		k, scale, src = uint(src[0]), int64(g), src[1:]
	}
	if k > maxRice && k != riceNone {
		return nil, ErrForm
	}
	if a, src, err = Varint(src); err != nil {
		return nil, err
	}
	switch mode {
	case constMode:
		for i := range v {
			v[i] = a
		}
		return src, nil
	case Plain:
		if src, err = residuals(src, v, k, scale); err != nil {
			return nil, err
		}
		for i := range v {
			v[i] += a
		}
		return src, nil
	}
	if b, src, err = Varint(src); err != nil {
		return nil, err
	}
	v[0] = a
	if mode == Delta {
		if src, err = residuals(src, v[1:], k, scale); err != nil {
			return nil, err
		}
		for i := range v[1:] {
			a += v[i+1] + b
			v[i+1] = a
		}
		return src, nil
	}
	if len(v) < 2 {
		return nil, ErrForm
	}
	if src, err = residuals(src, v[2:], k, scale); err != nil {
		return nil, err
	}
	v[1] = a + b
	for i := range v[2:] {
		b += v[i+2]
		v[i+2] = v[i+1] + b
	}
	return src, nil
}

func residuals(src []byte, v []int64, k uint, scale int64) (rest []byte, err error) {
	if k == riceNone {
		clear(v)
		return src, nil
	}
	r := BitReader{src: src}
	for i := range v {
		v[i] = Unzigzag(r.rice(k)) * scale
	}
	return r.End(src)
}
