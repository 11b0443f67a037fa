package govern

import (
	"sync"
	"time"
)

// Allowances of unauthenticated senders.
const (
	unknownSlots            = 1024
	unauthenticatedMessages = 100     // a second
	unauthenticatedBytes    = 1 << 20 // a second
	unauthenticatedHashes   = 5       // password hashes a second: each takes a core for 20 to 200 ms
	hashBurst               = 20
	unknownSlotsLifetime    = time.Minute
)

// allowance hands buckets to names that no tenant has, so that an answer does not reveal whether a tenant exists: such a
// name meets the ceiling that a tenant without values of its own would. 1024 names have a bucket each, all others
// share one. A slot whose bucket has long been full is free again.
type allowance struct {
	now         func() time.Time
	rate, burst float64
	common      *bucket

	mu    sync.Mutex
	slots map[string]*slot
	swept time.Time
}

type slot struct {
	bucket *bucket
	used   time.Time
}

func newAllowance(cfg Config, now func() time.Time) *allowance {
	rate, burst := ceiling(cfg.values(), cfg.ManualFloor)
	return &allowance{now: now, rate: rate, burst: burst, common: newBucket(rate, burst, now()), slots: map[string]*slot{}}
}

// set changes the ceiling of all of them.
func (a *allowance) set(rate, burst float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rate, a.burst = rate, burst
	now := a.now()
	a.common.set(rate, burst, now)
	for _, s := range a.slots {
		s.bucket.set(rate, burst, now)
	}
}

func (a *allowance) bucket(name string) *bucket {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if s := a.slots[name]; s != nil {
		s.used = now
		return s.bucket
	}
	// Sweep when all slots are taken, at most once in a lifetime: each call would walk through all.
	if len(a.slots) >= unknownSlots && now.Sub(a.swept) >= unknownSlotsLifetime {
		a.sweep(now)
	}
	// No slot is free: this name shares one bucket with others.
	if len(a.slots) >= unknownSlots || len(name) > maxName {
		return a.common
	}
	s := &slot{newBucket(a.rate, a.burst, now), now}
	a.slots[name] = s
	return s.bucket
}

// maxName bounds the name that a slot keeps; no tenant's token is longer.
const maxName = 128

func (a *allowance) sweep(now time.Time) {
	a.swept = now
	for name, s := range a.slots {
		if now.Sub(s.used) >= unknownSlotsLifetime {
			delete(a.slots, name)
		}
	}
}

func (a *allowance) size() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.slots)
}

// unauthenticated is the one allowance of all messages without a valid credential.
type unauthenticated struct {
	now      func() time.Time
	mu       sync.Mutex
	messages *bucket
	bytes    *bucket
	hashes   *bucket
}

func newUnauthenticated(now func() time.Time) *unauthenticated {
	return &unauthenticated{
		now:      now,
		messages: newBucket(unauthenticatedMessages, unauthenticatedMessages, now()),
		bytes:    newBucket(unauthenticatedBytes, unauthenticatedBytes, now()),
		hashes:   newBucket(unauthenticatedHashes, hashBurst, now()),
	}
}

// take draws on both buckets or on neither.
func (s *unauthenticated) take(messages, bytes int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if !s.bytes.take(bytes, now) {
		return false
	}
	// Both or neither: give back what the first has given.
	if !s.messages.take(max(messages, 1), now) {
		s.bytes.giveBack(bytes)
		return false
	}
	return true
}

// takeHash draws one password hash.
func (s *unauthenticated) takeHash() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hashes.take(1, s.now())
}

func (s *unauthenticated) returnHash() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hashes.giveBack(1)
}
