package gql

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"

	"weir/auth"
	"weir/govern"
	"weir/internal/setting"
	"weir/internal/test/conformance"
	"weir/internal/test/domain"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

const (
	userPassword  = "correct horse"
	serviceSecret = "0123456789abcdef0123456789abcdef"
)

var userOperator = fixture.Operator()

// userWorld is the user-management area over real tenants and identities.
type userWorld struct {
	t      *testing.T
	auth   *auth.Auth
	govern *govern.Govern
	server *Server
	http   http.Handler
	*fixture.Clock
}

// newUserWorld has the tenants acme and globex; ada administers acme, bob globex, view is a plain member of acme.
func newUserWorld(t *testing.T) *userWorld {
	t.Helper()
	w := &userWorld{t: t, Clock: fixture.NewClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))}
	db := fixture.Store(t)
	d := domain.New(t, domain.Config{Store: db, Writer: store.Direct{Store: db, Now: w.Now}, Clock: w.Now,
		Auth: auth.Config{InstanceID: "test", Settings: auth.Settings{ServiceSecret: setting.NewSecret(serviceSecret)}}})
	w.govern, w.auth = d.Govern, d.Auth
	w.must(w.govern.Tenants.Create(t.Context(), userOperator, store.Patch{"token": "acme", "name": "Acme", "tierToken": "gold", "ingestBurst": 1234}))
	w.must(w.govern.Tenants.Create(t.Context(), userOperator, store.Patch{"token": "globex"}))
	for email, tenant := range map[string]string{"ada@example.org": "acme", "bob@example.org": "globex", "view@example.org": "acme"} {
		w.must(w.auth.CreateIdentity(t.Context(), userOperator, auth.NewIdentity{Email: email, Password: userPassword, Enabled: true}))
		roles := []string{auth.RoleTenantAdmin}
		if email == "view@example.org" {
			roles = nil
		}
		w.must(w.auth.AddMembership(t.Context(), userOperator, email, tenant, roles))
	}
	w.server = New(Config{})
	RegisterUser(w.server.Area("user-management", TenantPlane), UserDeps{SignIn: w.auth, Profiles: w.auth, Tenants: w.govern,
		Areas: []string{"device-management", "user-management"}})
	if err := w.server.Build(); err != nil {
		t.Fatal(err)
	}
	w.http = w.server.Handler("user-management", ByToken(w.auth))
	return w
}

func (w *userWorld) must(_ any, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// answer is what came back.
type answer struct {
	status int
	Data   map[string]any
	Errors []struct {
		Message    string
		Extensions map[string]any
	}
}

// code is that of the first error, "" without one.
func (a answer) code() string {
	if len(a.Errors) == 0 {
		return ""
	}
	code, _ := a.Errors[0].Extensions["code"].(string)
	return code
}

func (w *userWorld) post(token, tenant, query string) answer {
	w.t.Helper()
	body, err := json.Marshal(map[string]string{"query": query})
	if err != nil {
		w.t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/graphql", strings.NewReader(string(body)))
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "bearer "+token)
	}
	if tenant != "" {
		r.Header.Set(TenantHeader, tenant)
	}
	rec := httptest.NewRecorder()
	w.http.ServeHTTP(rec, r)
	a := answer{status: rec.Code}
	if err := json.Unmarshal(rec.Body.Bytes(), &a); err != nil {
		w.t.Fatalf("%s: %v", rec.Body, err)
	}
	return a
}

// value walks into the answer's data.
func (a answer) value(path ...string) any {
	var v any = a.Data
	for _, p := range path {
		m, _ := v.(map[string]any)
		v = m[p]
	}
	return v
}

func (w *userWorld) login(email string) string {
	w.t.Helper()
	a := w.post("", "", fmt.Sprintf(`mutation { login(email: %q, password: %q) { identityToken } }`, email, userPassword))
	token, _ := a.value("login", "identityToken").(string)
	if token == "" {
		w.t.Fatalf("login: %+v", a)
	}
	return token
}

