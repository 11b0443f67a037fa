package auth

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/model"
	"weir/store"
)

func (h *house) refreshed(token string) *AuthToken {
	h.t.Helper()
	pair, err := h.Refresh(h.t.Context(), token)
	if err != nil {
		h.t.Fatalf("refresh: %v", err)
	}
	return pair
}

func (h *house) notRefreshed(token, want string) {
	h.t.Helper()
	if pair, err := h.Refresh(h.t.Context(), token); err == nil || err.Error() != want {
		h.t.Errorf("refresh gave %v, %v, want %q", pair, err, want)
	}
}

const badToken = "invalid or expired token"

func TestRefreshRotatesAndReadsAuthoritiesAnew(t *testing.T) {
	h := newHouse(t)
	h.member("ada@example.org")
	first := h.enter("ada@example.org", "acme")
	h.ok(h.SetMembershipRoles(t.Context(), operator, "ada@example.org", "acme", []string{RoleTenantAdmin}))
	if h.accepts(PlaneTenant, first.Access) {
		t.Error("a change of roles left the access token good")
	}
	h.clock.Step(time.Minute)
	second := h.refreshed(first.Refresh)
	p, err := h.Authenticate(PlaneTenant, second.Access, "")
	if err != nil || !p.Has(model.DashboardWrite) {
		t.Errorf("%+v, %v", p, err)
	}
	if second.Refresh == first.Refresh || second.Expires <= first.Expires {
		t.Error("nothing was rotated")
	}
	h.clock.Step(time.Minute)
	third := h.refreshed(second.Refresh)
	if !h.accepts(PlaneTenant, third.Access) {
		t.Error("the third access token is not good")
	}
	if n := strings.Count(strings.Join(h.audits(), "\n"), "refresh  ada@example.org by ada@example.org"); n != 2 {
		t.Errorf("%d rows of the journal for 2 refreshes", n)
	}
}

func TestALostAnswerMayBeAskedForAgainWithin10Seconds(t *testing.T) {
	h := newHouse(t)
	h.member("ada@example.org")
	first := h.enter("ada@example.org", "acme")
	h.clock.Step(time.Minute)
	second := h.refreshed(first.Refresh)
	h.clock.Step(10 * time.Second)
	h.reopen(Config{InstanceID: "test"})
	if again := h.refreshed(first.Refresh); *again != *second {
		t.Errorf("another pair:\n%v\n%v", again, second)
	}
	h.refreshed(second.Refresh) // still unused until now
	h.notRefreshed(first.Refresh, badToken)
	h.notRefreshed(second.Refresh, badToken)
}

func TestAConsumedTokenEndsItsSessionAndNoOther(t *testing.T) {
	for name, spoil := range map[string]func(h *house, first, second *AuthToken){
		"after the grace":               func(h *house, _, _ *AuthToken) { h.clock.Step(10*time.Second + time.Microsecond) },
		"after its successor was used":  func(h *house, _, second *AuthToken) { h.refreshed(second.Refresh) },
		"two turns back, in the grace":  func(h *house, _, second *AuthToken) { h.refreshed(h.refreshed(second.Refresh).Refresh) },
		"after the grace and a restart": func(h *house, _, _ *AuthToken) { h.clock.Step(time.Minute); h.reopen(Config{InstanceID: "test"}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.member("ada@example.org")
			other := h.enter("ada@example.org", "acme")
			first := h.enter("ada@example.org", "acme")
			second := h.refreshed(first.Refresh)
			spoil(h, first, second)
			h.notRefreshed(first.Refresh, badToken)
			h.notRefreshed(second.Refresh, badToken)
			h.refreshed(other.Refresh)
		})
	}
}

