package gql_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"

	"weir/auth"
	"weir/govern"
	"weir/internal/rootkey"
	"weir/internal/test/aiprovider"
	"weir/internal/test/conformance"
	"weir/internal/test/testweir"
	"weir/model"
	"weir/store"
	"weir/store/sqlite"
)

// The walk goes over every operation that the running program serves, as its published schema files name them. An
// operation or an update field that its tables (walk_table_test.go, described_test.go) do not know fails it.
func TestTheWalkOverTheServedSchemas(t *testing.T) {
	t.Parallel()
	w := startWalk(t)
	t.Run("every table row is served and every operation has a row", w.complete)
	t.Run("access", w.access)
	t.Run("subscriptions", w.subscriptions)
	t.Run("updates", w.updates)
	t.Run("renames", w.renames)
	t.Run("preconditions", w.preconditions)
}

const (
	walkSecret  = "a service secret of more than 32 bytes"
	walkTenant  = "acme"   // whose rows are asked for
	walkOther   = "globex" // who has none of them
	walkEmail   = "ada@example.org"
	otherEmail  = "eve@example.org"
	walkSuper   = "root@example.org"
	onlyAcme    = "only-acme-knows" // stands in every row of acme's, and in no argument
	internalErr = "internal error"
)

// walk is the real program on a directory that was furnished before its start: there is no API yet for identities, and
// an expired token is best made by signing in an hour ago.
type walk struct {
	*testweir.Proc
	schemas  map[string]*ast.Schema // by area
	own      string                 // administrator of acme
	other    string                 // administrator of globex
	identity string
	refresh  string
	expired  string
	without  map[model.Authority]string // members of acme whose roles give all but one authority
	ids      map[string]string          // of acme's rows, by type
	paths    map[string]string          // of the areas: the part of their endpoint that names them
	planes   map[string]string          // of the areas: tenant or identity
	ai       *aiprovider.Server
	operators
}

func startWalk(t *testing.T) *walk {
	t.Helper()
	dir := t.TempDir()
	ai := aiprovider.Start(t, "sk-of-the-walk")
	expired, expiredIdentity := furnishWalk(t, filepath.Join(dir, "data"))
	w := &walk{expired: expired, without: map[model.Authority]string{}, operators: operators{expired: expiredIdentity}, Proc: testweir.Start(t, testweir.Options{Dir: dir,
		Config: fmt.Sprintf("auth: {service_secret: %q}\nai: {enabled: true}\negress: {allowed_destinations: [%q]}\n", walkSecret, ai.Destination())}), ai: ai}
	var identity string
	w.own, w.refresh, identity = w.signIn(t, walkEmail, walkTenant)
	w.identity = identity
	w.other, _, _ = w.signIn(t, otherEmail, walkOther)
	for _, a := range notBaseline {
		w.without[a], _, _ = w.signIn(t, withoutEmail(a), walkTenant)
	}
	w.readSchemas(t)
	w.signInOperators(t)
	return w
}

// notBaseline are the authorities of the operations there are which not every member holds: only for these can a member
// be made who lacks exactly one.
var notBaseline = []model.Authority{model.DeviceWrite, model.LocationRead, model.DashboardRead, model.DashboardWrite, model.AuditRead, model.BrandingWrite, model.BasemapWrite, model.StateDemote, model.AIInfer}

func withoutEmail(a model.Authority) string {
	return "without-" + strings.ReplaceAll(string(a), ":", "-") + "@example.org"
}

