package transfers

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// message is a transfer in a test.
type message struct {
	*Slot
	stopped bool
	entered time.Duration // how long it waited; 0 while it waits
}

func enter(s *Slots, owner string) *message {
	m := &message{}
	began := time.Now()
	var mu sync.Mutex // it may be stopped as soon as it has its slot
	leave := func() {
		if m.stopped && m.Slot != nil {
			m.Leave()
		}
	}
	go func() {
		slot := s.Enter(context.Background(), owner, func() {
			mu.Lock()
			defer mu.Unlock()
			m.stopped = true
			leave()
		})
		mu.Lock()
		defer mu.Unlock()
		m.Slot, m.entered = slot, time.Since(began)
		leave()
	}()
	synctest.Wait()
	return m
}

// TestAnOwnerHasAQuarter: a further message of it waits, those of others do not.
func TestAnOwnerHasAQuarter(t *testing.T) {
	for _, slots := range []int{1, 4, 5, 8, 32} {
		synctest.Test(t, func(t *testing.T) {
			s := New(slots)
			var all []*Slot
			for s.Len() < max(slots/ownerShare, 1) {
				all = append(all, s.TryEnter("a", func() {}))
			}
			if s.TryEnter("a", func() {}) != nil {
				t.Errorf("of %d one owner has %d and another one", slots, len(all))
			}
			for i := s.Len(); i < s.Max(); i++ {
				all = append(all, s.TryEnter(fmt.Sprint(i), func() {}))
			}
			if s.TryEnter("last", func() {}) != nil || s.Len() != slots {
				t.Errorf("of %d %d are taken", slots, s.Len())
			}
			for _, slot := range all {
				slot.Leave()
				slot.Leave() // again, does nothing
			}
			if s.Len() != 0 || len(s.owners) != 0 {
				t.Errorf("%d, %v are left", s.Len(), s.owners)
			}
		})
	}
}

// TestAFreedSlotGoesToTheOwnerWhoseTurnItIs: one that has its share lets others by.
func TestAFreedSlotGoesToTheOwnerWhoseTurnItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(4)
		a, b, c, d := enter(s, "a"), enter(s, "b"), enter(s, "c"), enter(s, "d")
		for _, m := range []*message{a, b, c, d} {
			if !m.Complete() { // none can be stopped
				t.Fatal("stopped")
			}
		}
		a2, e, f := enter(s, "a"), enter(s, "e"), enter(s, "f")
		b.Leave()
		synctest.Wait()
		if a2.Slot != nil || e.Slot == nil || f.Slot != nil {
			t.Error("not the first that may have it")
		}
		a.Leave()
		synctest.Wait()
		if a2.Slot != nil || f.Slot == nil {
			t.Error("a second one before the first of another owner")
		}
		c.Leave()
		synctest.Wait()
		if a2.Slot == nil {
			t.Error("not the last")
		}
		for _, m := range []*message{d, a2, e, f} {
			m.Leave()
		}
	})
}

// TestAStalledMessageIsStoppedWhileOthersWait: and only then, and only one that is in the way.
func TestAStalledMessageIsStoppedWhileOthersWait(t *testing.T) {
	for name, c := range map[string]struct {
		slots   int
		arrives int // of the first message, ten times a second
		waiter  string
		after   time.Duration // the other one's wait; 0: it waits on
	}{
		"stalled before":             {1, 0, "b", time.Nanosecond},
		"drips":                      {1, 10, "b", 2 * time.Second},
		"at the minimum rate":        {1, minRate / 10 * 12 / 10, "b", 0},
		"in the way of its owner":    {4, 0, "a", time.Nanosecond},
		"dripping, of its own owner": {4, 10, "a", 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(c.slots)
				first := enter(s, "a")
				for range 60 * 10 {
					first.Arrived(c.arrives)
					time.Sleep(time.Second / 10)
				}
				synctest.Wait()
				if first.stopped {
					t.Fatal("stopped though no other waits")
				}
				second := enter(s, c.waiter)
				for range 10 * 10 {
					first.Arrived(c.arrives)
					time.Sleep(time.Second / 10)
				}
				synctest.Wait()
				switch {
				case c.after == 0:
					if first.stopped || second.Slot != nil {
						t.Error("stopped")
					}
					first.Leave()
					synctest.Wait()
				case !first.stopped || second.Slot == nil || second.entered > c.after:
					t.Errorf("stopped %v, the other one waited for %v", first.stopped, second.entered)
				case first.Complete():
					t.Error("it is complete though it was stopped")
				}
				second.Leave()
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // another owner's is not in the way
		s := New(8)
		other, a, b := enter(s, "x"), enter(s, "a"), enter(s, "a")
		time.Sleep(time.Minute)
		a.Arrived(1)
		c := enter(s, "a")
		if other.stopped || a.stopped || !b.stopped || c.Slot == nil {
			t.Errorf("stopped %v %v %v", other.stopped, a.stopped, b.stopped)
		}
		for _, m := range []*message{other, a, c} {
			m.Leave()
		}
	})
}

// TestManyStalledMessagesOfOneOwnerDelayAnotherForSecondsOnly: however many of them wait.
func TestManyStalledMessagesOfOneOwnerDelayAnotherForSecondsOnly(t *testing.T) {
	for _, slots := range []int{1, 5, 32} {
		synctest.Test(t, func(t *testing.T) {
			s := New(slots)
			var all []*message
			for range 100 {
				all = append(all, enter(s, "a"))
			}
			for range 10 {
				m := enter(s, "b")
				time.Sleep(2 * time.Second)
				if synctest.Wait(); m.Slot == nil {
					t.Fatalf("of %d slots none after 2 s", slots)
				}
				m.Leave()
			}
			for s.Len() > 0 {
				time.Sleep(time.Second) // they are stopped one after the other, but the last ones: no other waits for these
				synctest.Wait()
				for _, m := range all {
					if m.Slot != nil {
						m.Leave()
						synctest.Wait()
					}
				}
			}
		})
	}
}

// TestGivingUp: a message that waits no longer takes no slot.
func TestGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		a := s.TryEnter("a", func() {})
		a.Complete()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if s.Enter(ctx, "b", func() {}) != nil {
			t.Error("two have one slot")
		}
		a.Leave()
		if s.Len() != 0 || len(s.waiting) != 0 {
			t.Errorf("%d taken, %d wait", s.Len(), len(s.waiting))
		}
	})
}