func (w *userWorld) enter(email, tenant string) (access, refresh string) {
	w.t.Helper()
	a := w.post("", "", fmt.Sprintf(`mutation { selectTenant(identityToken: %q, tenant: %q) { accessToken refreshToken expiresAt } }`, w.login(email), tenant))
	access, _ = a.value("selectTenant", "accessToken").(string)
	refresh, _ = a.value("selectTenant", "refreshToken").(string)
	if access == "" || refresh == "" || a.value("selectTenant", "expiresAt") != w.Now().Add(15*time.Minute).Format(time.RFC3339) {
		w.t.Fatalf("selectTenant: %+v", a)
	}
	return access, refresh
}

func (w *userWorld) service(as ...string) string {
	w.t.Helper()
	list, _ := json.Marshal(as)
	r := httptest.NewRequest(http.MethodPost, "/auth/service-token", strings.NewReader(fmt.Sprintf(`{"subject": "tester", "authorities": %s}`, list)))
	r.Header.Set("X-Weir-Service-Secret", serviceSecret)
	rec := httptest.NewRecorder()
	w.auth.ServiceToken().ServeHTTP(rec, r)
	var reply struct{ Token string }
	if err := json.Unmarshal(rec.Body.Bytes(), &reply); err != nil || reply.Token == "" {
		w.t.Fatalf("service token: %d %s", rec.Code, rec.Body)
	}
	return reply.Token
}

// userOperations is every operation of the area with a document for it.
var userOperations = map[string]string{
	"ping":                `{ ping }`,
	"tenant":              `{ tenant { token name description } }`,
	"tenantGovernance":    `{ tenantGovernance { tierToken aiExternalEnabled purgeState ingestBurst ingestMessagesPerSecond heldCommandCeiling shedPriority } }`,
	"tenantTokens":        `{ tenantTokens }`,
	"me":                  `{ me { email firstName lastName } }`,
	"identityMemberships": `{ identityMemberships(identityToken: "x") { tenant roles } }`,
	"functionalAreas":     `{ functionalAreas }`,
	"tokenMasks":          `{ tokenMasks }`,
	"login":               `mutation { login(email: "nobody@example.org", password: "x") { identityToken } }`,
	"selectTenant":        `mutation { selectTenant(identityToken: "x", tenant: "acme") { accessToken } }`,
	"refresh":             `mutation { refresh(refreshToken: "x") { accessToken } }`,
	"signOut":             `mutation { signOut(refreshToken: "x") }`,
	"updateProfile":       `mutation { updateProfile(request: {}) { email } }`,
	"setTenantBranding":   `mutation { setTenantBranding(input: {}) { token } }`,
	"setTenantLogo":       `mutation { setTenantLogo(logo: null) { token } }`,
	"setTenantBasemap":    `mutation { setTenantBasemap(input: {}) { token } }`,
}

