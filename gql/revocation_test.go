package gql_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/test/testweir"
)

// What an operator takes from a person ends the person's tokens with the answer, and their open streams with the close code of a
// refused token. What the person is still allowed to do, a new token permits.
func TestARevocationEndsTokensAndStreams(t *testing.T) {
	t.Parallel()
	w := &walk{Proc: testweir.Start(t, testweir.Options{})}
	w.super = w.Identity()
	w.readSchemas(t)
	operate := func(t *testing.T, mutation string) {
		t.Helper()
		if r := w.ask(t, "user-management-admin", caller{token: w.super}, "mutation { "+mutation+" }", nil); r.status != http.StatusOK || len(r.Errors) > 0 {
			t.Fatalf("%s: %s", mutation, r.raw)
		}
	}
	operate(t, `createTenant(request: {token: "other", tierToken: "silver"}) { id }`)
	for name, c := range map[string]struct {
		mutation string // %s: what names the case, its role and its tenant; its identity is %s@example.org
		refresh  bool   // the session goes on with what is left
	}{
		"password":           {`setPassword(email: "%s@example.org", password: "another horse battery") { id }`, false},
		"disabled":           {`setIdentityEnabled(email: "%s@example.org", enabled: false) { id }`, false},
		"deleted":            {`deleteIdentity(email: "%s@example.org")`, false},
		"membershipdisabled": {`setMembershipEnabled(email: "%[1]s@example.org", tenant: "%[1]s", enabled: false) { id }`, false},
		"membershipremoved":  {`removeMembership(email: "%[1]s@example.org", tenant: "%[1]s") { id }`, false},
		"membershiproles":    {`setMembershipRoles(email: "%[1]s@example.org", tenant: "%[1]s", roleTokens: []) { id }`, true},
		"rolechanged":        {`updateRole(token: "%s", request: {authorities: ["device:read"]}) { id }`, true},
		"tenantdisabled":     {`setTenantEnabled(token: "%s", enabled: false) { id }`, false},
		"systemroles":        {`setSystemRoles(email: "%s@example.org", roleTokens: ["operator"]) { id }`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			email := name + "@example.org"
			for _, mutation := range []string{`createTenant(request: {token: "%s", tierToken: "silver"}) { id }`,
				`createRole(request: {scope: "tenant", token: "%s", authorities: ["device:write"]}) { id }`,
				`createIdentity(request: {email: "%s@example.org", password: "` + testweir.Password + `", enabled: true, systemRoles: []}) { id }`,
				`addMembership(email: "%[1]s@example.org", tenant: "%[1]s", roleTokens: ["%[1]s"]) { id }`} {
				operate(t, fmt.Sprintf(mutation, name))
			}
			access, refresh, _ := w.signIn(t, email, name)
			const write, read = `mutation { createDeviceType(request: {token: "%s"}) { token } }`, `{ deviceTypes(criteria: {pageNumber: 1, pageSize: 1}) { pagination { totalRecords } } }`
			if r := w.ask(t, "device-management", caller{token: access}, fmt.Sprintf(write, "before"), nil); len(r.Errors) > 0 {
				t.Fatal(r.raw)
			}
			s, err := w.Dial("event-management", access)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.Subscribe("1", `subscription { measurementStream(deviceToken: "x", name: "y") { value } }`, nil); err != nil {
				t.Fatal(err)
			}

			operate(t, fmt.Sprintf(c.mutation, name))
			begin := time.Now()
			if r := w.ask(t, "device-management", caller{token: access}, read, nil); r.status != http.StatusUnauthorized {
				t.Errorf("the access token is still good: %d %s", r.status, r.raw)
			}
			m, err := s.Next(30 * time.Second)
			if err == nil && m.Type == "error" { // the stream had no such device
				m, err = s.Next(30 * time.Second)
			}
			if err == nil || testweir.CloseCode(err) != closedUnauthorized {
				t.Errorf("the stream: %+v %v, want close code %d", m, err, closedUnauthorized)
			}
			t.Logf("the stream ended after %v", time.Since(begin))
			r := w.ask(t, "user-management", caller{}, fmt.Sprintf(`mutation { refresh(refreshToken: %q) { accessToken } }`, refresh), nil)
			if c.refresh != (len(r.Errors) == 0) {
				t.Fatalf("refresh: %s", r.raw)
			}
			if !c.refresh {
				return
			}
			_, next, _ := strings.Cut(r.raw, `"accessToken":"`)
			next, _, _ = strings.Cut(next, `"`)
			if r := w.ask(t, "device-management", caller{token: next}, read, nil); len(r.Errors) > 0 {
				t.Errorf("the new token: %s", r.raw)
			}
			r = w.ask(t, "device-management", caller{token: next}, fmt.Sprintf(write, "after"), nil)
			if takes := name == "systemroles"; takes != (len(r.Errors) == 0) {
				t.Errorf("a write with the new token: %s", r.raw)
			}
		})
	}
}
