package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
)

// The types of device credentials.
const (
	AccessToken     = "ACCESS_TOKEN"     // possession of the id is the proof
	MQTTBasic       = "MQTT_BASIC"       // id is a user name, secret a password
	X509Certificate = "X509_CERTIFICATE" // id is the lower-case hex SHA-256 of the certificate that TLS verified
)

// Refusals of a device credential. A transport shows its device one text for all of them; the difference is for the ledger.
var (
	ErrCredentialMissing     = errors.New("auth: no credential presented")
	ErrCredentialBad         = errors.New("auth: credential refused")
	ErrCredentialUnsupported = errors.New("auth: this proof cannot be given here")
)

// ErrSpent says that Claim.Spend did not allow the password hash. The claim was not judged.
var ErrSpent = errors.New("auth: a password hash was not allowed")

// Claim is a credential as a device presents it.
type Claim struct {
	Tenant string
	Type   string
	ID     string
	Secret string
	// From is the address that presented it; the zero Addr counts as an address too. Wrong passwords are counted per user name
	// and address first.
	From netip.Addr
	// Spend is called before a password hash runs for an address that has not proven the user name lately; false refuses the claim
	// with ErrSpent. nil: the hash runs.
	Spend func() bool
	// Connecting says that a connection waits for the answer: a password hash then runs in the transports' lane.
	Connecting bool
	// Presented says that the TLS connection itself presented the certificate whose hash ID is. Without it an
	// X509_CERTIFICATE claim proves nothing.
	Presented bool
}

// Proof is a verified credential. Expires is 0 when it does not.
type Proof struct {
	CredentialID, DeviceID int64
	Device                 string
	Tenant                 string
	TenantID               int64
	Expires                model.Micros

	epoch uint64 // of the verifier when it was given
}

// CredentialRow is a stored credential. PasswordHash is a PHC string, "" for types without a password.
type CredentialRow struct {
	ID           int64
	DeviceID     int64
	Device       string
	Enabled      bool
	ExpiresAt    model.Micros // 0: never
	PasswordHash string
	Unused       bool // its first use is noted, see VerifierConfig.Used
}

// CredentialFinder reads the credentials of a tenant by the SHA-256 of their id.
type CredentialFinder interface {
	FindCredentials(ctx context.Context, tenantID int64, credentialType string, idHash [sha256.Size]byte) ([]CredentialRow, error)
}

// PreSharedKey is the type of credential that Verifier.Key finds: the id is an identity of a handshake.
const PreSharedKey = "PSK"

// KeyRow is a stored pre-shared key. CredentialRow.ID is 0 when there is none.
type KeyRow struct {
	CredentialRow
	TenantID int64
	Key      []byte
}

// KeyFinder reads pre-shared keys by the identity of a handshake, which names no tenant.
type KeyFinder interface {
	FindKey(ctx context.Context, identity string) (KeyRow, error)
	// FindBootstrapKey finds those that are for the LwM2M bootstrap server alone.
	FindBootstrapKey(ctx context.Context, identity string) (KeyRow, error)
}

// CertificateFinder reads credentials of type X509_CERTIFICATE by the SHA-256 of a certificate, in lower-case hex, for handshakes that name no
// tenant. The rows hold no key.
type CertificateFinder interface {
	FindCertificate(ctx context.Context, fingerprint string) (KeyRow, error)
}

// Invalidation names the credentials that changed: one, all of a device, or all of a tenant. The others
// are zero.
type Invalidation struct {
	CredentialID, DeviceID int64
	Tenant                 string
}

// Covers reports whether a proof depends on a credential that was invalidated.
func (f Invalidation) Covers(p Proof) bool {
	return f.CredentialID != 0 && f.CredentialID == p.CredentialID || f.DeviceID != 0 && f.DeviceID == p.DeviceID ||
		f.Tenant != "" && f.Tenant == p.Tenant
}

// A verified credential is remembered for rememberFor; maxRemembered of them take some ten megabytes.
const (
	rememberFor   = 10 * time.Minute
	maxRemembered = 32768
)

// maxCredentialBytes bounds id and secret of a claim.
const maxCredentialBytes = 1024

type proofKey [sha256.Size]byte

type remembered struct {
	proof Proof
	until time.Time
}

