package gql_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"weir/auth"
	"weir/internal/test/conformance"
	"weir/internal/test/poll"
	"weir/model"
	"weir/store"
)

// The walk over the identity plane: the operations of operators, and who may not call them.

const (
	identityPlane = "identity"
	walkOperator  = "operator@example.org"
)

// systemAuthorities are those that operations of the plane demand.
var systemAuthorities = []model.Authority{model.UserRead, model.UserWrite, model.RoleRead, model.RoleWrite, model.TenantRead, model.TenantWrite,
	model.SettingsRead, model.SettingsWrite, model.ClientRead, model.ClientWrite, model.AuditRead, model.AIAdmin}

// operators are identity tokens of people with system roles.
type operators struct {
	super, operatorRole string
	lacking             map[model.Authority]string // all authorities of the system but one
	only                map[model.Authority]string // exactly one
	expired             string
}

// systemPerson is a person with one system role.
type systemPerson struct{ address, role string }

func (p systemPerson) of(a model.Authority) systemPerson {
	name := p.role + strings.ReplaceAll(string(a), ":", "-")
	return systemPerson{name + "@example.org", name}
}

var (
	lacksOne = systemPerson{role: "lacks-"}
	hasOne   = systemPerson{role: "only-"}
)

// furnishOperators makes the roles of the operators and returns who is to hold them.
func furnishOperators(ctx context.Context, must func(error), a *auth.Auth, by *model.Principal) (people []systemPerson) {
	people = append(people, systemPerson{walkOperator, auth.RoleOperator})
	for _, authority := range systemAuthorities {
		for p, holds := range map[systemPerson][]string{lacksOne.of(authority): allBut(model.TierSystem, authority), hasOne.of(authority): {string(authority)}} {
			_, err := a.Roles.Create(ctx, by, store.Patch{"scope": auth.ScopeSystem, "token": p.role, "authorities": holds})
			must(err)
			people = append(people, p)
		}
	}
	return people
}

func (w *walk) signInOperators(t *testing.T) {
	t.Helper()
	w.super, w.operatorRole = w.login(walkSuper), w.login(walkOperator)
	w.lacking, w.only = map[model.Authority]string{}, map[model.Authority]string{}
	for _, authority := range systemAuthorities {
		w.lacking[authority], w.only[authority] = w.login(lacksOne.of(authority).address), w.login(hasOne.of(authority).address)
	}
}

func adminQuery(name, args string, needs model.Authority) walkOp {
	return walkOp{kind: "query", name: name, args: args, needs: needs}
}

// moving is an operation whose answer changes by itself.
func moving(op walkOp) walkOp {
	op.moves = true
	return op
}

func adminChange(name, args string, needs model.Authority) walkOp {
	return walkOp{kind: "mutation", name: name, args: args, needs: needs}
}

