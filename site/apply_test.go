package site

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"weir/model"
	"weir/store"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("25") // each makes two instances; more are asked for by the flag
	}
	os.Exit(m.Run())
}

func TestAbsentKeepsNullClearsAValueSets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(w.read(plantFile, plantEnv...), Options{})
	w.wantPlan(w.read(`
version: 1
identities:
  - {email: ada@example.org, firstName: null, lastName: Lovelace, systemRoles: [], memberships: [{tenant: acme, enabled: false, roles: []}]}
tenants:
  - token: acme
    name: Acme
    ingestBurst: null
    enabled: false
    deviceProfiles:
      - token: boiler
        location: null
        metricDefinitions: [{token: boiler-temp, maxValue: 500, unit: null}]
    devices:
      - {token: boiler-2, name: Second, externalId: ""}
`), Options{}, `~ tenant acme: name "Acme Inc." → "Acme", ingestBurst 4000 → none, enabled true → false
~ device profile acme/boiler: location "{\"expectedAccuracyMeters\":2.5}" → none
~ metric definition acme/boiler-temp: unit "Cel" → none, maxValue 400 → 500
~ device acme/boiler-2: name none → "Second"
^ publish acme/boiler v2
~ identity ada@example.org: firstName "Ada" → none, lastName none → "Lovelace", systemRoles ["operator"] → []
~ membership ada@example.org in acme: enabled true → false, roles ["tenant-admin","viewer-plus"] → []
`)
}

func TestWhatMeansTheSameIsNoChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(w.read(plantFile, plantEnv...), Options{})
	w.wantPlan(w.read(`
version: 1
roles: [{token: viewer-plus, authorities: ["location:read", "device:read", "device:read"]}]
tenants:
  - token: acme
    ingestBurst: 4000
    config: '{ "lines": [1.0, 2e0], "site": "hall 7" }'
    deviceProfiles:
      - token: boiler
        metricDefinitions: [{token: boiler-temp, minValue: -40.0, maxValue: 4e2}]
        detectionRules:
          - token: too-hot
            definition: {when: {threshold: 80.0, op: gt, metric: temp}, severity: major, type: threshold, name: Too hot}
    devices:
      - token: boiler-1
        credentials: [{token: boiler-1-user, expiresAt: "2031-01-01T01:00:00+01:00"}]
`), Options{}, "")
}

func TestNothingIsDeletedUnlessThatIsAskedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(w.read(plantFile, plantEnv...), Options{})
	less := w.read(`
version: 1
tiers: []
identities: [{email: ada@example.org, memberships: []}]
tenants:
  - token: acme
    tierToken: silver
    deviceProfiles: [{token: boiler, metricDefinitions: [{token: boiler-temp}]}]
    deviceTypes: []
    devices: []
`)
	const changes = "~ tenant acme: tierToken \"night\" → \"silver\"\n"
	w.wantPlan(less, Options{}, changes)
	w.wantPlan(less, Options{Prune: true}, changes+`- device acme/boiler-1
- device acme/boiler-2
- metric definition acme/boiler-mode
^ publish acme/boiler v2
- device type acme/boiler-type
- membership ada@example.org in acme
- tenant tier night
`)
	w.apply(less, Options{Prune: true})
	w.wantPlan(less, Options{Prune: true}, "")
	if n := w.count("device_credentials"); n != 0 {
		t.Errorf("%d credentials are left", n)
	}
	if n := w.count("detection_rules"); n != 1 {
		t.Errorf("the profile has no list of rules, and yet %d are left", n)
	}
	if n := w.count("roles"); n != 4 {
		t.Errorf("the file has no list of roles, and yet %d are left", n)
	}
}

// What must be unique moves from what goes to what comes in one apply.
func TestWhatIsDeletedMakesRoomForWhatIsMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := func(device, metric string) *Document {
		return w.read(fmt.Sprintf(`
version: 1
tenants:
  - token: acme
    deviceProfiles: [{token: p, metricDefinitions: [{token: %s, metricKey: temp, dataType: DOUBLE}]}]
    deviceTypes: [{token: t}]
    devices:
      - {token: %s, deviceTypeToken: t, externalId: SN1, credentials: [{token: %s-key, credentialType: ACCESS_TOKEN, credentialId_env: KEY}]}
`, metric, device, device), "KEY=one")
	}
	w.apply(file("a", "m"), Options{})
	w.apply(file("b", "n"), Options{Prune: true})
	w.wantPlan(file("b", "n"), Options{Prune: true}, "")
}