// furnishWalk makes tenants, people and roles in a data directory where nothing runs, and returns an access token and an
// identity token that have expired since.
func furnishWalk(t *testing.T, data string) (expired, expiredIdentity string) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(makeDir(data))
	db, err := sqlite.Open(ctx, filepath.Join(data, "weir.db"), sqlite.Options{})
	must(err)
	defer func() { must(db.Close()) }()
	key, err := rootkey.Load(rootkey.Options{File: filepath.Join(data, "root.key")})
	must(err)
	vault := store.NewVault(key.Key)
	must(db.Write(ctx, store.Durable, vault.Claim))
	anHourAgo := func() time.Time { return time.Now().Add(-time.Hour) }
	direct := store.Direct{Store: db, Now: anHourAgo}
	tenants, err := govern.New(ctx, govern.DefaultConfig(), govern.Deps{Store: db, Writer: direct, Clock: anHourAgo})
	must(err)
	a, err := auth.New(ctx, auth.Config{InstanceID: "weir"}, auth.Deps{Store: db, Writer: direct, Vault: vault, Tenants: tenants,
		Hasher: auth.NewHasher(auth.Params{MemoryKiB: 8, Passes: 1, Lanes: 1}, nil), Clock: anHourAgo})
	must(err)
	operator := &model.Principal{Kind: model.LocalOperator, Subject: "local"}
	for _, tenant := range append([]string{walkTenant, walkOther}, updateTenants()...) {
		_, err := tenants.Tenants.Create(ctx, operator, store.Patch{"token": tenant})
		must(err)
	}
	person := func(email string, system []string, tenant string, roles ...string) {
		t.Helper()
		_, err := a.CreateIdentity(ctx, operator, auth.NewIdentity{Email: email, Password: testweir.Password, Enabled: true, SystemRoles: system})
		must(err)
		if tenant != "" {
			_, err = a.AddMembership(ctx, operator, email, tenant, roles)
			must(err)
		}
	}
	_, err = a.Roles.Create(ctx, operator, store.Patch{"scope": auth.ScopeTenant, "token": "demoter", "authorities": []any{string(model.StateDemote)}})
	must(err)
	person(walkEmail, nil, walkTenant, auth.RoleTenantAdmin, "demoter") // what no wildcard includes
	person(otherEmail, nil, walkOther, auth.RoleTenantAdmin, "demoter")
	person(walkSuper, []string{auth.RoleSuperuser}, "")
	for _, lacking := range notBaseline {
		role := "without-" + strings.ReplaceAll(string(lacking), ":", "-")
		_, err := a.Roles.Create(ctx, operator, store.Patch{"scope": auth.ScopeTenant, "token": role, "authorities": allBut(model.TierTenant, lacking)})
		must(err)
		person(withoutEmail(lacking), nil, walkTenant, role)
	}
	for _, email := range furnishOperators(ctx, must, a, operator) {
		person(email.address, []string{email.role}, "")
	}
	in, err := a.Login(ctx, walkEmail, testweir.Password, auth.RemoteAddr("127.0.0.1:1"))
	must(err)
	super, err := a.Login(ctx, walkSuper, testweir.Password, auth.RemoteAddr("127.0.0.1:1"))
	must(err)
	pair, err := a.SelectTenant(ctx, in.Token, walkTenant)
	must(err)
	if _, err := a.Authenticate(auth.PlaneTenant, pair.Access, ""); err != nil {
		t.Fatalf("the token was never good: %v", err)
	}
	return pair.Access, super.Token
}

// allBut is every authority of the tiers but one.
func allBut(tier model.Tier, lacking model.Authority) []string {
	var as []string
	for _, a := range model.Authorities(tier) {
		if a != lacking {
			as = append(as, string(a))
		}
	}
	return as
}

// signIn signs a person in at the running program.
func (w *walk) signIn(t testing.TB, email, tenant string) (access, refresh, identity string) {
	t.Helper()
	identity = w.login(email)
	access, refresh = w.enter(identity, tenant)
	return access, refresh, identity
}

// login proves a person at the running program.
func (w *walk) login(email string) (identity string) {
	var in struct {
		Login struct{ IdentityToken string }
	}
	w.Query("user-management", "", `mutation ($e: String!, $p: String!) { login(email: $e, password: $p) { identityToken } }`,
		map[string]any{"e": email, "p": testweir.Password}, &in)
	return in.Login.IdentityToken
}