// walkAdmin has the rows of the admin plane. What one makes, later ones change and remove.
func walkAdmin() []walkOp {
	const person = `(email: "made@example.org"`
	return []walkOp{
		adminQuery("ping", "", ""),
		adminQuery("functionalAreas", "", ""),
		adminQuery("identities", "", model.UserRead),
		adminQuery("roles", `(scope: "system")`, model.RoleRead),
		adminQuery("authorities", `(scope: "tenant")`, model.RoleRead),
		adminQuery("tenants", "", model.TenantRead),
		adminQuery("tenantDeletions", `(criteria: {pageNumber: 1, pageSize: 10})`, model.TenantRead),
		adminQuery("tenantTiers", "", model.TenantRead),
		adminQuery("governanceDimensions", "", model.TenantRead),
		adminQuery("tierColorPalette", "", model.TenantRead),
		adminQuery("oauthClients", "", model.ClientRead),
		adminQuery("auditEvents", `(criteria: {pageNumber: 1, pageSize: 10})`, model.AuditRead),

		adminQuery("deadLetters", `(criteria: {pageNumber: 1, pageSize: 10})`, model.AuditRead),
		adminQuery("deadLetter", `(id: "<DeadLetter>")`, model.AuditRead),
		adminChange("resendDeadLetters", `(ids: ["0"])`, model.TenantWrite),
		adminChange("discardDeadLetters", `(ids: ["<DeadLetter>"])`, model.TenantWrite),

		adminChange("createIdentity", `(request: {email: "made@example.org", password: "correct horse battery", enabled: true, systemRoles: []})`, model.UserWrite),
		adminChange("setIdentityEnabled", person+`, enabled: false)`, model.UserWrite),
		adminChange("setSystemRoles", person+`, roleTokens: [])`, model.UserWrite),
		adminChange("setPassword", person+`, password: "another horse battery")`, model.UserWrite),
		adminChange("addMembership", person+`, tenant: "globex", roleTokens: [])`, model.UserWrite),
		adminChange("setMembershipRoles", person+`, tenant: "globex", roleTokens: [])`, model.UserWrite),
		adminChange("setMembershipEnabled", person+`, tenant: "globex", enabled: false)`, model.UserWrite),
		adminChange("removeMembership", person+`, tenant: "globex")`, model.UserWrite),
		adminChange("deleteIdentity", person+`)`, model.UserWrite),

		adminChange("createRole", `(request: {scope: "tenant", token: "made", authorities: ["device:write"]})`, model.RoleWrite),
		adminChange("updateRole", `(token: "made", request: {name: "Made"})`, model.RoleWrite),
		adminChange("deleteRole", `(scope: "tenant", token: "made")`, model.RoleWrite),

		adminChange("createTenantTier", `(request: {token: "made"})`, model.TenantWrite),
		adminChange("updateTenantTier", `(token: "made", request: {color: "red"})`, model.TenantWrite),
		adminChange("reorderTenantTiers", `(orderedTokens: ["made", "gold", "silver", "bronze"])`, model.TenantWrite),
		adminChange("createTenant", `(request: {token: "made", tierToken: "made"})`, model.TenantWrite),
		adminChange("updateTenant", `(token: "made", request: {tierToken: "silver"})`, model.TenantWrite),
		adminChange("setTenantEnabled", `(token: "made", enabled: false)`, model.TenantWrite),
		adminChange("deleteTenant", `(token: "made")`, model.TenantWrite),
		adminQuery("tenantDeletion", `(token: "made")`, model.TenantRead),
		adminChange("deleteTenantTier", `(token: "made")`, model.TenantWrite),

		adminChange("createOauthClient", `(request: {clientId: "made.by.walk", redirectUris: ["https://app.example.org/back"], scopes: ["read-only"], confidential: true})`, model.ClientWrite),
		adminChange("updateOauthClient", `(clientId: "made.by.walk", request: {name: "Made"})`, model.ClientWrite),
		adminChange("setOauthClientEnabled", `(clientId: "made.by.walk", enabled: false)`, model.ClientWrite),
		adminChange("rotateOauthClientSecret", `(clientId: "made.by.walk")`, model.ClientWrite),
		adminChange("deleteOauthClient", `(clientId: "made.by.walk")`, model.ClientWrite),
	}
}

// walkInference has the rows of the plane of AI providers.
func walkInference() []walkOp {
	query := func(name, args string) walkOp { return adminQuery(name, args, model.AIAdmin) }
	change := func(name, args string) walkOp { return adminChange(name, args, model.AIAdmin) }
	return []walkOp{
		query("aiProviders", `(criteria: {pageNumber: 1, pageSize: 10})`),
		query("aiProviderKinds", ""),
		query("aiProviderTierGrants", ""),
		query("aiProviderTenantGrants", `(tenant: "acme")`),
		query("aiFunctions", ""),
		query("aiFunctionAssignments", `(tenant: "acme")`),
		change("createAiProvider", `(request: {token: "made", kind: "openai-compatible", endpoint: "<AI endpoint>", model: "m", enabled: true, secret: "<AI key>"})`),
		change("updateAiProvider", `(token: "made", request: {params: "{\"temperature\": 0}"})`),
		change("renameAiProvider", `(token: "made", newToken: "lan")`),
		query("aiProvider", `(token: "lan")`),
		change("testAiProvider", `(token: "lan", request: {prompt: "p"})`),
		change("grantAiProviderToTier", `(tier: "silver", provider: "lan")`),
		change("setAiTierDefault", `(tier: "silver", provider: "lan")`),
		change("clearAiTierDefault", `(tier: "silver")`),
		change("revokeAiProviderFromTier", `(tier: "silver", provider: "lan")`),
		change("grantAiProviderToTenant", `(tenant: "acme", provider: "lan")`),
		change("setAiFunctionModel", `(tenant: "acme", function: "rule-drafting", provider: "lan")`),
		change("clearAiFunctionModel", `(tenant: "acme", function: "rule-drafting")`),
		change("revokeAiProviderFromTenant", `(tenant: "acme", provider: "lan")`),
		change("deleteAiProvider", `(token: "lan")`),
	}
}

