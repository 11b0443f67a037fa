package auth

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"weir/internal/setting"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

// tables are what a refusal must leave alone.
func (h *house) dump() string {
	h.t.Helper()
	var b strings.Builder
	err := h.db.Read(h.t.Context(), func(tx store.Tx) error {
		people, err := identities.Select(tx, 0, "id")
		if err != nil {
			return err
		}
		all, err := h.Roles.Table.Select(tx, 0, "id")
		if err != nil {
			return err
		}
		persons, err := loadPersons(tx, "")
		if err != nil {
			return err
		}
		_, audit, err := store.ListAudit(tx, store.Page{}, store.AuditFilter{Category: store.AuditMutation})
		if err != nil {
			return err
		}
		enc := json.NewEncoder(&b)
		for _, p := range persons {
			for tenant, m := range p.memberships {
				if err := enc.Encode([]any{p.id, p.roles, tenant, m.id, m.enabled, m.notBefore, m.roles}); err != nil {
					return err
				}
			}
		}
		return enc.Encode([]any{people, all, audit})
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return b.String()
}

func TestNoUserGrantsAnAuthorityThatTheyDoNotHold(t *testing.T) {
	ctx := t.Context()
	h := newHouse(t)
	h.ok(h.Roles.Create(ctx, operator, store.Patch{"scope": "system", "token": "clerk", "authorities": []any{"user:read", "user:write", "role:write"}}))
	h.ok(h.Roles.Create(ctx, operator, store.Patch{"scope": "system", "token": "reader", "authorities": []any{"user:read"}}))
	h.person("clerk@example.org", "clerk")
	h.person("reader@example.org", "reader")
	h.person("op@example.org", RoleOperator)
	h.person("root@example.org", RoleSuperuser)
	h.person("root2@example.org", RoleSuperuser)
	clerk, op, root := h.principalOf("clerk@example.org"), h.principalOf("op@example.org"), h.principalOf("root@example.org")
	n := func(email string, systemRoles ...string) NewIdentity {
		return NewIdentity{Email: email, Password: password, Enabled: true, SystemRoles: systemRoles}
	}
	h.ok(h.Roles.Create(ctx, operator, store.Patch{"scope": "tenant", "token": "viewer", "authorities": []any{"device:read"}}))
	h.member("ada@example.org", RoleTenantAdmin)
	h.ok(h.AddMembership(ctx, operator, "op@example.org", "acme", []string{"viewer"}))
	before := h.dump()
	for name, do := range map[string]func() error{
		"a new operator by a clerk":      func() error { _, err := h.CreateIdentity(ctx, clerk, n("x@example.org", RoleOperator)); return err },
		"a new superuser by an operator": func() error { _, err := h.CreateIdentity(ctx, op, n("x@example.org", RoleSuperuser)); return err },
		"operator for himself": func() error {
			_, err := h.SetSystemRoles(ctx, clerk, "clerk@example.org", []string{"clerk", RoleOperator})
			return err
		},
		"wildcard for himself": func() error {
			_, err := h.SetSystemRoles(ctx, op, "op@example.org", []string{RoleSuperuser})
			return err
		},
		"stripping a superuser":  func() error { _, err := h.SetSystemRoles(ctx, op, "root@example.org", nil); return err },
		"a superuser's password": func() error { _, err := h.SetPassword(ctx, op, "root@example.org", "taken over"); return err },
		"disabling a superuser":  func() error { _, err := h.SetIdentityEnabled(ctx, op, "root@example.org", false); return err },
		"deleting an operator":   func() error { _, err := h.DeleteIdentity(ctx, clerk, "op@example.org"); return err },
		"a role beyond his own": func() error {
			_, err := h.Roles.Create(ctx, clerk, store.Patch{"scope": "system", "token": "x", "authorities": []any{"tenant:write"}})
			return err
		},
		"a role with the wildcard": func() error {
			_, err := h.Roles.Create(ctx, op, store.Patch{"scope": "system", "token": "x", "authorities": []any{"*"}})
			return err
		},
		"his own role made larger": func() error {
			_, err := h.Roles.UpdateIn(ctx, clerk, "", "clerk", store.Patch{"authorities": []any{"user:write", "role:write", "tenant:write"}})
			return err
		},
		"a larger role made smaller": func() error {
			_, err := h.Roles.UpdateIn(ctx, clerk, "", RoleOperator, store.Patch{"authorities": []any{"user:read"}})
			return err
		},
		"himself into a tenant": func() error {
			_, err := h.AddMembership(ctx, clerk, "clerk@example.org", "acme", []string{RoleTenantAdmin})
			return err
		},
		"an operator himself into a tenant": func() error {
			_, err := h.AddMembership(ctx, op, "op@example.org", "globex", []string{RoleTenantAdmin})
			return err
		},
		"an operator more for himself": func() error {
			_, err := h.SetMembershipRoles(ctx, op, "op@example.org", "acme", []string{RoleTenantAdmin})
			return err
		},
		"an operator's own role of tenants made larger": func() error {
			_, err := h.Roles.UpdateIn(ctx, op, "", "viewer", store.Patch{"authorities": []any{"*"}})
			return err
		},
		"a role of tenants made larger by a clerk": func() error {
			_, err := h.Roles.UpdateIn(ctx, clerk, "", "viewer", store.Patch{"authorities": []any{"*"}})
			return err
		},
		"an accomplice into a tenant": func() error {
			_, err := h.AddMembership(ctx, clerk, "reader@example.org", "acme", []string{RoleTenantAdmin})
			return err
		},
		"the password of a tenant's administrator": func() error {
			_, err := h.SetPassword(ctx, clerk, "ada@example.org", "taken over")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { fixture.Refused(t, do(), model.CodeForbidden, "forbidden: ") })
	}
	if after := h.dump(); after != before {
		t.Errorf("a refusal wrote something:\n%s\nbefore:\n%s", after, before)
	}
	h.ok(h.CreateIdentity(ctx, clerk, n("x@example.org", "reader")))
	h.ok(h.SetPassword(ctx, clerk, "reader@example.org", "another one"))
	h.ok(h.SetPassword(ctx, op, "clerk@example.org", "another one"))
	h.ok(h.AddMembership(ctx, clerk, "x@example.org", "acme", nil)) // it carries nothing
	h.ok(h.RemoveMembership(ctx, op, "x@example.org", "acme"))
	h.ok(h.AddMembership(ctx, op, "x@example.org", "acme", []string{RoleTenantAdmin})) // who makes tenants makes their members
	h.ok(h.SetPassword(ctx, op, "ada@example.org", "another one"))
	h.ok(h.AddMembership(ctx, root, "root@example.org", "acme", []string{RoleTenantAdmin}))
	h.ok(h.RemoveMembership(ctx, op, "op@example.org", "acme")) // anyone may leave
	h.ok(h.SetSystemRoles(ctx, root, "root2@example.org", []string{RoleOperator}))
}

func TestRefusalsOfTheDirectoryWriteNothing(t *testing.T) {
	ctx := t.Context()
	h := newHouse(t)
	h.person("root@example.org", RoleSuperuser)
	h.member("ada@example.org", RoleTenantAdmin)
	h.ok(h.Roles.Create(ctx, operator, store.Patch{"scope": "system", "token": "held", "authorities": []any{"audit:read"}}))
	h.person("bob@example.org", "held")
	create := func(email, pw string, systemRoles ...string) func() error {
		return func() error {
			_, err := h.CreateIdentity(ctx, operator, NewIdentity{Email: email, Password: pw, SystemRoles: systemRoles})
			return err
		}
	}
	role := func(p store.Patch) func() error {
		return func() error { _, err := h.Roles.Create(ctx, operator, p); return err }
	}
	update := func(scope, token string, p store.Patch) func() error {
		return func() error { _, err := h.Roles.UpdateIn(ctx, operator, scope, token, p); return err }
	}
	before := h.dump()
	for name, c := range map[string]struct {
		do   func() error
		code model.Code
		text string
	}{
		"email in use, other case": {create(" ADA@example.org", password), model.CodeConflict, "unique"},
		"no email":                 {create("ada", password), model.CodeInvalidInput, "email"},
		"email with a newline":     {create("a\nb@example.org", password), model.CodeInvalidInput, "email"},
		"long email":               {create(strings.Repeat("x", 250)+"@example.org", password), model.CodeInvalidInput, "email"},
		"short password":           {create("x@example.org", "1234567"), model.CodeInvalidInput, "password"},
		"unknown role":             {create("x@example.org", password, "held", "nothing"), model.CodeInvalidInput, "nothing"},
		"tenant role as system":    {create("x@example.org", password, RoleTenantAdmin), model.CodeInvalidInput, RoleTenantAdmin},
		"long first name": {func() error {
			_, err := h.CreateIdentity(ctx, operator, NewIdentity{Email: "x@example.org", Password: password, FirstName: new(strings.Repeat("ä", 129))})
			return err
		}, model.CodeInvalidInput, "firstName"},
		"last superuser disabled": {func() error { _, err := h.SetIdentityEnabled(ctx, operator, "root@example.org", false); return err }, model.CodeInvalidInput, "last enabled superuser"},
		"last superuser stripped": {func() error {
			_, err := h.SetSystemRoles(ctx, operator, "root@example.org", []string{RoleOperator})
			return err
		}, model.CodeInvalidInput, "last enabled superuser"},
		"last superuser deleted": {func() error { _, err := h.DeleteIdentity(ctx, operator, "root@example.org"); return err }, model.CodeInvalidInput, "last enabled superuser"},
		"password of nobody":     {func() error { _, err := h.SetPassword(ctx, operator, "x@example.org", password); return err }, model.CodeNotFound, "x@example.org"},
		"short new password":     {func() error { _, err := h.SetPassword(ctx, operator, "ada@example.org", "short"); return err }, model.CodeInvalidInput, "password"},
		"second membership":      {func() error { _, err := h.AddMembership(ctx, operator, "ada@example.org", "acme", nil); return err }, model.CodeConflict, "acme"},
		"unknown tenant":         {func() error { _, err := h.AddMembership(ctx, operator, "ada@example.org", "nowhere", nil); return err }, model.CodeInvalidInput, "nowhere"},
		"system role in a tenant": {func() error {
			_, err := h.AddMembership(ctx, operator, "bob@example.org", "acme", []string{"held"})
			return err
		}, model.CodeInvalidInput, "held"},
		"roles of no membership": {func() error {
			_, err := h.SetMembershipRoles(ctx, operator, "ada@example.org", "globex", nil)
			return err
		}, model.CodeNotFound, "membership"},
		"one of the roles unknown": {func() error {
			_, err := h.SetMembershipRoles(ctx, operator, "ada@example.org", "acme", []string{RoleTenantAdmin, "x y"})
			return err
		}, model.CodeInvalidInput, "x y"},
		"role token in use, other scope": {role(store.Patch{"scope": "tenant", "token": RoleOperator}), model.CodeConflict, "unique"},
		"role with a bad token":          {role(store.Patch{"scope": "tenant", "token": "a.b"}), model.CodeInvalidInput, "token"},
		"role of no scope":               {role(store.Patch{"scope": "both", "token": "x"}), model.CodeInvalidInput, "scope"},
		"role without a scope":           {role(store.Patch{"token": "x"}), model.CodeInvalidInput, "scope"},
		"unknown authority":              {role(store.Patch{"scope": "tenant", "token": "x", "authorities": []any{"device:fly"}}), model.CodeInvalidInput, "device:fly"},
		"authority of the other tier":    {role(store.Patch{"scope": "tenant", "token": "x", "authorities": []any{"user:read"}}), model.CodeInvalidInput, "user:read"},
		"tenant authority, system role":  {role(store.Patch{"scope": "system", "token": "x", "authorities": []any{"device:read"}}), model.CodeInvalidInput, "device:read"},
		"superuser changed":              {update("", RoleSuperuser, store.Patch{"name": "x"}), model.CodeInvalidInput, "superuser"},
		"role of another scope":          {update("tenant", "held", store.Patch{"name": "x"}), model.CodeNotFound, "held"},
		"unknown role changed":           {update("", "nothing", store.Patch{"name": "x"}), model.CodeNotFound, "nothing"},
		"scope of a role changed":        {update("", "held", store.Patch{"scope": "tenant"}), model.CodeInvalidInput, "scope"},
		"role held by a person":          {func() error { _, err := h.Roles.DeleteIn(ctx, operator, "system", "held"); return err }, model.CodeInUse, "identity"},
		"role held by a member":          {func() error { _, err := h.Roles.DeleteIn(ctx, operator, "tenant", RoleTenantAdmin); return err }, model.CodeInUse, "membership"},
		"superuser role deleted":         {func() error { _, err := h.Roles.DeleteIn(ctx, operator, "system", RoleSuperuser); return err }, model.CodeInvalidInput, "superuser"},
		"more roles than may be held": {func() error {
			_, err := resolveAll(h, maxRolesHeld+1)
			return err
		}, model.CodeInvalidInput, "at most"},
	} {
		t.Run(name, func(t *testing.T) { fixture.Refused(t, c.do(), c.code, c.text) })
	}
	if after := h.dump(); after != before {
		t.Errorf("a refusal wrote something:\n%s\nbefore:\n%s", after, before)
	}
	for _, c := range []struct{ scope, token string }{{"tenant", "nothing"}, {"tenant", "held"}, {"", "held"}} {
		if removed, err := h.Roles.DeleteIn(ctx, operator, c.scope, c.token); removed || err != nil {
			t.Errorf("deleteRole(%q, %q) = %v, %v", c.scope, c.token, removed, err)
		}
	}
	if removed, err := h.DeleteIdentity(ctx, operator, "x@example.org"); removed || err != nil {
		t.Errorf("deleteIdentity of nobody: %v, %v", removed, err)
	}
}

// resolveAll makes n roles and asks for all of them at once, in a transaction that is given up.
func resolveAll(h *house, n int) (ids []int64, err error) {
	err = h.writer.Mutate(h.t.Context(), operator, func(ch *store.Change) error {
		var tokens []string
		for i := range n {
			r := &Role{Scope: ScopeTenant, Token: "r" + strings.Repeat("x", i)}
			if err := h.Roles.Table.Insert(ch, r); err != nil {
				return err
			}
			tokens = append(tokens, r.Token)
		}
		ids, err = h.Roles.resolve(ch, ScopeTenant, tokens)
		return err
	})
	return ids, err
}

func TestVerbsAskForTheirAuthority(t *testing.T) {
	ctx := t.Context()
	h := newHouse(t)
	h.member("ada@example.org", RoleTenantAdmin)
	h.person("none@example.org")
	access, err := h.Authenticate(PlaneTenant, h.enter("ada@example.org", "acme").Access, "")
	if err != nil {
		t.Fatal(err)
	}
	for name, by := range map[string]*model.Principal{"nobody": nil, "anonymous": {}, "a tenant's wildcard": access,
		"no system role": h.principalOf("none@example.org")} {
		want := model.CodeForbidden
		if by == nil || by.Kind == model.Anonymous {
			want = model.CodeUnauthenticated
		}
		for verb, do := range map[string]func() error{
			"identities":           func() error { _, err := h.Identities(ctx, by); return err },
			"createIdentity":       func() error { _, err := h.CreateIdentity(ctx, by, NewIdentity{}); return err },
			"setPassword":          func() error { _, err := h.SetPassword(ctx, by, "ada@example.org", password); return err },
			"setIdentityEnabled":   func() error { _, err := h.SetIdentityEnabled(ctx, by, "ada@example.org", false); return err },
			"setSystemRoles":       func() error { _, err := h.SetSystemRoles(ctx, by, "ada@example.org", nil); return err },
			"deleteIdentity":       func() error { _, err := h.DeleteIdentity(ctx, by, "ada@example.org"); return err },
			"addMembership":        func() error { _, err := h.AddMembership(ctx, by, "ada@example.org", "globex", nil); return err },
			"setMembershipRoles":   func() error { _, err := h.SetMembershipRoles(ctx, by, "ada@example.org", "acme", nil); return err },
			"setMembershipEnabled": func() error { _, err := h.SetMembershipEnabled(ctx, by, "ada@example.org", "acme", false); return err },
			"removeMembership":     func() error { _, err := h.RemoveMembership(ctx, by, "ada@example.org", "acme"); return err },
			"roles":                func() error { _, err := h.roles(by); return err },
			"authorities":          func() error { _, err := h.Roles.Authorities(by, ""); return err },
			"createRole": func() error {
				_, err := h.Roles.Create(ctx, by, store.Patch{"scope": "tenant", "token": "x"})
				return err
			},
			"updateRole": func() error { _, err := h.Roles.UpdateIn(ctx, by, "", RoleTenantAdmin, nil); return err },
			"deleteRole": func() error { _, err := h.Roles.DeleteIn(ctx, by, "tenant", RoleTenantAdmin); return err },
		} {
			if err := do(); model.CodeOf(err) != want {
				t.Errorf("%s by %s: %v", verb, name, err)
			}
		}
	}
}

func TestRoleAuthoritiesAreReplacedEmptiedOrKept(t *testing.T) {
	h := newHouse(t)
	h.ok(h.Roles.Create(t.Context(), operator, store.Patch{"scope": "tenant", "token": "mover",
		"authorities": []any{"location:read", "device:write", "location:read"}}))
	for _, c := range []struct {
		patch store.Patch
		want  string
	}{
		{store.Patch{"name": "M"}, "device:write,location:read"},
		{store.Patch{"authorities": []any{"state:demote"}}, "state:demote"},
		{store.Patch{"authorities": nil}, ""},
		{store.Patch{"authorities": []any{"*"}}, "*"},
		{store.Patch{"authorities": []any{}}, ""},
	} {
		r, err := h.Roles.UpdateIn(t.Context(), operator, "tenant", "mover", c.patch)
		if err != nil || strings.Join(r.Authorities, ",") != c.want {
			t.Errorf("%v: %v, %v, want %s", c.patch, r, err, c.want)
		}
	}
}

func TestAuthoritiesAreTheVocabularyOfTheScope(t *testing.T) {
	h := newHouse(t)
	for scope, c := range map[string]struct {
		has, hasNot string
		n           int
	}{"": {"user:read", "", 34}, "system": {"audit:read", "device:read", 16}, "tenant": {"audit:read", "user:read", 20}} {
		as, err := h.Roles.Authorities(operator, scope)
		if err != nil || !slices.Contains(as, c.has) || slices.Contains(as, c.hasNot) || !slices.Contains(as, "*") || !slices.IsSorted(as) {
			t.Errorf("scope %q: %v, %v", scope, as, err)
		}
	}
	if _, err := h.Roles.Authorities(operator, "both"); model.CodeOf(err) != model.CodeInvalidInput {
		t.Errorf("%v", err)
	}
}

func TestTheDirectoryShowsWhatWasDone(t *testing.T) {
	h := newHouse(t)
	id, err := h.CreateIdentity(t.Context(), operator, NewIdentity{Email: " Ada@Example.org ", Password: password, FirstName: new("Ada"),
		LastName: new(""), Enabled: false, SystemRoles: []string{RoleOperator, RoleOperator}})
	if err != nil {
		t.Fatal(err)
	}
	if id.Email != "ada@example.org" || id.Enabled || *id.FirstName != "Ada" || id.LastName != nil || !slices.Equal(id.SystemRoles, []string{RoleOperator}) {
		t.Errorf("%+v", id)
	}
	id, err = h.AddMembership(t.Context(), operator, "ADA@example.org", "globex", []string{RoleTenantAdmin})
	if err != nil || len(id.Memberships) != 1 || id.Memberships[0].Tenant != "globex" || !id.Memberships[0].Enabled ||
		!slices.Equal(id.Memberships[0].Roles, []string{RoleTenantAdmin}) {
		t.Errorf("%+v, %v", id, err)
	}
	h.ok(h.SetIdentityEnabled(t.Context(), operator, "ada@example.org", true))
	h.reopen(Config{InstanceID: "test"})
	all, err := h.Identities(t.Context(), operator)
	if err != nil || len(all) != 1 || !all[0].Enabled || len(all[0].Memberships) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := h.DeleteIdentity(t.Context(), operator, "ada@example.org"); err != nil {
		t.Fatal(err)
	}
	want := []string{"create identities ada@example.org", "create memberships 1", "update identities ada@example.org",
		"delete memberships 1", "delete identities ada@example.org"}
	got := h.audits()
	if tail := got[len(got)-len(want):]; !slices.EqualFunc(tail, want, func(g, w string) bool { return g == w+" by operator" }) {
		t.Errorf("journal %q", tail)
	}
	if joined := strings.Join(got, "\n"); strings.Contains(joined, "argon2") || strings.Contains(joined, password) {
		t.Error("the journal holds a secret")
	}
}

func TestAProfileIsThePersonsOwn(t *testing.T) {
	ctx := t.Context()
	h := newHouse(t)
	h.member("ada@example.org")
	by, err := h.Authenticate(PlaneTenant, h.enter("ada@example.org", "acme").Access, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		patch       store.Patch
		first, last string
	}{
		{store.Patch{"firstName": "Ada", "lastName": "Lovelace"}, "Ada", "Lovelace"},
		{store.Patch{}, "Ada", "Lovelace"},
		{store.Patch{"firstName": ""}, "", "Lovelace"},
		{store.Patch{"firstName": "A"}, "A", "Lovelace"},
		{store.Patch{"lastName": nil}, "A", ""},
		{store.Patch{"firstName": nil}, "", ""},
	} {
		p, err := h.UpdateProfile(ctx, by, c.patch)
		if err != nil {
			t.Fatal(err)
		}
		again, err := h.Me(ctx, by)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []*Profile{p, again} {
			if p.Email != "ada@example.org" || text(p.FirstName) != c.first || text(p.LastName) != c.last {
				t.Errorf("%v: %q %q", c.patch, text(p.FirstName), text(p.LastName))
			}
		}
	}
	before := h.dump()
	if _, err := h.UpdateProfile(ctx, by, store.Patch{}); err != nil || h.dump() != before {
		t.Errorf("an update that names nothing wrote: %v", err)
	}
	service := model.Service("tester", "acme", 1, model.AllAuthorities)
	_, err = h.Me(ctx, service)
	fixture.Refused(t, err, model.CodeUnauthenticated, "unauthenticated")
	_, err = h.UpdateProfile(ctx, service, store.Patch{"firstName": "x"})
	fixture.Refused(t, err, model.CodeUnauthenticated, "unauthenticated")
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func TestConfigNamesEveryReasonAndNoSecret(t *testing.T) {
	cfg := Config{InstanceID: "x", Settings: Settings{ServiceSecret: setting.NewSecret("short-secret"), AccessTokenTTL: 1, RefreshTokenTTL: -1, SigningKeyMaxAge: 1, SuperuserEmail: "nobody", SuperuserPassword: setting.NewSecret("hunter2")}}
	err := cfg.Validate()
	for _, key := range []string{"service_secret", "access_token_ttl", "refresh_token_ttl", "signing_key_max_age", "superuser_email", "superuser_password"} {
		if err == nil || !strings.Contains(err.Error(), "auth."+key) {
			t.Errorf("%v does not name %s", err, key)
		}
	}
	for _, secret := range []string{cfg.ServiceSecret.Reveal(), cfg.SuperuserPassword.Reveal()} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%v shows a secret", err)
		}
	}
	if err := (Config{InstanceID: "x"}).Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
}

func TestAStoreThatNothingRunsOnTellsWhetherAnybodyCanSignIn(t *testing.T) {
	h := newHouse(t)
	hold := func(when string, want bool) {
		t.Helper()
		var got bool
		h.ok(nil, h.db.Read(t.Context(), func(tx store.Tx) (err error) {
			got, err = AnySuperuser(tx)
			return err
		}))
		if got != want || h.HasSuperuser() != want {
			t.Errorf("%s: the store says %v, auth says %v", when, got, h.HasSuperuser())
		}
	}
	hold("nobody", false)
	h.person("ops@example.org", RoleOperator)
	hold("an operator", false)
	h.person("root@example.org", RoleSuperuser)
	hold("a superuser", true)
	h.ok(nil, h.db.Write(t.Context(), store.Durable, func(tx store.Tx) error {
		_, err := tx.Exec(`UPDATE identities SET enabled = 0`)
		return err
	}))
	h.reopen(Config{InstanceID: "test"})
	hold("a superuser who is disabled", false)
}