func (w *walk) enter(identity, tenant string) (access, refresh string) {
	var sel struct {
		SelectTenant struct{ AccessToken, RefreshToken string }
	}
	w.Query("user-management", "", `mutation ($i: String!, $t: String!) { selectTenant(identityToken: $i, tenant: $t) { accessToken refreshToken } }`,
		map[string]any{"i": identity, "t": tenant}, &sel)
	return sel.SelectTenant.AccessToken, sel.SelectTenant.RefreshToken
}

// service mints a service token.
func (w *walk) service(t testing.TB, authorities ...string) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"subject": "walker", "authorities": authorities})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.API+"/api/user-management/auth/service-token", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Weir-Service-Secret", walkSecret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out struct{ Token string }
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || out.Token == "" {
		t.Fatalf("service token: %s %v", resp.Status, err)
	}
	return out.Token
}

// readSchemas reads what the program publishes.
func (w *walk) readSchemas(t testing.TB) {
	t.Helper()
	var index struct {
		Areas []struct{ Area, Schema, Endpoint, Plane string }
	}
	text, _ := w.get(t, "/schema/index.json")
	if err := json.Unmarshal([]byte(text), &index); err != nil {
		t.Fatal(err)
	}
	w.schemas, w.paths, w.planes = map[string]*ast.Schema{}, map[string]string{}, map[string]string{}
	for _, a := range index.Areas {
		path := a.Area
		if a.Schema != "" { // listed as having an API
			a.Area = strings.TrimSuffix(a.Schema[strings.LastIndex(a.Schema, "/")+1:], ".graphql")
			_, rest, _ := strings.Cut(a.Endpoint, "/api/")
			path = strings.TrimSuffix(rest, "/graphql")
		}
		sdl, status := w.get(t, "/schema/"+a.Area+".graphql")
		if status == http.StatusNotFound && a.Schema == "" {
			continue
		}
		w.paths[a.Area], w.planes[a.Area] = path, a.Plane
		schema, err := gqlparser.LoadSchema(&ast.Source{Name: a.Area, Input: sdl})
		if err != nil {
			t.Fatal(err)
		}
		w.schemas[a.Area] = schema
	}
}

