package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weir/internal/test/aiprovider"
	"weir/internal/test/conformance"
	"weir/internal/test/testweir"
)

const (
	aiKey         = "sk-this-key-is-read-by-nobody"
	aiNextKey     = "sk-this-one-is-the-next-of-them"
	serviceSecret = "a service secret of more than 32 bytes"
	adminArea     = "ai-inference/admin"
)

// drafts is an instance that is switched off and on again, with a provider that counts what reaches it.
type drafts struct {
	*world
	t      *testing.T
	ai     *aiprovider.Server
	dir    string
	logs   []*testweir.Proc
	said   strings.Builder // every response
	tokens map[string]string
}

// TestDraftingOverTheAPI goes through AI providers and drafting as operators and users see them, with AI off, on, off and on.
func TestDraftingOverTheAPI(t *testing.T) {
	t.Parallel()
	d := &drafts{t: t, ai: aiprovider.Start(t, aiKey), dir: t.TempDir(), tokens: map[string]string{}}
	d.live("ai: {enabled: false}", "acme", "globex", "initech")
	d.absent()
	d.again("ai: {enabled: true}\ngovernance: {ai_inference_requests_per_minute: 1000000, ai_inference_burst: 1000000}")
	d.planes()
	d.providers()
	d.secrets()
	d.unavailable()
	d.rounds()
	d.rate()
	before := len(d.ai.Requests())
	d.again("ai: {enabled: false}")
	d.absent()
	if n := len(d.ai.Requests()); n != before {
		t.Errorf("%d requests left the instance while it is off", n-before)
	}
	d.again("ai: {enabled: true}")
	d.ai.Answer(aiprovider.Text(hotDefinition))
	if r := d.draft("acme", hotText); !r.OK || r.Provider == nil || *r.Provider != "lan" {
		t.Errorf("once it is on again: %+v", r)
	}
	d.nothingTold()
}

const (
	hotText       = `{text:"warn when it is hot",profileToken:"boiler"}`
	hotDefinition = `{"name":"Hot","type":"threshold","when":{"metric":"temp","op":"gt","threshold":80}}`
)

func (d *drafts) config(more string) string {
	return fmt.Sprintf("auth: {service_secret: %q}\negress: {allowed_destinations: [%q]}\nlogging: {level: debug}\n%s", serviceSecret, d.ai.Destination(), more)
}

// live starts the instance and makes the tenants.
func (d *drafts) live(more string, tenants ...string) {
	d.world = start(d.t, testweir.Options{Dir: d.dir, Config: d.config(more)})
	d.logs = append(d.logs, d.Proc)
	for _, name := range tenants {
		d.tokens[name] = d.tenant(d.t, name).token
	}
}

// again stops it and starts it with another configuration.
func (d *drafts) again(more string) {
	d.t.Helper()
	if err := d.Stop(); err != nil {
		d.t.Fatal(err)
	}
	d.world = &world{Proc: testweir.Start(d.t, testweir.Options{Dir: d.dir, Config: d.config(more)})}
	d.logs = append(d.logs, d.Proc)
	d.login()
	for name := range d.tokens {
		d.tokens[name] = d.enter(d.t, name).token
	}
}

