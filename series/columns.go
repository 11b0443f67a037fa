package series

import (
	"cmp"
	"slices"

	"weir/model"
)

// columns hold readings of one series, one slice per property and all of one length. Classifiers and AltIDs are nil
// when no reading has one.
type columns struct {
	Times    []int64 // event time, microseconds
	Values   []float64
	Received []int64 // microseconds
	Offsets  []int64
	Indexes  []int64
	// Classifiers are coded: 0 for none, else the zigzag of the classifier plus 1.
	Classifiers []int64
	AltIDs      []string

	ints []int64 // scratch
}

func (c *columns) len() int { return len(c.Times) }

// resize sets the length of every column to n, with arbitrary values, and removes the optional ones.
func (c *columns) resize(n int) {
	c.Times, c.Values, c.Received = sized(c.Times, n), sized(c.Values, n), sized(c.Received, n)
	c.Offsets, c.Indexes, c.ints = sized(c.Offsets, n), sized(c.Indexes, n), sized(c.ints, n)
	c.Classifiers, c.AltIDs = nil, nil
}

func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// place is the position of reading i in list order.
func (c *columns) place(i int) place {
	return place{model.Micros(c.Times[i]), model.Offset(c.Offsets[i]), uint32(c.Indexes[i])}
}

// sort orders the readings by position, oldest first.
func (c *columns) sort() {
	order := make([]int, c.len())
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return c.place(a).compare(c.place(b)) })
	c.pick(order)
}

// sortIfNeeded orders the readings by position unless they are ordered.
func (c *columns) sortIfNeeded() {
	for i := 1; i < c.len(); i++ {
		if c.place(i).less(c.place(i - 1)) {
			c.sort()
			return
		}
	}
}

// appendAll appends the readings of d.
func (c *columns) appendAll(d *columns) {
	n := c.len()
	c.Classifiers, c.AltIDs = joined(c.Classifiers, n, d.Classifiers, d.len()), joined(c.AltIDs, n, d.AltIDs, d.len())
	c.Times, c.Values, c.Received = append(c.Times, d.Times...), append(c.Values, d.Values...), append(c.Received, d.Received...)
	c.Offsets, c.Indexes = append(c.Offsets, d.Offsets...), append(c.Indexes, d.Indexes...)
}

// joined is a of n values and b of m; one that is nil has none, both are none of both.
func joined[T any](a []T, n int, b []T, m int) []T {
	if a == nil && b == nil {
		return nil
	}
	out := make([]T, n+m)
	copy(out, a)
	copy(out[n:], b)
	return out
}

// part is the readings from from to to, not copied.
func (c *columns) part(from, to int) *columns {
	p := &columns{Times: c.Times[from:to], Values: c.Values[from:to], Received: c.Received[from:to], Offsets: c.Offsets[from:to], Indexes: c.Indexes[from:to]}
	if c.Classifiers != nil {
		p.Classifiers = c.Classifiers[from:to]
	}
	if c.AltIDs != nil {
		p.AltIDs = c.AltIDs[from:to]
	}
	return p
}

// pick makes c the readings at the given indexes, in that order.
func (c *columns) pick(order []int) {
	c.Times, c.Values, c.Received = picked(c.Times, order), picked(c.Values, order), picked(c.Received, order)
	c.Offsets, c.Indexes = picked(c.Offsets, order), picked(c.Indexes, order)
	c.Classifiers, c.AltIDs = picked(c.Classifiers, order), picked(c.AltIDs, order)
}

func picked[T any](s []T, order []int) []T {
	if s == nil {
		return nil
	}
	old := slices.Clone(s)
	s = s[:len(order)]
	for to, from := range order {
		s[to] = old[from]
	}
	return s
}

// summary is the summary of a row's readings.
type summary struct {
	first, last             model.Micros
	n                       int64
	sum, min, max           float64
	firstOffset, lastOffset model.Offset
}

// summarize goes over readings in order of time.
func (c *columns) summarize() summary {
	s := summary{first: model.Micros(c.Times[0]), last: model.Micros(c.Times[c.len()-1]), n: int64(c.len()),
		min: slices.Min(c.Values), max: slices.Max(c.Values),
		firstOffset: model.Offset(slices.Min(c.Offsets)), lastOffset: model.Offset(slices.Max(c.Offsets))}
	var sum exactSum
	for _, v := range c.Values {
		sum.add(v)
	}
	s.sum = sum.value()
	return s
}

// exactSum adds floats and carries the rounding error, so that a sum hardly depends on the order and on how the
// readings are divided into rows (Neumaier).
type exactSum struct{ sum, lost float64 }

func (s *exactSum) add(v float64) {
	t := s.sum + v
	if abs(s.sum) >= abs(v) {
		s.lost += s.sum - t + v
	} else {
		s.lost += v - t + s.sum
	}
	s.sum = t
}

func (s *exactSum) value() float64 {
	if v := s.sum + s.lost; v == v {
		return v
	}
	return s.sum // an overflow makes the carry meaningless
}

func abs(v float64) float64 {
	if v < 0 {
		return -v
	}
	return v
}

// place is a position in list order: by event time, then offset, then index in the record.
type place struct {
	at     model.Micros
	offset model.Offset
	index  uint32
}

func (p place) compare(q place) int {
	if c := cmp.Compare(p.at, q.at); c != 0 {
		return c
	}
	if c := cmp.Compare(p.offset, q.offset); c != 0 {
		return c
	}
	return cmp.Compare(p.index, q.index)
}

func (p place) less(q place) bool {
	if p.at != q.at {
		return p.at < q.at
	}
	return p.offset < q.offset || p.offset == q.offset && p.index < q.index
}