func (w *walk) get(t testing.TB, path string) (body string, status int) {
	t.Helper()
	resp, err := http.Get(w.API + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return string(b), resp.StatusCode
}

// caller is how somebody presents himself.
type caller struct{ token, tenant string }

// reply is what he is answered.
type reply struct {
	status    int
	challenge string // WWW-Authenticate
	raw       string
	Data      map[string]json.RawMessage
	Errors    []struct {
		Message    string
		Path       []any
		Extensions struct{ Code, Reason string }
	}
}

// code is that of the first error, "" when there is none.
func (r *reply) code() model.Code {
	if len(r.Errors) == 0 {
		return ""
	}
	return model.Code(r.Errors[0].Extensions.Code)
}

func (r *reply) message() string {
	if len(r.Errors) == 0 {
		return ""
	}
	return r.Errors[0].Message
}

// empty reports whether the answer carries no data at all.
func (r *reply) empty() bool {
	for _, v := range r.Data {
		if string(v) != "null" {
			return false
		}
	}
	return true
}

// Fields that say something else at each moment.
var (
	asOf   = regexp.MustCompile(`,"asOf":"[^"]+"`)
	wallMs = regexp.MustCompile(`"wallMs":[0-9]+`)
)

// ask sends a request. An answer of the kind that must never come fails the test.
func (w *walk) ask(t testing.TB, area string, c caller, query string, vars map[string]any) *reply {
	t.Helper()
	path := area
	if w.paths[area] != "" {
		path = w.paths[area]
	}
	q := testweir.GraphQL{API: w.API, Area: path, Token: c.token, Query: query, Variables: vars}
	if c.tenant != "" {
		q.Header = http.Header{"X-Weir-Tenant": {c.tenant}}
	}
	resp, b, err := q.Post(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b = wallMs.ReplaceAll(asOf.ReplaceAll(b, nil), []byte(`"wallMs":0`))
	r := &reply{status: resp.StatusCode, challenge: resp.Header.Get("WWW-Authenticate"), raw: string(b)}
	if err := json.Unmarshal(b, r); err != nil {
		t.Fatalf("%s: %s: %s", query, resp.Status, b)
	}
	for _, e := range r.Errors {
		if strings.Contains(e.Message, internalErr) {
			t.Errorf("%s: %s", query, b)
		}
	}
	if resp.StatusCode >= 500 {
		t.Errorf("%s: %s", query, resp.Status)
	}
	return r
}

// complete holds the tables against what is served.
func (w *walk) complete(t *testing.T) {
	for _, area := range slices.Sorted(maps.Keys(w.schemas)) {
		rows := map[string]bool{}
		for _, op := range walkTable[area] {
			rows[op.kind+" "+op.name] = true
		}
		served := map[string]bool{}
		for kind, root := range rootsOf(w.schemas[area]) {
			for _, f := range root.Fields {
				if strings.HasPrefix(f.Name, "__") {
					continue
				}
				served[kind+" "+f.Name] = true
				if !rows[kind+" "+f.Name] {
					t.Errorf("%s serves the %s %s, which the walk does not know: give it a row in walkTable", area, kind, f.Name)
				}
			}
		}
		for row := range rows {
			if !served[row] {
				t.Errorf("%s: the walk knows the %s, which is not served", area, row)
			}
		}
	}
	for area := range walkTable {
		if w.schemas[area] == nil {
			t.Errorf("the area %s is not served", area)
		}
	}
}

func rootsOf(s *ast.Schema) map[string]*ast.Definition {
	roots := map[string]*ast.Definition{}
	for kind, def := range map[string]*ast.Definition{"query": s.Query, "mutation": s.Mutation, "subscription": s.Subscription} {
		if def != nil {
			roots[kind] = def
		}
	}
	return roots
}

// document writes an operation with every field that its type shows, four levels deep.
func (w *walk) document(area string, op walkOp) string {
	s := w.schemas[area]
	f := rootsOf(s)[op.kind].Fields.ForName(op.name)
	return op.kind + " { " + op.name + w.filled(op.args) + selectAll(s, f.Type.Name(), 4, nil) + " }"
}

// filled replaces <Type> in arguments by the id of acme's row of the type.
func (w *walk) filled(args string) string {
	for typ, id := range w.ids {
		args = strings.ReplaceAll(args, "<"+typ+">", id)
	}
	args = strings.ReplaceAll(args, "<identity>", w.identity)
	if w.ai != nil {
		args = strings.NewReplacer("<AI endpoint>", w.ai.Endpoint(aiprovider.OpenAI), "<AI key>", w.ai.Key).Replace(args)
	}
	return strings.ReplaceAll(args, "<refresh>", w.refresh)
}

// selectAll selects every field without arguments that must be given, but no type inside of itself.
func isPage(typ string) bool { return strings.HasSuffix(typ, "SearchResults") }

func selectAll(s *ast.Schema, typ string, depth int, inside []string) string {
	def := s.Types[typ]
	if def.Kind == ast.Scalar || def.Kind == ast.Enum {
		return ""
	}
	var parts []string
	for _, f := range def.Fields {
		child := s.Types[f.Type.Name()]
		leaf := child.Kind == ast.Scalar || child.Kind == ast.Enum
		if strings.HasPrefix(f.Name, "__") || notListed[typ] == f.Name && slices.ContainsFunc(inside, isPage) || !leaf && (depth == 1 || slices.Contains(inside, child.Name)) {
			continue
		}
		page := ""
		if f.Arguments.ForName("pagination") != nil {
			page = "(pagination: {pageNumber: 1, pageSize: 10})"
		}
		below := selectAll(s, child.Name, depth-1, append(inside, typ))
		if below == nothing {
			continue
		}
		parts = append(parts, f.Name+page+below)
	}
	return " { " + strings.Join(parts, " ") + " }"
}

// nothing is what selectAll returns of a type without a field that is not too deep.
const nothing = " {  }"

// access calls every query and mutation as everybody who must be refused, as a stranger, and at last as who may.
func (w *walk) access(t *testing.T) {
	w.furnishAcme(t)
	w.refusedOperators(t)
	before := w.everythingOf(t, w.own)
	for _, area := range slices.Sorted(maps.Keys(w.schemas)) {
		for _, op := range walkTable[area] {
			if op.kind != "subscription" && w.planes[area] != identityPlane {
				w.refusals(t, area, op)
				w.stranger(t, area, op)
			}
		}
	}
	if after := w.everythingOf(t, w.own); after != before {
		t.Errorf("those who were refused have changed acme\nfrom %s\nto   %s", before, after)
	}
	for _, area := range slices.Sorted(maps.Keys(w.schemas)) {
		for _, op := range walkTable[area] {
			switch {
			case op.kind == "subscription":
			case w.planes[area] == identityPlane:
				w.operator(t, area, op)
			default:
				w.owner(t, area, op)
			}
		}
	}
	w.services(t)
	w.systemRoles(t)
	conformance.Shown(t, "S3-095", "S3-096", "S3-097", "S3-098", "S3-033", "S3-034", "S1-016", "S1-012", "S1-017", "S3-010", "S3-099")
}

// services: what an operation for any caller asks of a service besides.
func (w *walk) services(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		authority model.Authority
		query     string
		code      model.Code
		message   string
	}{
		{model.TenantRead, `{ me { email } }`, model.CodeUnauthenticated, "unauthenticated"},
		{model.TenantRead, `mutation { updateProfile(request: {firstName: "x"}) { email } }`, model.CodeUnauthenticated, "unauthenticated"},
		{model.DeviceRead, `{ tenantGovernance { tierToken } }`, model.CodeForbidden, "forbidden: tenant:read is required"},
		{model.TenantRead, `{ tenantGovernance { tierToken } }`, "", ""},
		{model.DeviceRead, `{ tenant { token } }`, "", ""},
	} {
		r := w.ask(t, "user-management", caller{w.service(t, string(c.authority)), walkTenant}, c.query, nil)
		if r.code() != c.code || !strings.HasPrefix(r.message(), c.message) || (c.code != "") != r.empty() {
			t.Errorf("%s by a service with %s: %s", c.query, c.authority, r.raw)
		}
	}
}

// refusals calls an operation as everybody who may not.
func (w *walk) refusals(t *testing.T, area string, op walkOp) {
	t.Helper()
	query := w.document(area, op)
	for name, token := range map[string]string{"an expired token": w.expired, "an identity token": w.identity, "a refresh token": w.refresh,
		"no token of ours": "eyJhbGciOiJub25lIn0.e30.", "a token cut short": w.own[:len(w.own)-4]} {
		r := w.ask(t, area, caller{token: token}, query, nil)
		if r.status != http.StatusUnauthorized || r.code() != model.CodeUnauthenticated || !r.empty() || r.challenge != "Bearer" ||
			!strings.HasPrefix(r.message(), "unauthenticated") {
			t.Errorf("%s %s with %s: %d %s", area, op.name, name, r.status, r.raw)
		}
	}
	if op.anonymous {
		return
	}
	refused := func(who string, c caller, code model.Code, message string) {
		t.Helper()
		r := w.ask(t, area, c, query, nil)
		if r.status != http.StatusOK || len(r.Errors) != 1 || r.code() != code || r.message() != message || !r.empty() {
			t.Errorf("%s %s with %s: %d %s, want %s %q", area, op.name, who, r.status, r.raw, code, message)
		}
	}
	refused("no token", caller{}, model.CodeUnauthenticated, "unauthenticated: a token is required")
	everything := allBut(model.TierSystem|model.TierTenant, "")
	if !op.noTenant {
		all := w.service(t, everything...)
		for _, tenant := range []string{"", "nowhere", "no.token"} {
			refused(fmt.Sprintf("the tenant %q", tenant), caller{all, tenant}, model.CodeUnauthenticated, "unauthenticated: no tenant is resolved")
		}
	}
	if op.needs == "" {
		return
	}
	message := ""
	for _, needs := range []model.Authority{op.also, op.needs} {
		if needs == "" {
			continue
		}
		message = "forbidden: " + string(needs) + " is required"
		refused("all authorities but one", caller{w.service(t, allBut(model.TierSystem|model.TierTenant, needs)...), walkTenant}, model.CodeForbidden, message)
		if token := w.without[needs]; token != "" {
			refused("a role without the authority", caller{token: token}, model.CodeForbidden, message)
		}
	}
	if model.TierOf(op.needs)&model.TierTenant == 0 {
		refused("an access token for a system operation", caller{token: w.own}, model.CodeForbidden, message)
	}
}

// stranger calls an operation as the administrator of another tenant.
func (w *walk) stranger(t *testing.T, area string, op walkOp) {
	t.Helper()
	r := w.ask(t, area, caller{token: w.other}, w.document(area, op), nil)
	if strings.Contains(r.raw, onlyAcme) || r.status != http.StatusOK {
		t.Errorf("%s %s tells another tenant: %d %s", area, op.name, r.status, r.raw)
	}
	switch want := w.filled(op.stranger); {
	case want == "":
		if len(r.Errors) > 0 {
			t.Errorf("%s %s of another tenant: %s", area, op.name, r.raw)
		}
	case strings.HasPrefix(want, "!"): // a refusal: code and message
		code, text, _ := strings.Cut(want[1:], " ")
		if string(r.code()) != code || !strings.Contains(r.message(), text) || !r.empty() {
			t.Errorf("%s %s of another tenant: %s, want %s with %q", area, op.name, r.raw, code, text)
		}
	case string(r.Data[op.name]) != want || len(r.Errors) > 0:
		t.Errorf("%s %s of another tenant: %s, want %s", area, op.name, r.raw, want)
	}
}

// owner calls an operation as who may, with every authority and with exactly the one it needs.
func (w *walk) owner(t *testing.T, area string, op walkOp) {
	t.Helper()
	query := w.document(area, op)
	if op.anonymous {
		if r := w.ask(t, area, caller{}, query, nil); (op.owner == "") != (len(r.Errors) == 0) || !strings.Contains(r.message(), op.owner) {
			t.Errorf("%s %s without a token: %s", area, op.name, r.raw)
		}
		return
	}
	by := caller{token: w.own}
	if model.TierOf(op.needs) == model.TierSystem {
		by = caller{token: w.service(t, string(op.needs))}
		if !op.noTenant {
			by.tenant = walkTenant
		}
	}
	r := w.ask(t, area, by, query, nil)
	if op.owner != "" {
		if r.message() != op.owner {
			t.Errorf("%s %s: %s, want %s", area, op.name, r.raw, op.owner)
		}
		return
	}
	if len(r.Errors) > 0 || r.empty() {
		t.Errorf("%s %s: %s", area, op.name, r.raw)
	}
	if w.filled(op.stranger) != "" && string(r.Data[op.name]) == w.filled(op.stranger) {
		t.Errorf("%s %s gives a stranger what it gives its owner, so the walk shows nothing: %s", area, op.name, r.raw)
	}
	if op.kind != "query" || op.needs == "" {
		return
	}
	if only := w.ask(t, area, caller{w.service(t, string(op.needs)), walkTenant}, query, nil); only.raw != r.raw {
		t.Errorf("%s %s with %s alone: %s, want %s", area, op.name, op.needs, only.raw, r.raw)
	}
}
