package auth

import (
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/setting"
	"weir/internal/test/conformance"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

func TestFirstStartMakesRolesAndNoUser(t *testing.T) {
	h := newHouse(t)
	all, err := h.roles(operator)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range all {
		got[r.Token] = r.Scope + " " + strings.Join(r.Authorities, ",")
	}
	want := map[string]string{"superuser": "system *", "tenant-admin": "tenant *", "operator": "system ai:admin,audit:read," +
		"client:read,client:write,role:read,role:write,settings:read,settings:write,tenant:read,tenant:write,user:read,user:write"}
	for token, w := range want {
		if got[token] != w {
			t.Errorf("role %s: %q, want %q", token, got[token], w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("roles %v", got)
	}
	for token, as := range got {
		if strings.Contains(as, string(model.StateDemote)) {
			t.Errorf("role %s grants state:demote", token)
		}
	}
	for _, r := range all {
		holds := map[model.Authority]bool{}
		for _, a := range r.Authorities {
			holds[model.Authority(a)] = true
		}
		for _, kind := range []model.PrincipalKind{model.AccessCaller, model.IdentityCaller, model.ServiceCaller} {
			if (&model.Principal{Kind: kind, System: holds, Tenants: holds}).Has(model.StateDemote) {
				t.Errorf("a caller of kind %d with the role %s may demote", kind, r.Token)
			}
		}
	}
	conformance.Shown(t, "S3-100")
	if people, err := h.Identities(t.Context(), operator); err != nil || len(people) != 0 || h.HasSuperuser() {
		t.Errorf("identities %v, %v", people, err)
	}
	if _, err := h.Roles.DeleteIn(t.Context(), operator, ScopeTenant, RoleTenantAdmin); err != nil {
		t.Fatal(err)
	}
	h.reopen(Config{InstanceID: "test"})
	if all, _ := h.roles(operator); len(all) != 2 {
		t.Errorf("a role that was deleted came back with the next start: %d roles", len(all))
	}
}

func TestTheConfiguredSuperuserIsMadeAtFirstStartOnly(t *testing.T) {
	cfg := Config{InstanceID: "test", Settings: Settings{SuperuserEmail: " Root@Example.org ", SuperuserPassword: setting.NewSecret(password)}}
	h := newHouseWith(t, cfg)
	in, err := h.Login(t.Context(), "root@example.org", password, home)
	if err != nil || !in.Superuser || !h.HasSuperuser() {
		t.Fatalf("%+v, %v", in, err)
	}
	h.ok(h.SetPassword(t.Context(), operator, "root@example.org", "another one"))
	h.reopen(cfg)
	if _, err := h.Login(t.Context(), "root@example.org", password, home); err == nil {
		t.Error("a restart set the configured password again")
	}
}

func TestLoginAnswersAlikeWhateverIsWrong(t *testing.T) {
	h := newHouse(t)
	h.person("ada@example.org")
	h.person("off@example.org")
	h.ok(h.SetIdentityEnabled(t.Context(), operator, "off@example.org", false))
	for _, c := range [][2]string{{"nobody@example.org", password}, {"ada@example.org", "wrong"}, {"ada@example.org", ""},
		{"off@example.org", password}, {"", ""}, {strings.Repeat("x", 5000), password}, {"ada@example.org\x00", password}} {
		in, err := h.Login(t.Context(), c[0], c[1], home)
		if in != nil || err == nil || err.Error() != "invalid credentials" {
			t.Errorf("login(%.20q): %v, %v", c[0], in, err)
		}
		fixture.Refused(t, err, model.CodeInvalidInput, "")
	}
	in, err := h.Login(t.Context(), "  ADA@example.ORG ", password, home)
	if err != nil || in.Superuser || len(in.Memberships) != 0 {
		t.Errorf("%+v, %v", in, err)
	}
	if want := model.MicrosOf(h.clock.Now().Add(identityLife).Truncate(time.Second)); in.Expires != want {
		t.Errorf("expires %s, want %s", in.Expires, want)
	}
}

func TestLoginCostsAHashInAllCases(t *testing.T) {
	h := newHouse(t)
	h.person("ada@example.org")
	release, err := h.hasher.hold(t.Context(), LaneAPI)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	for _, email := range []string{"ada@example.org", "nobody@example.org"} {
		go func() {
			_, err := h.Login(t.Context(), email, "wrong", home)
			done <- err
		}()
	}
	for h.hasher.waiting[LaneAPI].Load() < 2 { // both must come to the place
		select {
		case err := <-done:
			t.Fatalf("answered without a hash: %v", err)
		default:
			runtime.Gosched()
		}
	}
	release()
	for range 2 {
		if err := <-done; err == nil {
			t.Error("let in")
		}
	}
}

func TestSignInBackOff(t *testing.T) {
	h := newHouse(t)
	h.person("ada@example.org")
	try := func(pw string, from string) error {
		_, err := h.Login(t.Context(), "ada@example.org", pw, netip.MustParseAddr(from))
		return err
	}
	for i := range 6 {
		if err := try("wrong", "192.0.2.1"); model.CodeOf(err) != model.CodeInvalidInput {
			t.Fatalf("failure %d: %v", i+1, err)
		}
	}
	err := try(password, "192.0.2.1")
	fixture.Refused(t, err, model.CodeThrottled, "")
	if e, _ := errors.AsType[*model.Error](err); e.Ext["retryAfterSeconds"] != 1 {
		t.Errorf("retryAfterSeconds %v", e.Ext["retryAfterSeconds"])
	}
	if err := try(password, "192.0.2.2"); err != nil {
		t.Errorf("another source is held back too: %v", err)
	}
	h.clock.Step(time.Second)
	if err := try("wrong", "192.0.2.1"); model.CodeOf(err) != model.CodeInvalidInput {
		t.Fatalf("%v", err)
	}
	h.clock.Step(1500 * time.Millisecond)
	err = try(password, "192.0.2.1")
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeThrottled || e.Ext["retryAfterSeconds"] != 1 {
		t.Errorf("half a second of two is left: %v", err)
	}
	h.clock.Step(500 * time.Millisecond)
	if err := try(password, "192.0.2.1"); err != nil {
		t.Fatalf("after the wait: %v", err)
	}
	if err := try("wrong", "192.0.2.1"); model.CodeOf(err) != model.CodeInvalidInput {
		t.Errorf("a success did not clear it: %v", err)
	}
}

func TestAnEmailAloneIsHeldBackFrom100FailuresOn(t *testing.T) {
	h := newHouse(t)
	h.person("ada@example.org")
	for i := range 100 {
		from := netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})
		if _, err := h.Login(t.Context(), "ada@example.org", "wrong", from); model.CodeOf(err) != model.CodeInvalidInput {
			t.Fatalf("failure %d: %v", i+1, err)
		}
	}
	_, err := h.Login(t.Context(), "ada@example.org", password, netip.MustParseAddr("203.0.113.1"))
	fixture.Refused(t, err, model.CodeThrottled, "")
}

// An address that has signed in is not held back by strangers at other addresses, and a new password ends every wait.
func TestStrangersDoNotLockOutWhoHasSignedIn(t *testing.T) {
	h := newHouse(t)
	h.person("ada@example.org")
	h.signIn("ada@example.org")
	office := netip.MustParseAddr("203.0.113.1")
	wrong := func(n int) {
		for i := range n {
			_, _ = h.Login(t.Context(), "ada@example.org", "wrong", netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}))
		}
	}
	wrong(100)
	_, err := h.Login(t.Context(), "ada@example.org", password, office)
	fixture.Refused(t, err, model.CodeThrottled, "")
	if _, err := h.Login(t.Context(), "ada@example.org", password, home); err != nil {
		t.Errorf("at home: %v", err)
	}
	wrong(100)
	for range 6 {
		_, _ = h.Login(t.Context(), "ada@example.org", "wrong", office)
	}
	if _, err := h.SetPassword(t.Context(), operator, "ada@example.org", password+"2"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Login(t.Context(), "ada@example.org", password+"2", office); err != nil {
		t.Errorf("after a new password: %v", err)
	}
}

