package store

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"weir/internal/rootkey"
	"weir/model"
)

// Sizes of the envelope: AES-256-GCM with random nonces of 96 bits.
const (
	keyBytes     = 32
	nonceBytes   = 12
	tagBytes     = 16
	wrappedBytes = nonceBytes + keyBytes + tagBytes
	algorithm    = "AES-256-GCM"
	kekVersion   = 1
	formatSealed = 1
	sealedHead   = 1 + rootkey.IDSize + wrappedBytes + nonceBytes
)

// ErrSealed is returned when a sealed value cannot be opened: it was altered, belongs to another name, or was sealed under
// another root key. The text names the required root key where it is known.
var ErrSealed = errors.New("store: sealed value does not open")

// Scopes of a secret.
const (
	ScopeInstance = "instance"
	ScopeTenant   = "tenant"
)

// MaxSecretName is the longest name of a secret.
const MaxSecretName = 256

// Vault seals secrets: each under a random data key of its own, which is wrapped by the root key. Both seals bind the
// value's name as associated data, so that no ciphertext can replace another. It is safe for concurrent use.
type Vault struct {
	root cipher.AEAD
	id   [rootkey.IDSize]byte
}

// NewVault returns a vault under the root key.
func NewVault(root rootkey.Key) *Vault { return &Vault{root: gcm(root[:]), id: root.IDBytes()} }

// KeyID is the id of the vault's root key.
func (v *Vault) KeyID() string { return hex.EncodeToString(v.id[:]) }

// gcm cannot fail: the size of the key is right.
func gcm(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err == nil {
		var aead cipher.AEAD
		if aead, err = cipher.NewGCM(block); err == nil {
			return aead
		}
	}
	panic(err)
}

// Seal returns the sealed form of plain: version, id of the root key, wrapped key, nonce, ciphertext. name is bound to it
// and required to open it. It returns no error today; the signature allows for a root key that is kept elsewhere.
func (v *Vault) Seal(name string, plain []byte) ([]byte, error) {
	e := v.envelope(name, plain)
	blob := make([]byte, 0, sealedHead+len(e.ciphertext))
	blob = append(blob, formatSealed)
	blob = append(blob, v.id[:]...)
	blob = append(blob, e.wrapped...)
	blob = append(blob, e.nonce...)
	return append(blob, e.ciphertext...), nil
}

// Open is the inverse of Seal. Errors: ErrVersion for the format of a newer Weir, ErrSealed otherwise.
func (v *Vault) Open(name string, sealed []byte) ([]byte, error) {
	switch {
	case len(sealed) == 0:
		return nil, fmt.Errorf("%w: it is empty", ErrSealed)
	case sealed[0] != formatSealed:
		return nil, fmt.Errorf("%w: sealed value of version %d, this Weir reads %d", ErrVersion, sealed[0], formatSealed)
	case len(sealed) < sealedHead+tagBytes:
		return nil, fmt.Errorf("%w: it is too short", ErrSealed)
	}
	id, rest := sealed[1:1+rootkey.IDSize], sealed[1+rootkey.IDSize:]
	if [rootkey.IDSize]byte(id) != v.id {
		return nil, fmt.Errorf("%w: it was sealed under the root key %x, this one is %x", ErrSealed, id, v.id)
	}
	return v.open(name, envelope{wrapped: rest[:wrappedBytes], nonce: rest[wrappedBytes : wrappedBytes+nonceBytes],
		ciphertext: rest[wrappedBytes+nonceBytes:]})
}

type envelope struct {
	wrapped    []byte // nonce ‖ sealed data key
	nonce      []byte
	ciphertext []byte
}

func (v *Vault) envelope(name string, plain []byte) envelope {
	key := random(keyBytes)
	defer clear(key)
	wrap, nonce := random(nonceBytes), random(nonceBytes)
	return envelope{
		wrapped:    v.root.Seal(wrap, wrap, key, []byte(name)),
		nonce:      nonce,
		ciphertext: gcm(key).Seal(nil, nonce, plain, []byte(name)),
	}
}

func (v *Vault) open(name string, e envelope) ([]byte, error) {
	if len(e.wrapped) != wrappedBytes || len(e.nonce) != nonceBytes {
		return nil, fmt.Errorf("%w: its parts have wrong sizes", ErrSealed)
	}
	key, err := v.root.Open(nil, e.wrapped[:nonceBytes], e.wrapped[nonceBytes:], []byte(name))
	if err != nil {
		return nil, fmt.Errorf("%w: the data key does not open under the root key %x", ErrSealed, v.id)
	}
	defer clear(key)
	plain, err := gcm(key).Open(nil, e.nonce, e.ciphertext, []byte(name))
	if err != nil {
		return nil, fmt.Errorf("%w: it was altered", ErrSealed)
	}
	return plain, nil
}

// random returns n random bytes with spare capacity for a seal.
func random(n int) []byte {
	b := make([]byte, n, n+keyBytes+tagBytes)
	rand.Read(b) // never fails
	return b
}

