package edge

import "sync"

// seenRecords is how many of the newest messages a repeat is recognised among: after a restart they are read from the log.
const seenRecords = 1 << 14

// seen recognises repeats: a publish that a client sends again because its acknowledgement was lost. The sender is part of the key, and
// zero in that of a message that cannot be repeated.
type seen struct {
	mu      sync.Mutex
	keys    map[[2]uint64]int // how often a key is in ring
	ring    [][2]uint64
	at      int
	pending map[[2]uint64][]func(stored bool) // repeats of messages that are not yet synced
}

func newSeen() *seen {
	return &seen{keys: map[[2]uint64]int{}, pending: map[[2]uint64][]func(bool){}}
}

// repeats reports whether a message that is marked as a repeat is one. Then done is called once it is known whether the first was stored,
// at once where that is known. Of a message that is none, end must be called.
func (s *seen) repeats(key [2]uint64, marked bool, done func(stored bool)) bool {
	if key[0] == 0 {
		return false
	}
	s.mu.Lock()
	waits, pending := s.pending[key]
	known := s.keys[key] > 0
	switch {
	case !marked, !known && !pending:
		if !pending {
			s.pending[key] = nil
		}
		s.mu.Unlock()
		return false
	case known:
		s.mu.Unlock()
		done(true)
	default:
		s.pending[key] = append(waits, done)
		s.mu.Unlock()
	}
	return true
}

// end notes how a message ended that was no repeat.
func (s *seen) end(key [2]uint64, stored bool) {
	if key[0] == 0 {
		return
	}
	s.mu.Lock()
	waits := s.pending[key]
	delete(s.pending, key)
	if stored {
		s.put(key)
	}
	s.mu.Unlock()
	for _, done := range waits {
		done(stored)
	}
}

// add takes in a message of the log.
func (s *seen) add(key [2]uint64) {
	if key[0] == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(key)
}

func (s *seen) put(key [2]uint64) {
	s.keys[key]++
	if len(s.ring) < seenRecords {
		s.ring = append(s.ring, key)
		return
	}
	old := s.ring[s.at]
	if s.keys[old]--; s.keys[old] <= 0 {
		delete(s.keys, old)
	}
	s.ring[s.at] = key
	s.at = (s.at + 1) % seenRecords
}
