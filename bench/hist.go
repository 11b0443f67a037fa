package main

import (
	"math/bits"
	"time"
)

// hist counts durations in steps of 3 % and less.
type hist struct {
	counts [40 * 32]int64
	n      int64
}

func (h *hist) add(d time.Duration, n int64) {
	h.counts[histIndex(max(d.Microseconds(), 0))] += n
	h.n += n
}

// histIndex: below 32 µs one slot each, above 32 slots for each doubling.
func histIndex(us int64) int {
	if us < 32 {
		return int(us)
	}
	e := bits.Len64(uint64(us)) - 6
	return min(32*e+int(us>>e), 40*32-1)
}

// histValue is the upper end of a slot.
func histValue(i int) time.Duration {
	if i < 32 {
		return time.Duration(i) * time.Microsecond
	}
	e := i/32 - 1
	return time.Duration(int64(i-32*e+1)<<e-1) * time.Microsecond
}

func (h *hist) merge(o *hist) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.n += o.n
}

// quantile is the duration that a share q of all does not exceed.
func (h *hist) quantile(q float64) time.Duration {
	want := int64(q * float64(h.n))
	var seen int64
	for i, n := range h.counts {
		if seen += n; n > 0 && seen >= want {
			return histValue(i)
		}
	}
	return 0
}
