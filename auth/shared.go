package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"sync"
)

// maxShared bounds the shared secrets that are remembered.
const maxShared = 4096

// SharedSecrets checks secrets that many devices present. A secret that was right is remembered as long as its stored hash is the
// same, so that further devices with it cost no password hash, and do not wait for the hashes of clients that guess.
type SharedSecrets struct {
	hasher *Hasher
	key    []byte // of this process: no hash in memory can be attacked offline

	mu    sync.Mutex
	known *lru[proofKey, struct{}]
}

// NewSharedSecrets returns a SharedSecrets that remembers nothing.
func NewSharedSecrets(h *Hasher) *SharedSecrets {
	s := &SharedSecrets{hasher: h, key: make([]byte, sha256.Size), known: newLRU[proofKey, struct{}](maxShared, nil)}
	_, _ = rand.Read(s.key) // never fails
	return s
}

// Verify reports whether secret belongs to the encoded hash, "" for none. spend is called before a password hash runs; what it
// returns is returned. The hash runs in the transports' lane and takes as long without an encoded hash as with one.
func (s *SharedSecrets) Verify(ctx context.Context, encoded, secret string, spend func() error) (bool, error) {
	if len(secret) > MaxPasswordBytes {
		secret, encoded = secret[:MaxPasswordBytes], ""
	}
	// The stored hash is a part of the key: another secret makes what is remembered useless.
	key := s.keyOf(encoded, secret)
	if encoded != "" && s.remembers(key) {
		return true, nil
	}
	ok, err := s.hasher.attempt(ctx, LaneTransport, spend, encoded, secret)
	if ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.known.put(key, struct{}{})
	}
	return ok, err
}

func (s *SharedSecrets) remembers(key proofKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.known.get(key)
	return ok
}

func (s *SharedSecrets) keyOf(encoded, secret string) proofKey {
	mac := hmac.New(sha256.New, s.key)
	fmt.Fprintf(mac, "%d:%s%s", len(encoded), encoded, secret)
	return proofKey(mac.Sum(nil))
}
