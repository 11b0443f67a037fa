package admin_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"weir/auth"
	"weir/gql/admin"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

// vocabulary is every authority of the system tier.
func vocabulary() []model.Authority {
	return slices.Sorted(slices.Values(model.Authorities(model.TierSystem)))
}

// climber is a caller who tries to hold more than they were given.
type climber struct {
	*world
	token string
	set   []string
	known map[string]string // email → password, of the identities that the caller can sign in as
}

const climberEmail = "climber@example.org"

func newClimber(t *testing.T, set []model.Authority) *climber {
	t.Helper()
	w := newWorld(t)
	var names []string
	for _, a := range set {
		names = append(names, string(a))
	}
	role := func(token string, authorities ...string) {
		t.Helper()
		if _, err := w.Auth.Roles.Create(t.Context(), fixture.Operator(), store.Patch{"scope": auth.ScopeSystem, "token": token, "authorities": authorities}); err != nil {
			t.Fatal(err)
		}
	}
	role("own", names...)
	role("empty")
	for _, a := range vocabulary() {
		role("only-"+strings.ReplaceAll(string(a), ":", "-"), string(a))
	}
	w.person(climberEmail, "own")
	w.person("operator@example.org", auth.RoleOperator)
	w.person("plain@example.org", "empty")
	if _, err := w.Govern.Tenants.Create(t.Context(), fixture.Operator(), store.Patch{"token": "acme"}); err != nil {
		t.Fatal(err)
	}
	return &climber{world: w, token: w.login(climberEmail, password), set: names, known: map[string]string{climberEmail: password}}
}

// reach is what the caller holds by a token of their own, or would by one of another identity whose password they know.
func (c *climber) reach() map[model.Authority]bool {
	c.Helper()
	holds := map[string][]string{} // by role
	roles, err := c.Auth.Roles.In(c.Context(), fixture.Operator(), auth.ScopeSystem)
	if err != nil {
		c.Fatal(err)
	}
	for _, r := range roles {
		holds[r.Token] = r.Authorities
	}
	people, err := c.Auth.Identities(c.Context(), fixture.Operator())
	if err != nil {
		c.Fatal(err)
	}
	p := &model.Principal{Kind: model.IdentityCaller, System: map[model.Authority]bool{}}
	for _, id := range people {
		if c.known[id.Email] == "" {
			continue
		}
		for _, role := range id.SystemRoles {
			for _, a := range holds[role] {
				p.System[model.Authority(a)] = true
			}
		}
	}
	own, err := c.Auth.Authenticate(auth.PlaneIdentity, c.token, "")
	held := map[model.Authority]bool{}
	for _, a := range vocabulary() {
		if p.Has(a) || err == nil && own.Has(a) { // an error: the change has ended the token
			held[a] = true
		}
	}
	return held
}