// SecretName names a row of the table secrets. TenantID is the row id of the tenant, 0 in ScopeInstance. Name is built
// of row ids ("connector/7/secret"), so that a rename keeps it.
type SecretName struct {
	TenantID int64
	Scope    string
	Name     string
}

// bound is what the ciphertext is tied to: {tenant}/{scope}/{name}.
func (n SecretName) bound() string {
	return strconv.FormatInt(n.TenantID, 10) + "/" + n.Scope + "/" + n.Name
}

func (n SecretName) check() error {
	switch {
	case n.Scope != ScopeInstance && n.Scope != ScopeTenant, (n.Scope == ScopeInstance) != (n.TenantID == 0):
		return fmt.Errorf("store: secret %q: scope %q with tenant %d", n.Name, n.Scope, n.TenantID)
	case n.Name == "" || len(n.Name) > MaxSecretName:
		return fmt.Errorf("store: a secret's name has 1 to %d bytes", MaxSecretName)
	}
	return nil
}

// Put stores a secret or replaces it. The journal records the fact, not the value.
func (v *Vault) Put(c *Change, n SecretName, plain []byte) error {
	if err := n.check(); err != nil {
		return err
	}
	had, err := v.Has(c, n)
	if err != nil {
		return err
	}
	e := v.envelope(n.bound(), plain)
	id, err := c.Insert(`INSERT INTO secrets
		(tenant_id, scope, name, ciphertext, nonce, wrapped_key, kek_version, alg, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (tenant_id, scope, name) DO UPDATE SET ciphertext = excluded.ciphertext, nonce = excluded.nonce,
		wrapped_key = excluded.wrapped_key, kek_version = excluded.kek_version, alg = excluded.alg,
		updated_at = excluded.updated_at`,
		n.TenantID, n.Scope, n.Name, e.ciphertext, e.nonce, e.wrapped, kekVersion, algorithm, int64(c.At), int64(c.At))
	if err != nil {
		return err
	}
	if had {
		return auditSecret(c, AuditUpdate, n, id)
	}
	return auditSecret(c, AuditCreate, n, id)
}

// Get returns a secret; ok is false when there is none. Errors: ErrSealed, ErrVersion.
func (v *Vault) Get(tx Tx, n SecretName) (plain []byte, ok bool, err error) {
	var e envelope
	var version int
	var alg string
	err = tx.QueryRow(`SELECT ciphertext, nonce, wrapped_key, kek_version, alg FROM secrets
		WHERE tenant_id = ? AND scope = ? AND name = ?`, n.TenantID, n.Scope, n.Name).
		Scan(&e.ciphertext, &e.nonce, &e.wrapped, &version, &alg)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case version != kekVersion || alg != algorithm:
		return nil, false, fmt.Errorf("%w: secret %s of version %d, %s", ErrVersion, n.bound(), version, alg)
	}
	plain, err = v.open(n.bound(), e)
	if err != nil {
		return nil, false, fmt.Errorf("secret %s: %w", n.bound(), err)
	}
	return plain, true, nil
}

// Has reports whether the secret exists.
func (v *Vault) Has(tx Tx, n SecretName) (has bool, err error) {
	err = tx.QueryRow(`SELECT EXISTS (SELECT 1 FROM secrets WHERE tenant_id = ? AND scope = ? AND name = ?)`,
		n.TenantID, n.Scope, n.Name).Scan(&has)
	return has, err
}

// ChangedAt returns when a secret was put, 0 when there is none: another time is another value.
func (v *Vault) ChangedAt(tx Tx, n SecretName) (at model.Micros, err error) {
	err = tx.QueryRow(`SELECT coalesce(max(updated_at), 0) FROM secrets WHERE tenant_id = ? AND scope = ? AND name = ?`, n.TenantID, n.Scope, n.Name).Scan((*int64)(&at))
	return at, err
}

// Delete removes a secret; false when there was none.
func (v *Vault) Delete(c *Change, n SecretName) (bool, error) {
	var id int64
	err := c.QueryRow(`DELETE FROM secrets WHERE tenant_id = ? AND scope = ? AND name = ? RETURNING id`,
		n.TenantID, n.Scope, n.Name).Scan(&id)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, auditSecret(c, AuditDelete, n, id)
}

func auditSecret(c *Change, operation string, n SecretName, id int64) error {
	return c.Audit(AuditEvent{TenantID: n.TenantID, Category: AuditMutation, Operation: operation,
		Table: "secrets", Key: strconv.FormatInt(id, 10), Label: n.Name, Rows: 1})
}

// Claim binds the store to the vault's root key: the first key is recorded, and any other key is refused from then on,
// because it could not open the sealed values.
func (v *Vault) Claim(tx Tx) error {
	have, err := RootKeyID(tx)
	switch {
	case err != nil:
		return err
	case have == "":
		return SetRootKeyID(tx, v.KeyID())
	case have != v.KeyID():
		return &rootkey.MissingError{ID: have, Found: v.KeyID(), From: "the vault"}
	}
	return nil
}