// TestASignOutEndsTheTokensOfItsSession: of all turns, and of no other session; what has ended is remembered for as long as its tokens live, and no longer.
func TestASignOutEndsTheTokensOfItsSession(t *testing.T) {
	h := newHouse(t)
	h.member("ada@example.org")
	first, other := h.enter("ada@example.org", "acme"), h.enter("ada@example.org", "acme")
	h.clock.Step(time.Minute)
	second := h.refreshed(first.Refresh)
	in, err := h.Login(t.Context(), "ada@example.org", password, home)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ refresh, identity string }{{"nonsense", ""}, {first.Access, ""}, {second.Refresh, second.Refresh}} {
		if _, err := h.SignOut(t.Context(), c.refresh, c.identity); err == nil || err.Error() != badToken {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if !h.accepts(PlaneTenant, second.Access) {
		t.Fatal("a sign-out that was refused has ended the session")
	}
	if ended, err := h.SignOut(t.Context(), second.Refresh, in.Token); !ended || err != nil {
		t.Fatal(ended, err)
	}
	if ended, err := h.SignOut(t.Context(), second.Refresh, ""); ended || err != nil {
		t.Errorf("once more: %v %v", ended, err)
	}
	if h.accepts(PlaneTenant, first.Access) || h.accepts(PlaneTenant, second.Access) || h.accepts(PlaneIdentity, in.Token) {
		t.Error("a token is good after the sign-out")
	}
	if _, err := h.SelectTenant(t.Context(), in.Token, "acme"); err == nil {
		t.Error("the identity token still chooses a tenant")
	}
	h.notRefreshed(second.Refresh, badToken)
	if !h.accepts(PlaneTenant, other.Access) {
		t.Error("another session has ended as well")
	}
	h.clock.Step(time.Hour)
	third := h.refreshed(other.Refresh)
	if _, err := h.SignOut(t.Context(), third.Refresh, ""); err != nil {
		t.Fatal(err)
	}
	if n := h.ended.count.Load(); n != 1 {
		t.Errorf("%d ended sessions are remembered", n)
	}
}

func TestEndedSessionsAreBounded(t *testing.T) {
	forgotten := 0
	e := newEndedSessions(func() { forgotten++ })
	for i := range maxEnded + 3 {
		e.add(strconv.Itoa(i), 1, 10)
	}
	if forgotten != 3 || e.has("2") || !e.has("3") || !e.has(strconv.Itoa(maxEnded+2)) {
		t.Errorf("%d were forgotten", forgotten)
	}
	e.add("later", 11, 20)
	if forgotten != 3 || e.count.Load() != 1 || !e.has("later") || e.has("3") {
		t.Errorf("%d are remembered, %d were forgotten", e.count.Load(), forgotten)
	}
}

func TestConcurrentRefreshesOfOneTokenGiveOnePair(t *testing.T) {
	h := newHouse(t)
	h.member("ada@example.org")
	first := h.enter("ada@example.org", "acme")
	var mu sync.Mutex
	pairs := map[AuthToken]int{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			pair, err := h.Refresh(t.Context(), first.Refresh)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			pairs[*pair]++
		})
	}
	wg.Wait()
	if len(pairs) != 1 {
		t.Errorf("%d different pairs", len(pairs))
	}
}

func TestWhatEndsASessionAndWhatDoesNot(t *testing.T) {
	ctx := t.Context()
	const ada = "ada@example.org"
	for name, c := range map[string]struct {
		do   func(h *house)
		want string // "" = refresh goes on
	}{
		"nothing":             {func(*house) {}, ""},
		"password change":     {func(h *house) { h.ok(h.SetPassword(ctx, operator, ada, "another one")) }, badToken},
		"identity disabled":   {func(h *house) { h.ok(h.SetIdentityEnabled(ctx, operator, ada, false)) }, badToken},
		"identity removed":    {func(h *house) { h.ok(h.DeleteIdentity(ctx, operator, ada)) }, badToken},
		"membership disabled": {func(h *house) { h.ok(h.SetMembershipEnabled(ctx, operator, ada, "acme", false)) }, badToken},
		"membership removed":  {func(h *house) { h.ok(h.RemoveMembership(ctx, operator, ada, "acme")) }, badToken},
		"disabled and enabled": {func(h *house) {
			h.ok(h.SetIdentityEnabled(ctx, operator, ada, false))
			h.ok(h.SetIdentityEnabled(ctx, operator, ada, true))
		}, badToken},
		"removed and made again": {func(h *house) {
			h.ok(h.RemoveMembership(ctx, operator, ada, "acme"))
			h.ok(h.AddMembership(ctx, operator, ada, "acme", nil))
		}, badToken},
		"roles changed":                {func(h *house) { h.ok(h.SetMembershipRoles(ctx, operator, ada, "acme", []string{RoleTenantAdmin})) }, ""},
		"system roles changed":         {func(h *house) { h.ok(h.SetSystemRoles(ctx, operator, ada, []string{RoleOperator})) }, ""},
		"another membership removed":   {func(h *house) { h.ok(h.RemoveMembership(ctx, operator, ada, "globex")) }, ""},
		"tenant disabled":              {func(h *house) { h.tenants.set("acme", false, 0) }, "invalid credentials"},
		"tenant removed and made anew": {func(h *house) { h.tenants.rows["acme"] = h.tenants.rows["globex"] }, "invalid credentials"},
		"time":                         {func(h *house) { h.clock.Step(7*24*time.Hour + time.Minute) }, badToken},
		"almost the time":              {func(h *house) { h.clock.Step(7*24*time.Hour - time.Minute) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.member(ada)
			h.ok(h.AddMembership(ctx, operator, ada, "globex", nil))
			pair := h.enter(ada, "acme")
			c.do(h)
			if c.want == "" {
				h.refreshed(pair.Refresh)
				return
			}
			h.notRefreshed(pair.Refresh, c.want)
		})
	}
}