func walkSettings() []walkOp {
	return []walkOp{
		adminQuery("settings", "", model.SettingsRead),
		adminQuery("setting", `(key: "entity.token_masks")`, model.SettingsRead),
		adminQuery("tokenMasks", "", ""),
		moving(adminQuery("findings", "", model.SettingsRead)),
		moving(adminQuery("instance", "", model.SettingsRead)),
		adminQuery("configurationValues", "", model.SettingsRead),
		adminQuery("checkConfiguration", `(text: "logging: {level: loud}")`, model.SettingsRead),
		moving(adminQuery("strangers", "", model.SettingsRead)),
		moving(adminQuery("instanceLog", "", model.SettingsRead)),
		adminChange("setLogLevel", `(component: "ingest", level: "warn")`, model.SettingsWrite),
		moving(adminQuery("backups", "", model.SettingsRead)),
		{kind: "mutation", name: "backupLink", needs: model.SettingsWrite, args: `(name: "none.backup")`, owner: "forbidden: a superuser is required: a backup holds the data of every tenant"},
		{kind: "mutation", name: "verifyBackup", needs: model.SettingsWrite, args: `(name: "none.backup")`, owner: `backup "none.backup" does not exist`},
		{kind: "mutation", name: "deleteBackup", needs: model.SettingsWrite, args: `(name: "none.backup")`, owner: `backup "none.backup" does not exist`},
		adminChange("createBackup", "", model.SettingsWrite),
		adminChange("verifyLedger", "", model.SettingsWrite),
		moving(adminQuery("ledgerVerification", "", model.SettingsRead)),
		adminChange("setSetting", `(key: "entity.token_masks", value: "{\"default\":\"{uuid}\"}")`, model.SettingsWrite),
		adminChange("clearSetting", `(key: "entity.token_masks")`, model.SettingsWrite),
	}
}