func TestManyAttemptsAtOnceDoNotSlipPastTheBackOff(t *testing.T) {
	h := newHouse(t)
	h.person("ada@example.org")
	var mu sync.Mutex
	outcomes := map[model.Code]int{}
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() {
			_, err := h.Login(t.Context(), "ada@example.org", "wrong", home)
			mu.Lock()
			defer mu.Unlock()
			outcomes[model.CodeOf(err)]++
		})
	}
	wg.Wait()
	if n := outcomes[model.CodeInvalidInput]; n != 6 {
		t.Errorf("%d passwords were tried, 5 are free and the sixth begins the wait: %v", n, outcomes)
	}
}

func TestTheJournalHasSignInsAndABoundedNumberOfFailures(t *testing.T) {
	h := newHouse(t)
	h.person("ada@example.org")
	h.signIn("ada@example.org")
	before := len(h.audits())
	for i := range 200 {
		_, _ = h.Login(t.Context(), strings.Repeat("x", i+1), "wrong", home)
	}
	got := h.audits()
	if !slices.Contains(got, "login  ada@example.org by ada@example.org") {
		t.Errorf("no login in %v", got)
	}
	if n := len(got) - before; n != failureBurst {
		t.Errorf("%d rows of failures, want %d", n, failureBurst)
	}
	h.clock.Step(time.Second)
	_, _ = h.Login(t.Context(), "late", "wrong", home)
	err := h.db.Read(t.Context(), func(tx store.Tx) error {
		events, _, err := store.ListAudit(tx, store.Page{Size: 1}, store.AuditFilter{Operation: store.AuditLoginFailed})
		if err == nil && (events[0].Label != "late" || events[0].Rows != 140 || events[0].Category != store.AuditAuth) {
			t.Errorf("the row that follows does not count those left out: %+v", events[0])
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestTheJournalTakesNoControlCharactersFromUnauthenticatedClients(t *testing.T) {
	h := newHouse(t)
	for given, want := range map[string]string{"EVE\n@x\x00": "eve?@x?", strings.Repeat("ä", 200): strings.Repeat("ä", 127), "": ""} {
		_, _ = h.Login(t.Context(), given, "wrong", home)
		if got := newAttempt(given, home); got.label != want || got.email != "" {
			t.Errorf("%.20q: %+v", given, got)
		}
	}
	if got := h.audits(); !slices.Contains(got, "login_failed  eve?@x? by eve?@x?") {
		t.Errorf("journal %q", got)
	}
}

func TestAHashOfOldParametersIsRenewedAtSignIn(t *testing.T) {
	h := newHouse(t)
	h.person("ada@example.org")
	stronger := Params{MemoryKiB: 16, Passes: 1, Lanes: 1}
	h.deps.Hasher = NewHasher(stronger, nil)
	h.reopen(Config{InstanceID: "test"})
	h.signIn("ada@example.org")
	row, err := readSecret(t.Context(), h.db, "ada@example.org")
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parsePHC(row.hash)
	if err != nil || parsed.Params != stronger {
		t.Errorf("%+v, %v", parsed, err)
	}
	h.signIn("ada@example.org")
}

func TestWhatATokenCarries(t *testing.T) {
	h := newHouse(t)
	h.ok(h.Roles.Create(t.Context(), operator, store.Patch{"scope": "tenant", "token": "mover", "authorities": []any{"state:demote", "location:read"}}))
	h.member("ada@example.org", "mover", RoleTenantAdmin)
	h.member("view@example.org")
	h.person("op@example.org", RoleOperator)
	h.person("root@example.org", RoleSuperuser)
	claimsOf := func(token string, k Kind) *claims {
		t.Helper()
		c, err := h.parse(token, k)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	as := func(c *claims) string {
		var s []string
		for _, a := range c.Authorities {
			s = append(s, string(a))
		}
		return strings.Join(s, ",")
	}
	c := claimsOf(h.enter("view@example.org", "acme").Access, KindAccess)
	if as(c) != "alarm:read,command:read,device:read,event:read,state:read" || len(c.Roles) != 0 || c.Sudo || c.Tenant != "acme" {
		t.Errorf("viewer: %+v", c)
	}
	if c.Issuer != "weir:test" || c.Subject != "view@example.org" || c.Username != c.Subject || c.Email != c.Subject ||
		!slices.Equal(c.Audience, []string{"weir"}) || c.ID == "" || c.IssuedAt%1e6 == 0 || c.Expires == 0 || c.NotBefore == 0 {
		t.Errorf("claims %+v", c)
	}
	c = claimsOf(h.enter("ada@example.org", "acme").Access, KindAccess)
	if as(c) != "*,state:demote" || !slices.Equal(c.Roles, []string{"mover", "tenant-admin"}) || c.Sudo {
		t.Errorf("admin who may demote: %s, %v", as(c), c.Roles)
	}
	c = claimsOf(h.enter("root@example.org", "globex").Access, KindAccess)
	if as(c) != "*" || !c.Sudo || c.Tenant != "globex" {
		t.Errorf("superuser: %+v", c)
	}
	c = claimsOf(h.signIn("op@example.org"), KindIdentity)
	if strings.Contains(as(c), "*") || !c.has(model.UserWrite) || c.Tenant != "" || c.Sudo {
		t.Errorf("operator: %+v", c)
	}
	p := h.principalOf("view@example.org")
	if len(p.System) != 0 || p.Kind != model.IdentityCaller {
		t.Errorf("a person without system roles holds %v", p.System)
	}
}

func TestSelectTenantNeedsAnEnabledMembershipInAnEnabledTenant(t *testing.T) {
	h := newHouse(t)
	h.member("ada@example.org", RoleTenantAdmin)
	h.person("root@example.org", RoleSuperuser)
	for name, c := range map[string]struct {
		prepare func()
		email   string
		tenant  string
		want    string
	}{
		"no membership":         {nil, "ada@example.org", "globex", "invalid credentials"},
		"unknown tenant":        {nil, "root@example.org", "nowhere", "invalid credentials"},
		"superuser anywhere":    {nil, "root@example.org", "globex", ""},
		"member":                {nil, "ada@example.org", "acme", ""},
		"disabled tenant":       {func() { h.tenants.set("acme", false, 0) }, "ada@example.org", "acme", "invalid credentials"},
		"superuser, disabled":   {func() { h.tenants.set("acme", false, 0) }, "root@example.org", "acme", "invalid credentials"},
		"disabled membership":   {func() { h.ok(h.SetMembershipEnabled(t.Context(), operator, "ada@example.org", "acme", false)) }, "ada@example.org", "acme", "invalid credentials"},
		"identity token forged": {nil, "", "acme", "invalid or expired token"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				h.tenants.set("acme", true, 0)
				h.ok(h.SetMembershipEnabled(t.Context(), operator, "ada@example.org", "acme", true))
			}()
			if c.prepare != nil {
				c.prepare()
			}
			token := "forged"
			if c.email != "" {
				token = h.signIn(c.email)
			}
			pair, err := h.SelectTenant(t.Context(), token, c.tenant)
			if c.want == "" && (err != nil || pair.Access == "" || pair.Refresh == "") || c.want != "" && (err == nil || err.Error() != c.want) {
				t.Errorf("%v, %v, want %q", pair, err, c.want)
			}
		})
	}
	token := h.signIn("ada@example.org")
	h.clock.Step(identityLife + clockLeeway + time.Second)
	_, err := h.SelectTenant(t.Context(), token, "acme")
	fixture.Refused(t, err, model.CodeInvalidInput, "invalid or expired token")
	_, err = h.SelectTenant(t.Context(), h.enter("ada@example.org", "acme").Access, "acme")
	fixture.Refused(t, err, model.CodeInvalidInput, "invalid or expired token")
}

func TestMembershipsOfASignInLeaveOutWhatIsDisabled(t *testing.T) {
	h := newHouse(t)
	h.member("ada@example.org", RoleTenantAdmin)
	h.ok(h.AddMembership(t.Context(), operator, "ada@example.org", "globex", nil))
	see := func(want ...string) {
		t.Helper()
		in, err := h.Login(t.Context(), "ada@example.org", password, home)
		if err != nil {
			t.Fatal(err)
		}
		again, err := h.IdentityMemberships(in.Token)
		if err != nil {
			t.Fatal(err)
		}
		for _, ms := range [][]Membership{in.Memberships, again} {
			var got []string
			for _, m := range ms {
				got = append(got, m.Tenant+":"+strings.Join(m.Roles, ","))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		}
	}
	see("acme:tenant-admin", "globex:")
	h.tenants.set("acme", false, 0)
	see("globex:")
	h.ok(h.SetMembershipEnabled(t.Context(), operator, "ada@example.org", "globex", false))
	see()
	_, err := h.IdentityMemberships("forged")
	fixture.Refused(t, err, model.CodeInvalidInput, "invalid or expired token")
}