// send is ask with what was answered noted.
func (d *drafts) send(area, token, query string, header http.Header) (a answer) {
	d.t.Helper()
	resp, b, err := testweir.GraphQL{API: d.API, Area: area, Token: token, Query: query, Header: header}.Post(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	a.status, a.raw = resp.StatusCode, string(b)
	d.said.Write(b)
	_ = json.Unmarshal(b, &a) // 404 is no JSON
	return a
}

// operate runs an operation of the plane of providers, which succeeds, and returns its result.
func (d *drafts) operate(operation string) string {
	d.t.Helper()
	a := d.send(adminArea, d.identity, "mutation { r: "+operation+" }", nil)
	if len(a.Errors) > 0 || a.status != http.StatusOK {
		d.t.Fatalf("%s: %s", operation, a.raw)
	}
	var out struct{ R json.RawMessage }
	a.into(d.t, &out)
	return string(out.R)
}

func (d *drafts) refusedOperation(operation, code, text string) {
	d.t.Helper()
	if a := d.send(adminArea, d.identity, "mutation { r: "+operation+" }", nil); !strings.HasPrefix(a.refusal(), code+" ") || !strings.Contains(a.refusal(), text) {
		d.t.Errorf("%s: %s, want %s with %q", operation, a.raw, code, text)
	}
}

// service is a token of a service with authorities, and the header with its tenant.
func (d *drafts) service(tenant string, authorities ...string) (string, http.Header) {
	d.t.Helper()
	body, err := json.Marshal(map[string]any{"subject": "tester", "authorities": authorities})
	if err != nil {
		d.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.API+"/api/user-management/auth/service-token", bytes.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("X-Weir-Service-Secret", serviceSecret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	var out struct{ Token string }
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || out.Token == "" {
		d.t.Fatal(resp.Status, err)
	}
	return out.Token, http.Header{"X-Weir-Tenant": {tenant}}
}

type draftResult struct {
	OK, Unavailable                                              bool
	Attempts                                                     int
	Definition, Model, Provider, RawCandidate, UnavailableReason *string
	EstimatedCost                                                *int
	Diagnostics, Warnings                                        []draftDiagnostic
}

type draftDiagnostic struct {
	Field, Code *string
	Message     string
	Params      []string
}

const draftFields = `{ok unavailable attempts definition model provider rawCandidate unavailableReason estimatedCost diagnostics{field code message params} warnings{field code message params}}`

func (d *drafts) draft(tenant, input string) draftResult {
	d.t.Helper()
	a := d.send("event-processing", d.tokens[tenant], `mutation{draftDetectionRuleFromText(input:`+input+`)`+draftFields+`}`, nil)
	if len(a.Errors) > 0 {
		d.t.Fatalf("%s: %s", input, a.raw)
	}
	var out struct{ DraftDetectionRuleFromText draftResult }
	a.into(d.t, &out)
	r := out.DraftDetectionRuleFromText
	// What holds of every result.
	if r.OK != (r.Definition != nil) || r.OK != (r.EstimatedCost != nil) || r.OK && len(r.Diagnostics) > 0 || !r.OK && len(r.Warnings) > 0 ||
		(r.Attempts == 0) != (r.Model == nil) || (r.Attempts == 0) != (r.Provider == nil) || r.Unavailable != (r.UnavailableReason != nil) || r.Unavailable && r.Attempts > 0 ||
		(r.RawCandidate != nil) != (!r.OK && r.Attempts > 0) || r.Attempts > 3 {
		d.t.Errorf("%s", a.raw)
	}
	for _, f := range r.Diagnostics {
		if f.Code != nil || len(f.Params) > 0 || f.Message == "" {
			d.t.Errorf("a reason %+v", f)
		}
	}
	for _, f := range r.Warnings {
		if f.Code == nil || f.Message == "" {
			d.t.Errorf("a finding %+v", f)
		}
	}
	return r
}

// absent: with AI off there is no area, and a draft says so.
func (d *drafts) absent() {
	for area, token := range map[string]string{"ai-inference": d.tokens["acme"], adminArea: d.identity} {
		if a := d.send(area, token, `{__typename}`, nil); a.status != http.StatusNotFound {
			d.t.Errorf("%s is answered %d %s", area, a.status, a.raw)
		}
	}
	if _, index := d.get(d.t, "/schema/index.json"); strings.Contains(index, "ai-inference") {
		d.t.Error("the index names the area")
	}
	if a := d.send("user-management", d.tokens["acme"], `{functionalAreas}`, nil); strings.Contains(a.raw, "ai-inference") {
		d.t.Error("the areas name it")
	}
	before := len(d.ai.Requests())
	if r := d.draft("acme", hotText); !r.Unavailable || *r.UnavailableReason != "Drafting rules from words is not switched on here." {
		d.t.Errorf("a draft: %+v", r)
	}
	if len(d.ai.Requests()) != before {
		d.t.Error("something was sent")
	}
}

// tenAreas asks each area of the map, with all optional ones switched on, for what the map says it covers.
func (d *drafts) tenAreas() {
	service, header := d.service("acme", "ai:infer")
	for area, query := range map[string]string{
		"user-management":         `{functionalAreas}`,
		"device-management":       `{devices(criteria:{pageNumber:1,pageSize:1}){pagination{totalRecords}}}`,
		"event-management":        `{events(criteria:{pageNumber:1,pageSize:1}){pagination{totalRecords}}}`,
		"device-state":            `{deviceStates(criteria:{pageNumber:1,pageSize:1}){pagination{totalRecords}}}`,
		"command-delivery":        `{commands(criteria:{pageNumber:1,pageSize:1}){pagination{totalRecords}}}`,
		"event-processing":        `{ruleHealth(profileToken:"boiler"){__typename}}`,
		"dashboard-management":    `{dashboards(criteria:{pageNumber:1,pageSize:1}){pagination{totalRecords}}}`,
		"outbound-connectors":     `{connectors(criteria:{pageNumber:1,pageSize:1}){pagination{totalRecords}}}`,
		"notification-management": `{notificationChannels(criteria:{pageNumber:1,pageSize:1}){pagination{totalRecords}}}`,
		"ai-inference":            `{aiInferenceInfo{area}}`,
	} {
		token, with := d.tokens["acme"], http.Header(nil)
		if area == "ai-inference" {
			token, with = service, header
		}
		if a := d.send(area, token, query, with); a.status != http.StatusOK || len(a.Errors) > 0 || len(a.Data) == 0 {
			d.t.Errorf("%s: %d %s", area, a.status, a.raw)
		}
	}
	conformance.Shown(d.t, "S3-001")
}

// planes: the area has both, each for its callers.
func (d *drafts) planes() {
	t := d.t
	_, index := d.get(t, "/schema/index.json")
	if !strings.Contains(index, `"plane": "service"`) || !strings.Contains(index, "/schema/ai-inference-admin.graphql") {
		t.Errorf("the index: %s", index)
	}
	_, sdl := d.get(t, "/schema/ai-inference.graphql")
	if got, want := fieldsOf(t, sdl, "type", "Mutation"), "inferRuleCandidate(request: InferenceRequest!): InferenceResult!"; !slices.Contains(got, want) {
		t.Errorf("%q", got)
	}
	if a := d.send("ai-inference", "", `{aiInferenceInfo{area}}`, nil); string(a.Data) != `{"aiInferenceInfo":{"area":"ai-inference"}}` {
		t.Errorf("%s", a.raw)
	}
	conformance.Shown(t, "S3-007")
	d.tenAreas()
	for area, query := range map[string]string{"user-management/admin": `{tenants{token}}`, "user-management/settings": `{settings{key}}`, adminArea: `{aiProviderKinds}`} {
		if a := d.send(area, d.identity, query, nil); a.status != http.StatusOK || len(a.Errors) > 0 {
			t.Errorf("%s: %d %s", area, a.status, a.raw)
		}
		if a := d.send(area, d.tokens["acme"], query, nil); a.status != http.StatusUnauthorized {
			t.Errorf("%s with an access token: %d %s", area, a.status, a.raw)
		}
	}
	conformance.Shown(t, "S3-002")
	_, processing := d.get(t, "/schema/event-processing.graphql")
	for name, want := range map[string][]string{
		"input DraftRuleFromTextInput": {"text: String!", "profileToken: String!", "metrics: [MetricHintInput!]"},
		"input MetricHintInput":        {"key: String!", "dataType: String", "unit: String", "description: String"},
		"type DraftRuleResult": {"ok: Boolean!", "definition: String", "estimatedCost: Int", "model: String", "provider: String", "attempts: Int!", "rawCandidate: String",
			"diagnostics: [DraftDiagnostic!]!", "warnings: [DraftDiagnostic!]!", "unavailable: Boolean!", "unavailableReason: String"},
		"type DraftDiagnostic": {"field: String", "message: String!", "code: String", "params: [String!]!"},
	} {
		kind, typ, _ := strings.Cut(name, " ")
		if got := fieldsOf(t, processing, kind, typ); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	conformance.Shown(t, "S1-006")
	if !strings.Contains(strings.Join(fieldsOf(t, processing, "type", "Mutation"), "\n"), "draftDetectionRuleFromText(input: DraftRuleFromTextInput!): DraftRuleResult!") ||
		strings.Contains(strings.Join(fieldsOf(t, processing, "type", "Query"), "\n"), "draft") {
		t.Error("drafting is a mutation and nothing else")
	}
	conformance.Shown(t, "S1-093")
}

// providers: kind and endpoint belong together, the precondition of an update, and what a rename keeps.
func (d *drafts) providers() {
	t := d.t
	endpoint := d.ai.Endpoint(aiprovider.OpenAI)
	d.operate(fmt.Sprintf(`createAiProvider(request:{token:"lan",kind:"openai-compatible",endpoint:%q,model:"m1",enabled:true,secret:%q}){token}`, endpoint, aiKey))
	d.operate(`createAiProvider(request:{token:"cloud",kind:"anthropic",model:"m2",enabled:false}){token}`)

	d.refusedOperation(`updateAiProvider(token:"lan",request:{endpoint:null}){token}`, "INVALID_INPUT", "endpoint: is required")
	d.refusedOperation(`updateAiProvider(token:"cloud",request:{kind:"openai-compatible"}){token}`, "INVALID_INPUT", "endpoint: is required")
	d.operate(fmt.Sprintf(`updateAiProvider(token:"cloud",request:{kind:"openai-compatible",endpoint:%q}){token}`, endpoint))
	d.operate(`updateAiProvider(token:"cloud",request:{kind:"anthropic",endpoint:null}){token}`)
	d.refusedOperation(`updateAiProvider(token:"cloud",request:{kind:null}){token}`, "INVALID_INPUT", "kind")
	if got := d.operate(`updateAiProvider(token:"cloud",request:{}){kind endpoint}`); got != `{"kind":"anthropic","endpoint":null}` {
		t.Errorf("what was refused is kept: %s", got)
	}
	conformance.Shown(t, "S3-055")

	var at struct{ UpdatedAt string }
	must(t, json.Unmarshal([]byte(d.operate(`updateAiProvider(token:"cloud",request:{name:"Cloud"}){updatedAt}`)), &at))
	d.operate(fmt.Sprintf(`updateAiProvider(token:"cloud",request:{name:"C"},expectedUpdatedAt:%q){name}`, at.UpdatedAt))
	d.refusedOperation(fmt.Sprintf(`updateAiProvider(token:"cloud",request:{name:"D"},expectedUpdatedAt:%q){name}`, at.UpdatedAt), "CONFLICT", "conflict")
	var now struct{ Name, UpdatedAt string }
	must(t, json.Unmarshal([]byte(d.operate(`updateAiProvider(token:"cloud",request:{}){name updatedAt}`)), &now))
	if now.Name != "C" {
		t.Errorf("what conflicts was written: %+v", now)
	}
	d.operate(fmt.Sprintf(`updateAiProvider(token:"cloud",request:{name:"E"},expectedUpdatedAt:%q){name}`, now.UpdatedAt))
	if got := d.operate(`updateAiProvider(token:"cloud",request:{name:"F"}){name}`) + d.operate(`updateAiProvider(token:"cloud",request:{name:"G"}){name}`); got != `{"name":"F"}{"name":"G"}` {
		t.Errorf("the last write wins where no time is expected: %s", got)
	}
	conformance.Shown(t, "S3-051")
	_, sdl := d.get(t, "/schema/ai-inference-admin.graphql")
	if got := fieldsOf(t, sdl, "type", "Mutation"); !slices.ContainsFunc(got, func(f string) bool {
		return strings.HasPrefix(f, "updateAiProvider(") && strings.Contains(f, "expectedUpdatedAt: String)")
	}) {
		t.Errorf("%q", got)
	}
	for _, f := range fieldsOf(t, sdl, "type", "AiProvider") {
		if strings.HasPrefix(f, "secret") {
			t.Errorf("a provider shows %s", f)
		}
	}

	d.operate(`grantAiProviderToTier(tier:"silver",provider:"lan")`)
	d.operate(`setAiTierDefault(tier:"silver",provider:"lan")`)
	d.operate(`grantAiProviderToTenant(tenant:"acme",provider:"lan")`)
	d.operate(`setAiFunctionModel(tenant:"acme",function:"rule-drafting",provider:"lan")`)
	d.consent("acme", true)
	d.operate(`renameAiProvider(token:"lan",newToken:"other")` + `{token}`)
	d.operate(`renameAiProvider(token:"other",newToken:"lan"){token}`)
	d.ai.Answer(aiprovider.Text(hotDefinition))
	if r := d.draft("acme", hotText); !r.OK || *r.Provider != "lan" || *r.Model != "m1" {
		t.Errorf("after a rename: %+v", r)
	}
	if a := d.send(adminArea, d.identity, `{aiProviderTierGrants{tier isDefault provider{token}} aiFunctionAssignments(tenant:"acme"){provider{token}} aiProviderTenantGrants(tenant:"acme"){provider{token}}}`, nil); !strings.Contains(a.raw,
		`"aiProviderTierGrants":[{"tier":"silver","isDefault":true,"provider":{"token":"lan"}}],"aiFunctionAssignments":[{"provider":{"token":"lan"}}],"aiProviderTenantGrants":[{"provider":{"token":"lan"}}]`) {
		t.Errorf("%s", a.raw)
	}
	conformance.Shown(t, "S3-090")
	d.refusedOperation(`deleteAiProvider(token:"lan")`, "IN_USE", "grant")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (d *drafts) consent(tenant string, agreed bool) {
	d.t.Helper()
	if a := d.send("user-management/admin", d.identity, fmt.Sprintf(`mutation{updateTenant(token:%q,request:{aiExternalEnabled:%v}){token}}`, tenant, agreed), nil); len(a.Errors) > 0 {
		d.t.Fatal(a.raw)
	}
}

// secrets: the secret of a provider is kept, rotated, and deleted in two ways; nothing returns it.
func (d *drafts) secrets() {
	t := d.t
	test := func(ok bool) {
		t.Helper()
		a := d.send(adminArea, d.identity, `mutation{testAiProvider(token:"lan",request:{prompt:"say something"}){candidate model provider}}`, nil)
		if (len(a.Errors) == 0) != ok {
			t.Errorf("a test: %s", a.raw)
		}
	}
	d.ai.Answer(aiprovider.Text("something"))
	d.operate(`updateAiProvider(token:"lan",request:{description:"kept"}){token}`)
	test(true)
	d.ai.SetKey(aiNextKey)
	test(false)
	if got := d.operate(fmt.Sprintf(`updateAiProvider(token:"lan",request:{secret:%q}){hasSecret}`, aiNextKey)); got != `{"hasSecret":true}` {
		t.Errorf("rotated: %s", got)
	}
	test(true)
	for _, deleted := range []string{`null`, `""`} {
		before := len(d.ai.Requests())
		if got := d.operate(`updateAiProvider(token:"lan",request:{secret:` + deleted + `}){hasSecret}`); got != `{"hasSecret":false}` {
			t.Errorf("%s: %s", deleted, got)
		}
		test(false)
		if len(d.ai.Requests()) != before {
			t.Errorf("%s: something was sent", deleted)
		}
		d.operate(fmt.Sprintf(`updateAiProvider(token:"lan",request:{secret:%q}){hasSecret}`, aiNextKey))
		test(true)
	}
	conformance.Shown(t, "S3-059")
}

// unavailable: nothing is sent for a tenant without consent or provider, and the result says why no model was asked.
func (d *drafts) unavailable() {
	t := d.t
	reason := func(tenant, want string) {
		t.Helper()
		if r := d.draft(tenant, hotText); !r.Unavailable || r.Attempts != 0 || *r.UnavailableReason != want {
			t.Errorf("%s: %+v, want %q", tenant, r, want)
		}
	}
	before := len(d.ai.Requests())
	reason("globex", "This tenant has not agreed to the use of external AI.")
	d.consent("globex", true)
	d.operate(`clearAiTierDefault(tier:"silver")`)
	reason("globex", "No AI provider is set up for this tenant.")
	d.operate(`setAiTierDefault(tier:"silver",provider:"lan")`)
	d.operate(`updateAiProvider(token:"lan",request:{enabled:false}){token}`)
	reason("acme", "No AI provider is set up for this tenant.")
	d.operate(`updateAiProvider(token:"lan",request:{enabled:true}){token}`)
	if len(d.ai.Requests()) != before {
		t.Error("something was sent")
	}
	d.ai.Answer(aiprovider.Refuse(http.StatusInternalServerError, "what the provider says"))
	reason("acme", "The AI provider cannot be reached at the moment. Try again later.")
	endpoint := d.ai.Endpoint(aiprovider.OpenAI)
	d.operate(`updateAiProvider(token:"lan",request:{endpoint:"http://192.168.77.7/v1"}){token}`)
	reason("acme", "The AI provider cannot be reached at the moment. Try again later.")
	d.refusedOperation(`testAiProvider(token:"lan",request:{prompt:"p"}){model}`, "UNAVAILABLE", "add 192.168.77.7/32:80 to egress.allowed_destinations")
	d.operate(fmt.Sprintf(`updateAiProvider(token:"lan",request:{endpoint:%q}){token}`, endpoint))
	conformance.Shown(t, "S1-087")
}

// rounds: what comes of candidates, who may ask, and that nothing is saved.
func (d *drafts) rounds() {
	t := d.t
	const bad = `{"name":"Hot","type":"threshold","when":{"metric":"temp","op":"above","threshold":80}}`
	registry := func() string {
		return d.send("device-management", d.tokens["acme"], `{devicesRules:detectionRules(criteria:{pageNumber:1,pageSize:10}){pagination{totalRecords}} deviceProfiles(criteria:{pageNumber:1,pageSize:10}){pagination{totalRecords}}}`, nil).raw
	}
	rules := registry()
	asked := func(n int, says ...string) (draftResult, []aiprovider.Request) {
		t.Helper()
		var replies []aiprovider.Reply
		for _, s := range says {
			replies = append(replies, aiprovider.Text(s))
		}
		d.ai.Answer(replies...)
		before := len(d.ai.Requests())
		r := d.draft("acme", `{text:"warn when it is hot",profileToken:"boiler",metrics:[{key:"temperature",unit:"°C"}]}`)
		sent := d.ai.Requests()[before:]
		if len(sent) != n || r.Attempts != n {
			t.Errorf("%q: %d requests, %+v", says, len(sent), r)
		}
		return r, sent
	}
	r, sent := asked(1, hotDefinition)
	if !r.OK || *r.Definition != hotDefinition || strings.Contains(*r.Definition, "token") {
		t.Errorf("%+v", r)
	}
	if len(sent) == 1 && (!strings.Contains(sent[0].Prompt, "temperature") || !strings.Contains(sent[0].System, "- threshold: raises when")) {
		t.Errorf("the prompt: %+v", sent[0])
	}
	a := d.send("event-processing", d.tokens["acme"], fmt.Sprintf(`{validateDetectionRules(rules:[{token:"r",definition:%q}]){valid}}`, *r.Definition), nil)
	if !strings.Contains(a.raw, `"valid":true`) {
		t.Errorf("the draft does not compile: %s", a.raw)
	}
	conformance.Shown(t, "S1-081", "S1-084")
	if len(r.Warnings) != 1 || *r.Warnings[0].Code != "unknownMetric" {
		t.Errorf("warnings %+v", r.Warnings)
	}
	if r, _ = asked(2, bad, hotDefinition); !r.OK {
		t.Errorf("repaired: %+v", r)
	}
	r, _ = asked(3, bad, bad, "```json\n"+bad+"\n```", hotDefinition)
	if r.OK || *r.RawCandidate != "```json\n"+bad+"\n```" || len(r.Diagnostics) != 1 || r.Diagnostics[0].Field == nil || *r.Diagnostics[0].Field != "when" {
		t.Errorf("never: %+v", r)
	}
	conformance.Shown(t, "S1-082", "S1-083", "S1-085", "S1-086", "S1-090")
	dear := `{"name":"n","type":"threshold","when":{"cel":"m.all(a, m.all(b, m[a] > m[b]))"}}`
	if r, _ = asked(3, dear, dear, dear); r.OK || !strings.Contains(r.Diagnostics[0].Message, "cost") {
		t.Errorf("over the ceiling of cost: %+v", r)
	}
	for what, query := range map[string]string{
		"validate": fmt.Sprintf(`{validateDetectionRules(rules:[{token:"r",definition:%q}]){errors{message}}}`, dear),
		"preview":  fmt.Sprintf(`{previewRule(input:{ruleDefinition:%q,profileToken:"boiler",start:"2026-01-01T00:00:00Z",end:"2026-01-01T01:00:00Z"}){ok diagnostics{message}}}`, dear),
		"compile": fmt.Sprintf(`{compileCanvas(graph:%q,profileToken:"p"){ok diagnostics{message}}}`,
			graphOf(`{"id":"c","type":"threshold","config":{"name":"n","when":{"cel":"m.all(a, m.all(b, m[a] > m[b]))"}}}`, "s:out c:in")),
	} {
		_, reason, _ := strings.Cut(r.Diagnostics[0].Message, ": ")
		if a := d.send("event-processing", d.tokens["acme"], query, nil); !strings.Contains(a.raw, strings.TrimPrefix(reason, "when: ")) || !strings.Contains(a.raw, "at most 100 is allowed") {
			t.Errorf("%s: %s, a draft is refused with %q", what, a.raw, r.Diagnostics[0].Message)
		}
	}
	conformance.Shown(t, "S1-108")
	d.ai.Answer(aiprovider.Text(hotDefinition))
	d.cli()
	d.ai.Answer(aiprovider.Text(hotDefinition))
	if r := d.draft("acme", hotText); !r.OK {
		t.Errorf("without metrics: %+v", r)
	}
	conformance.Shown(t, "S1-091")
	if after := registry(); after != rules {
		t.Errorf("drafts were saved: %s, was %s", after, rules)
	}
	conformance.Shown(t, "S1-089")

	// device:write is enough, and needed.
	query := `mutation{draftDetectionRuleFromText(input:` + hotText + `)` + draftFields + `}`
	token, header := d.service("acme", "device:read", "ai:infer")
	if a := d.send("event-processing", token, query, header); !strings.HasPrefix(a.refusal(), "FORBIDDEN forbidden: device:write") {
		t.Errorf("without device:write: %s", a.raw)
	}
	conformance.Shown(t, "S1-015")
	token, header = d.service("acme", "device:write")
	if a := d.send("event-processing", token, query, header); !strings.Contains(a.raw, `"ok":true`) {
		t.Errorf("without ai:infer: %s", a.raw)
	}
	conformance.Shown(t, "S1-092")
	const infer = `mutation{inferRuleCandidate(request:{prompt:"p",system:"s"}){candidate model provider}}`
	if a := d.send("ai-inference", token, infer, header); !strings.HasPrefix(a.refusal(), "FORBIDDEN forbidden: ai:infer") {
		t.Errorf("inference without ai:infer: %s", a.raw)
	}
	token, header = d.service("acme", "ai:infer")
	if a := d.send("ai-inference", token, infer, header); !strings.Contains(a.raw, `"model":"m1","provider":"lan"`) {
		t.Errorf("inference with ai:infer: %s", a.raw)
	}
	conformance.Shown(t, "S3-102")

	// What a provider writes is data, also where it is hostile.
	d.ai.Answer(aiprovider.Text("<script>alert(1)</script> your key is " + aiNextKey))
	if r := d.draft("acme", hotText); r.OK || *r.RawCandidate != "<script>alert(1)</script> your key is [secret]" {
		t.Errorf("%+v", r)
	}
}

// rate: the rate of a tenant is its own.
func (d *drafts) rate() {
	t := d.t
	d.ai.Answer(aiprovider.Text(hotDefinition))
	if a := d.send("user-management/admin", d.identity, `mutation{updateTenant(token:"globex",request:{aiInferenceRequestsPerMinute:0.001,aiInferenceBurst:2}){token}}`, nil); len(a.Errors) > 0 {
		t.Fatal(a.raw)
	}
	for range 2 {
		d.draft("globex", hotText)
	}
	before := len(d.ai.Requests())
	if r := d.draft("globex", hotText); !r.Unavailable || *r.UnavailableReason != "This tenant has used up its requests for drafts for now. Try again in a few minutes." {
		t.Errorf("over the rate: %+v", r)
	}
	if len(d.ai.Requests()) != before {
		t.Error("something was sent")
	}
	conformance.Shown(t, "S1-088")
	if r := d.draft("acme", hotText); !r.OK {
		t.Errorf("another tenant: %+v", r)
	}
	conformance.Shown(t, "S1-110")
}

// nothingTold: no key is in a response, a log, or a file of the instance.
func (d *drafts) nothingTold() {
	t := d.t
	must(t, filepath.WalkDir(d.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		for _, key := range []string{aiKey, aiNextKey} {
			if bytes.Contains(b, []byte(key)) {
				t.Errorf("%s holds %s", path, key)
			}
		}
		return err
	}))
	for _, key := range []string{aiKey, aiNextKey} {
		if strings.Contains(d.said.String(), key) {
			t.Errorf("a response shows %s", key)
		}
		for _, p := range d.logs {
			if strings.Contains(p.Stderr(), key) {
				t.Errorf("the log shows %s", key)
			}
		}
	}
	conformance.Shown(t, "S3-060")
	for _, text := range []string{"what the provider says", "invalid key"} {
		if strings.Contains(d.said.String(), text) || strings.Contains(d.logs[1].Stderr(), text) {
			t.Errorf("%q of the provider is shown", text)
		}
	}
	if !strings.Contains(d.logs[1].Stderr(), "an AI provider did not answer") {
		t.Error("the log does not say that a provider failed")
	}
}

// cli: weir rule draft prints the rule, and what is wrong where none comes of it.
func (d *drafts) cli() {
	t := d.t
	t.Helper()
	a := d.send("device-management", d.tokens["acme"], `mutation{createDeviceProfile(request:{token:"boiler"}){id} createMetricDefinition(request:{token:"m",deviceProfileToken:"boiler",metricKey:"boilerTemp",dataType:"DOUBLE"}){id}}`, nil)
	if len(a.Errors) > 0 {
		t.Fatal(a.raw)
	}
	before := len(d.ai.Requests())
	out := d.Run("", "rule", "draft", "warn when it is hot", "--tenant", "acme", "--profile", "boiler")
	if !strings.Contains(out, `"type": "threshold"`) {
		t.Errorf("%s", out)
	}
	if sent := d.ai.Requests()[before:]; len(sent) != 1 || !strings.Contains(sent[0].Prompt, "boilerTemp") || !strings.Contains(sent[0].Prompt, "warn when it is hot") {
		t.Errorf("%+v", sent)
	}
	a = d.send("device-management", d.tokens["acme"], `mutation{deleteMetricDefinition(token:"m") deleteDeviceProfile(token:"boiler")}`, nil)
	if len(a.Errors) > 0 {
		t.Fatal(a.raw)
	}
}
