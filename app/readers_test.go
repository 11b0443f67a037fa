package app_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/app"
	"weir/ingest"
	"weir/internal/test/testweir"
	"weir/model"
	"weir/operate"
	"weir/store"
	"weir/store/storetest"
)

// storedReadings counts what the applier applies.
type storedReadings struct {
	ingest.ProjectionBase
	n atomic.Int64
}

func (p *storedReadings) Record(_ context.Context, e *ingest.Event, _ *ingest.Effects) error {
	if e.Stored() {
		p.n.Add(1)
	}
	return nil
}

// waitFor polls a condition.
func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within 20 s:", what)
		}
	}
}

// TestQueriesHoldUpNeitherTheApplierNorADevice: while every reader for queries and scans is taken, and a query of the ledger
// waits for one, a device connects for the first time, its presence is noted, and its reading is applied.
func TestQueriesHoldUpNeitherTheApplierNorADevice(t *testing.T) {
	t.Parallel()
	var applied storedReadings
	in := runInstanceWith(t, app.Options{Projections: []ingest.Projection{&applied}})
	db := in.Store()
	release := storetest.HoldReaders(t.Context(), t, 4, db)
	client, err := operate.Dial(t.Context(), in.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	asked := make(chan error, 1)
	go func() {
		_, err := operate.ShowLedger.Ask(t.Context(), client, operate.LedgerQuery{})
		asked <- err
	}()
	waitFor(t, "the query of the ledger waits", func() bool { return waitingReads(t, in.Instance, store.Queries) > 0 })
	m := in.publish(t)
	waitFor(t, "the reading is applied", func() bool { return applied.n.Load() == 1 })
	waitFor(t, "the presence is noted", func() bool {
		connected := false
		if err := db.For(store.Devices).Read(t.Context(), func(tx store.Tx) error {
			d, err := store.GetDeviceState(tx, 1)
			connected = d != nil && d.State == model.Connected
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return connected
	})
	select {
	case err := <-asked:
		t.Error("the query did not wait:", err)
	default:
	}
	release()
	if err := <-asked; err != nil {
		t.Error(err)
	}
	m.Close()
}

// waitingReads is how many reads of a class wait.
func waitingReads(t *testing.T, in *app.Instance, class store.Readers) (n float64) {
	t.Helper()
	families, err := in.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "weir_store_waiting_reads" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == class.String() {
				n = m.GetGauge().GetValue()
			}
		}
	}
	return n
}

// TestTheRequestsOfATenantHaveHalfOfTheReaders follows the tenant of a token from the request down to the share of readers: with one
// reader less than its share the tenant is answered, with its share it waits though others are free, and another tenant is answered.
func TestTheRequestsOfATenantHaveHalfOfTheReaders(t *testing.T) {
	t.Parallel()
	in := runInstanceWith(t, app.Options{})
	tokens := in.members(t, "acme", "globex")
	db := in.Store()
	var acme int64
	if err := db.Read(t.Context(), func(tx store.Tx) error { return tx.QueryRow(`SELECT id FROM tenants WHERE token = 'acme'`).Scan(&acme) }); err != nil {
		t.Fatal(err)
	}
	const share = 2 // of four readers
	own := []struct{ area, query, want string }{
		{"device-management", `{ devices(criteria: {pageNumber: 1, pageSize: 10}) { results { token } } }`, `"results":[`},
		{"device-state", `{ deviceStatesByDeviceToken(deviceTokens: ["d1"]) { deviceToken } }`, `"deviceStatesByDeviceToken":[`},
		{"user-management", `{ tenant { branding { title } } }`, `"title":"Weir"`},
	}
	answered := func(tenant string) {
		t.Helper()
		for _, q := range own {
			if got := in.overHTTP(t, t.Context(), q.area, tokens[tenant], q.query); !strings.Contains(got, q.want) {
				t.Errorf("%s: %s is answered %s", tenant, q.query, got)
			}
		}
	}
	first := holdReadersOf(t, db, acme, share-1)
	answered("acme")
	second := holdReadersOf(t, db, acme, 1)
	for _, q := range own {
		reply := make(chan string, 1)
		go func() { reply <- in.overHTTP(t, context.WithoutCancel(t.Context()), q.area, tokens["acme"], q.query) }()
		waitFor(t, "a request of the tenant waits for its share", func() bool { return in.gauge(t, "weir_store_tenant_waiting_reads") > 0 })
		answered("globex")
		select {
		case got := <-reply:
			t.Errorf("%s did not wait: %s", q.query, got)
		default:
		}
		second()
		if got := <-reply; !strings.Contains(got, q.want) {
			t.Errorf("%s is answered %s", q.query, got)
		}
		second = holdReadersOf(t, db, acme, 1)
	}
	second()
	first()
}

// holdReadersOf takes readers on behalf of a tenant.
func holdReadersOf(t *testing.T, db store.Store, tenant int64, n int) (release func()) {
	t.Helper()
	return storetest.HoldReaders(t.Context(), t, n, tenantReads{db, tenant})
}

// tenantReads is a store that a tenant reads.
type tenantReads struct {
	store.Store
	tenant int64
}

func (s tenantReads) Read(ctx context.Context, fn func(store.Tx) error) error {
	return s.Store.Read(store.ForTenant(ctx, s.tenant), fn)
}

// members makes the tenants that there are not yet and an administrator, and returns an access token for each tenant.
func (in *instance) members(t *testing.T, tenants ...string) map[string]string {
	t.Helper()
	client, err := operate.Dial(t.Context(), in.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	const email, password = "admin@example.org", "correct horse battery"
	if _, err := operate.CreateAdmin.Ask(t.Context(), client, operate.NewAdmin{Email: email, Password: password}); err != nil {
		t.Fatal(err)
	}
	value := func(query, field string) string {
		var reply struct{ Data map[string]map[string]string }
		if err := json.Unmarshal([]byte(in.overHTTP(t, t.Context(), "user-management", "", query)), &reply); err != nil {
			t.Fatal(err)
		}
		for _, object := range reply.Data {
			return object[field]
		}
		return ""
	}
	identity := value(`mutation { login(email: "`+email+`", password: "`+password+`") { identityToken } }`, "identityToken")
	tokens := map[string]string{}
	for _, tenant := range tenants {
		if tenant != "acme" {
			if _, err := operate.CreateTenant.Ask(t.Context(), client, operate.NewTenant{Token: tenant}); err != nil {
				t.Fatal(err)
			}
		}
		tokens[tenant] = value(`mutation { selectTenant(identityToken: "`+identity+`", tenant: "`+tenant+`") { accessToken } }`, "accessToken")
	}
	return tokens
}

// overHTTP sends a GraphQL request over HTTP and returns the answer.
func (in *instance) overHTTP(t *testing.T, ctx context.Context, area, token, query string) string {
	_, body, err := testweir.GraphQL{API: "http://" + in.Listeners().At(operate.APIListener), Area: area, Token: token, Query: query}.Post(ctx)
	if err != nil {
		t.Error(err)
	}
	return string(body)
}

// gauge is the value of a metric without labels.
func (in *instance) gauge(t *testing.T, name string) float64 {
	t.Helper()
	families, err := in.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}
