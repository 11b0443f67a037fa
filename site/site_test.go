package site

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"weir/auth"
	"weir/connectors"
	"weir/dashboard"
	"weir/govern"
	"weir/internal/test/domain"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/notify"
	"weir/provision"
	"weir/registry"
	"weir/store"
	"weir/store/entity"
	"weir/store/sqlite"
)

var operator = &model.Principal{Kind: model.LocalOperator, Subject: "local"}

// world is an instance without a log, with collaborators that tests can look at.
type world struct {
	testing.TB
	*Site
	db         *sqlite.DB
	govern     *govern.Govern
	auth       *auth.Auth
	registry   *registry.Registry
	connectors *connectors.Connectors
	dashboards *dashboard.Dashboards
	notify     *notify.Notify
	hasher     *countingHasher
	dir        string

	mu        sync.Mutex
	forgotten int
}

// countingHasher counts how often a password was hashed or checked.
type countingHasher struct {
	*auth.Hasher
	mu     sync.Mutex
	hashes int
}

func (h *countingHasher) Hash(ctx context.Context, p string) (string, error) {
	h.count()
	return h.Hasher.Hash(ctx, p)
}

func (h *countingHasher) Verify(ctx context.Context, l auth.Lane, encoded, p string) (bool, bool, error) {
	h.count()
	return h.Hasher.Verify(ctx, l, encoded, p)
}

func (h *countingHasher) count() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hashes++
}

// taken returns how many hashes there were since it was asked last.
func (h *countingHasher) taken() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.hashes
	h.hashes = 0
	return n
}

// firstDay is the database of an instance that was started once: making its signing key takes longer than most tests.
var firstDay struct {
	once sync.Once
	db   []byte
}

func newWorld(t testing.TB) *world {
	t.Helper()
	firstDay.once.Do(func() {
		dir := t.TempDir()
		db := fixture.StoreIn(t, dir)
		openWorld(t, db, dir)
		if err := db.Close(); err != nil { // nothing is left in the log beside it
			t.Fatal(err)
		}
		var err error
		if firstDay.db, err = os.ReadFile(filepath.Join(dir, "weir.db")); err != nil {
			t.Fatal(err)
		}
	})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "weir.db"), firstDay.db, 0o600); err != nil {
		t.Fatal(err)
	}
	return openWorld(t, fixture.StoreIn(t, dir), dir)
}

func openWorld(t testing.TB, db *sqlite.DB, dir string) *world {
	t.Helper()
	w := &world{TB: t, db: db, dir: dir, hasher: &countingHasher{}}
	writer := store.Direct{Store: db}
	d := domain.New(t, domain.Config{Store: db, Writer: writer, Hasher: w.hasher, Invalidate: func(int64, int64) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.forgotten++
	}})
	w.hasher.Hasher = d.Hasher
	w.govern, w.auth, w.registry = d.Govern, d.Auth, d.Registry
	provision.New(provision.ProfileSettings{}, provision.Deps{Registry: d.Registry, Store: db, Writer: writer, Hasher: w.hasher})
	w.connectors = connectors.New(connectors.ConnectorSettings{}, connectors.Deps{Store: db, Writer: writer, Vault: d.Vault, Tenants: d.Govern})
	w.notify = notify.New(notify.Settings{}, notify.LimitSettings{}, notify.Deps{Store: db, Writer: writer, Vault: d.Vault, Tenants: d.Govern})
	w.dashboards = dashboard.New(dashboard.DashboardSettings{}, dashboard.Deps{Base: entity.Base{Store: db, Writer: writer}})
	if err := w.notify.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Site = New(Parts{Store: db, Writer: writer, Govern: w.govern, Auth: w.auth, Registry: w.registry, Hasher: w.hasher, Vault: d.Vault,
		Catalog: entity.Union(d.Govern.Kinds, d.Auth.Kinds, d.Registry.Kinds, d.Registry.Keyed, w.connectors.Kinds, w.notify.Kinds, w.dashboards.Kinds), Connectors: w.connectors.Tokens})
	return w
}

// by is the operator within a tenant.
func (w *world) by(tenant string) *model.Principal {
	by := *operator
	id, _, _ := w.govern.Lookup(tenant)
	by.Tenant, by.TenantID = tenant, id
	return &by
}

// files writes files and returns the path of the first.
func (w *world) files(named map[string]string) {
	w.Helper()
	for name, text := range named {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			w.Fatal(err)
		}
	}
}

// read reads a site file of the given text; variables stand for secrets.
func (w *world) read(text string, env ...string) *Document {
	w.Helper()
	w.files(map[string]string{"site.yaml": text})
	d, _, err := Read(Source{LookupEnv: lookup(env)}, filepath.Join(w.dir, "site.yaml"))
	if err != nil {
		w.Fatal(err)
	}
	return d
}

func lookup(env []string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, kv := range env {
			if k, v, _ := strings.Cut(kv, "="); k == name {
				return v, true
			}
		}
		return "", false
	}
}