func (w *world) count(table string) (n int) {
	w.Helper()
	if err := w.db.Read(w.Context(), func(tx store.Tx) error { return tx.QueryRow("SELECT count(*) FROM " + table).Scan(&n) }); err != nil {
		w.Fatal(err)
	}
	return n
}

func TestAFileThatFailsInTheMiddleChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(w.read(plantFile, plantEnv...), Options{})
	before, forgotten := w.dump(), w.forgotten
	for name, c := range map[string]struct{ text, want string }{
		"the last device has an external id that is taken": {`
tenants:
  - token: new-tenant
    deviceTypes: [{token: t}]
    devices: [{token: d, deviceTypeToken: t}]
  - token: acme
    enabled: false
    devices:
      - {token: boiler-2, externalId: "77"}
      - token: boiler-1
        deviceTypeToken: other
        credentials: [{token: boiler-1-key, enabled: false}]
      - {token: boiler-3, deviceTypeToken: boiler-type, externalId: "77"}
    deviceTypes: [{token: other}, {token: boiler-type}]
`, `site.yaml:13:57: tenants[1].devices[2].externalId: conflict: externalId of a device must be unique, "77" is in use`},
		"a rule does not compile": {`
tenants:
  - token: acme
    deviceProfiles:
      - token: boiler
        detectionRules:
          - token: too-hot
            definition: {name: n, type: threshold, when: {metric: temp, op: much, threshold: 1}}
`, `site.yaml:8:13: tenants[0].deviceProfiles[0].detectionRules[0].definition: detectionRules: "too-hot": when.op: "much" is not one of gt, ge, lt, le, eq, ne`},
		"a person gets a role of a tenant": {`
identities:
  - {email: bob@example.org, password_env: PASSWORD}
  - {email: ada@example.org, systemRoles: [tenant-admin]}
`, `site.yaml:4:30: identities[1].systemRoles: roleTokens: "tenant-admin" is no role of scope system`},
		"a credential is new and its secret is not given": {`
tenants:
  - token: acme
    devices:
      - token: boiler-2
        credentials: [{token: boiler-2-key, credentialType: ACCESS_TOKEN}]
`, `site.yaml:6:24: tenants[0].devices[0].credentials[0]: credentialId: is required`},
		"a reference is to nothing": {`
tenants:
  - token: acme
    devices: [{token: boiler-2, deviceTypeToken: none}]
`, `site.yaml:4:33: tenants[0].devices[0].deviceTypeToken: "none" does not exist`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.Apply(t.Context(), operator, w.read("version: 1"+c.text, plantEnv...), Options{})
			got := fmt.Sprint(err)
			if got = strings.TrimPrefix(got, w.dir+"/"); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if model.CodeOf(err) == "" {
				t.Error("it is no refusal")
			}
			if w.dump() != before {
				t.Error("something was changed")
			}
			if _, enabled, _ := w.govern.Lookup("acme"); !enabled || w.govern.Known("new-tenant") {
				t.Error("a tenant in memory was changed")
			}
			if w.forgotten != forgotten {
				t.Error("credentials were forgotten")
			}
		})
	}
	if _, err := w.auth.Login(t.Context(), "ada@example.org", "correct horse", netip.MustParseAddr("192.0.2.1")); err != nil {
		t.Error(err)
	}
}

// The plan is refused where the apply would be.
func TestAPlanSaysWhatWouldBeRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.read("version: 1\ntenants: [{token: acme, tierToken: none}]")
	_, planned := w.Plan(t.Context(), operator, d, Options{})
	_, applied := w.Apply(t.Context(), operator, d, Options{})
	if planned == nil || fmt.Sprint(planned) != fmt.Sprint(applied) {
		t.Errorf("planned %v, applied %v", planned, applied)
	}
}

func TestSecretsAreComparedAndNotHashedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(w.read(plantFile, plantEnv...), Options{})
	if n := w.hasher.taken(); n != 2 {
		t.Errorf("%d hashes for two new passwords", n)
	}
	w.wantPlan(w.read(plantFile, plantEnv...), Options{}, "")
	if n := w.hasher.taken(); n != 0 {
		t.Errorf("%d hashes for passwords that an apply has seen", n)
	}
	w.wantPlan(w.read(plantFile, "ADA=another horse", "KEY=another-token", "PASSWORD=another one"), Options{}, `~ device credential acme/boiler-1-key: credentialId (changed)
~ device credential acme/boiler-1-user: credentialValue (changed)
~ identity ada@example.org: password (changed)
`)
	w.hasher.taken()
	if _, err := w.auth.SetPassword(t.Context(), operator, "ada@example.org", "by hand, by hand"); err != nil {
		t.Fatal(err)
	}
	w.wantPlan(w.read(plantFile, plantEnv...), Options{}, "~ identity ada@example.org: password (changed)\n")
	if _, err := w.auth.SetPassword(t.Context(), operator, "ada@example.org", "correct horse"); err != nil {
		t.Fatal(err)
	}
	w.hasher.taken()
	for _, want := range []int{1, 0} { // the mark is of another hash; the next apply has one of its own
		w.apply(w.read(plantFile, plantEnv...), Options{})
		if n := w.hasher.taken(); n != want {
			t.Errorf("%d hashes, want %d", n, want)
		}
	}
}

// A password that somebody changes between the comparison and the transaction is compared again.
func TestAPasswordThatChangesMeanwhileIsComparedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.read(plantFile, plantEnv...)
	w.apply(d, Options{})
	meddled := 0
	w.Site.parts.Writer = meddling{store.Direct{Store: w.db}, func() {
		if meddled++; meddled == 1 {
			if _, err := w.auth.SetPassword(t.Context(), operator, "ada@example.org", "somebody else's"); err != nil {
				t.Error(err)
			}
		}
	}}
	if got := lines(w.apply(d, Options{})); got != "~ identity ada@example.org: password (changed)\n" || meddled != 2 {
		t.Errorf("after %d tries: %s", meddled, got)
	}
	if _, err := w.auth.Login(t.Context(), "ada@example.org", "correct horse", netip.MustParseAddr("192.0.2.1")); err != nil {
		t.Error(err)
	}
}

// meddling calls a function before each change.
type meddling struct {
	store.Writer
	first func()
}

func (m meddling) Mutate(ctx context.Context, by *model.Principal, fn func(*store.Change) error) error {
	m.first()
	return m.Writer.Mutate(ctx, by, fn)
}

