package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/test/fixture"
	"weir/model"
)

// credentialsFake stands for registry.
type credentialsFake struct {
	mu    sync.Mutex
	rows  map[string]CredentialRow // tenant id / type / hash
	reads int
	fail  error
	found func() // called after a read, outside the lock
}

func rowKey(tenant int64, typ string, id string) string {
	return fmt.Sprintf("%d/%s/%x", tenant, typ, sha256.Sum256([]byte(id)))
}

func (f *credentialsFake) FindCredentials(_ context.Context, tenant int64, typ string, hash [32]byte) ([]CredentialRow, error) {
	f.mu.Lock()
	f.reads++
	row, ok := f.rows[fmt.Sprintf("%d/%s/%x", tenant, typ, hash)]
	fail, found := f.fail, f.found
	f.mu.Unlock()
	if found != nil {
		found()
	}
	if !ok || fail != nil {
		return nil, fail
	}
	return []CredentialRow{row}, nil
}

func (f *credentialsFake) set(tenant int64, typ, id string, r CredentialRow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows[rowKey(tenant, typ, id)] = r
}

func (f *credentialsFake) readCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

type gate struct {
	*Verifier
	t       *testing.T
	rows    *credentialsFake
	clock   *fixture.Clock
	tenants *tenantsFake
	hasher  *Hasher
}

func newGate(t *testing.T) *gate { return newGateOf(t, 0) }

func newGateOf(t *testing.T, remembered int) *gate {
	g := &gate{t: t, rows: &credentialsFake{rows: map[string]CredentialRow{}}, clock: newClock(), hasher: NewHasher(weak, nil),
		tenants: &tenantsFake{rows: map[string]*fakeTenant{"acme": {id: 1, enabled: true}, "globex": {id: 2, enabled: true}}}}
	g.Verifier = NewVerifier(VerifierConfig{Credentials: g.rows, Tenants: g.tenants, Hasher: g.hasher, Clock: g.clock.Now, MaxRemembered: remembered})
	g.rows.set(1, AccessToken, "token-1", CredentialRow{ID: 11, DeviceID: 101, Device: "d1", Enabled: true})
	g.rows.set(1, MQTTBasic, "user-1", CredentialRow{ID: 12, DeviceID: 101, Device: "d1", Enabled: true, PasswordHash: weak.hash("secret-1")})
	g.rows.set(1, X509Certificate, "cafe", CredentialRow{ID: 13, DeviceID: 102, Device: "d2", Enabled: true})
	return g
}

var (
	tokenClaim = Claim{Tenant: "acme", Type: AccessToken, ID: "token-1", Connecting: true}
	basicClaim = Claim{Tenant: "acme", Type: MQTTBasic, ID: "user-1", Secret: "secret-1", Connecting: true}
	certClaim  = Claim{Tenant: "acme", Type: X509Certificate, ID: "cafe", Connecting: true, Presented: true}
)

func (g *gate) want(c Claim, want error) Proof {
	g.t.Helper()
	p, err := g.Verify(g.t.Context(), c)
	if !errors.Is(err, want) || (err == nil) != (want == nil) {
		g.t.Errorf("%s %q: %v, want %v", c.Type, c.ID, err, want)
	}
	if err != nil && p != (Proof{}) {
		g.t.Errorf("a refusal gives the proof %+v", p)
	}
	return p
}

// waits expects the refusal of a user name that waits after wrong passwords, which is no verdict about the credential.
func (g *gate) waits(c Claim) {
	g.t.Helper()
	_, err := g.Verify(g.t.Context(), c)
	if _, verdict := VerdictOf(err); verdict || model.CodeOf(err) != model.CodeThrottled {
		g.t.Errorf("%s %q: %v, want a refusal for now", c.Type, c.ID, err)
	}
}

func change(c Claim, fn func(*Claim)) Claim { fn(&c); return c }