func TestUserManagementWalkOfCallers(t *testing.T) {
	w := newUserWorld(t)
	var served []string
	for _, op := range w.server.Operations() {
		served = append(served, op.Name)
		if userOperations[op.Name] == "" {
			t.Errorf("no document for %s", op.Name)
		}
	}
	if len(served) != len(userOperations) {
		t.Errorf("operations %v", served)
	}
	access, refresh := w.enter("ada@example.org", "acme")
	viewer, _ := w.enter("view@example.org", "acme")
	identity := w.login("ada@example.org")
	anonymous := []string{"ping", "identityMemberships", "login", "selectTenant", "refresh", "signOut"}
	people := []string{"tenant", "tenantGovernance", "me", "functionalAreas", "tokenMasks", "updateProfile"}

	look := []string{"setTenantBranding", "setTenantLogo", "setTenantBasemap"}

	walks := 0
	walk := func(name, token, tenant string, want func(op string) string) {
		t.Helper()
		walks++
		for op, document := range userOperations {
			document = strings.ReplaceAll(document, "nobody", fmt.Sprint("nobody-", walks)) // nobody is held back
			a := w.post(token, tenant, document)
			code := a.code()
			if slices.Contains(anonymous, op) && op != "ping" {
				if code != string(model.CodeInvalidInput) { // let through to the resolver, which refuses the arguments
					t.Errorf("%s with %s: %+v", op, name, a)
				}
				continue
			}
			expected := want(op)
			if slices.Contains(look, op) && token != "" && token != access { // they ask for an authority that administrators have
				expected = "FORBIDDEN"
			}
			if a.status != http.StatusOK || code != expected {
				t.Errorf("%s with %s: status %d, code %q, want %q", op, name, a.status, code, expected)
			}
			if code == "FORBIDDEN" && !strings.HasPrefix(a.Errors[0].Message, "forbidden") ||
				code == "UNAUTHENTICATED" && !strings.HasPrefix(a.Errors[0].Message, "unauthenticated") {
				t.Errorf("%s with %s: %q", op, name, a.Errors[0].Message)
			}
		}
	}
	walk("no token", "", "", func(op string) string {
		if op == "ping" {
			return ""
		}
		return "UNAUTHENTICATED"
	})
	walk("no token and a tenant header", "", "acme", func(op string) string {
		if op == "ping" {
			return ""
		}
		return "UNAUTHENTICATED"
	})
	for name, token := range map[string]string{"an administrator": access, "a plain member": viewer} {
		walk(name, token, "globex", func(op string) string { // the header must not move an access token
			if op == "tenantTokens" {
				return "FORBIDDEN" // system tier, whatever the token carries
			}
			return ""
		})
	}
	walk("a service without authorities", w.service("ai:infer"), "acme", func(op string) string {
		switch op {
		case "tenantTokens", "tenantGovernance":
			return "FORBIDDEN"
		case "me", "updateProfile":
			return "UNAUTHENTICATED"
		}
		return ""
	})
	walk("a service without a tenant", w.service("tenant:read"), "", func(op string) string {
		if slices.Contains(people, op) {
			return "UNAUTHENTICATED"
		}
		return ""
	})
	walk("a service with tenant:read", w.service("tenant:read"), "globex", func(op string) string {
		if op == "me" || op == "updateProfile" {
			return "UNAUTHENTICATED"
		}
		return ""
	})
	for name, token := range map[string]string{"an identity token": identity, "a refresh token": refresh, "a forged token": access[:len(access)-4] + "AAAA",
		"no token at all": "x"} {
		for op, document := range userOperations {
			if a := w.post(token, "", document); a.status != http.StatusUnauthorized || a.code() != "UNAUTHENTICATED" || a.Data != nil {
				t.Errorf("%s with %s: %+v", op, name, a)
			}
		}
	}
	w.Step(15*time.Minute + 31*time.Second)
	for op, document := range userOperations {
		if a := w.post(access, "", document); a.status != http.StatusUnauthorized {
			t.Errorf("%s with an expired token: %+v", op, a)
		}
	}
}