// VerifierConfig are a Verifier's collaborators and bounds.
type VerifierConfig struct {
	Credentials CredentialFinder
	Keys        KeyFinder // nil: no handshake has a key
	// Certificates are those of handshakes that name no tenant; nil: there are none.
	Certificates CertificateFinder
	Tenants      Tenants
	Hasher       *Hasher
	// Used notes the first use of a credential that provisioning has minted, before the use is accepted.
	Used       func(ctx context.Context, credentialID int64) error
	Clock      func() time.Time // time.Now
	Registerer prometheus.Registerer
	// MaxRemembered verified credentials are kept; 32,768.
	MaxRemembered int
}

// Verifier verifies device credentials. It caches proofs, so that a device that authenticates with each message costs
// neither a read nor a password hash; a change of the credential invalidates them at once.
type Verifier struct {
	cfg     VerifierConfig
	now     func() time.Time
	secret  []byte // of this process: no hash in memory can be attacked offline
	backoff *attempts
	m       verifierMetrics

	mu    sync.Mutex
	epoch uint64 // counts invalidations
	known *lru[proofKey, remembered]
	// The cache by what Invalidate names: a credential has one valid proof, a device has few credentials. For a
	// tenant all entries are walked through.
	byCredential map[int64]proofKey
	byDevice     map[int64][]int64
	onForget     []func(Invalidation)
}

// NewVerifier makes a verifier.
func NewVerifier(cfg VerifierConfig) *Verifier {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.MaxRemembered <= 0 {
		cfg.MaxRemembered = maxRemembered
	}
	v := &Verifier{
		cfg:          cfg,
		now:          cfg.Clock,
		secret:       make([]byte, 32),
		backoff:      newAttempts(deviceRule, nameRule, cfg.Clock),
		byCredential: map[int64]proofKey{},
		byDevice:     map[int64][]int64{},
	}
	_, _ = rand.Read(v.secret)
	v.known = newLRU(cfg.MaxRemembered, v.unlink)
	v.m = newVerifierMetrics(cfg.Registerer, v)
	return v
}

// OnInvalidate registers f, which is called after credentials were invalidated, so that a transport can close what they
// admitted. f must be quick and must not call Invalidate. Register before the transports start.
func (v *Verifier) OnInvalidate(f func(Invalidation)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.onForget = append(v.onForget, f)
}

// Invalidate removes cached proofs. It is called after a change of credentials was committed.
func (v *Verifier) Invalidate(f Invalidation) {
	v.mu.Lock()
	v.epoch++
	for _, k := range v.keysOf(f) {
		v.known.remove(k)
	}
	// Call them without the lock: they close connections.
	tell := v.onForget
	v.mu.Unlock()
	for _, g := range tell {
		g(f)
	}
}

func (v *Verifier) keysOf(f Invalidation) []proofKey {
	var keys []proofKey
	for _, id := range append([]int64{f.CredentialID}, v.byDevice[f.DeviceID]...) {
		if k, ok := v.byCredential[id]; ok {
			keys = append(keys, k)
		}
	}
	// There is no index by tenant: this is rare.
	if f.Tenant != "" {
		for k, e := range v.known.entries {
			if e.Value.(*lruEntry[proofKey, remembered]).value.proof.Tenant == f.Tenant {
				keys = append(keys, k)
			}
		}
	}
	return keys
}

// Fresh reports whether nothing at all was invalidated since p was given. A transport that admits a connection verifies,
// adds the connection to those that its OnInvalidate function walks, and then asks Fresh: if not, it verifies again (which the
// cache makes cheap), for the change may have come between the two steps.
func (v *Verifier) Fresh(p Proof) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.epoch == p.epoch
}

// Verify judges a claim: ErrCredentialMissing, ErrCredentialBad and ErrCredentialUnsupported are refusals. Any other error means
// that it was not judged, so that the right credential may have been presented: ErrBusy, ErrSpent, a *model.Error with
// CodeThrottled while a user name waits after wrong passwords, or a failed read. An unknown credential takes the time of a known
// one.
func (v *Verifier) Verify(ctx context.Context, c Claim) (Proof, error) {
	p, err := v.verify(ctx, c)
	v.m.verified.WithLabelValues(outcomeOf(err)).Inc()
	return p, err
}

