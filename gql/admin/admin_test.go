package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/auth"
	"weir/gql"
	"weir/gql/admin"
	"weir/health"
	"weir/internal/logring"
	"weir/internal/test/domain"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
	"weir/store/entity"
	"weir/store/sqlite"
)

const password = "correct horse battery"

// world is the identity plane over real tenants and identities.
type world struct {
	testing.TB
	*domain.Domain
	*fixture.Clock
	db     *sqlite.DB
	server *gql.Server
	super  string // identity token of root@example.org, a superuser
	looks  int    // how often the instance was examined

	backups *fakeBackups
	lines   *logring.Ring
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{TB: t, Clock: fixture.NewClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)), db: fixture.Store(t)}
	w.Domain = domain.New(t, domain.Config{Store: w.db, Writer: store.Direct{Store: w.db, Now: w.Now}, Clock: w.Now})
	d := admin.Deps{Auth: w.Auth, Govern: w.Govern, Journal: entity.Journal{Store: w.db}, Areas: []string{"user-management"}, Store: w.db, Writer: store.Direct{Store: w.db, Now: w.Now}}
	w.backups, w.lines = &fakeBackups{now: w.Now}, logring.New(w.Now)
	w.server = gql.New(gql.Config{})
	admin.Register(w.server.Area(admin.Area, gql.IdentityPlane), d)
	d.Instance = admin.Instance{Now: w.Now, Backups: w.backups, Recounts: &fakeRecounts{}, Log: w.lines, Configuration: func() []admin.ConfigurationValue {
		return []admin.ConfigurationValue{{Key: "data_dir", Value: `"d"`, Origin: "weir.yaml:1"}}
	},
		Status: func(context.Context) (any, error) { return map[string]bool{"ready": true}, nil },
		Findings: func(context.Context) (*health.Report, error) {
			w.looks++
			r := &health.Report{}
			for _, f := range []health.Finding{{ID: "store", Result: health.OK, Text: "fine"}, {ID: "clock", Result: health.Skipped, Text: "not asked"},
				{ID: "space", Result: health.Failure, Text: "full", Hint: "delete something"}, {ID: "backup", Result: health.Warning, Text: "none"}} {
				r.Add(f)
			}
			return r, nil
		}}
	admin.RegisterSettings(w.server.Area(admin.SettingsArea, gql.IdentityPlane), d)
	if err := w.server.Build(); err != nil {
		t.Fatal(err)
	}
	w.person("root@example.org", auth.RoleSuperuser)
	w.super = w.login("root@example.org", password)
	return w
}