func TestCredentialsOfDevices(t *testing.T) {
	g := newGate(t)
	if p := g.want(tokenClaim, nil); p.CredentialID != 11 || p.DeviceID != 101 || p.Device != "d1" || p.Tenant != "acme" || p.TenantID != 1 || p.Expires != 0 {
		t.Errorf("%+v", p)
	}
	g.want(basicClaim, nil)
	g.want(certClaim, nil)
	for name, c := range map[string]struct {
		claim   Claim
		want    error
		verdict model.Verdict
	}{
		"unknown token":            {change(tokenClaim, func(c *Claim) { c.ID = "token-2" }), ErrCredentialBad, model.VerdictBad},
		"token in another tenant":  {change(tokenClaim, func(c *Claim) { c.Tenant = "globex" }), ErrCredentialBad, model.VerdictBad},
		"token of no tenant":       {change(tokenClaim, func(c *Claim) { c.Tenant = "nowhere" }), ErrCredentialBad, model.VerdictBad},
		"token as a user name":     {change(tokenClaim, func(c *Claim) { c.Type, c.Secret = MQTTBasic, "x" }), ErrCredentialBad, model.VerdictBad},
		"wrong password":           {change(basicClaim, func(c *Claim) { c.Secret = "secret-2" }), ErrCredentialBad, model.VerdictBad},
		"no password":              {change(basicClaim, func(c *Claim) { c.Secret = "" }), ErrCredentialMissing, model.VerdictMissing},
		"user name as a token":     {change(basicClaim, func(c *Claim) { c.Type = AccessToken }), ErrCredentialBad, model.VerdictBad},
		"unknown user":             {change(basicClaim, func(c *Claim) { c.ID = "user-2" }), ErrCredentialBad, model.VerdictBad},
		"no id":                    {change(tokenClaim, func(c *Claim) { c.ID = "" }), ErrCredentialMissing, model.VerdictMissing},
		"no type":                  {change(tokenClaim, func(c *Claim) { c.Type = "" }), ErrCredentialMissing, model.VerdictMissing},
		"unknown type":             {change(tokenClaim, func(c *Claim) { c.Type = "PSK" }), ErrCredentialUnsupported, model.VerdictNotSupported},
		"certificate id in a body": {change(certClaim, func(c *Claim) { c.Presented = false }), ErrCredentialUnsupported, model.VerdictNotSupported},
		"unknown certificate":      {change(certClaim, func(c *Claim) { c.ID = "beef" }), ErrCredentialBad, model.VerdictBad},
		"long id":                  {change(tokenClaim, func(c *Claim) { c.ID = strings.Repeat("x", 5000) }), ErrCredentialBad, model.VerdictBad},
		"long password":            {change(basicClaim, func(c *Claim) { c.Secret = strings.Repeat("x", 5000) }), ErrCredentialBad, model.VerdictBad},
	} {
		t.Run(name, func(t *testing.T) {
			g.t = t
			g.want(c.claim, c.want)
			if v, ok := VerdictOf(c.want); v != c.verdict || !ok {
				t.Errorf("verdict %v, %v", v, ok)
			}
		})
	}
	if v, ok := VerdictOf(nil); v != model.VerdictOK || !ok {
		t.Errorf("verdict %v, %v", v, ok)
	}
	if _, ok := VerdictOf(ErrBusy); ok {
		t.Error("busy is a verdict about the credential")
	}
}

func TestDisabledAndExpiredCredentialsAreRefused(t *testing.T) {
	g := newGate(t)
	end := g.clock.Now().Add(time.Minute)
	g.rows.set(1, AccessToken, "token-1", CredentialRow{ID: 11, DeviceID: 101, Enabled: true, ExpiresAt: model.MicrosOf(end)})
	if p := g.want(tokenClaim, nil); p.Expires != model.MicrosOf(end) {
		t.Errorf("%+v", p)
	}
	g.clock.Step(time.Minute) // remembered, and yet
	g.want(tokenClaim, ErrCredentialBad)
	g.rows.set(1, MQTTBasic, "user-1", CredentialRow{ID: 12, DeviceID: 101, PasswordHash: weak.hash("secret-1")})
	g.want(basicClaim, ErrCredentialBad)
	g.tenants.set("acme", false, 0)
	g.want(certClaim, ErrCredentialBad)
}

