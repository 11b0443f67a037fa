package auth

import (
	"crypto/rsa"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
	"weir/store/sqlite"
)

func newClock() *fixture.Clock {
	return fixture.NewClock(time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC))
}

// operator holds the data directory.
var operator = fixture.Operator()

// weak makes password hashes cheap.
var weak = Params{MemoryKiB: 8, Passes: 1, Lanes: 1}

const password = "correct horse"

var home = netip.MustParseAddr("192.0.2.1")

// tenantsFake stands for govern.
type tenantsFake struct {
	mu   sync.Mutex
	rows map[string]*fakeTenant
}

type fakeTenant struct {
	id        int64
	enabled   bool
	notBefore model.Micros
}

func (f *tenantsFake) Lookup(token string) (id int64, enabled, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r, ok := f.rows[token]; ok {
		return r.id, r.enabled, true
	}
	return 0, false, false
}

func (f *tenantsFake) TokenOf(id int64) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for token, r := range f.rows {
		if r.id == id {
			return token
		}
	}
	return ""
}

func (f *tenantsFake) NotBefore(token string) model.Micros {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r, ok := f.rows[token]; ok {
		return r.notBefore
	}
	return 0
}

func (f *tenantsFake) set(token string, enabled bool, notBefore model.Micros) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows[token].enabled, f.rows[token].notBefore = enabled, notBefore
}

// plainVault seals by saying so: store tests the real one.
type plainVault struct{}

func (plainVault) Seal(name string, plain []byte) ([]byte, error) {
	return append([]byte("sealed:"+name+":"), plain...), nil
}

func (plainVault) Open(name string, sealed []byte) ([]byte, error) {
	plain, ok := strings.CutPrefix(string(sealed), "sealed:"+name+":")
	if !ok {
		return nil, store.ErrSealed
	}
	return []byte(plain), nil
}

// commonKey is made once for all tests: making one takes long.
var commonKey = sync.OnceValues(generateKey)

// house is an Auth with everything around it.
type house struct {
	*Auth
	t       *testing.T
	db      *sqlite.DB
	clock   *fixture.Clock
	tenants *tenantsFake
	deps    Deps
}

func newHouse(t *testing.T) *house { return newHouseWith(t, Config{InstanceID: "test"}) }

func newHouseWith(t *testing.T, cfg Config) *house {
	t.Helper()
	h := &house{t: t, db: fixture.Store(t), clock: newClock(), tenants: &tenantsFake{rows: map[string]*fakeTenant{}}}
	h.deps = Deps{Store: h.db, Writer: store.Direct{Store: h.db, Now: h.clock.Now}, Vault: plainVault{}, Tenants: h.tenants,
		Hasher: NewHasher(weak, nil), Clock: h.clock.Now, GenerateKey: func() (*rsa.PrivateKey, error) { return commonKey() }}
	h.tenant("acme")
	h.tenant("globex")
	h.reopen(cfg)
	return h
}

// reopen starts auth again over the same store.
func (h *house) reopen(cfg Config) {
	h.t.Helper()
	a, err := New(h.t.Context(), cfg, h.deps)
	if err != nil {
		h.t.Fatal(err)
	}
	h.Auth = a
}

// tenant makes a tenant's row and has the fake know it.
func (h *house) tenant(token string) {
	h.t.Helper()
	err := h.db.Write(h.t.Context(), store.Results, func(tx store.Tx) error {
		if _, err := tx.Exec(`INSERT INTO tenant_tiers (created_at, updated_at, token, display_order, color)
			VALUES (0, 0, 'silver', 1, '') ON CONFLICT DO NOTHING`); err != nil {
			return err
		}
		id, err := tx.Insert(`INSERT INTO tenants (created_at, updated_at, token, enabled, not_before, tier_id)
			VALUES (0, 0, ?, 1, 0, (SELECT id FROM tenant_tiers))`, token)
		h.tenants.rows[token] = &fakeTenant{id: id, enabled: true}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// person makes an identity with system roles.
func (h *house) person(email string, systemRoles ...string) {
	h.t.Helper()
	_, err := h.CreateIdentity(h.t.Context(), operator, NewIdentity{Email: email, Password: password, Enabled: true, SystemRoles: systemRoles})
	if err != nil {
		h.t.Fatal(err)
	}
}

// member makes an identity with a membership in acme.
func (h *house) member(email string, roles ...string) {
	h.t.Helper()
	h.person(email)
	h.ok(h.AddMembership(h.t.Context(), operator, email, "acme", roles))
}

// roles lists the roles as a principal sees them.
func (h *house) roles(by *model.Principal) ([]*Role, error) {
	rows, _, err := h.Roles.List(h.t.Context(), by, store.Page{})
	return rows, err
}

func (h *house) ok(_ any, err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) signIn(email string) string {
	h.t.Helper()
	in, err := h.Login(h.t.Context(), email, password, home)
	if err != nil {
		h.t.Fatalf("login of %s: %v", email, err)
	}
	return in.Token
}

func (h *house) enter(email, tenant string) *AuthToken {
	h.t.Helper()
	pair, err := h.SelectTenant(h.t.Context(), h.signIn(email), tenant)
	if err != nil {
		h.t.Fatalf("selectTenant of %s into %s: %v", email, tenant, err)
	}
	return pair
}

// principalOf is the identity-plane caller of an email.
func (h *house) principalOf(email string) *model.Principal {
	h.t.Helper()
	p, err := h.Authenticate(PlaneIdentity, h.signIn(email), "")
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

// accepts reports whether a token passes on a plane, and that a refusal is of the right kind.
func (h *house) accepts(p Plane, token string) bool {
	h.t.Helper()
	_, err := h.Authenticate(p, token, "acme")
	if err != nil && model.CodeOf(err) != model.CodeUnauthenticated {
		h.t.Errorf("refused with %v", err)
	}
	return err == nil
}

// audits returns the operations of the journal, oldest first, as "operation table label by actor".
func (h *house) audits() []string {
	h.t.Helper()
	var all []string
	err := h.db.Read(h.t.Context(), func(tx store.Tx) error {
		events, _, err := store.ListAudit(tx, store.Page{Size: 1000}, store.AuditFilter{})
		for i := range events {
			e := events[len(events)-1-i]
			all = append(all, strings.Join([]string{e.Operation, e.Table, e.Label, "by", e.Actor}, " "))
		}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}