// person makes an identity with system roles.
func (w *world) person(email string, roles ...string) {
	w.Helper()
	if _, err := w.Auth.CreateIdentity(w.Context(), fixture.Operator(), auth.NewIdentity{Email: email, Password: password, Enabled: true, SystemRoles: roles}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) login(email, password string) string {
	w.Helper()
	in, err := w.Auth.Login(w.Context(), email, password, auth.RemoteAddr("127.0.0.1:1"))
	if err != nil {
		w.Fatalf("%s: %v", email, err)
	}
	return in.Token
}

// answer is what came back.
type answer struct {
	Data   map[string]any
	Errors []struct {
		Message    string
		Extensions struct{ Code string }
	}
	raw string
}

func (a answer) refusal() string {
	if len(a.Errors) == 0 {
		return ""
	}
	return a.Errors[0].Extensions.Code + " " + a.Errors[0].Message
}

func (w *world) ask(area, token, query string) (a answer) {
	w.Helper()
	body, err := json.Marshal(map[string]string{"query": query})
	if err != nil {
		w.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/graphql", strings.NewReader(string(body)))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	rec := httptest.NewRecorder()
	w.server.Handler(area, gql.ByToken(w.Auth)).ServeHTTP(rec, r)
	a.raw = rec.Body.String()
	if err := json.Unmarshal(rec.Body.Bytes(), &a); err != nil {
		w.Fatalf("%s: %s", query, a.raw)
	}
	if strings.Contains(a.raw, "internal error") {
		w.Errorf("%s: %s", query, a.raw)
	}
	return a
}

// gives runs a request of the superuser and compares the whole answer.
func (w *world) gives(area, query, want string) {
	w.Helper()
	if got := w.ask(area, w.super, query).raw; got != `{"data":`+want+`}` {
		w.Errorf("%s\ngives %s\nwant  %s", query, got, want)
	}
}

// refuses runs a request of the superuser that must be refused with a code and a text.
func (w *world) refuses(area, query string, code model.Code, text string) {
	w.Helper()
	if got := w.ask(area, w.super, query); !strings.HasPrefix(got.refusal(), string(code)+" ") || !strings.Contains(got.refusal(), text) {
		w.Errorf("%s: %s, want %s with %q", query, got.raw, code, text)
	}
}

func (w *world) scalar(query string) (text string) {
	w.Helper()
	if err := w.db.Read(w.Context(), func(tx store.Tx) error { return tx.QueryRow(query).Scan(&text) }); err != nil {
		w.Fatalf("%s: %v", query, err)
	}
	return text
}

func TestTiersAndTenantsShowTheirGovernance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gives(admin.Area, `mutation { a: createTenantTier(request: {token: "iron", config: "{\"ingestBurst\":700}"}) { token displayOrder tenantCount color }
		b: createTenant(request: {token: "acme", tierToken: "iron", ingestMessagesPerSecond: 12.5}) { token enabled purgeState purgeEpoch tier { token tenantCount }
			effectiveSettings { dimension { name rateField burstField rateUnit } rate { source value tier override } burst { source value tier override } } } }`,
		`{"a":{"token":"iron","displayOrder":4,"tenantCount":0,"color":""},"b":{"token":"acme","enabled":true,"purgeState":"active","purgeEpoch":null,"tier":{"token":"iron","tenantCount":1},`+
			`"effectiveSettings":[{"dimension":{"name":"ingest","rateField":"ingestMessagesPerSecond","burstField":"ingestBurst","rateUnit":"readings/sec"},"rate":{"source":"override","value":12.5,"tier":null,"override":12.5},"burst":{"source":"tier","value":700,"tier":700,"override":null}},`+
			`{"dimension":{"name":"outbound","rateField":"outboundMessagesPerSecond","burstField":"outboundBurst","rateUnit":"calls/sec"},"rate":{"source":"platform-default","value":null,"tier":null,"override":null},"burst":{"source":"platform-default","value":null,"tier":null,"override":null}},`+
			`{"dimension":{"name":"ai-inference","rateField":"aiInferenceRequestsPerMinute","burstField":"aiInferenceBurst","rateUnit":"requests/min"},"rate":{"source":"platform-default","value":null,"tier":null,"override":null},"burst":{"source":"platform-default","value":null,"tier":null,"override":null}}]}}`)
	w.gives(admin.Area, `mutation { updateTenant(token: "acme", request: {name: "Acme"}) { registryBytesUsed registryBytesCeiling } }`, `{"updateTenant":{"registryBytesUsed":0,"registryBytesCeiling":67108864}}`)
	if err := w.db.Write(t.Context(), store.Durable, func(tx store.Tx) error {
		id, err := store.TenantID(tx, "acme")
		if err != nil {
			return err
		}
		return store.SetMetaInt(tx, fmt.Sprint("tenant_bytes/", id), 4321)
	}); err != nil {
		t.Fatal(err)
	}
	w.gives(admin.Area, `{ tenants { token registryBytesUsed } }`, `{"tenants":[{"token":"acme","registryBytesUsed":4321}]}`)
	w.gives(admin.Area, `mutation { reorderTenantTiers(orderedTokens: ["iron", "bronze", "silver", "gold"]) { token displayOrder tenantCount } }`,
		`{"reorderTenantTiers":[{"token":"iron","displayOrder":1,"tenantCount":1},{"token":"bronze","displayOrder":2,"tenantCount":0},{"token":"silver","displayOrder":3,"tenantCount":0},{"token":"gold","displayOrder":4,"tenantCount":0}]}`)
	w.gives(admin.Area, `{ tierColorPalette { colors } governanceDimensions { name label } }`,
		`{"tierColorPalette":{"colors":["slate","gray","red","orange","amber","green","teal","sky","blue","violet","fuchsia","rose"]},`+
			`"governanceDimensions":[{"name":"ingest","label":"Ingest"},{"name":"outbound","label":"Outbound"},{"name":"ai-inference","label":"AI inference"}]}`)
	w.refuses(admin.Area, `mutation { deleteTenantTier(token: "iron") }`, model.CodeInUse, "tenant")
	w.gives(admin.Area, `mutation { a: updateTenant(token: "acme", request: {tierToken: "gold"}) { tier { token tenantCount } } b: deleteTenantTier(token: "iron") c: deleteTenantTier(token: "iron") }`,
		`{"a":{"tier":{"token":"gold","tenantCount":1}},"b":true,"c":false}`)
	for query, want := range map[string][2]string{
		`mutation { createTenant(request: {token: "b.c", tierToken: "gold"}) { id } }`:                                     {"INVALID_INPUT", "token"},
		`mutation { createTenant(request: {token: "b", tierToken: "lead"}) { id } }`:                                       {"INVALID_INPUT", "tierToken"},
		`mutation { createTenant(request: {token: "acme", tierToken: "gold"}) { id } }`:                                    {"CONFLICT", "unique"},
		`mutation { updateTenant(token: "nobody", request: {name: "x"}) { id } }`:                                          {"NOT_FOUND", "nobody"},
		`mutation { setTenantEnabled(token: "nobody", enabled: false) { id } }`:                                            {"NOT_FOUND", "nobody"},
		`mutation { createTenantTier(request: {token: "x", config: "{\"ingestBurts\":1}"}) { id } }`:                       {"INVALID_INPUT", "ingestBurts"},
		`mutation { createTenantTier(request: {token: "x", color: "pink"}) { id } }`:                                       {"INVALID_INPUT", "color"},
		`mutation { reorderTenantTiers(orderedTokens: ["gold"]) { id } }`:                                                  {"INVALID_INPUT", "orderedTokens"},
		`mutation { updateTenant(token: "acme", request: {shedPriority: 101}) { id } }`:                                    {"INVALID_INPUT", "shedPriority"},
		`mutation { createRole(request: {scope: "both", token: "x", authorities: []}) { id } }`:                            {"INVALID_INPUT", "scope"},
		`mutation { createRole(request: {scope: "tenant", token: "x", authorities: ["user:read"]}) { id } }`:               {"INVALID_INPUT", "authorities"},
		`mutation { updateRole(scope: "system", token: "tenant-admin", request: {name: "x"}) { id } }`:                     {"NOT_FOUND", "tenant-admin"},
		`mutation { updateRole(token: "superuser", request: {name: "x"}) { id } }`:                                         {"INVALID_INPUT", "superuser"},
		`{ roles(scope: "both") { id } }`:                                                                                  {"INVALID_INPUT", "scope"},
		`mutation { setSystemRoles(email: "root@example.org", roleTokens: []) { id } }`:                                    {"INVALID_INPUT", "last enabled superuser"},
		`mutation { setSystemRoles(email: "root@example.org", roleTokens: ["superuser", "nothing"]) { id } }`:              {"INVALID_INPUT", "nothing"},
		`mutation { createIdentity(request: {email: "x@y.z", password: "short", enabled: true, systemRoles: []}) { id } }`: {"INVALID_INPUT", "password"},
		`mutation { addMembership(email: "root@example.org", tenant: "nowhere", roleTokens: []) { id } }`:                  {"INVALID_INPUT", "nowhere"},
		`mutation { addMembership(email: "root@example.org", tenant: "acme", roleTokens: ["operator"]) { id } }`:           {"INVALID_INPUT", "operator"},
	} {
		w.refuses(admin.Area, query, model.Code(want[0]), want[1])
	}
}

func TestClientsHaveTheirSecretShownOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const made = `request: {clientId: "%s", redirectUris: ["https://app.example.org/back", "http://localhost:8123/"], scopes: ["read-only", "location", "read-only"], confidential: %v}`
	w.gives(admin.Area, `mutation { createOauthClient(`+fmt.Sprintf(made, "console.web", false)+`) { clientSecret client { clientId name enabled redirectUris scopes hasSecret } } }`,
		`{"createOauthClient":{"clientSecret":null,"client":{"clientId":"console.web","name":null,"enabled":true,"redirectUris":["https://app.example.org/back","http://localhost:8123/"],"scopes":["location","read-only"],"hasSecret":false}}}`)
	secret := func(query, field string) string {
		t.Helper()
		a := w.ask(admin.Area, w.super, "mutation { "+query+" { clientSecret client { clientId hasSecret } } }")
		v, _ := a.Data[field].(map[string]any)
		text, _ := v["clientSecret"].(string)
		if len(text) != 43 || !strings.Contains(a.raw, `"hasSecret":true`) {
			t.Fatalf("%s: %s", query, a.raw)
		}
		return text
	}
	stored := func(secret string) string {
		return fmt.Sprintf("%x", auth.HashSecret(secret))
	}
	first := secret(`createOauthClient(`+fmt.Sprintf(made, "tool", true)+`)`, "createOauthClient")
	if got := w.scalar(`SELECT secret_hash FROM oauth_clients WHERE client_id = 'tool'`); got != stored(first) {
		t.Errorf("stored as %q, want %q", got, stored(first))
	}
	second := secret(`rotateOauthClientSecret(clientId: "tool")`, "rotateOauthClientSecret")
	if got := w.scalar(`SELECT secret_hash FROM oauth_clients WHERE client_id = 'tool'`); got != stored(second) || first == second {
		t.Errorf("rotated to %q, want %q", got, stored(second))
	}
	secret(`rotateOauthClientSecret(clientId: "console.web")`, "rotateOauthClientSecret")
	for _, text := range []string{first, second} {
		if strings.Contains(fixture.Dump(t, w.db, "oauth_clients", "audit_events"), text) {
			t.Error("a secret is stored")
		}
	}
	w.gives(admin.Area, `mutation { a: updateOauthClient(clientId: "tool", request: {name: "Tool"}) { name scopes hasSecret } b: updateOauthClient(token: "tool", request: {scopes: ["location"]}) { name scopes }
		c: setOauthClientEnabled(clientId: "tool", enabled: false) { enabled } }`,
		`{"a":{"name":"Tool","scopes":["location","read-only"],"hasSecret":true},"b":{"name":"Tool","scopes":["location"]},"c":{"enabled":false}}`)
	for query, want := range map[string][2]string{
		`mutation { updateOauthClient(request: {name: "x"}) { id } }`:                                  {"INVALID_INPUT", "clientId"},
		`mutation { updateOauthClient(clientId: "tool", token: "tool", request: {name: "x"}) { id } }`: {"INVALID_INPUT", "clientId"},
		`mutation { updateOauthClient(clientId: "nobody", request: {name: "x"}) { id } }`:              {"NOT_FOUND", "nobody"},
		`mutation { rotateOauthClientSecret(clientId: "nobody") { clientSecret } }`:                    {"NOT_FOUND", "nobody"},
		`mutation { setOauthClientEnabled(clientId: "nobody", enabled: true) { id } }`:                 {"NOT_FOUND", "nobody"},
		`mutation { updateOauthClient(clientId: "tool", request: {scopes: ["write"]}) { id } }`:        {"INVALID_INPUT", "scopes"},
		`mutation { createOauthClient(` + fmt.Sprintf(made, "tool", true) + `) { client { id } } }`:    {"CONFLICT", "unique"},
		`mutation { createOauthClient(` + fmt.Sprintf(made, "to:ol", true) + `) { client { id } } }`:   {"INVALID_INPUT", "clientId"},
	} {
		w.refuses(admin.Area, query, model.Code(want[0]), want[1])
	}
	for _, uri := range []string{"http://app.example.org/", "https://app.example.org/#x", "https://", "app", "/back", "javascript:alert(1)", "https://user@app.example.org/", "https:// app",
		"http://127.0.0.1.example.org/", "ftp://localhost/", ""} {
		w.refuses(admin.Area, fmt.Sprintf(`mutation { updateOauthClient(clientId: "tool", request: {redirectUris: [%q]}) { id } }`, uri), model.CodeInvalidInput, "redirectUris")
	}
	w.gives(admin.Area, `mutation { updateOauthClient(clientId: "tool", request: {redirectUris: ["http://127.0.0.1:9/x", "http://[::1]/", "https://a.example.org/cb?x=1"]}) { redirectUris } }`,
		`{"updateOauthClient":{"redirectUris":["http://127.0.0.1:9/x","http://[::1]/","https://a.example.org/cb?x=1"]}}`)
	w.gives(admin.Area, `mutation { a: deleteOauthClient(clientId: "tool") b: deleteOauthClient(clientId: "tool") }`, `{"a":true,"b":false}`)
	w.gives(admin.Area, `{ oauthClients { clientId } }`, `{"oauthClients":[{"clientId":"console.web"}]}`)
}

func TestSettingsReplaceTheBuiltInOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const all = `{ settings { key } masks: setting(key: "entity.token_masks") { key value overridden updatedAt updatedBy } tokenMasks setting(key: "nothing") { key } }`
	const builtIn = `{"settings":[{"key":"basemap.default"},{"key":"branding.default"},{"key":"entity.token_masks"},{"key":"locale.default"}],"masks":{"key":"entity.token_masks","value":"{\"default\":\"{slug}\"}","overridden":false,"updatedAt":null,"updatedBy":null},"tokenMasks":"{\"default\":\"{slug}\"}","setting":null}`
	w.gives(admin.SettingsArea, all, builtIn)
	set := func(value string) string {
		return fmt.Sprintf(`mutation { setSetting(key: "entity.token_masks", value: %q) { value overridden updatedAt updatedBy } }`, value)
	}
	for _, value := range []string{`{}`, `{"default":"dev-{numeric-8}"}`, `{"default":"{uuid}","device":"{alphanumeric-128}"}`, `{"Area":"A{slug}-{alphanumeric-4}"}`} {
		w.Step(time.Second)
		at := w.Now().Format(time.RFC3339)
		text, _ := json.Marshal(value)
		w.gives(admin.SettingsArea, set(value), `{"setSetting":{"value":`+string(text)+`,"overridden":true,"updatedAt":"`+at+`","updatedBy":"root@example.org"}}`)
		if got, err := w.Govern.TokenMasks(t.Context()); got != value || err != nil {
			t.Errorf("the masks are %s, %v, want %s", got, err, value)
		}
	}
	for _, value := range []string{``, `null`, `[]`, `{"a":1}`, `{"a":null}`, `{"":"{slug}"}`, `{"a":"fixed"}`, `{"a":"{slug} x"}`, `{"a":"{slug}{other}"}`, `{"a":"-{slug}"}`, `{"a":"{alphanumeric-129}"}`,
		`{"a":"{uuid}{alphanumeric-99}"}`, `{"a":"{numeric-0}"}`, `{"a":"{numeric}"}`, `{"a":"{slug}"`} {
		w.refuses(admin.SettingsArea, set(value), model.CodeInvalidInput, "value")
	}
	w.refuses(admin.SettingsArea, set(`{"a":"{slug}`+strings.Repeat("x", 1<<16)+`"}`), model.CodeLimitExceeded, "value")
	w.refuses(admin.SettingsArea, `mutation { setSetting(key: "nothing", value: "{}") { key } }`, model.CodeNotFound, "nothing")
	w.refuses(admin.SettingsArea, `mutation { clearSetting(key: "nothing") { key } }`, model.CodeNotFound, "nothing")
	w.gives(admin.SettingsArea, `mutation { a: clearSetting(key: "entity.token_masks") { overridden updatedBy } b: clearSetting(key: "entity.token_masks") { value } }`,
		`{"a":{"overridden":false,"updatedBy":null},"b":{"value":"{\"default\":\"{slug}\"}"}}`)
	w.gives(admin.SettingsArea, all, builtIn)
}