func TestAVerifiedCredentialIsRememberedForTenMinutes(t *testing.T) {
	g := newGate(t)
	for _, c := range []Claim{tokenClaim, basicClaim, certClaim} {
		g.want(c, nil)
		reads := g.rows.readCount()
		g.clock.Step(rememberFor - time.Second)
		g.want(c, nil)
		if g.rows.readCount() != reads {
			t.Errorf("%s was read again", c.Type)
		}
		g.clock.Step(time.Second)
		g.want(c, nil)
		if g.rows.readCount() == reads {
			t.Errorf("%s is remembered for too long", c.Type)
		}
	}
	g.want(change(basicClaim, func(c *Claim) { c.Secret = "secret-2" }), ErrCredentialBad)
	g.want(change(tokenClaim, func(c *Claim) { c.Secret = "whatever" }), nil)
	g.tenants.set("acme", false, 0)
	g.want(tokenClaim, ErrCredentialBad)
}

func TestAChangeInvalidatesAtOnceAndNotifiesTheTransports(t *testing.T) {
	for name, f := range map[string]Invalidation{"credential": {CredentialID: 11}, "device": {DeviceID: 101}, "tenant": {Tenant: "acme"}} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t)
			var told []Invalidation
			g.OnInvalidate(func(f Invalidation) { told = append(told, f) })
			p := g.want(tokenClaim, nil)
			if !f.Covers(p) || (Invalidation{CredentialID: 99, DeviceID: 98, Tenant: "x"}).Covers(p) || (Invalidation{}).Covers(Proof{}) {
				t.Error("Covers")
			}
			g.rows.set(1, AccessToken, "token-1", CredentialRow{ID: 11, DeviceID: 101})
			g.want(tokenClaim, nil)
			g.Invalidate(Invalidation{CredentialID: 99})
			g.want(tokenClaim, nil)
			g.Invalidate(f)
			g.want(tokenClaim, ErrCredentialBad)
			if len(told) != 2 || told[1] != f {
				t.Errorf("told %+v", told)
			}
		})
	}
}

func TestAChangeWhileTheHashRunsIsSeen(t *testing.T) {
	g := newGate(t)
	first := true
	g.rows.found = func() {
		if first { // between the first read and the hash
			first = false
			g.rows.set(1, MQTTBasic, "user-1", CredentialRow{ID: 12, DeviceID: 101, PasswordHash: weak.hash("secret-1")})
			g.Invalidate(Invalidation{CredentialID: 12})
		}
	}
	g.want(basicClaim, ErrCredentialBad)
}

func TestAChangeAfterTheReadIsNotRemembered(t *testing.T) {
	g := newGate(t)
	g.rows.found = func() { g.Invalidate(Invalidation{CredentialID: 11}) }
	p := g.want(tokenClaim, nil) // it was good when it was read
	if g.Fresh(p) {
		t.Error("a door is not told to ask again")
	}
	g.rows.found = nil
	g.rows.set(1, AccessToken, "token-1", CredentialRow{ID: 11, DeviceID: 101})
	g.want(tokenClaim, ErrCredentialBad)
	if p := g.want(certClaim, nil); !g.Fresh(p) {
		t.Error("nothing was forgotten and yet the proof is not fresh")
	}
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	g := newGateOf(t, 3)
	for i := range 10 {
		id := fmt.Sprint("many-", i)
		g.rows.set(1, AccessToken, id, CredentialRow{ID: int64(1000 + i), DeviceID: 101, Enabled: true})
		g.want(change(tokenClaim, func(c *Claim) { c.ID = id }), nil)
	}
	if g.known.len() != 3 || len(g.byCredential) != 3 || len(g.byDevice[101]) != 3 {
		t.Errorf("%d entries, %d by credential, %d by device", g.known.len(), len(g.byCredential), len(g.byDevice[101]))
	}
	g.Invalidate(Invalidation{DeviceID: 101})
	if g.known.len() != 0 || len(g.byCredential) != 0 || len(g.byDevice) != 0 {
		t.Error("the indexes keep what the cache forgot")
	}
}

