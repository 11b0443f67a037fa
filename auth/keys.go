package auth

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"weir/model"
	"weir/store"
)

// keyBits is the length of a signing key. retiredKeyLife is how long a replaced key stays in the key set at least.
const (
	keyBits        = 2048
	retiredKeyLife = 8 * 24 * time.Hour
)

// retiredLife is how long a replaced key is kept: longer than a refresh token lives.
func (c Config) retiredLife() time.Duration {
	return max(retiredKeyLife, c.RefreshTokenTTL+24*time.Hour)
}

// signingKey is one RSA key pair.
type signingKey struct {
	kid     string
	private *rsa.PrivateKey
	created model.Micros
	retired model.Micros // 0 while it signs
}

func newSigningKey(generate func() (*rsa.PrivateKey, error), now model.Micros) (*signingKey, error) {
	private, err := generate()
	if err != nil {
		return nil, fmt.Errorf("auth: making a signing key: %w", err)
	}
	return &signingKey{kid: thumbprint(&private.PublicKey), private: private, created: now}, nil
}

func generateKey() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, keyBits) }

// thumbprint is the key id: SHA-256 over the required members in lexical order (RFC 7638, section 3).
func thumbprint(k *rsa.PublicKey) string {
	n, e := jwkNumbers(k)
	sum := sha256.Sum256(fmt.Appendf(nil, `{"e":"%s","kty":"RSA","n":"%s"}`, e, n))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func jwkNumbers(k *rsa.PublicKey) (n, e string) {
	b64 := base64.RawURLEncoding
	return b64.EncodeToString(k.N.Bytes()), b64.EncodeToString(big.NewInt(int64(k.E)).Bytes())
}

// keyring holds the keys in memory; readers never wait.
type keyring struct {
	ring atomic.Pointer[[]*signingKey] // oldest first; the newest that is not retired signs
}

func (r *keyring) keys() []*signingKey {
	if p := r.ring.Load(); p != nil {
		return *p
	}
	return nil
}

func (r *keyring) set(keys []*signingKey) { r.ring.Store(&keys) }

func (r *keyring) byID(kid string) *signingKey {
	for _, k := range r.keys() {
		if k.kid == kid {
			return k
		}
	}
	return nil
}

func (r *keyring) active() *signingKey {
	for _, k := range slices.Backward(r.keys()) {
		if k.retired == 0 {
			return k
		}
	}
	return nil
}

// sealName is the associated data under which a private key is sealed.
func sealName(kid string) string { return "instance/signing-key/" + kid }

// loadKeys reads the key set.
func loadKeys(tx store.Tx, v Sealer) ([]*signingKey, error) {
	rows, err := store.SigningKeys(tx)
	if err != nil {
		return nil, err
	}
	keys := make([]*signingKey, len(rows))
	for i, r := range rows {
		keys[i] = &signingKey{kid: r.ID, created: r.Created, retired: r.Retired}
		if keys[i].private, err = openKey(v, r.ID, r.Sealed); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func openKey(v Sealer, kid string, sealed []byte) (*rsa.PrivateKey, error) {
	der, err := v.Open(sealName(kid), sealed)
	if err != nil {
		return nil, fmt.Errorf("auth: signing key %s: %w", kid, err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("%w: signing_keys %s: %w", store.ErrDamaged, kid, err)
	}
	// The id is made of the key: a row that was mixed up is noticed here.
	private, ok := parsed.(*rsa.PrivateKey)
	if !ok || thumbprint(&private.PublicKey) != kid {
		return nil, fmt.Errorf("%w: signing_keys %s", store.ErrDamaged, kid)
	}
	return private, nil
}

// rotateKeys makes the first key, replaces one that is too old and removes those that retired long ago.
func (a *Auth) rotateKeys(ctx context.Context) error {
	now, cfg := model.MicrosOf(a.now()), a.live.Load()
	// Decide in memory whether there is anything to do: this runs every ten minutes.
	active := a.keys.active()
	old := active != nil && cfg.SigningKeyMaxAge > 0 && now > after(active.created, cfg.SigningKeyMaxAge)
	gone := func(k *signingKey) bool { return k.retired != 0 && now > after(k.retired, cfg.retiredLife()) }
	if active != nil && !old && !slices.ContainsFunc(a.keys.keys(), gone) {
		return nil
	}
	// Making a key takes seconds on a gateway: it is made before the transaction.
	var fresh *signingKey
	if active == nil || old {
		var err error
		if fresh, err = newSigningKey(a.generateKey, now); err != nil {
			return err
		}
	}
	return a.store.Write(ctx, store.Durable, func(tx store.Tx) error { return a.replaceKeys(tx, fresh, now, gone) })
}

// replaceKeys writes what rotateKeys decided. fresh may be nil.
func (a *Auth) replaceKeys(tx store.Tx, fresh *signingKey, now model.Micros, gone func(*signingKey) bool) error {
	var keys []*signingKey
	for _, k := range a.keys.keys() {
		switch {
		case gone(k):
			if err := store.RemoveSigningKey(tx, k.kid); err != nil {
				return err
			}
			continue
		case fresh != nil && k.retired == 0:
			// A copy: readers have the old one.
			retired := *k
			retired.retired = now
			k = &retired
			if err := store.RetireSigningKey(tx, k.kid, now); err != nil {
				return err
			}
		}
		keys = append(keys, k)
	}
	if fresh != nil {
		if err := insertKey(tx, a.vault, fresh); err != nil {
			return err
		}
		keys = append(keys, fresh)
	}
	// Nothing is signed with a key that a crash could take back.
	tx.OnCommit(func() { a.keys.set(keys) })
	return nil
}

func insertKey(tx store.Tx, v Sealer, k *signingKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(k.private)
	if err != nil {
		return err
	}
	sealed, err := v.Seal(sealName(k.kid), der)
	if err != nil {
		return err
	}
	return store.AddSigningKey(tx, store.SigningKey{ID: k.kid, Sealed: sealed, Created: k.created})
}

// jwk is a public key of the key set (RFC 7517, RFC 7518 section 6.3.1).
type jwk struct {
	Type      string `json:"kty"`
	Use       string `json:"use"`
	Algorithm string `json:"alg"`
	ID        string `json:"kid"`
	N         string `json:"n"`
	E         string `json:"e"`
}

// JWKS serves the public signing keys as a JSON Web Key Set, including retired keys while tokens signed by them may be valid.
func (a *Auth) JWKS() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		// Retired keys too: tokens that they have signed are still valid.
		set := struct {
			Keys []jwk `json:"keys"`
		}{Keys: []jwk{}}
		for _, k := range a.keys.keys() {
			n, e := jwkNumbers(&k.private.PublicKey)
			set.Keys = append(set.Keys, jwk{Type: "RSA", Use: "sig", Algorithm: "RS256", ID: k.kid, N: n, E: e})
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "public, max-age=300")
		_ = json.NewEncoder(w).Encode(set) // the client is gone: the error has no recipient
	})
}
