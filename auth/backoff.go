package auth

import (
	"crypto/sha256"
	"net/netip"
	"sync"
	"time"
)

// backoffRule says how failures are answered.
type backoffRule struct {
	free     int           // failures that cost nothing
	first    time.Duration // wait after the first failure beyond them; doubles with each later one
	longest  time.Duration
	lifetime time.Duration // time without an attempt after which an entry is removed
}

// The rules of the interface: sign-in per (email, source), sign-in per email alone, device passwords per user name.
var (
	signInRule = backoffRule{free: 5, first: time.Second, longest: 5 * time.Minute, lifetime: 10 * time.Minute}
	emailRule  = backoffRule{free: 99, first: time.Second, longest: 5 * time.Minute, lifetime: 10 * time.Minute}
	deviceRule = backoffRule{free: 10, first: time.Second, longest: 30 * time.Second, lifetime: 10 * time.Minute}
)

// wait after the n-th failure in a row.
func (r backoffRule) wait(n int) time.Duration {
	if n <= r.free {
		return 0
	}
	w := r.first
	for range n - r.free - 1 {
		if w >= r.longest {
			break
		}
		w *= 2
	}
	return min(w, r.longest)
}

// maxBackoffEntries bounds a table. A failure costs the attacker one password hash, and the hasher runs some tens a
// second: within the lifetime of an entry an attacker cannot create enough others to evict it.
const maxBackoffEntries = 32768

type backoffKey [16]byte

// backoffKeyOf makes a key of fixed size: an unauthenticated client must not decide how much memory an entry takes.
func backoffKeyOf(parts ...string) backoffKey {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte{byte(len(p) >> 24), byte(len(p) >> 16), byte(len(p) >> 8), byte(len(p))})
		h.Write([]byte(p))
	}
	return backoffKey(h.Sum(nil)[:16])
}

type failures struct {
	n     int
	last  time.Time // last attempt
	until time.Time // attempts before it are refused
}

// backoff counts failed attempts per key in bounded memory.
type backoff struct {
	rule backoffRule
	now  func() time.Time
	mu   sync.Mutex
	keys *lru[backoffKey, *failures]
}

func newBackoff(rule backoffRule, most int, now func() time.Time) *backoff {
	return &backoff{rule: rule, now: now, keys: newLRU[backoffKey, *failures](most, nil)}
}

// blocked returns how long the key must still wait, 0 when an attempt is allowed. An attempt during the wait keeps the
// entry alive and is not counted as a failure.
func (b *backoff) blocked(k backoffKey) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.alive(k)
	if f == nil {
		return 0
	}
	now := b.now()
	f.last = now
	return max(0, f.until.Sub(now))
}

// failed counts a failure.
func (b *backoff) failed(k backoffKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	f := b.alive(k)
	if f == nil {
		f = &failures{}
		b.keys.put(k, f)
	}
	f.n++
	f.last, f.until = now, now.Add(b.rule.wait(f.n))
}

// succeeded removes the key.
func (b *backoff) succeeded(k backoffKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys.remove(k)
}

// alive returns the entry unless its lifetime is over.
func (b *backoff) alive(k backoffKey) *failures {
	f, ok := b.keys.get(k)
	if !ok {
		return nil
	}
	if b.now().Sub(f.last) >= b.rule.lifetime {
		b.keys.remove(k)
		return nil
	}
	return f
}

func (b *backoff) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.keys.len()
}

// sourceOf returns the part of an address that identifies a source: all of an IPv4 address, the /64 prefix of an IPv6
// address, because one host usually controls its whole /64.
func sourceOf(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		p, _ := a.Prefix(64) // fails for neither family nor length
		return p.String()
	}
	return a.String()
}