func TestFailedPasswordsOfAUserName(t *testing.T) {
	g := newGate(t)
	wrong := change(basicClaim, func(c *Claim) { c.Secret = "wrong" })
	for range 11 {
		g.want(wrong, ErrCredentialBad)
	}
	g.waits(basicClaim) // inside the wait the right password is not looked at either
	g.waits(wrong)
	g.want(change(basicClaim, func(c *Claim) { c.From = netip.MustParseAddr("192.0.2.9") }), nil) // it is, from another address
	g.rows.set(2, MQTTBasic, "user-1", CredentialRow{ID: 21, DeviceID: 201, Enabled: true, PasswordHash: weak.hash("secret-1")})
	g.want(change(basicClaim, func(c *Claim) { c.Tenant = "globex" }), nil)
	g.want(tokenClaim, nil)
	g.Invalidate(Invalidation{CredentialID: 12})
	g.waits(basicClaim)
	g.clock.Step(time.Second)
	g.want(basicClaim, nil)
	for range 10 {
		g.want(wrong, ErrCredentialBad)
	}
	g.Invalidate(Invalidation{CredentialID: 12})
	g.want(basicClaim, nil) // the success had cleared the count: ten are free again
	unknown := change(tokenClaim, func(c *Claim) { c.ID = "nothing" })
	for range 100 {
		g.want(unknown, ErrCredentialBad)
	}
	g.want(tokenClaim, nil)
}

// Strangers at many addresses do not lock out a device that has proven itself.
func TestAUserNameWaitsForAllAddressesOnlyAfterManyFailures(t *testing.T) {
	g := newGate(t)
	wrong := change(basicClaim, func(c *Claim) { c.Secret = "wrong" })
	from := func(c Claim, i int) Claim { c.From = netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}); return c }
	g.want(from(basicClaim, 200), nil)
	for i := range 100 {
		g.want(from(wrong, i), ErrCredentialBad)
	}
	g.Invalidate(Invalidation{CredentialID: 12}) // the proof is not remembered: the password is checked again
	g.waits(from(basicClaim, 201))
	g.want(from(basicClaim, 200), nil)
}

func TestAHashIsAllowedBeforeItRuns(t *testing.T) {
	g := newGate(t)
	asked := 0
	spend := func(allow bool) func(*Claim) {
		return func(c *Claim) { c.Spend = func() bool { asked++; return allow } }
	}
	_, err := g.Verify(t.Context(), change(basicClaim, spend(false)))
	if _, verdict := VerdictOf(err); !errors.Is(err, ErrSpent) || verdict {
		t.Errorf("%v", err)
	}
	g.want(change(basicClaim, spend(true)), nil)
	if asked != 2 {
		t.Errorf("asked %d times, want 2", asked)
	}
	g.want(change(basicClaim, spend(false)), nil) // remembered: no hash
	g.want(change(tokenClaim, spend(false)), nil)
	if asked != 2 {
		t.Errorf("asked %d times, though no hash ran", asked-2)
	}
}

func TestAnUnknownUserCostsAHash(t *testing.T) {
	g := newGate(t)
	release, err := g.hasher.hold(t.Context(), LaneTransport)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	other, err := g.hasher.hold(t.Context(), LaneAPI)
	if err != nil {
		t.Fatal(err)
	}
	defer other()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]Claim{"unknown user": change(basicClaim, func(c *Claim) { c.ID = "user-2" }),
		"known user": basicClaim, "unknown tenant": change(basicClaim, func(c *Claim) { c.Tenant = "nowhere" })} {
		if _, err := g.Verify(ctx, c); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: answered without a place for a hash: %v", name, err)
		}
	}
}