// attempts are operations of the plane with arguments that would enlarge the caller's set.
func attempts() []string {
	every := []string{"*", "superuser"}
	roles := []string{"superuser", "operator"}
	for _, a := range vocabulary() {
		every = append(every, string(a))
		roles = append(roles, "only-"+strings.ReplaceAll(string(a), ":", "-"))
	}
	var out []string
	for i, role := range roles {
		out = append(out, fmt.Sprintf(`setSystemRoles(email: %q, roleTokens: ["own", %q]) { email }`, climberEmail, role),
			fmt.Sprintf(`createIdentity(request: {email: "made%d@example.org", password: %q, enabled: true, systemRoles: [%q]}) { email }`, i, password, role))
	}
	for i, a := range every {
		token := fmt.Sprintf("made%d", i)
		out = append(out, fmt.Sprintf(`createRole(request: {scope: "system", token: %q, authorities: [%q]}) { token }`, token, a),
			fmt.Sprintf(`setSystemRoles(email: %q, roleTokens: ["own", %q]) { email }`, climberEmail, token),
			fmt.Sprintf(`updateRole(token: "own", request: {authorities: [%q]}) { token }`, a),
			fmt.Sprintf(`updateRole(token: "empty", request: {authorities: [%q]}) { token }`, a))
	}
	for _, email := range []string{"root@example.org", "operator@example.org", "plain@example.org"} {
		out = append(out, fmt.Sprintf(`setPassword(email: %q, password: %q) { email }`, email, "taken over "+email),
			fmt.Sprintf(`setIdentityEnabled(email: %q, enabled: false) { email }`, email),
			fmt.Sprintf(`setIdentityEnabled(email: %q, enabled: true) { email }`, email),
			fmt.Sprintf(`setSystemRoles(email: %q, roleTokens: []) { email }`, email),
			fmt.Sprintf(`setSystemRoles(email: %q, roleTokens: ["operator"]) { email }`, email),
			fmt.Sprintf(`addMembership(email: %q, tenant: "acme", roleTokens: ["tenant-admin"]) { email }`, email),
			fmt.Sprintf(`setMembershipRoles(email: %q, tenant: "acme", roleTokens: []) { email }`, email),
			fmt.Sprintf(`setMembershipEnabled(email: %q, tenant: "acme", enabled: false) { email }`, email),
			fmt.Sprintf(`removeMembership(email: %q, tenant: "acme") { email }`, email),
			fmt.Sprintf(`deleteIdentity(email: %q)`, email),
			fmt.Sprintf(`createIdentity(request: {email: %q, password: %q, enabled: true, systemRoles: ["superuser"]}) { email }`, email, "taken over "+email))
	}
	return append(out, `deleteRole(scope: "system", token: "operator")`, `createRole(request: {scope: "system", token: "operator", authorities: ["*"]}) { token }`,
		`createTenant(request: {token: "mine", tierToken: "gold"}) { token }`, `setTenantEnabled(token: "acme", enabled: false) { token }`,
		`updateTenant(token: "acme", request: {name: "x"}) { token }`, `createTenantTier(request: {token: "mine"}) { token }`,
		`createOauthClient(request: {clientId: "mine", redirectUris: ["https://a.example.org/"], scopes: ["read-only"], confidential: true}) { clientSecret }`)
}

// learn notes the passwords that a successful attempt has told the caller.
func (c *climber) learn(attempt string) {
	name, args, _ := strings.Cut(attempt, "(")
	if name != "setPassword" && name != "createIdentity" {
		return
	}
	_, email, _ := strings.Cut(args, `email: "`)
	email, _, _ = strings.Cut(email, `"`)
	_, password, _ := strings.Cut(args, `password: "`)
	password, _, _ = strings.Cut(password, `"`)
	c.known[email] = password
}

// For each set of authorities and each operation: what the caller can reach afterwards is no larger than it was.
func TestNobodyGivesWhatTheyDoNotHold(t *testing.T) {
	t.Parallel()
	sets := map[string][]model.Authority{"nothing": {}, "everything by name": vocabulary(), "wildcard": {model.AllAuthorities},
		"users and roles": {model.UserRead, model.UserWrite, model.RoleRead, model.RoleWrite}}
	for _, a := range vocabulary() {
		sets["only "+string(a)] = []model.Authority{a}
		sets["all but "+string(a)] = slices.DeleteFunc(vocabulary(), func(b model.Authority) bool { return a == b })
	}
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClimber(t, sets[name])
			before, taken := c.reach(), 0
			for _, attempt := range attempts() {
				a := c.ask(admin.Area, c.token, "mutation { x: "+attempt+" }")
				if len(a.Errors) > 0 {
					continue
				}
				taken++
				c.learn(attempt)
				for authority := range c.reach() {
					if !before[authority] {
						t.Fatalf("%s gives the caller %s: %s", attempt, authority, a.raw)
					}
				}
				c.restore()
			}
			if name == "wildcard" && taken < 50 {
				t.Errorf("only %d attempts are taken for who holds everything", taken)
			}
		})
	}
}

// restore gives the caller back what a successful attempt has taken from them, so that the next one is made with the whole set.
func (c *climber) restore() {
	c.Helper()
	ctx, by := c.Context(), fixture.Operator()
	if _, err := c.Auth.Roles.UpdateIn(ctx, by, auth.ScopeSystem, "own", store.Patch{"authorities": c.set}); err != nil {
		c.Fatal(err)
	}
	if _, err := c.Auth.SetSystemRoles(ctx, by, climberEmail, []string{"own"}); err != nil {
		c.Fatal(err)
	}
	c.token = c.login(climberEmail, password) // a change of their roles has ended the old one
}
