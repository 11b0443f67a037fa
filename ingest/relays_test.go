package ingest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"weir/model"
)

// TestNumbersOfEdges: against a plain set, over checkpoints; what an edge may still have in flight is never taken for a repeat.
func TestNumbersOfEdges(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := newRelays()
	key := relayKey{"acme", "edge:x:1"}
	known := map[uint64]bool{}
	next := uint64(1)
	for range 20_000 {
		switch rng.IntN(10) {
		case 0: // a hole: a dead letter of the edge
			next += uint64(rng.IntN(3))
		case 1: // what was in flight comes again
			n := next - min(next-1, uint64(rng.IntN(30)))
			has := s.links[key] != nil && s.links[key].ranges.Has(n)
			if has != known[n] {
				t.Fatalf("%d: %v, want %v; %v", n, has, known[n], s.links[key].ranges)
			}
			s.add(key, n, model.Nanos(next))
			known[n] = true
		case 2:
			if page := s.freeze(0); page != nil {
				loaded := newRelays()
				if err := loaded.load(page[0]); err != nil {
					t.Fatal(err)
				}
				s = loaded
			}
		default:
			s.add(key, next, model.Nanos(next))
			known[next] = true
			next++
		}
		if l := s.links[key]; l != nil && len(l.ranges) > maxRanges {
			t.Fatalf("%d ranges", len(l.ranges))
		}
	}
	for n := range known {
		if !s.links[key].ranges.Has(n) {
			t.Fatalf("%d is forgotten", n)
		}
	}
	if s.links[key].ranges.Has(next + 5) {
		t.Error("a number that never came is known")
	}
	if s.freeze(0) == nil || s.freeze(0) != nil {
		t.Error("a page is written when something has changed, and only then")
	}
	s.evictTenant("acme")
	if len(s.links) != 0 {
		t.Error("the links of a tenant that has ended are kept")
	}
	for i := range maxRelays + 1 {
		s.add(relayKey{"acme", string(rune(i + 1))}, 1, model.Nanos(i))
	}
	if len(s.links) != maxRelays || s.links[relayKey{"acme", "\x01"}] != nil {
		t.Errorf("%d links are remembered", len(s.links))
	}
}

// TestABurstThatACeilingRefuses: of 4,096 messages in flight every other one is refused; each of these is sent again, and none is taken for a repeat, also
// where other links have used up the ranges that are to spare.
func TestABurstThatACeilingRefuses(t *testing.T) {
	s := newRelays()
	key := relayKey{"acme", "edge:x:1"}
	for n := uint64(1); n <= 500; n += 2 { // numbers that never come
		s.add(key, n, 1)
	}
	const from, window = 1000, 4096
	for n := uint64(from); n < from+window; n += 2 {
		s.add(key, n, 1)
	}
	for n := uint64(from + 1); n < from+window; n += 2 {
		if s.has(key, n) {
			t.Fatalf("%d was refused, and is taken for a repeat", n)
		}
	}
	page := s.freeze(0)
	loaded := newRelays()
	if err := loaded.load(page[0]); err != nil || loaded.spare != s.spare || loaded.spare != maxRanges-fewRanges {
		t.Errorf("%d and %d ranges are to spare, %v", loaded.spare, s.spare, err)
	}
	for n := uint64(from + 1); n < from+window; n += 2 {
		s.add(key, n, 1)
	}
	if n := s.links[key].spare(); n > 500/2 {
		t.Errorf("the holes are closed, and %d ranges are left", n)
	}
	for i := range maxSpare/(maxRanges-fewRanges) + 2 {
		for n := uint64(1); n < 2*maxRanges; n += 2 {
			s.add(relayKey{"acme", fmt.Sprint("edge:", i)}, n, 1)
		}
	}
	if s.spare > maxSpare {
		t.Errorf("%d ranges beyond the first of each link, at most %d", s.spare, maxSpare)
	}
	s.evictTenant("acme")
	if s.spare != 0 {
		t.Errorf("%d ranges are counted of links that are gone", s.spare)
	}
}