func TestAStoreThatFailsIsNoVerdict(t *testing.T) {
	g := newGate(t)
	g.rows.fail = errors.New("disk on fire")
	for _, c := range []Claim{tokenClaim, basicClaim, certClaim} {
		_, err := g.Verify(t.Context(), c)
		if _, ok := VerdictOf(err); ok || err == nil {
			t.Errorf("%s: %v", c.Type, err)
		}
	}
}

func TestVerifyingAndInvalidatingAtOnce(t *testing.T) {
	g := newGateOf(t, 4)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 200 {
				if i == 0 {
					g.Invalidate([]Invalidation{{CredentialID: 11}, {DeviceID: 102}, {Tenant: "acme"}}[n%3])
					continue
				}
				p, err := g.Verify(t.Context(), []Claim{tokenClaim, certClaim}[n%2])
				if err != nil {
					t.Error(err)
				}
				g.Fresh(p)
			}
		})
	}
	wg.Wait()
}

func BenchmarkVerifyRemembered(b *testing.B) {
	rows := &credentialsFake{rows: map[string]CredentialRow{}}
	rows.set(1, AccessToken, "token-1", CredentialRow{ID: 11, DeviceID: 101, Device: "d1", Enabled: true})
	v := NewVerifier(VerifierConfig{Credentials: rows, Hasher: NewHasher(weak, nil),
		Tenants: &tenantsFake{rows: map[string]*fakeTenant{"acme": {id: 1, enabled: true}}}})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Verify(b.Context(), tokenClaim); err != nil {
			b.Fatal(err)
		}
	}
}

// certificateRows are credentials of certificates by fingerprint.
type certificateRows map[string]KeyRow

func (r certificateRows) FindCertificate(_ context.Context, fingerprint string) (KeyRow, error) {
	row, ok := r[fingerprint]
	if ok && row.ID < 0 {
		return KeyRow{}, errors.New("the disk does not answer")
	}
	return row, nil
}

// TestACertificateNamesNoTenant: its credential says which one; what is disabled, has expired or is unknown is refused alike.
func TestACertificateNamesNoTenant(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	good := CredentialRow{ID: 13, DeviceID: 102, Device: "d2", Enabled: true, ExpiresAt: model.MicrosOf(g.clock.Now()) + 1}
	late := good
	late.ExpiresAt -= 1
	disabled := good
	disabled.Enabled = false
	v := NewVerifier(VerifierConfig{Credentials: g.rows, Tenants: g.tenants, Hasher: g.hasher, Clock: g.clock.Now, Certificates: certificateRows{
		"cafe": {CredentialRow: good, TenantID: 1}, "beef": {CredentialRow: late, TenantID: 1}, "dead": {CredentialRow: disabled, TenantID: 1},
		"f00d": {CredentialRow: good, TenantID: 3}, "0bad": {CredentialRow: CredentialRow{ID: -1}}}})
	if p, err := v.Certificate(t.Context(), "cafe"); err != nil || p.Tenant != "acme" || p.TenantID != 1 || p.Device != "d2" || p.CredentialID != 13 || p.Expires != good.ExpiresAt {
		t.Errorf("%+v %v", p, err)
	}
	for _, fingerprint := range []string{"beef", "dead", "f00d", "face"} {
		if p, err := v.Certificate(t.Context(), fingerprint); !errors.Is(err, ErrCredentialBad) || p != (Proof{}) {
			t.Errorf("%s: %+v %v", fingerprint, p, err)
		}
	}
	if _, err := v.Certificate(t.Context(), "0bad"); err == nil || errors.Is(err, ErrCredentialBad) {
		t.Errorf("a fault of the store: %v", err)
	}
	if _, err := g.Certificate(t.Context(), "cafe"); !errors.Is(err, ErrCredentialBad) {
		t.Errorf("without certificates: %v", err)
	}
}