// Key returns the pre-shared key of an identity and what it proves once the handshake is complete. ErrCredentialBad says that there is none that
// is good now; any other error that it could not be looked up. Nothing is remembered: a handshake is rare, and costs more than a read.
func (v *Verifier) Key(ctx context.Context, identity string) (Proof, []byte, error) {
	return v.keyBy(ctx, identity, func() (KeyRow, error) { return v.cfg.Keys.FindKey(ctx, identity) })
}

// BootstrapKey does the same for the bootstrap key of an identity.
func (v *Verifier) BootstrapKey(ctx context.Context, identity string) (Proof, []byte, error) {
	return v.keyBy(ctx, identity, func() (KeyRow, error) { return v.cfg.Keys.FindBootstrapKey(ctx, identity) })
}

func (v *Verifier) keyBy(ctx context.Context, identity string, find func() (KeyRow, error)) (Proof, []byte, error) {
	p, key, err := v.key(ctx, identity, find)
	v.m.verified.WithLabelValues(outcomeOf(err)).Inc()
	return p, key, err
}

func (v *Verifier) key(ctx context.Context, identity string, find func() (KeyRow, error)) (Proof, []byte, error) {
	if v.cfg.Keys == nil || identity == "" || len(identity) > maxCredentialBytes {
		return Proof{}, nil, ErrCredentialBad
	}
	// The epoch first, so that Fresh notices a change that comes while the row is read.
	epoch := v.epochNow()
	row, err := find()
	if err != nil {
		return Proof{}, nil, fmt.Errorf("auth: reading a pre-shared key: %w", err)
	}
	p, err := v.proveHandshake(ctx, row, epoch)
	return p, row.Key, err
}

// Certificate returns what the certificate with a fingerprint, its SHA-256 in lower-case hex, proves once the handshake is complete. Its errors are
// those of Key.
func (v *Verifier) Certificate(ctx context.Context, fingerprint string) (Proof, error) {
	p, err := v.certificate(ctx, fingerprint)
	v.m.verified.WithLabelValues(outcomeOf(err)).Inc()
	return p, err
}

func (v *Verifier) certificate(ctx context.Context, fingerprint string) (Proof, error) {
	if v.cfg.Certificates == nil {
		return Proof{}, ErrCredentialBad
	}
	epoch := v.epochNow()
	row, err := v.cfg.Certificates.FindCertificate(ctx, fingerprint)
	if err != nil {
		return Proof{}, fmt.Errorf("auth: reading the credential of a certificate: %w", err)
	}
	return v.proveHandshake(ctx, row, epoch)
}

// proveHandshake is what a credential proves that a handshake has shown.
func (v *Verifier) proveHandshake(ctx context.Context, row KeyRow, epoch uint64) (Proof, error) {
	// The handshake has proven the key: what is left is whether it may be used now.
	tenant := v.cfg.Tenants.TokenOf(row.TenantID)
	id, enabled, _ := v.cfg.Tenants.Lookup(tenant)
	if !v.usable(row.CredentialRow) || !enabled || id != row.TenantID {
		return Proof{}, ErrCredentialBad
	}
	if row.Unused && v.cfg.Used != nil {
		if err := v.cfg.Used(ctx, row.ID); err != nil {
			return Proof{}, fmt.Errorf("auth: noting the first use of a device credential: %w", err)
		}
	}
	return Proof{
		CredentialID: row.ID,
		DeviceID:     row.DeviceID,
		Device:       row.Device,
		Tenant:       tenant,
		TenantID:     row.TenantID,
		Expires:      row.ExpiresAt,
		epoch:        epoch,
	}, nil
}

func (v *Verifier) verify(ctx context.Context, c Claim) (Proof, error) {
	if err := c.check(); err != nil {
		return Proof{}, err
	}
	// The time that the answer takes must not distinguish an unknown tenant from a wrong credential.
	tenant, enabled, _ := v.cfg.Tenants.Lookup(c.Tenant)
	if !enabled {
		tenant = 0 // no row has it: the search takes as long as one that finds a row
	}
	// Most devices present what they presented a moment ago: no store and no hash is asked then.
	key := v.keyOf(c)
	if p, ok := v.recall(key, tenant); ok {
		return p, nil
	}
	if c.Type == MQTTBasic {
		return v.verifyPassword(ctx, c, key, tenant)
	}
	return v.verifyID(ctx, c, key, tenant)
}

