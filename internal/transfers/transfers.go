// Package transfers bounds how many large messages are received at a time. Each takes a slot of an owner, such as a tenant or a
// source address; an owner may have a quarter of the slots. While others wait, a message that does not arrive at a minimum rate is
// stopped, so that stalled clients delay others for about a second at most.
package transfers

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A message that others wait for is stopped when nothing of it has arrived for stallTime, or less than minRate bytes a second.
const (
	stallTime = time.Second
	minRate   = 8 << 10
)

// ownerShare is the part of the slots that one owner may have.
const ownerShare = 4

// Slots is a number of slots. It is safe for concurrent use.
type Slots struct {
	max, maxOwned int

	mu      sync.Mutex
	held    []*Slot
	waiting []*waiter         // in the order in which they came
	owners  map[string]*owner // those that hold a slot or wait for one
	grants  uint64
}

// owner is what an owner has. Owners take turns: a free slot goes to the one whose last one is longest ago.
type owner struct {
	held, waiting int
	last          uint64 // grants when it got a slot, 0 for never
}

// Slot is one message that is being received.
type Slot struct {
	slots *Slots
	name  string // of the owner
	stop  func()
	once  sync.Once

	// Under the lock of slots.
	complete, stopped bool
	bytes             int
	last              time.Time // something arrived
	mark              time.Time // the rate is measured from here on
	marked            int       // bytes at mark
}

type waiter struct {
	slot  *Slot
	ready chan struct{}
}

// New returns so many slots.
func New(n int) *Slots {
	return &Slots{max: n, maxOwned: max(n/ownerShare, 1), owners: map[string]*owner{}}
}

// Max is the number of slots, Len how many are taken.
func (s *Slots) Max() int { return s.max }

func (s *Slots) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}

// TryEnter takes a slot when that needs no waiting, else it returns nil. stop is called, at most once, when the message is to be
// stopped because it does not arrive; it must not block, and its caller has to Leave then as always.
func (s *Slots) TryEnter(name string, stop func()) *Slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.free(name) {
		return nil
	}
	return s.take(&Slot{slots: s, name: name, stop: stop})
}

// Enter is TryEnter, but waits for a slot; nil when ctx ends first.
func (s *Slots) Enter(ctx context.Context, name string, stop func()) *Slot {
	if slot := s.TryEnter(name, stop); slot != nil {
		return slot
	}
	w := s.wait(&Slot{slots: s, name: name, stop: stop})
	tick := time.NewTicker(stallTime)
	defer tick.Stop()
	for {
		s.stopStalled(name)
		select {
		case <-w.ready:
			return w.slot
		case <-tick.C:
		case <-ctx.Done():
			if s.abandon(w) {
				return nil
			}
			return w.slot // it was granted at the same moment
		}
	}
}

// of returns what an owner has.
func (s *Slots) of(name string) *owner {
	o := s.owners[name]
	if o == nil {
		o = &owner{}
		s.owners[name] = o
	}
	return o
}

// tidy removes an owner that has nothing left.
func (s *Slots) tidy(name string) {
	if o := s.owners[name]; o.held == 0 && o.waiting == 0 {
		delete(s.owners, name)
	}
}

// free reports whether the owner may have a slot now.
func (s *Slots) free(name string) bool {
	o := s.owners[name]
	return len(s.held) < s.max && (o == nil || o.held < s.maxOwned)
}

func (s *Slots) take(slot *Slot) *Slot {
	now := time.Now()
	slot.last, slot.mark = now, now
	s.held = append(s.held, slot)
	s.grants++
	o := s.of(slot.name)
	o.held++
	o.last = s.grants
	return slot
}

// wait adds a waiter. Its slot may have come free meanwhile.
func (s *Slots) wait(slot *Slot) *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &waiter{slot, make(chan struct{})}
	s.waiting = append(s.waiting, w)
	s.of(slot.name).waiting++
	s.grant()
	return w
}

// abandon removes a waiter; false when it has its slot already.
func (s *Slots) abandon(w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, w)
	if i < 0 {
		return false
	}
	s.remove(i)
	s.tidy(w.slot.name)
	return true
}

// remove takes a waiter from those that wait.
func (s *Slots) remove(i int) *waiter {
	w := s.waiting[i]
	s.waiting = slices.Delete(s.waiting, i, i+1)
	s.of(w.slot.name).waiting--
	return w
}

// stopStalled stops one message that keeps the owner from having a slot and does not arrive.
func (s *Slots) stopStalled(name string) {
	s.mu.Lock()
	var stop func()
	ownFull := s.of(name).held >= s.maxOwned
	now := time.Now()
	for _, slot := range s.held {
		if (!ownFull || slot.name == name) && slot.stalled(now) && stop == nil {
			slot.stopped, stop = true, slot.stop
		}
	}
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// stalled reports whether the message does not arrive. The rate is measured from one look to the next, while others wait.
func (t *Slot) stalled(now time.Time) bool {
	if t.complete || t.stopped {
		return false
	}
	if now.Sub(t.last) >= stallTime {
		return true
	}
	span := now.Sub(t.mark)
	if span < stallTime {
		return false
	}
	slow := span < 2*stallTime && int64(t.bytes-t.marked)*int64(time.Second) < minRate*int64(span)
	t.mark, t.marked = now, t.bytes
	return slow
}

// Arrived notes that so many bytes of the message have arrived.
func (t *Slot) Arrived(n int) {
	if n == 0 {
		return
	}
	t.slots.mu.Lock()
	defer t.slots.mu.Unlock()
	t.bytes += n
	t.last = time.Now()
}

// Complete notes that the whole message has arrived: from now on it is not stopped, but it keeps its slot until Leave. It returns
// false when the message was stopped before.
func (t *Slot) Complete() bool {
	t.slots.mu.Lock()
	defer t.slots.mu.Unlock()
	t.complete = true
	return !t.stopped
}

// Leave gives the slot back.
func (t *Slot) Leave() {
	t.once.Do(func() {
		s := t.slots
		s.mu.Lock()
		defer s.mu.Unlock()
		t.complete = true
		i := slices.Index(s.held, t)
		s.held = slices.Delete(s.held, i, i+1)
		s.of(t.name).held--
		s.tidy(t.name)
		s.grant()
	})
}

// grant gives free slots to those that wait: to the owner whose turn it is, and of its waiters to the first.
func (s *Slots) grant() {
	for {
		next := -1
		for i, w := range s.waiting {
			if s.free(w.slot.name) && (next < 0 || s.of(w.slot.name).last < s.of(s.waiting[next].slot.name).last) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		w := s.remove(next)
		s.take(w.slot)
		close(w.ready)
	}
}