func TestSignInThroughTheAPI(t *testing.T) {
	w := newUserWorld(t)
	a := w.post("", "", fmt.Sprintf(`mutation { login(email: " ADA@example.org", password: %q) { identityToken expiresAt superuser memberships { tenant roles } } }`, userPassword))
	if fmt.Sprint(a.value("login", "memberships")) != "[map[roles:[tenant-admin] tenant:acme]]" || a.value("login", "superuser") != false {
		t.Errorf("login: %+v", a)
	}
	identity := a.value("login", "identityToken").(string)
	if a := w.post("", "", fmt.Sprintf(`{ identityMemberships(identityToken: %q) { tenant roles } }`, identity)); fmt.Sprint(a.value("identityMemberships")) !=
		"[map[roles:[tenant-admin] tenant:acme]]" {
		t.Errorf("identityMemberships: %+v", a)
	}
	access, refresh := w.enter("ada@example.org", "acme")
	if a := w.post(access, "", userOperations["tenant"]); fmt.Sprint(a.value("tenant")) != "map[description:<nil> name:Acme token:acme]" {
		t.Errorf("tenant: %+v", a)
	}
	a = w.post("", "", fmt.Sprintf(`mutation { refresh(refreshToken: %q) { accessToken refreshToken expiresAt } }`, refresh))
	next, _ := a.value("refresh", "accessToken").(string)
	if next == "" || a.value("refresh", "refreshToken") == refresh {
		t.Errorf("refresh: %+v", a)
	}
	a = w.post(next, "", userOperations["tenantGovernance"])
	if fmt.Sprint(a.value("tenantGovernance")) != "map[aiExternalEnabled:false heldCommandCeiling:<nil> ingestBurst:1234 "+
		"ingestMessagesPerSecond:2000 purgeState:active shedPriority:90 tierToken:gold]" {
		t.Errorf("tenantGovernance: %+v", a)
	}
	conformance.Shown(t, "S3-008")
	for document, want := range map[string]string{
		`mutation { login(email: "ada@example.org", password: "wrong") { expiresAt } }`:                                                            "invalid credentials",
		fmt.Sprintf(`mutation { selectTenant(identityToken: %q, tenant: "globex") { expiresAt } }`, identity):                                      "invalid credentials",
		`mutation { selectTenant(identityToken: "x", tenant: "acme") { expiresAt } }`:                                                              "invalid or expired token",
		`mutation { refresh(refreshToken: "x") { expiresAt } }`:                                                                                    "invalid or expired token",
		`mutation { a: login(email: "a@b", password: "x") { expiresAt } b: login(email: "a@b", password: "y") { expiresAt } }`:                     "",
		`mutation { login(email: null, password: "x") { expiresAt } }`:                                                                             "",
		fmt.Sprintf(`mutation { login(email: "ada@example.org", password: %q) { nothing } }`, userPassword):                                        "",
		fmt.Sprintf(`mutation { updateProfile(request: {firstName: "x"}) { email } login(email: "x@y", password: %q) { expiresAt } }`, "whatever"): "",
	} {
		t.Run(document, func(t *testing.T) {
			a := w.post("", "", document)
			if len(a.Errors) == 0 || want != "" && a.Errors[0].Message != want {
				t.Errorf("%s: %+v", document, a)
			}
			if strings.Contains(fmt.Sprint(a.Errors), userPassword) {
				t.Errorf("the answer shows a password: %+v", a.Errors)
			}
		})
	}
}

func TestTooManyFailedSignInsSayWhenToTryAgain(t *testing.T) {
	w := newUserWorld(t)
	for range 6 {
		w.post("", "", `mutation { login(email: "ada@example.org", password: "wrong") { expiresAt } }`)
	}
	a := w.post("", "", fmt.Sprintf(`mutation { login(email: "ada@example.org", password: %q) { expiresAt } }`, userPassword))
	if a.code() != "THROTTLED" || a.Errors[0].Extensions["retryAfterSeconds"] != 1.0 {
		t.Errorf("%+v", a)
	}
}

func TestADisabledTenantIsOverAtOnce(t *testing.T) {
	w := newUserWorld(t)
	access, refresh := w.enter("ada@example.org", "acme")
	principal, err := ByToken(w.auth)(t.Context(), Credentials{Bearer: access})
	if err != nil || principal.Revoked() || principal.Expires.IsZero() {
		t.Fatalf("%+v, %v", principal, err)
	}
	w.Step(time.Second)
	w.must(w.govern.SetTenantEnabled(t.Context(), userOperator, "acme", false))
	if a := w.post(access, "", `{ ping }`); a.status != http.StatusUnauthorized {
		t.Errorf("%+v", a)
	}
	if !principal.Revoked() {
		t.Error("an open connection would go on")
	}
	document := fmt.Sprintf(`mutation { refresh(refreshToken: %q) { accessToken } }`, refresh)
	if a := w.post("", "", document); a.code() == "" {
		t.Errorf("%+v", a)
	}
	w.must(w.govern.SetTenantEnabled(t.Context(), userOperator, "acme", true))
	if a := w.post(access, "", `{ ping }`); a.status != http.StatusUnauthorized {
		t.Error("enabling the tenant again brought an old token back")
	}
	if a := w.post("", "", document); a.code() != "" {
		t.Errorf("%+v", a)
	}
}