func (c *Claim) check() error {
	switch {
	case c.Type == "" || c.ID == "":
		return ErrCredentialMissing
	case len(c.ID) > maxCredentialBytes || len(c.Secret) > maxCredentialBytes:
		return ErrCredentialBad
	}
	switch c.Type {
	case AccessToken:
		c.Secret = "" // proves nothing and must not split the cache
	case MQTTBasic:
		if c.Secret == "" {
			return ErrCredentialMissing
		}
	case X509Certificate:
		if !c.Presented {
			return ErrCredentialUnsupported
		}
		c.Secret = ""
	default:
		return ErrCredentialUnsupported
	}
	return nil
}

// verifyID judges a credential whose id is the proof.
func (v *Verifier) verifyID(ctx context.Context, c Claim, key proofKey, tenant int64) (Proof, error) {
	// The epoch first: a change after it keeps this proof out of the cache.
	epoch := v.epochNow()
	row, err := v.find(ctx, c, tenant)
	if err != nil {
		return Proof{}, err
	}
	if !v.usable(row) {
		return Proof{}, ErrCredentialBad
	}
	// The first use is noted before it is accepted.
	if row.Unused && v.cfg.Used != nil {
		if err := v.cfg.Used(ctx, row.ID); err != nil {
			return Proof{}, fmt.Errorf("auth: noting the first use of a device credential: %w", err)
		}
	}
	return v.remember(key, c.Tenant, tenant, row, epoch), nil
}

// verifyPassword judges a user name and a password. A change that comes while the hash runs is seen: the row is read
// again afterwards.
func (v *Verifier) verifyPassword(ctx context.Context, c Claim, key proofKey, tenant int64) (Proof, error) {
	name := attemptKeyOf(c.From, c.Tenant, c.ID)
	// The cheap refusals come before anything that costs.
	if err := v.mayTry(name); err != nil {
		return Proof{}, err
	}
	// An address that has proven the name lately does not draw on the budget of unauthenticated senders.
	if c.Spend != nil && !v.backoff.trusts(name) && !c.Spend() {
		return Proof{}, ErrSpent
	}
	row, err := v.find(ctx, c, tenant)
	if err != nil {
		return Proof{}, err
	}
	if err := v.checkPassword(ctx, c, name, row.PasswordHash); err != nil {
		return Proof{}, err
	}
	// Read the row again: the password may have been changed while the hash ran.
	epoch := v.epochNow()
	again, err := v.find(ctx, c, tenant)
	if err != nil {
		return Proof{}, err
	}
	if again.PasswordHash != row.PasswordHash || !v.usable(again) {
		return Proof{}, ErrCredentialBad
	}
	// Only now is the sender proven.
	v.backoff.succeeded(name)
	return v.remember(key, c.Tenant, tenant, again, epoch), nil
}

// mayTry returns the refusal of a user name that waits after wrong passwords. It depends on nothing but the name and the address,
// so that it reveals nothing about the credential.
func (v *Verifier) mayTry(name attemptKey) error {
	if wait := v.backoff.blocked(name); wait > 0 {
		v.m.throttled.Inc()
		return errThrottled(wait)
	}
	return nil
}

// checkPassword runs the hash. The wait is checked again once the lane is free: many attempts may have queued before
// the first of them failed.
func (v *Verifier) checkPassword(ctx context.Context, c Claim, name attemptKey, encoded string) error {
	// A connection waits for its answer; other senders queue with the API.
	lane := LaneAPI
	if c.Connecting {
		lane = LaneTransport
	}
	ok, err := v.cfg.Hasher.attempt(ctx, lane, func() error { return v.mayTry(name) }, encoded, c.Secret)
	if err != nil {
		return err
	}
	if !ok {
		v.backoff.failed(name)
		return ErrCredentialBad
	}
	return nil
}