func TestTheJournalIsFilteredForOperators(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gives(admin.Area, `mutation { a: createTenant(request: {token: "acme", tierToken: "gold"}) { token } b: createTenant(request: {token: "globex", tierToken: "gold"}) { token }
		c: addMembership(email: "root@example.org", tenant: "globex", roleTokens: []) { email } d: createRole(request: {scope: "tenant", token: "reader", authorities: []}) { token } }`,
		`{"a":{"token":"acme"},"b":{"token":"globex"},"c":{"email":"root@example.org"},"d":{"token":"reader"}}`)
	list := func(criteria string) string {
		return `{ auditEvents(criteria: {pageNumber: 1, pageSize: 2, ` + criteria + `}) { results { category tenant actor operation tableName entityLabel rowsAffected } pagination { pageStart pageEnd totalRecords } } }`
	}
	const none = `{"auditEvents":{"results":[],"pagination":{"pageStart":0,"pageEnd":0,"totalRecords":0}}}`
	w.gives(admin.Area, list(`tenant: "globex"`), `{"auditEvents":{"results":[{"category":"mutation","tenant":"globex","actor":"root@example.org","operation":"create","tableName":"memberships","entityLabel":"1","rowsAffected":1}],`+
		`"pagination":{"pageStart":1,"pageEnd":1,"totalRecords":1}}}`)
	w.gives(admin.Area, list(`actor: "ROOT@", operation: "create"`), `{"auditEvents":{"results":[{"category":"mutation","tenant":null,"actor":"root@example.org","operation":"create","tableName":"roles","entityLabel":"reader","rowsAffected":1},`+
		`{"category":"mutation","tenant":"globex","actor":"root@example.org","operation":"create","tableName":"memberships","entityLabel":"1","rowsAffected":1}],"pagination":{"pageStart":1,"pageEnd":2,"totalRecords":4}}}`)
	w.gives(admin.Area, list(`category: "auth", operation: "login", endTime: "2026-03-01T12:00:00Z"`), `{"auditEvents":{"results":[{"category":"auth","tenant":null,"actor":"root@example.org","operation":"login","tableName":null,"entityLabel":"root@example.org","rowsAffected":0}],`+
		`"pagination":{"pageStart":1,"pageEnd":1,"totalRecords":1}}}`)
	for _, criteria := range []string{`tenant: "nowhere"`, `tenant: "acme"`, `actor: "_oot"`, `category: "mutatio"`, `startTime: "2026-03-01T12:00:00.000001Z"`, `endTime: "2026-03-01T11:59:59.999999Z"`} {
		w.gives(admin.Area, list(criteria), none)
	}
	w.refuses(admin.Area, list(`startTime: "yesterday"`), model.CodeInvalidInput, "startTime")
}
