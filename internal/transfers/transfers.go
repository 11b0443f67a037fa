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
	owned   map[string]int
	waiting []*waiter // in the order in which they came
}

// Slot is one message that is being received.
type Slot struct {
	slots *Slots
	owner string
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
	return &Slots{max: n, maxOwned: max(n/ownerShare, 1), owned: map[string]int{}}
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
func (s *Slots) TryEnter(owner string, stop func()) *Slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.free(owner) {
		return nil
	}
	return s.take(&Slot{slots: s, owner: owner, stop: stop})
}

// Enter is TryEnter, but waits for a slot; nil when ctx ends first.
func (s *Slots) Enter(ctx context.Context, owner string, stop func()) *Slot {
	s.mu.Lock()
	slot := &Slot{slots: s, owner: owner, stop: stop}
	if s.free(owner) {
		defer s.mu.Unlock()
		return s.take(slot)
	}
	w := &waiter{slot, make(chan struct{})}
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	tick := time.NewTicker(stallTime)
	defer tick.Stop()
	for {
		s.stopStalled(owner)
		select {
		case <-w.ready:
			return slot
		case <-tick.C:
		case <-ctx.Done():
			if s.abandon(w) {
				return nil
			}
			return slot // it was granted at the same moment
		}
	}
}

// free reports whether the owner may have a slot now.
func (s *Slots) free(owner string) bool { return len(s.held) < s.max && s.owned[owner] < s.maxOwned }

func (s *Slots) take(slot *Slot) *Slot {
	now := time.Now()
	slot.last, slot.mark = now, now
	s.held = append(s.held, slot)
	s.owned[slot.owner]++
	return slot
}

// abandon removes a waiter; false when it has its slot already.
func (s *Slots) abandon(w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, w)
	if i < 0 {
		return false
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return true
}

// stopStalled stops one message that keeps the owner from having a slot and does not arrive.
func (s *Slots) stopStalled(owner string) {
	s.mu.Lock()
	var stop func()
	ownFull := s.owned[owner] >= s.maxOwned
	now := time.Now()
	for _, slot := range s.held {
		if (!ownFull || slot.owner == owner) && slot.stalled(now) && stop == nil {
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
		if s.owned[t.owner]--; s.owned[t.owner] == 0 {
			delete(s.owned, t.owner)
		}
		s.grant()
	})
}

// grant gives free slots to those that wait, in the order in which they came.
func (s *Slots) grant() {
	s.waiting = slices.DeleteFunc(s.waiting, func(w *waiter) bool {
		if !s.free(w.slot.owner) {
			return false
		}
		s.take(w.slot)
		close(w.ready)
		return true
	})
}
