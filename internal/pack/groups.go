package pack

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// Groups say how groups of whole numbers that are much alike are written, each group by itself: a number as its distance
// from a base, over a divisor, in Rice code. The divisor is common to all. Base and parameter are common, or each group's
// own, whichever is cheaper: short groups that have them in common need no more than their residuals.
type Groups struct {
	scale     int64
	bases, ks []int64
}

// FitGroups finds out how the groups of v are written best, and about how many bits that takes with the numbers of
// Groups themselves. Group i is v[ends[i-1]:ends[i]]; one may be empty.
func (e *Encoder) FitGroups(v []int64, ends []int) (best Groups, cost int) {
	r := make([]int64, len(v))
	common := int64(0)
	if len(v) > 0 {
		common = e.median(v)
	}
	bases := make([]int64, len(ends))
	for i := range bases {
		bases[i] = common
	}
	best, cost = e.fit(v, ends, bases, r)
	own, start := make([]int64, len(ends)), 0
	for i, end := range ends {
		if own[i] = common; end > start {
			own[i] = e.median(v[start:end])
		}
		start = end
	}
	if g, c := e.fit(v, ends, own, r); c < cost {
		return g, c
	}
	return best, cost
}

// fit finds divisor and parameters for given bases. r is scratch space for the residuals.
func (e *Encoder) fit(v []int64, ends []int, bases, r []int64) (Groups, int) {
	start := 0
	for i, end := range ends {
		for j := start; j < end; j++ {
			r[j] = v[j] - bases[i]
		}
		start = end
	}
	scale := int64(max(divisor(r), 1))
	var all [65]int
	ks, own := make([]int64, len(ends)), 0
	start = 0
	for i, end := range ends {
		var lengths [65]int // residuals by bit length
		for _, x := range r[start:end] {
			lengths[bits.Len64(Zigzag(x/scale))]++
		}
		k, c := rice(&lengths, end-start)
		ks[i], own = int64(k), own+c
		for l, n := range lengths {
			all[l] += n
		}
		start = end
	}
	k, together := rice(&all, len(v))
	one := Groups{scale: scale, bases: bases, ks: make([]int64, len(ends))}
	for i := range one.ks {
		one.ks[i] = int64(k)
	}
	many := Groups{scale: scale, bases: bases, ks: ks}
	together += 8 * len(e.AppendGroups(nil, &one))
	if own += 8 * len(e.AppendGroups(nil, &many)); own < together {
		return many, own
	}
	return one, together
}

// rice finds the parameter for n residuals of such bit lengths, and what they then cost.
func rice(lengths *[65]int, n int) (k uint, cost int) {
	if lengths[0] == n {
		return riceNone, 0
	}
	top, middle, seen := 0, uint(0), 0
	for l, m := range lengths {
		if 2*seen < n {
			middle = uint(l)
		}
		if seen += m; seen == n {
			top = l
			break
		}
	}
	cost = math.MaxInt
	for i := max(middle, 3) - 3; i <= min(middle+2, maxRice); i++ {
		if c := riceCost(lengths[:top+1], i); c < cost {
			k, cost = i, c
		}
	}
	if cost == math.MaxInt {
		return maxRice, riceCost(lengths[:top+1], maxRice)
	}
	return k, cost
}

// AppendGroups appends what DecodeGroups reads: of at least one group.
func (e *Encoder) AppendGroups(dst []byte, g *Groups) []byte {
	dst = binary.AppendUvarint(dst, uint64(g.scale))
	dst = e.AppendInts(dst, g.bases, Plain, Delta)
	return e.AppendInts(dst, g.ks, Plain)
}

// DecodeGroups reads the numbers of n groups, at least one.
func DecodeGroups(src []byte, n int) (g Groups, rest []byte, err error) {
	scale, src, err := Uvarint(src)
	if err != nil || scale == 0 || scale > math.MaxInt64 {
		return g, nil, ErrForm
	}
	g = Groups{scale: int64(scale), bases: make([]int64, n), ks: make([]int64, n)}
	if src, err = DecodeInts(src, g.bases); err != nil {
		return g, nil, err
	}
	if src, err = DecodeInts(src, g.ks); err != nil {
		return g, nil, err
	}
	for _, k := range g.ks {
		if k < 0 || k > maxRice && k != riceNone {
			return g, nil, ErrForm
		}
	}
	return g, src, nil
}

// Write writes group i.
func (g *Groups) Write(w *BitWriter, i int, v []int64) {
	if g.ks[i] == riceNone {
		return
	}
	base, k := g.bases[i], uint(g.ks[i])
	for _, x := range v {
		w.rice(Zigzag((x-base)/g.scale), k)
	}
}

// Read reads group i, of len(v) numbers.
func (g *Groups) Read(r *BitReader, i int, v []int64) {
	base, k := g.bases[i], uint(g.ks[i])
	if k == riceNone {
		for j := range v {
			v[j] = base
		}
		return
	}
	for j := range v {
		v[j] = base + Unzigzag(r.rice(k))*g.scale
	}
}
