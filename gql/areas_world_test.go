package gql_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"

	"weir/alarm"
	"weir/artifact"
	"weir/command"
	"weir/connectors"
	"weir/dashboard"
	"weir/gql"
	"weir/gql/admin"
	"weir/gql/delivery"
	"weir/gql/engine"
	"weir/gql/notification"
	"weir/gql/outbound"
	"weir/inference"
	"weir/ingest"
	"weir/internal/test/domain"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/notify"
	"weir/presence"
	"weir/provision"
	"weir/rules"
	"weir/rules/canvas"
	"weir/rules/draft"
	"weir/rules/preview"
	"weir/series"
	"weir/store"
	"weir/store/entity"
	"weir/store/sqlite"
)

// areasWorld are all areas of the program over a fresh store, without a log: there are no events, and no states but those of the
// tables.
type areasWorld struct {
	testing.TB
	*domain.Domain
	server  *gql.Server
	schemas map[string]*ast.Schema
	work    atomic.Int64 // SQL statements, and calls of what is no table
}

// walkArea is an area with its plane and what registers it.
type walkArea struct {
	plane    gql.Plane
	register func(*gql.Area)
}

func newAreasWorld(t testing.TB, limits gql.Limits) *areasWorld {
	t.Helper()
	w := &areasWorld{TB: t, server: gql.New(gql.Config{Limits: limits}), schemas: map[string]*ast.Schema{}}
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "weir.db"), sqlite.Options{Trace: func(query string) {
		if !strings.HasPrefix(query, "PRAGMA wal_checkpoint") { // the writer looks at the length of its log after it has answered
			w.work.Add(1)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	writer := store.Direct{Store: db}
	w.Domain = domain.New(t, domain.Config{Store: db, Writer: writer})
	for name, a := range w.areas(db, writer) {
		a.register(w.server.Area(name, a.plane))
		sdl, err := gql.SDL(name)
		if err != nil {
			t.Fatal(err)
		}
		if w.schemas[name], err = gqlparser.LoadSchema(&ast.Source{Name: name, Input: sdl}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.server.Build(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Govern.Tenants.Create(t.Context(), fixture.Operator(), store.Patch{"token": walkTenant}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *areasWorld) areas(db *sqlite.DB, writer store.Writer) map[string]walkArea {
	w.Helper()
	compiler, err := rules.NewCompiler(rules.Limits{})
	if err != nil {
		w.Fatal(err)
	}
	r, none := w.Registry, empty{&w.work}
	p := provision.New(provision.ProfileSettings{}, provision.Deps{Registry: r, Store: db, Writer: writer, Hasher: w.Hasher})
	deps := admin.Deps{Auth: w.Auth, Govern: w.Govern, Journal: entity.Journal{Store: db}, Areas: []string{"device-management"}, Store: db, Writer: writer}
	tenant := func(fn func(*gql.Area)) walkArea { return walkArea{gql.TenantPlane, fn} }
	operators := func(fn func(*gql.Area, admin.Deps)) walkArea {
		return walkArea{gql.IdentityPlane, func(a *gql.Area) { fn(a, deps) }}
	}
	return map[string]walkArea{
		"user-management": tenant(func(a *gql.Area) {
			gql.RegisterUser(a, gql.UserDeps{SignIn: w.Auth, Profiles: w.Auth, Tenants: w.Govern})
		}),
		"device-management": tenant(func(a *gql.Area) {
			gql.RegisterRegistry(a, r, p)
			gql.RegisterAlarms(a, alarm.New(alarm.TenantSettings{}, alarm.Deps{Store: db, Writer: writer}), r)
			gql.RegisterSnippets(a, r, func(string, string, string, string) ([]gql.Snippet, error) { return nil, nil })
			gql.RegisterTestEvents(a, gql.MessageDeps{}, nil)
			gql.RegisterLwm2m(a, r, noLwm2m{})
			gql.RegisterArtifacts(a, artifact.New(artifact.Deps{Store: db, Writer: writer, Limits: func() (int64, int64) { return 1 << 10, 1 << 10 }}))
		}),
		"event-management": tenant(func(a *gql.Area) {
			gql.RegisterEvents(a, gql.EventDeps{Events: none, Devices: r.Devices.Rows, Ledger: none, Anchors: none})
		}),
		"device-state": tenant(func(a *gql.Area) {
			gql.RegisterState(a, gql.StateDeps{States: tableStates{db}, Latest: tableStates{db}, Devices: r.Devices.Rows, Tokens: r.Devices.Tokens, External: r.Devices,
				Listening: func() int64 { return int64(time.Hour) }, Silence: func() time.Duration { return time.Minute }, Demoter: none})
		}),
		"event-processing": tenant(func(a *gql.Area) {
			gql.RegisterProcessing(a, gql.ProcessingDeps{Rules: compiler, Health: none, Past: none, Devices: r.Devices.Rows, Profiles: r.Profiles.Rows, RuleRows: r.Rules.Rows,
				Canvas: canvas.NewCompiler(compiler), Drafter: draft.New(compiler), Infer: none,
				Compiler: compiler, Previews: none, Scopes: r.Groups, Now: func() time.Time { return time.Time{} }})
		}),
		delivery.Area:  tenant(func(a *gql.Area) { delivery.Register(a, w.commands(db, writer)) }),
		"ai-inference": tenant(func(a *gql.Area) { gql.RegisterInference(a, none) }),
		inference.AdminArea: {gql.IdentityPlane, func(a *gql.Area) {
			admin.RegisterInference(a, inference.New(inference.Settings{}, inference.Deps{Store: db, Writer: writer, Vault: w.Vault, Tenants: w.Govern}))
		}},
		dashboard.Area: tenant(func(a *gql.Area) {
			a.Entities(dashboard.New(dashboard.DashboardSettings{}, dashboard.Deps{Base: entity.Base{Store: db, Writer: writer}}).Kinds)
		}),
		outbound.Area: tenant(func(a *gql.Area) {
			outbound.Register(a, connectors.New(connectors.ConnectorSettings{}, connectors.Deps{Store: db, Writer: writer, Vault: w.Vault, Tenants: w.Govern}),
				gql.LetterDeps{Store: db, Writer: writer, Tenant: w.Govern.Lookup})
		}),
		notification.Area: tenant(func(a *gql.Area) {
			notification.Register(a, notify.New(notify.Settings{}, notify.LimitSettings{}, notify.Deps{Store: db, Writer: writer, Vault: w.Vault, Tenants: w.Govern}))
		}),
		"event-sources":    tenant(gql.RegisterPlaceholder),
		admin.Area:         operators(admin.Register),
		admin.SettingsArea: operators(admin.RegisterSettings),
	}
}

// commands keeps commands that nothing dispatches.
func (w *areasWorld) commands(db *sqlite.DB, writer store.Writer) *command.Service {
	return command.New(command.Settings{}, command.Deps{Store: db, Writer: writer, Ceiling: func(int64) int64 { return 10_000 },
		Judge: func(tx store.Tx, tenant int64, devices []string, name string, payload *string) (all []command.Verdict, err error) {
			judged, err := w.Registry.Vocabularies.Judge(tx, tenant, devices, name, payload)
			for _, j := range judged {
				all = append(all, command.Verdict{Device: j.Device, DeviceID: j.ID, Rejection: command.Rejection{Code: j.Code, Reason: j.Reason}})
			}
			return all, err
		},
		Targets: func(ctx context.Context, by *model.Principal, group string, version *int64, limit int) (t command.Target, err error) {
			page, err := w.Registry.Groups.Targets(ctx, by, group, version, 0, 1000)
			if err == nil && page.Rejected {
				t.Refused = &command.Rejection{Code: *page.Code, Reason: *page.Reason}
			} else if err == nil {
				t.Devices, t.Version = page.Devices, page.Version
			}
			return t, err
		}})
}

// furnish makes two rows of each kind, and a dashboard.
func (w *areasWorld) furnish() {
	w.Helper()
	requests := append(append([]string{}, seedRequests...), seedDescribed("")...)
	for _, q := range requests {
		if resp := w.run(w.Context(), "device-management", q, map[string]any{"rule": hotRule}); len(resp.Errors) > 0 {
			w.Fatalf("%s: %v", q, resp.Errors[0])
		}
	}
	if resp := w.run(w.Context(), "dashboard-management", `mutation { createDashboard(request: {token: "main", definition: "{\"n\":1}"}) { token } }`, nil); len(resp.Errors) > 0 {
		w.Fatal(resp.Errors[0])
	}
}

// caller may do everything on the plane of an area.
func (w *areasWorld) caller(area string) *model.Principal {
	id, _, _ := w.Govern.Lookup(walkTenant)
	by := member(walkTenant, id)
	if w.server.Plane(area) == gql.IdentityPlane {
		by.Kind, by.Tenant, by.TenantID, by.System = model.IdentityCaller, "", 0, map[model.Authority]bool{model.AllAuthorities: true}
	}
	by.Tenants = map[model.Authority]bool{model.AllAuthorities: true, model.StateDemote: true}
	return by
}

func (w *areasWorld) run(ctx context.Context, area, query string, variables map[string]any) *engine.Response {
	ctx = gql.WithCall(ctx, gql.Call{Principal: w.caller(area), Transport: gql.HTTP})
	return w.server.Engine(area).Execute(ctx, engine.Request{Query: query, Variables: variables})
}

// args are those of an operation's row in walkTable. Rows have the id 1.
func (op walkOp) filledArgs() string {
	parts := strings.Split(op.args, "<")
	for i, part := range parts[1:] {
		_, rest, _ := strings.Cut(part, ">")
		parts[i+1] = "1" + rest
	}
	return strings.Join(parts, "")
}

// result is the type that an operation returns.
func (w *areasWorld) result(area string, op walkOp) string {
	return rootsOf(w.schemas[area])[op.kind].Fields.ForName(op.name).Type.Name()
}

// empty is what a program has that is no table, without anything in it. It counts how often it is asked.
type empty struct{ asked *atomic.Int64 }

func (n empty) Events(_ context.Context, q series.Query) (*series.Result, error) {
	n.asked.Add(1)
	return &series.Result{Page: q.Page}, nil
}

func (n empty) Buckets(context.Context, series.BucketQuery) ([]series.Bucket, error) {
	n.asked.Add(1)
	return nil, nil
}

func (n empty) Lines(context.Context, store.LedgerFilter) ([]ingest.LedgerLine, error) {
	n.asked.Add(1)
	return nil, nil
}

func (n empty) AnchorsOf(context.Context, int64, []int64) (map[int64][]model.Anchor, error) {
	n.asked.Add(1)
	return nil, nil
}

func (n empty) AnchorSetsWith(context.Context, int64, model.Anchor) ([]int64, error) {
	n.asked.Add(1)
	return nil, nil
}

func (n empty) RuleHealth(context.Context, string, string) ([]ingest.RuleHealth, error) {
	n.asked.Add(1)
	return nil, nil
}

func (n empty) Detections(context.Context, store.DetectionFilter, store.Page) ([]store.Detection, int64, error) {
	n.asked.Add(1)
	return nil, 0, nil
}

func (n empty) DetectionAt(context.Context, int64, int64) (*store.DetectionPosition, error) {
	n.asked.Add(1)
	return nil, nil
}

func (e empty) Preview(context.Context, *model.Principal, *preview.Draft, string, preview.Window, *model.GroupView, bool) (*preview.Result, error) {
	e.asked.Add(1)
	return &preview.Result{}, nil
}

func (empty) Now() model.Micros { return model.MicrosOf(time.Now()) }

func (n empty) Demote(context.Context, *model.Principal, string, string, []presence.Asserted) error {
	n.asked.Add(1)
	return nil
}

func (n empty) Infer(context.Context, *model.Principal, string, inference.Request) (*inference.Result, error) {
	n.asked.Add(1)
	return &inference.Result{Candidate: "```json\n{}\n```", Model: "m", Provider: "p"}, nil
}

// areaSeeds are documents with variables of the areas: what takes a text that is read further.
var areaSeeds = [][3]string{
	{"dashboard-management", `mutation($r: DashboardCreateRequest!) { createDashboard(request: $r) { token definition } }`, `{"r":{"token":"a","name":"N","definition":"{\"a\":[1,2.50],\"b\":\"\\ud800\"}"}}`},
	{"dashboard-management", `mutation($d: String, $n: String) { updateDashboard(token: "main", request: {definition: $d, name: $n}) { updatedAt definition } }`, `{"d":" {}\n","n":null}`},
	{"dashboard-management", `{ dashboardVersions(token: "main", limit: 2147483647, offset: -1) { version } }`, ``},
	{"device-management", `query($s: String!) { previewSelector(memberType: "device", selector: $s, pagination: {pageNumber: 1, pageSize: 10}) { valid error members { results { token } } } }`, `{"s":"attr[\"zone\"] in (\"a\") and not related(\"contains\", \"area:a\")"}`},
	{"device-management", `mutation($g: String!) { createGeoFence(request: {token: "g", geometry: $g}) { geometry } }`, `{"g":"{\"kind\":\"POLYGON_2D\",\"geometry\":{\"type\":\"Polygon\",\"coordinates\":[[[5,0],[6,0],[6,1],[5,0]]]}}"}`},
	{"device-management", `mutation($v: String) { setEntityAttribute(request: {entityType: "device", entity: "d", scope: "SERVER", attrKey: "k", valueType: "DOUBLE", value: $v}) { value } }`, `{"v":"1e308"}`},
	{"device-management", `mutation($r: ProvisioningProfileCreateRequest) { createProvisioningProfile(request: $r) { provisionKey } }`, `{"r":{"token":"x","provisionKey":"k","provisionSecret":"s","strategy":"ALLOW_NEW","deviceTypeToken":"t","enabled":true,"expiresAt":""}}`},
	{"device-management", `query($c: DeviceSearchCriteria!) { devices(criteria: $c) { results { token } pagination { totalRecords } } }`, `{"c":{"pageNumber":-1,"pageSize":2147483647,"search":"%_\\","group":"none","active":true}}`},
	{"device-management", `mutation($e: String) { initiateDeviceClaim(request: {deviceToken: "d", claimSecret: "s", expiresAt: $e}) { status expiresAt } }`, `{"e":"9999-12-31T23:59:60Z"}`},
	{"event-management", `query($c: EventSearchCriteria!) { events(criteria: $c) { results { id } } }`, `{"c":{"pageNumber":1,"pageSize":1,"startTime":"0000-01-01T00:00:00Z","endTime":"x","anchor":{"type":"area","token":"a"},"eventTypes":[1,99]}}`},
	{"user-management", `mutation($b: TenantBrandingInput!) { setTenantBranding(input: $b) { __typename } }`, `{"b":{"title":"é","primary":"#112233","logoMaxHeight":16}}`},
	{"user-management", `mutation($l: String) { setTenantLogo(logo: $l) { __typename } }`, `{"l":"data:image/png;base64,AAAA"}`},
	{"user-management-admin", `mutation($c: String) { createTenantTier(request: {token: "x", config: $c}) { config } }`, `{"c":"{\"ingestBurst\":1e99}"}`},
	{"user-management-admin", `mutation($u: [String!]!) { createOauthClient(request: {clientId: "a.b", redirectUris: $u, scopes: ["location"]}) { __typename } }`, `{"u":["http://[::1]:0/%zz"]}`},
	{"user-management-settings", `mutation($v: String!) { setSetting(key: "entity.token_masks", value: $v) { value } }`, `{"v":"{\"default\":\"{alphanumeric-999}\"}"}`},
	{"user-management-settings", `mutation($v: String!) { setSetting(key: "branding.default", value: $v) { value } }`, `{"v":"{\"title\":null} {}"}`},
}

// FuzzAreas runs a document with variables in an area of the program: the answer is JSON, and no input is an internal error.
func FuzzAreas(f *testing.F) {
	w := newAreasWorld(f, gql.Limits{Limits: engine.Limits{Cost: 20_000, ResponseBytes: 1 << 20}})
	w.furnish()
	var areas []string
	for area := range w.schemas {
		areas = append(areas, area)
	}
	for area, ops := range walkTable {
		for _, op := range ops {
			f.Add(area, op.kind+" { "+op.name+op.filledArgs()+selectAll(w.schemas[area], w.result(area, op), 3, nil)+" }", `{}`)
		}
	}
	for _, seed := range areaSeeds {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, area, query, variables string) {
		if w.schemas[area] == nil {
			n := 0
			for _, b := range []byte(area) {
				n += int(b)
			}
			area = areas[n%len(areas)]
		}
		body, err := json.Marshal(map[string]any{"query": query})
		if err != nil {
			t.Fatal(err) // every text has a JSON form
		}
		req, err := engine.ParseRequest(append(body[:len(body)-1], `,"variables":`+variables+`}`...))
		if err != nil {
			req = engine.Request{Query: query}
		}
		resp := w.run(t.Context(), area, req.Query, req.Variables)
		b, err := resp.MarshalJSON()
		if err != nil || !json.Valid(b) {
			t.Fatalf("%s: %v: %s", area, err, b)
		}
		for _, e := range resp.Errors {
			if strings.Contains(e.Message, internalErr) {
				t.Fatalf("%s: %s %s: %s", area, query, variables, b)
			}
		}
	})
}