func TestASuperuserWithoutTheRoleLosesTheTenantAtTheNextRefresh(t *testing.T) {
	h := newHouse(t)
	h.person("root@example.org", RoleSuperuser)
	h.person("other@example.org", RoleSuperuser)
	pair := h.enter("root@example.org", "acme")
	h.ok(h.SetSystemRoles(t.Context(), operator, "root@example.org", nil))
	if h.accepts(PlaneTenant, pair.Access) {
		t.Error("the access token still counts")
	}
	h.notRefreshed(pair.Refresh, "invalid credentials")
}

func TestSessionsOfOnePersonAreBounded(t *testing.T) {
	h := newHouse(t)
	h.member("ada@example.org")
	first := h.enter("ada@example.org", "acme")
	token := h.signIn("ada@example.org")
	var last *AuthToken
	for range maxSessions {
		h.clock.Step(time.Microsecond)
		var err error
		if last, err = h.SelectTenant(t.Context(), token, "acme"); err != nil {
			t.Fatal(err)
		}
	}
	h.notRefreshed(first.Refresh, badToken)
	h.refreshed(last.Refresh)
	if n := h.sessions(); n != maxSessions {
		t.Errorf("%d sessions", n)
	}
}

func (h *house) sessions() (n int) {
	h.t.Helper()
	err := h.db.Read(h.t.Context(), func(tx store.Tx) error {
		return tx.QueryRow(`SELECT count(*) FROM refresh_sessions`).Scan(&n)
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

func TestTidyRemovesSessionsThatHaveEnded(t *testing.T) {
	h := newHouse(t)
	h.member("ada@example.org")
	h.enter("ada@example.org", "acme")
	h.clock.Step(6 * 24 * time.Hour)
	h.enter("ada@example.org", "acme")
	h.clock.Step(25 * time.Hour)
	if err := h.tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := h.sessions(); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

func TestRunGoesOnAfterAFailureUntilItIsStopped(t *testing.T) {
	h := newHouse(t)
	h.deps.Registerer = prometheus.NewRegistry()
	h.deps.Store = failingStore{h.db}
	h.reopen(Config{InstanceID: "test"})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- h.Run(ctx) }()
	for testutil.ToFloat64(h.m.housekeepingFailed) == 0 {
		select {
		case err := <-done:
			t.Fatalf("Run ended: %v", err)
		default:
			runtime.Gosched()
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("%v", err)
	}
}

// failingStore reads but does not write.
type failingStore struct{ store.Store }

func (failingStore) Write(context.Context, store.Durability, func(store.Tx) error) error {
	return errors.New("disk full")
}

func TestNoSecretOfASessionIsStored(t *testing.T) {
	h := newHouse(t)
	h.member("ada@example.org")
	pair := h.enter("ada@example.org", "acme")
	pair = h.refreshed(pair.Refresh)
	err := h.db.Read(t.Context(), func(tx store.Tx) error {
		var stored string
		if err := tx.QueryRow(`SELECT pair FROM refresh_sessions`).Scan(&stored); err != nil {
			return err
		}
		for _, token := range []string{pair.Access, pair.Refresh} {
			signature := token[strings.LastIndex(token, ".")+1:]
			if strings.Contains(stored, signature) {
				t.Error("a signature is stored")
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Only its holder is told what kind a token is: one that does not verify is not valid, whatever it says.
func TestATokenForOtherAreasIsNamed(t *testing.T) {
	h := newHouse(t)
	h.member("ada@example.org")
	pair, identity := h.enter("ada@example.org", "acme"), h.signIn("ada@example.org")
	for _, c := range []struct {
		plane       Plane
		token, want string
	}{
		{PlaneTenant, identity, "unauthenticated: this is an identity token: selectTenant gives an access token for the areas of a tenant"},
		{PlaneIdentity, pair.Access, "unauthenticated: this is an access token of a tenant: sign in for an identity token, which the identity plane needs"},
		{PlaneTenant, pair.Refresh, "unauthenticated: this is a refresh token: refresh gives an access token"},
		{PlaneTenant, identity + "x", "unauthenticated: the token is not valid"},
	} {
		if _, err := h.Authenticate(c.plane, c.token, ""); err == nil || err.Error() != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