func TestTwoAppliesAtOnceEndAsOneOfThemAndOtherWritersGoOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	docs := []*Document{w.read(fleetFile("A", 300)), w.read(fleetFile("B", 300))}
	var wg sync.WaitGroup
	for _, d := range docs {
		for range 2 {
			copied := *d
			wg.Go(func() {
				if _, err := w.Apply(t.Context(), operator, &copied, Options{}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Go(func() {
		for i := range 20 {
			if _, err := w.govern.Tenants.Create(t.Context(), operator, store.Patch{"token": fmt.Sprintf("other-%d", i)}); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	a, b := w.plan(docs[0], Options{}), w.plan(docs[1], Options{})
	if (len(a.Changes) == 0) == (len(b.Changes) == 0) || len(a.Changes)+len(b.Changes) != 300 {
		t.Errorf("%d and %d changes are left", len(a.Changes), len(b.Changes))
	}
	if n := w.count("devices"); n != 300 {
		t.Errorf("%d devices", n)
	}
	if n := w.count("tenants"); n != 21 {
		t.Errorf("%d tenants", n)
	}
}

// fleetFile declares devices with a name.
func fleetFile(name string, n int) string {
	var b strings.Builder
	b.WriteString("version: 1\ntenants:\n  - token: acme\n    deviceTypes: [{token: t}]\n    devices:\n")
	for i := range n {
		fmt.Fprintf(&b, "      - {token: d%d, deviceTypeToken: t, name: %s}\n", i, name)
	}
	return b.String()
}

func TestAnApplyThatExpectsAPlanRefusesOtherChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.read(fleetFile("A", 3))
	expected := w.plan(d, Options{}).Digest
	if _, err := w.govern.Tenants.Create(t.Context(), operator, store.Patch{"token": "acme"}); err != nil {
		t.Fatal(err)
	}
	_, err := w.Apply(t.Context(), operator, d, Options{Expect: expected})
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Reason != model.ReasonStaleWrite {
		t.Fatalf("%v", err)
	}
	if n := w.count("devices"); n != 0 {
		t.Errorf("%d devices", n)
	}
	w.apply(d, Options{Expect: w.plan(d, Options{}).Digest})
}

// All view changes of an apply are one control sequence, so that resolution sees them at one place of the log.
func TestAnApplyHasOnePlaceInTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(w.read(plantFile, plantEnv...), Options{})
	if n := w.count("(SELECT DISTINCT sequence FROM control)"); n != 1 {
		t.Errorf("%d control sequences", n)
	}
	w.apply(w.read(plantFile, plantEnv...), Options{})
	if n := w.count("(SELECT DISTINCT sequence FROM control)"); n != 1 {
		t.Errorf("an apply without changes has a place in the log")
	}
}

// The journal names who applied and what was changed, entity by entity.
func TestTheJournalHasEveryChangeOfAnApply(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(w.read(plantFile, plantEnv...), Options{})
	for _, table := range []string{"tenant_tiers", "roles", "tenants", "device_profiles", "device_profile_versions", "metric_definitions", "detection_rules",
		"device_types", "devices", "device_credentials", "identities", "memberships"} {
		if n := w.count("audit_events WHERE actor = 'local' AND operation = 'create' AND table_name = '" + table + "'"); n == 0 {
			t.Errorf("nothing about %s", table)
		}
	}
}

func TestADraftThatIsNotToBePublishedIsNot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := func(publish string) *Document {
		return w.read("version: 1\ntenants: [{token: acme, deviceProfiles: [{token: p, publish: " + publish + "}]}]")
	}
	w.apply(file("false"), Options{})
	w.wantPlan(file("false"), Options{}, "")
	w.wantPlan(file("true"), Options{}, "^ publish acme/p v1\n")
}

func TestAnExportIsOfOneTenantWhereOneIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(w.read("version: 1\ntenants: [{token: a}, {token: b}]"), Options{})
	d, err := w.Export(t.Context(), operator, "b")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimPrefix(d.YAML(), header); got != "version: 1\ntenants:\n  - token: b\n    tierToken: silver\n    enabled: true\n" {
		t.Errorf("got\n%s", got)
	}
	if _, err := w.Export(t.Context(), operator, "c"); model.CodeOf(err) != model.CodeNotFound {
		t.Error(err)
	}
}

// A metric that is declared in another profile, and a credential under another device, move there.
func TestWhatIsDeclaredElsewhereMovesThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := func(first, second string) *Document {
		in := func(where string) (metrics, credentials string) {
			if where == "" {
				return "[]", "[]"
			}
			return "[{token: m, metricKey: temp, dataType: DOUBLE}]", "[{token: k, credentialType: ACCESS_TOKEN, credentialId_env: KEY}]"
		}
		m1, k1 := in(first)
		m2, k2 := in(second)
		return w.read(fmt.Sprintf(`
version: 1
tenants:
  - token: acme
    deviceProfiles: [{token: p, metricDefinitions: %s}, {token: q, metricDefinitions: %s}]
    deviceTypes: [{token: t}]
    devices: [{token: d, deviceTypeToken: t, credentials: %s}, {token: e, deviceTypeToken: t, credentials: %s}]
`, m1, m2, k1, k2), "KEY=one")
	}
	w.apply(file("here", ""), Options{})
	moved := file("", "here")
	w.wantPlan(moved, Options{Prune: true}, `~ metric definition acme/m: deviceProfileToken "p" → "q"
~ device credential acme/k: deviceToken "d" → "e"
^ publish acme/p v2
^ publish acme/q v2
`)
	w.apply(moved, Options{Prune: true})
	w.wantPlan(moved, Options{Prune: true}, "")
}
