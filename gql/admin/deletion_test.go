package admin_test

import (
	"strings"
	"testing"
	"time"

	"weir/gql/admin"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

// purge is how the deletion of acme is asked for, and what shows that it is not deleted.
const (
	purge  = `mutation { deleteTenant(token: "acme") }`
	intact = `{ tenants { enabled purgeState } tenantDeletions(criteria: {pageNumber: 1, pageSize: 10}) { results { token } } }`

	untouched = `{"tenants":[{"enabled":true,"purgeState":"active"}],"tenantDeletions":{"results":[]}}`
)

// TestDeleteTenantDemandsTenantWrite: who reads tenants, who has no system role and who has no token delete none.
func TestDeleteTenantDemandsTenantWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gives(admin.Area, `mutation { createTenant(request: {token: "acme", tierToken: "gold"}) { token } createRole(request: {scope: "system", token: "reader", authorities: ["tenant:read"]}) { token } }`,
		`{"createTenant":{"token":"acme"},"createRole":{"token":"reader"}}`)
	w.person("reader@example.org", "reader")
	w.person("nobody@example.org")
	for email, want := range map[string]string{"reader@example.org": "FORBIDDEN forbidden: tenant:write is required", "nobody@example.org": "FORBIDDEN forbidden: a system role is required"} {
		for _, query := range []string{purge, `mutation { deleteTenant(token: "none") }`} {
			if got := w.ask(admin.Area, w.login(email, password), query).refusal(); got != want {
				t.Errorf("%s: %s: %q, want %q", email, query, got, want)
			}
		}
	}
	if got := w.ask(admin.Area, "nonsense", purge).refusal(); !strings.HasPrefix(got, "UNAUTHENTICATED ") {
		t.Errorf("without a token: %q", got)
	}
	w.gives(admin.Area, intact, untouched)
}

// TestDeleteTenantIsRefusedWhileSomethingHoldsIt: a membership, an enabled one or not, and a site file that would make it again.
func TestDeleteTenantIsRefusedWhileSomethingHoldsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gives(admin.Area, `mutation { createTenant(request: {token: "acme", tierToken: "gold"}) { token } addMembership(email: "root@example.org", tenant: "acme", roleTokens: []) { email } }`,
		`{"createTenant":{"token":"acme"},"addMembership":{"email":"root@example.org"}}`)
	w.refuses(admin.Area, purge, model.CodeInUse, `tenant "acme" is in use by a membership`)
	w.gives(admin.Area, `mutation { setMembershipEnabled(email: "root@example.org", tenant: "acme", enabled: false) { email } }`, `{"setMembershipEnabled":{"email":"root@example.org"}}`)
	w.refuses(admin.Area, purge, model.CodeInUse, "membership")
	w.gives(admin.Area, `mutation { removeMembership(email: "root@example.org", tenant: "acme") { email } }`, `{"removeMembership":{"email":"root@example.org"}}`)
	w.Govern.DeclareTenants([]string{"acme", "other"})
	w.refuses(admin.Area, purge, model.CodeInUse, `tenant "acme" is declared by the site files`)
	w.gives(admin.Area, intact, untouched)
	w.Govern.DeclareTenants([]string{"other"})
	w.gives(admin.Area, purge, `{"deleteTenant":true}`)
}

// TestDeleteTenantOnce: the first request deletes, each further one says that there was nothing to delete, and what is left of the
// tenant is its reserved token.
func TestDeleteTenantOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gives(admin.Area, `mutation { createTenant(request: {token: "acme", tierToken: "gold", name: "Acme"}) { token } }`, `{"createTenant":{"token":"acme"}}`)
	tenant, _, _ := w.Govern.Lookup("acme")
	w.gives(admin.Area, `mutation { a: deleteTenant(token: "acme") b: deleteTenant(token: "acme") c: deleteTenant(token: "none") }`, `{"a":true,"b":false,"c":false}`)
	w.Step(time.Second)
	w.gives(admin.Area, purge, `{"deleteTenant":false}`)
	w.gives(admin.Area, `{ tenants { name enabled purgeState purgeEpoch } tenantDeletions(criteria: {pageNumber: 1, pageSize: 10}) { results { token awaiting } } }`,
		`{"tenants":[{"name":null,"enabled":false,"purgeState":"purging","purgeEpoch":"2026-03-01T12:00:00Z"}],"tenantDeletions":{"results":[{"token":"acme","awaiting":"STORES"}]}}`)
	for request, want := range map[string]string{
		`setTenantEnabled(token: "acme", enabled: true) { token }`:                             "deleted",
		`updateTenant(token: "acme", request: {name: "Acme"}) { token }`:                       "deleted",
		`createTenant(request: {token: "acme", tierToken: "gold"}) { token }`:                  "unique",
		`addMembership(email: "root@example.org", tenant: "acme", roleTokens: []) { enabled }`: "",
	} {
		a := w.ask(admin.Area, w.super, "mutation { "+request+" }")
		if !strings.Contains(a.refusal(), want) || a.refusal() == "" {
			t.Errorf("%s: %s, want %q", request, a.raw, want)
		}
	}
	if a := w.ask(admin.Area, w.super, `mutation { createTenant(request: {token: "acme", tierToken: "gold"}) { token } }`); !strings.Contains(a.raw, `"code":"CONFLICT","reason":"TOKEN_RESERVED"`) {
		t.Errorf("its token is used again: %s", a.raw)
	}
	if _, err := w.Registry.Types.Create(t.Context(), fixture.Member("ada", "acme", tenant, model.DeviceWrite), store.Patch{"token": "t"}); err != nil {
		t.Log("a member that is left:", err)
	}
	if got := w.scalar(`SELECT count(*) FROM audit_events WHERE operation = 'delete' AND table_name = 'tenants' AND actor = 'root@example.org'`); got != "1" {
		t.Errorf("the journal has %s deletions", got)
	}
}