func TestUpdateProfileKeepsSetsAndClears(t *testing.T) {
	w := newUserWorld(t)
	access, _ := w.enter("ada@example.org", "acme")
	for _, field := range []string{"firstName", "lastName"} {
		for _, c := range []struct{ request, want string }{
			{`%s: "Ada"`, "Ada"}, {``, "Ada"}, {`%s: null`, "<nil>"}, {`%s: "Bea"`, "Bea"}, {`%s: ""`, "<nil>"},
		} {
			request := c.request
			if request != "" {
				request = fmt.Sprintf(request, field)
			}
			a := w.post(access, "", `mutation { updateProfile(request: {`+request+`}) { email firstName lastName } }`)
			if got := fmt.Sprint(a.value("updateProfile", field)); got != c.want || len(a.Errors) > 0 || a.value("updateProfile", "email") != "ada@example.org" {
				t.Errorf("{%s}: %s, want %s: %+v", request, got, c.want, a)
			}
			if a := w.post(access, "", userOperations["me"]); fmt.Sprint(a.value("me", field)) != c.want {
				t.Errorf("me after {%s}: %+v", request, a)
			}
		}
	}
	conformance.Shown(t, "S3-066")
	a := w.post(access, "", `mutation { updateProfile(request: {firstName: "`+strings.Repeat("x", 129)+`"}) { email } }`)
	if a.code() != "INVALID_INPUT" || !strings.Contains(a.Errors[0].Message, "firstName") {
		t.Errorf("%+v", a)
	}
}

func TestUpdateProfileTakesRequestOnly(t *testing.T) {
	sdl, err := SDL("user-management")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := gqlparser.LoadSchema(&ast.Source{Name: "user-management", Input: sdl})
	if err != nil {
		t.Fatal(err)
	}
	f := schema.Mutation.Fields.ForName("updateProfile")
	if len(f.Arguments) != 1 || f.Arguments[0].Name != "request" || f.Arguments[0].Type.String() != "ProfileUpdateRequest!" || f.Type.String() != "CurrentIdentity!" {
		t.Errorf("updateProfile%v: %s", f.Arguments, f.Type)
	}
	conformance.Shown(t, "S3-047")
	shapes := map[string]string{"AuthToken": "accessToken String! refreshToken String! expiresAt String!",
		"IdentityAuth": "identityToken String! expiresAt String! superuser Boolean! memberships [Membership!]!",
		"Membership":   "tenant String! roles [String!]!", "Tenant": "token String! name String description String " +
			"branding TenantBranding! brandingOverride TenantBranding! basemap TenantBasemap! basemapOverride TenantBasemap! locale String localeOverride String",
		"TenantGovernance": "ingestMessagesPerSecond Float ingestBurst Int outboundMessagesPerSecond Float outboundBurst Int " +
			"aiExternalEnabled Boolean! aiInferenceRequestsPerMinute Float aiInferenceBurst Int shedPriority Int heldCommandCeiling Int " +
			"geoFenceCeiling Int geoFencePositionCeiling Int geoFencePositionBudget Int purgeState String! tierToken String!",
		"CurrentIdentity": "email String! firstName String lastName String", "ProfileUpdateRequest": "firstName String lastName String"}
	for name, want := range shapes {
		var fields []string
		for _, f := range schema.Types[name].Fields {
			fields = append(fields, f.Name+" "+f.Type.String())
		}
		if got := strings.Join(fields, " "); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