// find returns the only row with the id, a zero row when there is none.
func (v *Verifier) find(ctx context.Context, c Claim, tenant int64) (CredentialRow, error) {
	rows, err := v.cfg.Credentials.FindCredentials(ctx, tenant, c.Type, HashSecret(c.ID))
	switch {
	case err != nil:
		return CredentialRow{}, fmt.Errorf("auth: reading a device credential: %w", err)
	case len(rows) == 0 || tenant == 0:
		return CredentialRow{}, nil
	}
	return rows[0], nil
}

func (v *Verifier) usable(r CredentialRow) bool {
	return r.ID != 0 && r.Enabled && (r.ExpiresAt == 0 || model.MicrosOf(v.now()) < r.ExpiresAt)
}

// epochNow is read before a row is, so that remember knows whether the row may have changed since.
func (v *Verifier) epochNow() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.epoch
}

// keyOf is the keyed hash by which a verified claim is remembered.
func (v *Verifier) keyOf(c Claim) proofKey {
	mac := hmac.New(sha256.New, v.secret)
	for _, part := range []string{c.Tenant, c.Type, c.ID, c.Secret} {
		// With lengths, so that no two claims give the same bytes.
		var n [4]byte
		binary.BigEndian.PutUint32(n[:], uint32(len(part)))
		mac.Write(n[:])
		mac.Write([]byte(part))
	}
	return proofKey(mac.Sum(nil))
}

func (v *Verifier) recall(key proofKey, tenant int64) (Proof, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	r, ok := v.known.get(key)
	if !ok {
		return Proof{}, false
	}
	// The tenant may have been made again under the same token.
	now := v.now()
	if !now.Before(r.until) || r.proof.TenantID != tenant || r.proof.Expires != 0 && model.MicrosOf(now) >= r.proof.Expires {
		v.known.remove(key)
		return Proof{}, false
	}
	v.m.recalled.Inc()
	// It was in the cache, so that nothing has invalidated it up to now.
	r.proof.epoch = v.epoch
	return r.proof, true
}

// remember caches the proof unless something was invalidated since the row was read: it may have been this row.
func (v *Verifier) remember(key proofKey, tenant string, tenantID int64, r CredentialRow, epoch uint64) Proof {
	p := Proof{
		CredentialID: r.ID,
		DeviceID:     r.DeviceID,
		Device:       r.Device,
		Tenant:       tenant,
		TenantID:     tenantID,
		Expires:      r.ExpiresAt,
		epoch:        epoch,
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.epoch != epoch {
		return p
	}
	if old, ok := v.byCredential[r.ID]; ok {
		v.known.remove(old) // the password was changed, or this proof is cached again
	}
	// One proof for each credential: an old password must not stay valid beside the new one.
	v.known.put(key, remembered{p, v.now().Add(rememberFor)})
	v.byCredential[r.ID] = key
	v.byDevice[r.DeviceID] = append(v.byDevice[r.DeviceID], r.ID)
	return p
}

// unlink takes an entry that leaves the cache out of the indexes.
func (v *Verifier) unlink(_ proofKey, r remembered) {
	delete(v.byCredential, r.proof.CredentialID)
	left := slices.DeleteFunc(v.byDevice[r.proof.DeviceID], func(id int64) bool { return id == r.proof.CredentialID })
	if len(left) == 0 {
		delete(v.byDevice, r.proof.DeviceID)
		return
	}
	v.byDevice[r.proof.DeviceID] = left
}

// VerdictOf returns the verdict that the log stores for a refusal of Verify. ok is false when err is no refusal: the claim
// could not be judged, and the caller must not accept its message.
func VerdictOf(err error) (v model.Verdict, ok bool) {
	switch {
	case err == nil:
		return model.VerdictOK, true
	case errors.Is(err, ErrCredentialMissing):
		return model.VerdictMissing, true
	case errors.Is(err, ErrCredentialBad):
		return model.VerdictBad, true
	case errors.Is(err, ErrCredentialUnsupported):
		return model.VerdictNotSupported, true
	}
	return model.VerdictBad, false
}

func outcomeOf(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrCredentialMissing):
		return "missing"
	case errors.Is(err, ErrCredentialBad):
		return "refused"
	case errors.Is(err, ErrCredentialUnsupported):
		return "unsupported"
	case errors.Is(err, ErrBusy), errors.Is(err, ErrSpent):
		return "busy"
	case model.CodeOf(err) == model.CodeThrottled:
		return "throttled"
	}
	return "error"
}
