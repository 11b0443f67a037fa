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

// The rules of the interface: sign-in per (email, source) and per email alone, device passwords per (user name, source) and per
// user name alone. The second of each pair begins later, so that one address cannot lock out all others.
var (
	signInRule = backoffRule{free: 5, first: time.Second, longest: 5 * time.Minute, lifetime: 10 * time.Minute}
	emailRule  = backoffRule{free: 99, first: time.Second, longest: 5 * time.Minute, lifetime: 10 * time.Minute}
	deviceRule = backoffRule{free: 10, first: time.Second, longest: 30 * time.Second, lifetime: 10 * time.Minute}
	nameRule   = backoffRule{free: 99, first: time.Second, longest: 30 * time.Second, lifetime: 10 * time.Minute}
)

// wait after the n-th failure in a row.
func (r backoffRule) wait(n int) time.Duration {
	if n <= r.free {
		return 0
	}
	// Double, up to the bound: a shift would overflow.
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
	name  backoffKey
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
	// An attempt keeps the entry alive: waiting in the table must not make it expire.
	now := b.now()
	f.last = now
	return max(0, f.until.Sub(now))
}

// failed counts a failure of a key that belongs to a name.
func (b *backoff) failed(k, name backoffKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	f := b.alive(k)
	if f == nil {
		f = &failures{name: name}
		b.keys.put(k, f)
	}
	// The next attempt has to wait from now on.
	f.n++
	f.last, f.until = now, now.Add(b.rule.wait(f.n))
}

// succeeded removes the key.
func (b *backoff) succeeded(k backoffKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys.remove(k)
}

// forget removes all keys of a name. It walks through the table.
func (b *backoff) forget(name backoffKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, e := range b.keys.entries {
		if e.Value.(*lruEntry[backoffKey, *failures]).value.name == name {
			b.keys.remove(k)
		}
	}
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

// trustedFor is how long an address that has proven a name is not subject to the rule of the name alone.
const trustedFor = 7 * 24 * time.Hour

// attemptKey is a name, with the source and alone.
type attemptKey struct{ bySource, byName backoffKey }

// attemptKeyOf makes the key of an attempt from a source at a name of one or more parts.
func attemptKeyOf(source netip.Addr, name ...string) attemptKey {
	return attemptKey{backoffKeyOf(append(name, sourceOf(source))...), backoffKeyOf(name...)}
}

// attempts counts failures per (name, source) and per name alone. An address that has proven the name lately is subject to the
// first rule only, so that strangers with many addresses do not lock out the owner of the name.
type attempts struct {
	bySource, byName *backoff

	mu      sync.Mutex
	trusted *lru[backoffKey, time.Time] // by name and source: the newest success
}

func newAttempts(source, name backoffRule, now func() time.Time) *attempts {
	return &attempts{bySource: newBackoff(source, maxBackoffEntries, now), byName: newBackoff(name, maxBackoffEntries, now),
		trusted: newLRU[backoffKey, time.Time](maxBackoffEntries, nil)}
}

// blocked returns how long an attempt must still wait, 0 when it is allowed.
func (a *attempts) blocked(k attemptKey) time.Duration {
	wait := a.bySource.blocked(k.bySource)
	if a.trusts(k) {
		return wait
	}
	return max(wait, a.byName.blocked(k.byName))
}

func (a *attempts) trusts(k attemptKey) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, ok := a.trusted.get(k.bySource)
	return ok && a.byName.now().Sub(at) < trustedFor
}

func (a *attempts) failed(k attemptKey) {
	a.bySource.failed(k.bySource, k.byName)
	a.byName.failed(k.byName, k.byName)
}

func (a *attempts) succeeded(k attemptKey) {
	a.bySource.succeeded(k.bySource)
	a.byName.succeeded(k.byName)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trusted.put(k.bySource, a.byName.now())
}

// forget removes what is counted of a name, from every source: its password is another one.
func (a *attempts) forget(name backoffKey) {
	a.byName.succeeded(name)
	a.bySource.forget(name)
}