// makeDeadLetter sends a message that proves nothing and waits for the dead letter that becomes of it.
func (w *walk) makeDeadLetter(t *testing.T) {
	t.Helper()
	resp, err := http.Post(w.Ingest+"/weir/"+walkTenant+"/events", "application/json",
		strings.NewReader(`{"device":"d","eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"1"}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	w.ids["DeadLetter"] = w.deadLetter(t, "").ID
}

// letter is a dead letter.
type letter struct{ ID, Tenant, Kind, Reason, Source, Subject, Sequence, OccurredTime string }

// deadLetter waits until there is a dead letter, of a tenant or of none, and returns the newest.
func (w *walk) deadLetter(t *testing.T, tenant string) letter {
	t.Helper()
	var out struct{ DeadLetters struct{ Results []letter } }
	query := `{ deadLetters(criteria: {pageNumber: 1, pageSize: 1}) { results { id tenant kind reason source subject sequence occurredTime } } }`
	if tenant != "" {
		query = strings.Replace(query, "pageSize: 1", `pageSize: 1, tenant: "`+tenant+`"`, 1)
	}
	poll.Until(t, "a dead letter", func() error {
		w.Query("user-management/admin", w.super, query, nil, &out)
		if len(out.DeadLetters.Results) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	return out.DeadLetters.Results[0]
}

// refusedOperators calls every operation of the identity plane as everybody who may not: nothing changes.
func (w *walk) refusedOperators(t *testing.T) {
	t.Helper()
	w.makeDeadLetter(t)
	before := w.everythingOfTheInstance(t)
	for area, plane := range w.planes {
		if plane != identityPlane {
			continue
		}
		for _, op := range walkTable[area] {
			w.operatorRefusals(t, area, op)
		}
	}
	if after := w.everythingOfTheInstance(t); after != before {
		t.Errorf("those who were refused have changed the instance\nfrom %s\nto   %s", before, after)
	}
}

// operatorRefusals calls an operation of the identity plane as everybody who may not.
func (w *walk) operatorRefusals(t *testing.T, area string, op walkOp) {
	t.Helper()
	query := w.document(area, op)
	service := w.service(t, allBut(model.TierSystem|model.TierTenant, "")...)
	for name, c := range map[string]caller{"no token": {}, "an expired token": {token: w.operators.expired}, "an access token": {token: w.own},
		"a refresh token": {token: w.refresh}, "a service token": {service, ""}, "a service token in a tenant": {service, walkTenant},
		"no token of ours": {token: "eyJhbGciOiJub25lIn0.e30."}, "a token cut short": {token: w.super[:len(w.super)-4]}} {
		r := w.ask(t, area, c, query, nil)
		if r.status != http.StatusUnauthorized || r.code() != model.CodeUnauthenticated || !r.empty() || r.challenge != "Bearer" ||
			!strings.HasPrefix(r.message(), "unauthenticated") {
			t.Errorf("%s %s with %s: %d %s", area, op.name, name, r.status, r.raw)
		}
	}
	refused := map[string]string{w.identity: "forbidden: a system role is required"}
	if op.needs != "" {
		refused[w.lacking[op.needs]] = "forbidden: " + string(op.needs) + " is required"
	}
	for token, message := range refused {
		r := w.ask(t, area, caller{token: token}, query, nil)
		if r.status != http.StatusOK || len(r.Errors) != 1 || r.code() != model.CodeForbidden || r.message() != message || !r.empty() {
			t.Errorf("%s %s: %d %s, want %q", area, op.name, r.status, r.raw, message)
		}
	}
}

// operator calls an operation of the identity plane as a person who holds exactly what it needs.
func (w *walk) operator(t *testing.T, area string, op walkOp) {
	t.Helper()
	query, by := w.document(area, op), w.super
	if op.needs != "" {
		by = w.only[op.needs]
	}
	r := w.ask(t, area, caller{token: by}, query, nil)
	if op.owner != "" {
		if r.message() != op.owner {
			t.Errorf("%s %s: %s, want %s", area, op.name, r.raw, op.owner)
		}
		return
	}
	if r.status != http.StatusOK || len(r.Errors) > 0 || r.empty() || string(r.Data[op.name]) == "false" || op.name == "discardDeadLetters" && string(r.Data[op.name]) != "1" {
		t.Errorf("%s %s: %d %s", area, op.name, r.status, r.raw)
	}
	if op.kind != "query" || op.moves {
		return
	}
	if all := w.ask(t, area, caller{token: w.super}, query, nil); all.raw != r.raw {
		t.Errorf("%s %s by a superuser: %s, want %s", area, op.name, all.raw, r.raw)
	}
}

// systemRoles: superusers and operators are admitted, another identity is not; a superuser enters the tenant plane with an
// access token only.
func (w *walk) systemRoles(t *testing.T) {
	t.Helper()
	for area, plane := range w.planes {
		if plane != identityPlane {
			continue
		}
		for who, token := range map[string]string{"a superuser": w.super, "an operator": w.operatorRole} {
			if r := w.ask(t, area, caller{token: token}, `{ tokenMasks: __typename }`, nil); len(r.Errors) > 0 {
				t.Errorf("%s for %s: %s", area, who, r.raw)
			}
			for _, op := range walkTable[area] {
				if op.kind != "query" {
					continue
				}
				if r := w.ask(t, area, caller{token: token}, w.document(area, op), nil); r.status != http.StatusOK || len(r.Errors) > 0 || r.empty() && op.name != "deadLetter" && op.name != "aiProvider" { // they are gone
					t.Errorf("%s %s for %s: %d %s", area, op.name, who, r.status, r.raw)
				}
			}
		}
	}
	for area, plane := range w.planes {
		if plane == identityPlane {
			continue
		}
		if r := w.ask(t, area, caller{token: w.super}, `{ __typename }`, nil); r.status != http.StatusUnauthorized {
			t.Errorf("%s takes the identity token of a superuser: %d %s", area, r.status, r.raw)
		}
	}
	conformance.Shown(t, "S3-003", "S3-004")
}

// everythingOfTheInstance is all that a superuser can read on the identity plane.
func (w *walk) everythingOfTheInstance(t testing.TB) string {
	t.Helper()
	var all strings.Builder
	for area, plane := range w.planes {
		if plane != identityPlane {
			continue
		}
		for _, op := range walkTable[area] {
			if op.kind == "query" && !op.moves {
				fmt.Fprintln(&all, op.name, w.ask(t, area, caller{token: w.super}, w.document(area, op), nil).raw)
			}
		}
	}
	lines := strings.SplitAfter(all.String(), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// adminKinds are the update inputs of the admin plane.
func adminKinds() map[string]updateKind {
	kinds := adminInputs()
	for typ, k := range kinds {
		k.area, k.typ, k.token, k.among = "user-management-admin", typ, "subject", cmp.Or(k.among, "token")
		kinds[typ] = k
	}
	return kinds
}

func adminInputs() map[string]updateKind {
	number := updateField{first: 1.5, second: 2000.25, nulls: "clears"}
	whole := updateField{first: 200.0, second: 300.0, nulls: "clears"}
	return map[string]updateKind{
		"AdminRole": {verb: "Role", reads: `roles(scope: "tenant")`, create: map[string]any{"scope": "tenant", "authorities": []any{}}, fields: map[string]updateField{
			"name": text3, "description": text3,
			"authorities": {first: []any{"device:read"}, second: []any{"device:write", "location:read"}, nulls: "clears", cleared: []any{}},
		}},
		"AdminTenant": {verb: "Tenant", reads: "tenants", create: map[string]any{"tierToken": "silver"}, fields: map[string]updateField{
			"name": text3, "config": {first: `{"a": [1, 2.50]}`, second: `"text"`, nulls: "clears", empty: true},
			"tierToken":               {first: "gold", second: "bronze", nulls: "refused", read: "tier.token"},
			"ingestMessagesPerSecond": number, "ingestBurst": whole, "outboundMessagesPerSecond": number, "outboundBurst": whole,
			"aiExternalEnabled": {first: true, second: false, nulls: "clears"}, "aiInferenceRequestsPerMinute": number, "aiInferenceBurst": whole,
			"shedPriority": {first: 7.0, second: 100.0, nulls: "clears"}, "heldCommandCeiling": whole, "geoFenceCeiling": whole,
			"geoFencePositionCeiling": whole, "geoFencePositionBudget": whole,
		}},
		"AdminTenantTier": {verb: "TenantTier", reads: "tenantTiers", create: map[string]any{}, fields: map[string]updateField{
			"name": text3, "description": text3,
			"config": {first: `{"ingestBurst": 500}`, second: `{"shedPriority":7}`, nulls: "clears", empty: true},
			"color":  {first: "red", second: "sky", nulls: "clears", empty: true, cleared: ""},
		}},
		"AdminOAuthClient": {verb: "OauthClient", among: "clientId", reads: "oauthClients",
			create: map[string]any{"redirectUris": []any{"https://app.example.org/"}, "scopes": []any{"read-only"}}, fields: map[string]updateField{
				"name": text3, "description": text3,
				"redirectUris": {first: []any{"https://a.example.org/x", "http://127.0.0.1:8080/"}, second: []any{"https://b.example.org/"}, nulls: "refused"},
				"scopes":       {first: []any{"location"}, second: []any{"location", "read-only"}, nulls: "refused"},
			}},
	}
}

// adminStatements tries what is special of an update input of the admin plane.
func (u *updateWalk) adminStatements() {
	t := u.t
	change := func(request string) { t.Helper(); u.must("mutation { u: "+u.call(request)+" }", nil) }
	reads := func(field string, want string) {
		t.Helper()
		if got := fmt.Sprint(u.shown(field, u.fields[field])); got != want {
			t.Errorf("%s.%s reads as %s, want %s", u.typ, field, got, want)
		}
	}
	switch u.typ {
	case "AdminRole":
		change(`{authorities: ["device:write"]}`)
		change(`{authorities: []}`)
		reads("authorities", "[]")
		conformance.Shown(t, "S3-071")
	case "AdminTenant":
		settings := func() string {
			return fmt.Sprint(u.shown("x", updateField{read: "effectiveSettings {rate {source value tier override} burst {source value}}"}))
		}
		change(`{tierToken: "gold", ingestMessagesPerSecond: null, ingestBurst: 77, outboundMessagesPerSecond: null, outboundBurst: null, aiInferenceRequestsPerMinute: null, aiInferenceBurst: null}`)
		const gold = "map[burst:map[source:override value:77] rate:map[override:<nil> source:tier tier:2000 value:2000]]"
		if got := settings(); !strings.Contains(got, gold) || !strings.Contains(got, "map[source:platform-default value:<nil>]") {
			t.Errorf("effective settings %s", got)
		}
		change(`{name: "else"}`)
		if got := settings(); !strings.Contains(got, gold) {
			t.Errorf("after an update of the name: %s", got)
		}
		change(`{ingestBurst: null}`)
		if got := settings(); !strings.Contains(got, "map[burst:map[source:tier value:4000]") {
			t.Errorf("without the override: %s", got)
		}
		conformance.Shown(t, "S3-069", "S3-070")
	case "AdminTenantTier":
		change(`{config: "{\"ingestBurst\":500}"}`)
		change(`{name: "else"}`)
		reads("config", `{"ingestBurst":500}`)
		change(`{config: "{}"}`)
		reads("config", "<nil>")
		conformance.Shown(t, "S3-061")
	case "AdminOAuthClient":
		for _, field := range []string{"redirectUris", "scopes"} {
			u.refuses("mutation { u: "+u.call("{"+field+": []}")+" }", nil, model.CodeInvalidInput, field)
		}
		conformance.Shown(t, "S3-072")
	}
}