func (w *world) plan(d *Document, o Options) *Plan {
	w.Helper()
	p, err := w.Plan(w.Context(), operator, d, o)
	if err != nil {
		w.Fatal(err)
	}
	return p
}

func (w *world) apply(d *Document, o Options) *Plan {
	w.Helper()
	p, err := w.Apply(w.Context(), operator, d, o)
	if err != nil {
		w.Fatal(err)
	}
	return p
}

func lines(p *Plan) string {
	var b strings.Builder
	for i := range p.Changes {
		b.WriteString(p.Changes[i].String() + "\n")
	}
	return b.String()
}

func (w *world) wantPlan(d *Document, o Options, want string) {
	w.Helper()
	if got := lines(w.plan(d, o)); got != want {
		w.Errorf("the plan is\n%s\nwant\n%s", got, want)
	}
}

func (w *world) export() *Document {
	w.Helper()
	d, err := w.Export(w.Context(), operator, "")
	if err != nil {
		w.Fatal(err)
	}
	return w.read(d.YAML())
}

// dump is every row that an apply could change.
func (w *world) dump() string {
	w.Helper()
	return fixture.Dump(w, w.db, "meta", "control", "secrets", "audit_events", "tenant_tiers", "tenants", "roles", "identities", "identity_roles",
		"memberships", "membership_roles", "device_profiles", "device_profile_versions", "metric_definitions", "detection_rules", "device_types",
		"devices", "device_counts", "device_credentials")
}

const plantFile = `
version: 1
tiers:
  - token: night
    name: Night shift
    config: {shedPriority: 20}
roles:
  - token: viewer-plus
    scope: tenant
    name: Sees more
    authorities: ["device:read", "location:read"]
identities:
  - email: Ada@Example.org
    firstName: Ada
    password_env: ADA
    systemRoles: [operator]
    memberships:
      - {tenant: acme, roles: [viewer-plus, tenant-admin]}
tenants:
  - token: acme
    name: Acme Inc.
    tierToken: night
    ingestBurst: 4000
    config: {site: hall 7, lines: [1, 2]}
    deviceProfiles:
      - token: boiler
        name: Boiler
        location: {expectedAccuracyMeters: 2.5}
        metricDefinitions:
          - {token: boiler-temp, metricKey: temp, dataType: DOUBLE, unit: Cel, minValue: -40, maxValue: 400}
          - {token: boiler-mode, metricKey: mode, dataType: STRING, enum: ["off", eco, full]}
        detectionRules:
          - token: too-hot
            name: Too hot
            definition:
              name: Too hot
              type: threshold
              severity: major
              when: {metric: temp, op: gt, threshold: 80}
    deviceTypes:
      - {token: boiler-type, name: Boiler, profileToken: boiler, manufacturer: Acme}
    devices:
      - token: boiler-1
        deviceTypeToken: boiler-type
        externalId: "0012"
        credentials:
          - {token: boiler-1-key, credentialType: ACCESS_TOKEN, credentialId_env: KEY}
          - {token: boiler-1-user, credentialType: MQTT_BASIC, credentialId: boiler1, credentialValue_env: PASSWORD, expiresAt: "2031-01-01T00:00:00Z"}
      - token: boiler-2
        deviceTypeToken: boiler-type
`

var plantEnv = []string{"ADA=correct horse", "KEY=s3cret-token", "PASSWORD=tr0ub4dor"}

func TestAFileMakesAnEmptyInstanceWhatItDeclares(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.read(plantFile, plantEnv...)
	before := w.dump()
	const want = `+ tenant tier night
+ role viewer-plus
+ tenant acme
+ device profile acme/boiler
+ metric definition acme/boiler-temp
+ metric definition acme/boiler-mode
+ detection rule acme/too-hot
+ device type acme/boiler-type
+ device acme/boiler-1
+ device acme/boiler-2
+ device credential acme/boiler-1-key
+ device credential acme/boiler-1-user
^ publish acme/boiler v1
+ identity ada@example.org
+ membership ada@example.org in acme
`
	w.wantPlan(d, Options{}, want)
	if after := w.dump(); after != before {
		t.Error("the plan left something behind")
	}
	if w.govern.Known("acme") {
		t.Error("the plan left a tenant in memory")
	}
	p := w.apply(d, Options{})
	if got := lines(p); got != want || !p.Applied {
		t.Errorf("applied\n%s", got)
	}
	if !w.govern.Known("acme") || w.govern.Limits("acme").IngestBurst == nil || *w.govern.Limits("acme").IngestBurst != 4000 {
		t.Error("the tenant is not in force")
	}
	if _, err := w.auth.Login(t.Context(), "ada@example.org", "correct horse", netip.MustParseAddr("192.0.2.1")); err != nil {
		t.Error(err)
	}
	w.wantPlan(d, Options{}, "")
	w.wantPlan(d, Options{Prune: true}, "")
	w.wantPlan(w.export(), Options{}, "")
	w.wantPlan(w.export(), Options{Prune: true}, "")
}
