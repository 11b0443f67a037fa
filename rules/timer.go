package rules

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
)

// timers is a heap of the keys that wait, by due time. Keys that are due at the same time are ordered by what they are,
// so that no order comes from the way in which the heap was built.
type timers []*extra

// set makes the timer of a key due at a listening time, 0 for never. x may be nil when due is 0.
func (h *timers) set(x *extra, due Listening) {
	switch {
	case x == nil || x.due == due && x.armed() == (due != 0):
	case due == 0 && x.armed():
		heap.Remove(h, x.slot-1)
		x.due = 0
	case x.armed():
		x.due = due
		heap.Fix(h, x.slot-1)
	case due == 0:
		x.due = 0
	default:
		x.due = due
		heap.Push(h, x)
	}
}

// arm puts a key whose rule runs into the heap and takes one whose rule does not run out of it.
func (h *timers) arm(x *extra, runs bool) {
	switch {
	case x == nil || x.due == 0 || runs == x.armed():
	case runs:
		heap.Push(h, x)
	default:
		heap.Remove(h, x.slot-1)
	}
}

func (x *extra) armed() bool { return x.slot > 0 }

func (x *extra) compare(o *extra) int {
	return cmp.Or(cmp.Compare(x.due, o.due), x.device.profile.key.compare(o.device.profile.key), strings.Compare(x.rule, o.rule),
		cmp.Compare(x.device.id, o.device.id), strings.Compare(x.anchor, o.anchor))
}

// Len implements heap.Interface.
func (h timers) Len() int { return len(h) }

// Less implements heap.Interface.
func (h timers) Less(i, j int) bool { return h[i].compare(h[j]) < 0 }

// Swap implements heap.Interface.
func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i+1, j+1
}

// Push implements heap.Interface.
func (h *timers) Push(x any) {
	*h = append(*h, x.(*extra))
	(*h)[len(*h)-1].slot = len(*h)
}

// Pop implements heap.Interface.
func (h *timers) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = nil
	*h, x.slot = (*h)[:last], 0
	return x
}

// Advance fires the timers whose due time the listening time of a record reaches. The applier calls it before each
// record; the edges bear the position of that record. Timers fire by due time, then by tenant, profile, rule, device and
// anchor, however much listening time lies between two records.
func (e *Engine) Advance(at Position, emit Emit) {
	for len(e.timers) > 0 && e.timers[0].due <= at.Listening {
		e.fire(e.timers[0], at, emit)
	}
}

// fire judges the key of a timer at its due time. A key that asks for a time that is not later is judged again at the
// next record whose listening time is.
func (e *Engine) fire(x *extra, at Position, emit Emit) {
	d, due := x.device, x.due
	p := d.profile
	i, ok := slices.BinarySearchFunc(p.rules, x.rule, (*rule).compareToken)
	if !ok {
		e.timers.set(x, 0)
		return
	}
	clock := Clock{Newest: d.newest, Arrived: d.arrived, Now: due}
	e.timer = Input{Position: at, Profile: p.key, Device: Device{d.id, d.kind, d.token}, Kind: Timer, Occurred: clock.Time()}
	e.timer.Listening = due
	e.begin(&e.timer, clock)
	e.sample.Anchor = x.anchor
	e.judgeKey(p, d, int32(i), x.anchor)
	if x.armed() && x.due <= due {
		e.timers.set(x, at.Listening+1)
	}
	e.emitBatch(p, emit)
}
