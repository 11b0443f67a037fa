package e2e_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weir/internal/test/conformance"
	"weir/internal/test/testweir"
)

// areaIndex is what /schema/index.json lists.
type areaIndex struct{ Areas []listedArea }

type listedArea struct {
	Area, Plane, Token, Endpoint, Schema string
	API                                  *bool
}

// path is the part of the endpoint that names the area and its plane.
func (a listedArea) path() string {
	_, rest, _ := strings.Cut(a.Endpoint, "/api/")
	return strings.TrimSuffix(rest, "/graphql")
}

// bearer is the token that an anonymous request of the area needs: the identity plane answers nobody without one.
func (a listedArea) bearer(w *world) string {
	if a.Plane == "identity" {
		return w.Identity()
	}
	return ""
}

func (w *world) index(t testing.TB) areaIndex {
	t.Helper()
	var ix areaIndex
	resp, body := w.get(t, "/schema/index.json")
	if err := json.Unmarshal([]byte(body), &ix); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %v %s", resp.Status, err, body)
	}
	return ix
}

func publishedSchemas(t *testing.T, w *world) {
	ix := w.index(t)
	served, variants := 0, []string(nil)
	for _, a := range ix.Areas {
		if a.Schema == "" {
			continue
		}
		served++
		endpoint, file, token := a.Area, a.Area, "access"
		if a.Plane == "identity" {
			variant := strings.TrimSuffix(a.Schema[strings.LastIndex(a.Schema, "-")+1:], ".graphql")
			endpoint, file, token = a.Area+"/"+variant, a.Area+"-"+variant, "identity"
			variants = append(variants, file)
		}
		if a.Plane == "service" {
			token = "service"
		}
		if a.Endpoint != w.API+"/api/"+endpoint+"/graphql" || a.Schema != w.API+"/schema/"+file+".graphql" || a.Token != token {
			t.Errorf("%+v", a)
		}
		resp, body := w.get(t, strings.TrimPrefix(a.Schema, w.API))
		if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") ||
			resp.Header.Get("Access-Control-Allow-Origin") != "*" || !strings.HasPrefix(body, "# Area: "+a.Area+"\n") || !strings.Contains(body, "# Plane: "+a.Plane+"\n") ||
			!strings.Contains(body, "# Endpoint: {base_url}/api/"+endpoint+"/graphql\n") || !strings.Contains(body, "# Token: "+token+" token") &&
			a.Area != "event-sources" {
			t.Errorf("%s: %s %v %.200s", a.Schema, resp.Status, resp.Header, body)
		}
	}
	if want := []string{"user-management-admin", "user-management-settings", "ai-inference-admin"}; !slices.Equal(variants, want) {
		t.Errorf("the variants are %v, want %v", variants, want)
	}
	conformance.Shown(t, "S3-111")
	if served < 5 {
		t.Errorf("%d areas are listed", served)
	}
	conformance.Shown(t, "S3-110")
	for _, absent := range []string{"sparkplug-ingest", "lwm2m-ingest", "nobody"} {
		resp, err := http.Post(w.API+"/api/"+absent+"/graphql", "application/json", strings.NewReader(`{"query":"{ping}"}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", absent, resp.Status)
		}
	}
	conformance.Shown(t, "S3-005")
	for _, q := range []string{`{_empty}`, `mutation{_empty}`} {
		if a := w.ask(t, "event-sources", "", q, nil); string(a.Data) != `{"_empty":null}` || len(a.Errors) > 0 {
			t.Errorf("event-sources %s: %s", q, a.raw)
		}
	}
	conformance.Shown(t, "S3-006")
}

// otherVerbs are the mutations of an area that are not named after what they do to an entity.
var otherVerbs = map[string][]string{
	"user-management": {"login", "selectTenant", "refresh", "signOut", "updateProfile", "setTenantBranding", "setTenantLogo", "setTenantBasemap", "setIdentityEnabled", "setSystemRoles", "setPassword", "addMembership",
		"setMembershipRoles", "setMembershipEnabled", "removeMembership", "setTenantEnabled", "reorderTenantTiers", "setOauthClientEnabled",
		"rotateOauthClientSecret", "setSetting", "clearSetting", "resendDeadLetters", "discardDeadLetters",
		"createIdentity", "deleteIdentity", // what an update would change has verbs of its own
		"createTenant", "updateTenant", // a tenant is disabled
		"createBackup", "verifyBackup", "deleteBackup", "backupLink", "setLogLevel", "verifyLedger"},
	"device-management": {"createDevices", "deleteDevices", "issueAccessToken", // additions: many at once, and a token
		"setFacetKey", "deleteFacetKey", "createEntityRelationship", "createEntityRelationships", "removeEntityRelationship", "removeEntityRelationships",
		"setEntityAttribute", "deleteEntityAttribute", "initiateDeviceClaim", "claimDevice", "cancelDeviceClaim",
		"acknowledgeAlarm", "acknowledgeAlarms", "clearAlarm", "clearAlarms",
		"deleteArtifact", // an artifact is made over HTTP
		"sendTestEvent"},
	"device-state":            {"demoteAssertedPresence"},
	"command-delivery":        {"createCommand", "createCommandBatch", "cancelCommand", "cancelCommandBatch", "resumeCommandBatch", "markCommandSent", "parkCommand", "releaseHeldCommands"},
	"event-processing":        {"draftDetectionRuleFromText"},
	"notification-management": {"testNotificationChannel"},
	"outbound-connectors":     {"testConnector", "setHttpSecret", "deleteHttpSecret", "resendDeadLetters", "discardDeadLetters"},
	"ai-inference": {"inferRuleCandidate", "testAiProvider", "grantAiProviderToTier", "revokeAiProviderFromTier", "setAiTierDefault", "clearAiTierDefault",
		"grantAiProviderToTenant", "revokeAiProviderFromTenant", "setAiFunctionModel", "clearAiFunctionModel"},
}

// ofAnEntity reports whether a mutation is one of the six that act on an entity which the area can create.
func ofAnEntity(name string, mutations []string) bool {
	for _, verb := range []string{"create", "update", "delete", "rename", "publish", "rollback"} {
		if entity, ok := strings.CutPrefix(name, verb); ok && slices.Contains(mutations, "create"+entity) {
			return true
		}
	}
	return false
}

// names: mutations of an entity are create, update and delete; what lists takes criteria with a page.
func names(t *testing.T, w *world) {
	entities, lists := 0, 0
	served := map[string][]string{} // mutations of all planes of an area
	for _, a := range w.index(t).Areas {
		if a.Schema == "" {
			continue
		}
		_, sdl := w.get(t, strings.TrimPrefix(a.Schema, w.API))
		var mutations []string
		if strings.Contains(sdl, "\ntype Mutation {") {
			for _, f := range fieldsOf(t, sdl, "type", "Mutation") {
				mutations = append(mutations, regexp.MustCompile(`^\w+`).FindString(f))
			}
		}
		served[a.Area] = append(served[a.Area], mutations...)
		for _, m := range mutations {
			if m != "_empty" && !slices.Contains(otherVerbs[a.Area], m) && !ofAnEntity(m, mutations) {
				t.Errorf("%s: %s is neither create, update, delete, rename, publish or rollback of an entity nor a verb of the reference", a.Area, m)
			}
			entity, ok := strings.CutPrefix(m, "create")
			if !ok || slices.Contains(otherVerbs[a.Area], m) {
				continue
			}
			entities++
			if !slices.Contains(mutations, "update"+entity) || !slices.Contains(mutations, "delete"+entity) {
				t.Errorf("%s has no update or no delete", m)
			}
		}
		for _, f := range fieldsOf(t, sdl, "type", "Query") {
			m := regexp.MustCompile(`^(\w+)\(criteria: (\w+)!(?:, \w+: \w+)*\): (\w+SearchResults)!$`).FindStringSubmatch(f)
			if m == nil {
				if strings.Contains(f, "SearchResults") && !strings.HasPrefix(f, "alarmHistory(") { // one alarm's, with a page and no filter
					t.Errorf("%s takes no criteria", f)
				}
				continue
			}
			lists++
			criteria, results := fieldsOf(t, sdl, "input", m[2]), fieldsOf(t, sdl, "type", m[3])
			if !slices.Contains(criteria, "pageNumber: Int!") || !slices.Contains(criteria, "pageSize: Int!") ||
				!slices.Contains(results, "pagination: SearchResultsPagination!") {
				t.Errorf("%s: %q, %q", m[1], criteria, results)
			}
		}
	}
	if entities < 6 || lists < 10 {
		t.Errorf("%d entities, %d lists", entities, lists)
	}
	for area, verbs := range otherVerbs {
		for _, verb := range verbs {
			if !slices.Contains(served[area], verb) {
				t.Errorf("%s: the verb %s is not served", area, verb)
			}
		}
	}
	conformance.Shown(t, "S3-012", "S3-013")
}

func signIn(t *testing.T, w *world) {
	tn := w.tenant(t, "sign-in")
	var sel struct {
		SelectTenant struct{ AccessToken, RefreshToken, ExpiresAt string }
	}
	w.must(t, "user-management", "", `mutation($i:String!){selectTenant(identityToken:$i,tenant:"sign-in"){accessToken refreshToken expiresAt}}`,
		map[string]any{"i": w.identity}).into(t, &sel)
	var ref struct {
		Refresh struct{ AccessToken, RefreshToken string }
	}
	w.must(t, "user-management", "", `mutation($r:String!){refresh(refreshToken:$r){accessToken refreshToken}}`,
		map[string]any{"r": sel.SelectTenant.RefreshToken}).into(t, &ref)
	for _, token := range []string{tn.token, sel.SelectTenant.AccessToken, ref.Refresh.AccessToken} {
		a := w.must(t, "user-management", token, `{tenant{token} tenantGovernance{ingestMessagesPerSecond tierToken purgeState} me{email}}`, nil)
		if want := `{"tenant":{"token":"sign-in"},"tenantGovernance":{"ingestMessagesPerSecond":null,"tierToken":"silver","purgeState":"active"},"me":{"email":"admin@example.org"}}`; string(a.Data) != want {
			t.Errorf("%s, want %s", a.Data, want)
		}
	}
	for who, vars := range map[string]map[string]any{"an unknown email": {"e": "nobody@example.org", "p": testweir.Password},
		"a wrong password": {"e": "admin@example.org", "p": "wrong"}} {
		if a := w.ask(t, "user-management", "", `mutation($e:String!,$p:String!){login(email:$e,password:$p){identityToken}}`, vars); a.refusal() != "INVALID_INPUT invalid credentials" {
			t.Errorf("%s: %s", who, a.raw)
		}
	}
	if a := w.ask(t, "user-management", "", `mutation($i:String!){selectTenant(identityToken:$i,tenant:"nowhere"){accessToken}}`, map[string]any{"i": w.identity}); a.refusal() != "INVALID_INPUT invalid credentials" {
		t.Error(a.raw)
	}
	// A consumed refresh token ends what came of it once its successor was used.
	if a := w.ask(t, "user-management", "", `mutation($r:String!){refresh(refreshToken:$r){accessToken}}`, map[string]any{"r": ref.Refresh.RefreshToken}); len(a.Errors) > 0 {
		t.Error(a.raw)
	}
	if a := w.ask(t, "user-management", "", `mutation($r:String!){refresh(refreshToken:$r){accessToken}}`, map[string]any{"r": sel.SelectTenant.RefreshToken}); a.refusal() != "INVALID_INPUT invalid or expired token" {
		t.Error(a.raw)
	}
	conformance.Shown(t, "S3-008")
}

func introspectionOff(t *testing.T, w *world) {
	for _, a := range w.index(t).Areas {
		if a.Schema == "" {
			continue
		}
		for _, q := range []string{`{__schema{queryType{name}}}`, `query X{__type(name:"Query"){name}}`, `{...F} fragment F on Query{__schema{types{name}}}`} {
			if got := w.ask(t, a.path(), a.bearer(w), q, nil); !strings.HasPrefix(got.refusal(), "INTROSPECTION_DISABLED ") || strings.Contains(got.raw, `"data":{`) {
				t.Errorf("%s %s: %s", a.Area, q, got.raw)
			}
		}
		if got := w.ask(t, a.path(), a.bearer(w), `{__typename}`, nil); string(got.Data) != `{"__typename":"Query"}` {
			t.Errorf("%s: %s", a.Area, got.raw)
		}
		if resp, _ := w.get(t, "/api/"+a.path()+"/graphiql"); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s has an explorer: %s", a.Area, resp.Status)
		}
	}
	conformance.Shown(t, "S3-106")
}

// With developer tools on introspection answers and the explorer is there; with a value that is no boolean neither is.
func TestDeveloperTools(t *testing.T) {
	t.Parallel()
	on := &world{Proc: testweir.Start(t, testweir.Options{Env: []string{"WEIR_GRAPHQL_DEV_TOOLS=true"}})}
	for _, a := range on.index(t).Areas {
		if a.Schema == "" {
			continue
		}
		if got := on.ask(t, a.path(), a.bearer(on), `{__schema{queryType{name}}}`, nil); string(got.Data) != `{"__schema":{"queryType":{"name":"Query"}}}` {
			t.Errorf("%s: introspection answers %s", a.Area, got.raw)
		}
		resp, page := on.get(t, "/api/"+a.path()+"/graphiql")
		if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") ||
			!strings.Contains(page, `"graphql"`) && !strings.Contains(page, `'graphql'`) {
			t.Errorf("%s explorer: %s", a.Area, resp.Status)
		}
	}
	off := &world{Proc: testweir.Start(t, testweir.Options{Env: []string{"WEIR_GRAPHQL_DEV_TOOLS=yes"}})}
	introspectionOff(t, off)
	conformance.Shown(t, "S3-107", "S3-108")
}

// A request with an unknown input field fails whole; what stands beside it is not executed.
func refusedWhole(t *testing.T, w *world) {
	tn := w.tenant(t, "refused-whole")
	a := w.ask(t, "device-management", tn.token, `mutation{good:createDeviceType(request:{token:"t"}){id} bad:createDeviceType(request:{token:"u",manufacturr:"x"}){id}}`, nil)
	if m := a.refusal(); len(a.Errors) != 1 || !strings.Contains(m, `"manufacturr"`) || !strings.Contains(m, `Did you mean "manufacturer"?`) || a.status != http.StatusOK {
		t.Error(a.raw)
	}
	conformance.Shown(t, "S3-103")
	b := w.ask(t, "device-management", tn.token, `mutation($r:DeviceTypeCreateRequest){good:createDeviceType(request:{token:"t"}){id} bad:createDeviceType(request:$r){id}}`,
		map[string]any{"r": map[string]any{"token": "u", "manufacturr": "x"}})
	if m := b.refusal(); !strings.Contains(m, `Variable "$r" got invalid value`) || !strings.Contains(m, `Field "manufacturr" is not defined by type "DeviceTypeCreateRequest".`) ||
		!strings.Contains(m, `Did you mean "manufacturer"?`) {
		t.Error(b.raw)
	}
	conformance.Shown(t, "S3-104")
	if got := tn.devices(`{deviceTypes(criteria:{pageNumber:1,pageSize:10}){pagination{totalRecords}}}`, nil).raw; !strings.Contains(got, `"totalRecords":0`) {
		t.Errorf("something was executed: %s", got)
	}
	conformance.Shown(t, "S3-105")
}

// Tenant ids follow the pattern of tokens.
func tenantIDs(t *testing.T, w *world) {
	w.Run("", "tenant", "create", longest)
	for _, bad := range []string{longest + "x", "-a", "_a", "a.b", "a*", "a>", "a+", "a#", "a/b", "a:b", "a b", ""} {
		if out, err := w.TryRun("", "tenant", "create", "--", bad); err == nil || !strings.Contains(out, "token") {
			t.Errorf("tenant create %q: %v %s", bad, err, out)
		}
	}
	conformance.Shown(t, "S3-019")
}
