package gql_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/alarm"
	"weir/auth"
	"weir/gql"
	"weir/gql/engine"
	"weir/internal/test/conformance"
	"weir/internal/test/domain"
	"weir/internal/test/draws"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/provision"
	"weir/registry"
	"weir/store"
	"weir/store/sqlite"
)

// registryWorld is the device-management area over a fresh store, with the rules that publish really asks.
type registryWorld struct {
	testing.TB
	r      *registry.Registry
	server *gql.Server
	engine *engine.Engine
	db     *sqlite.DB
	reads  atomic.Int64
	clock  atomic.Int64
	writes atomic.Int64
	broken atomic.Bool // changes fail after their last statement
}

// breakingStore counts the writes and, while broken is set, lets each fail once it has done everything.
type breakingStore struct {
	store.Store
	writes *atomic.Int64
	broken *atomic.Bool
}

var errBroken = errors.New("the disk is full")

func (s breakingStore) Write(ctx context.Context, d store.Durability, fn func(store.Tx) error) error {
	s.writes.Add(1)
	return s.Store.Write(ctx, d, func(tx store.Tx) error {
		if err := fn(tx); err != nil || !s.broken.Load() {
			return err
		}
		return errBroken
	})
}

// countingStore counts the snapshots that resolvers read.
type countingStore struct {
	store.Store
	reads *atomic.Int64
}

func (s countingStore) Read(ctx context.Context, fn func(store.Tx) error) error {
	s.reads.Add(1)
	return s.Store.Read(ctx, fn)
}

type lengthHasher struct{}

func (lengthHasher) Hash(_ context.Context, password string) (string, error) {
	return fmt.Sprint("hash of ", len(password)), nil
}

func newRegistryWorld(t testing.TB) *registryWorld {
	t.Helper()
	return openRegistryWorld(t, fixture.Store(t))
}

func openRegistryWorld(t testing.TB, db *sqlite.DB) *registryWorld {
	t.Helper()
	w := &registryWorld{TB: t, db: db, server: gql.New(gql.Config{})}
	w.clock.Store(1_700_000_000_000_000)
	writer := store.Direct{Store: breakingStore{db, &w.writes, &w.broken}, Now: func() time.Time { return time.UnixMicro(w.clock.Add(1000)) }}
	w.r = registry.New(registry.Config{}, registry.Deps{
		Store:     countingStore{db, &w.reads},
		Writer:    writer,
		Sealer:    store.NewVault([32]byte{7}),
		Hasher:    lengthHasher{},
		Validator: domain.Rules(t),
		Removals:  []registry.Removal{provision.RemoveDeviceRows},
	})
	hasher := auth.NewHasher(auth.Params{MemoryKiB: 8, Passes: 1, Lanes: 1}, nil)
	devices := w.server.Area("device-management", gql.TenantPlane)
	gql.RegisterAlarms(devices, alarm.New(alarm.TenantSettings{}, alarm.Deps{Store: db, Writer: writer}), w.r)
	gql.RegisterSnippets(devices, w.r, func(tenant, device, accessToken, host string) ([]gql.Snippet, error) {
		return []gql.Snippet{{Title: "curl", Language: "sh", Text: tenant + " " + device + " " + accessToken + " " + host}}, nil
	})
	gql.RegisterTestEvents(devices, gql.MessageDeps{}, nil)
	gql.RegisterLwm2m(devices, w.r, someLwm2m{})
	gql.RegisterArtifacts(devices, nil)
	gql.RegisterRegistry(devices, w.r, provision.New(provision.ProfileSettings{}, provision.Deps{Registry: w.r,
		Store: countingStore{db, &w.reads}, Writer: writer, Hasher: hasher}))
	if err := w.server.Build(); err != nil {
		t.Fatal(err)
	}
	w.engine = w.server.Engine("device-management")
	return w
}

func member(tenant string, id int64, as ...model.Authority) *model.Principal {
	return fixture.Member("ada", tenant, id, as...)
}

var (
	writer     = member("acme", 1, model.DeviceRead, model.DeviceWrite, model.LocationRead)
	reader     = member("acme", 1, model.DeviceRead)
	neighbour  = member("other", 2, model.DeviceRead, model.DeviceWrite, model.LocationRead)
	hotRule    = `{"name":"hot","type":"threshold","when":{"metric":"temp","op":"gt","threshold":30}}`
	brokenRule = `{"name":"hot","type":"threshold","when":{"metric":"temp","op":"gt"}}`
)

// as runs a request for a caller.
func (w *registryWorld) as(p *model.Principal, query string, variables map[string]any) *engine.Response {
	w.Helper()
	if variables != nil { // as they come over the wire
		b, err := json.Marshal(variables)
		if err != nil {
			w.Fatal(err)
		}
		d := json.NewDecoder(strings.NewReader(string(b)))
		d.UseNumber()
		variables = nil
		if err := d.Decode(&variables); err != nil {
			w.Fatal(err)
		}
	}
	return w.engine.Execute(gql.WithCall(w.Context(), gql.Call{Principal: p, Transport: gql.HTTP}), engine.Request{Query: query, Variables: variables})
}

// ok runs a request that must succeed, and returns the value at the path of response keys, as JSON gives it.
func (w *registryWorld) ok(query string, variables map[string]any, path ...string) any {
	w.Helper()
	return w.value(w.as(writer, query, variables), query, path...)
}

func (w *registryWorld) value(resp *engine.Response, query string, path ...string) any {
	w.Helper()
	if len(resp.Errors) > 0 {
		w.Fatalf("%s: %s", query, resp.Errors[0].Message)
	}
	b, err := json.Marshal(resp)
	if err != nil {
		w.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(b, &all); err != nil {
		w.Fatal(err)
	}
	v := all["data"]
	for _, key := range path {
		switch x := v.(type) {
		case map[string]any:
			v = x[key]
		case []any:
			if len(x) != 1 {
				w.Fatalf("%s: %d entries at %s, want 1", query, len(x), key)
			}
			v = x[0].(map[string]any)[key]
		default:
			return nil
		}
	}
	return v
}

// refuses runs a request as the writer that must be refused with the code and a message that holds the text; no row may change.
func (w *registryWorld) refuses(query string, variables map[string]any, code model.Code, text string) {
	w.Helper()
	w.refusesFor(writer, query, variables, code, text)
}

func (w *registryWorld) refusesFor(p *model.Principal, query string, variables map[string]any, code model.Code, text string) {
	w.Helper()
	before := w.dump()
	resp := w.as(p, query, variables)
	switch {
	case len(resp.Errors) == 0:
		w.Errorf("%s %v: not refused", query, variables)
	case resp.Errors[0].Code() != code || !strings.Contains(resp.Errors[0].Message, text):
		w.Errorf("%s %v: got %q (%s), want %s with %q", query, variables, resp.Errors[0].Message, resp.Errors[0].Code(), code, text)
	}
	if after := w.dump(); before != after {
		w.Errorf("%s %v: refused, but rows changed\nfrom %s\nto   %s", query, variables, before, after)
	}
}

// dump is every row that a change of the registry may touch.
func (w *registryWorld) dump() string {
	w.Helper()
	return fixture.Dump(w, w.db, append(tables(), "device_profile_versions", "entity_group_versions", "device_counts", "row_counts", "facet_keys", "attributes", "geofence_sets", "audit_events", "control")...)
}

// seedRequests make two of each kind: profiles p and q, types t (of p) and u, a metric, a rule, a command, devices d and e,
// credentials c and k. The second one takes the variable rule.
var seedRequests = []string{
	`mutation { a: createDeviceProfile(request: {token: "p"}) { token } b: createDeviceProfile(request: {token: "q"}) { token }
		c: createDeviceType(request: {token: "t", profileToken: "p"}) { token } d: createDeviceType(request: {token: "u"}) { token }
		e: createDevice(request: {token: "d", deviceTypeToken: "t"}) { token } }`,
	`mutation ($rule: String!) { a: createMetricDefinition(request: {token: "m", deviceProfileToken: "p", metricKey: "temp", dataType: "DOUBLE"}) { token }
		b: createDetectionRule(request: {token: "r", deviceProfileToken: "p", definition: $rule, enabled: true}) { token }
		c: createDevice(request: {token: "e", deviceTypeToken: "u"}) { token }
		d: createDeviceCredential(request: {token: "c", deviceToken: "d", credentialType: "MQTT_BASIC", credentialId: "user", credentialValue: "pw", enabled: true}) { token }
		e: createDeviceCredential(request: {token: "k", deviceToken: "d", credentialType: "ACCESS_TOKEN", credentialId: "a-secret", enabled: true}) { token } }`,
	`mutation { createCommandDefinition(request: {token: "cmd", deviceProfileToken: "p", commandKey: "reboot"}) { token } }`,
}

// seed makes two rows of each kind.
func (w *registryWorld) seed() {
	w.Helper()
	for _, q := range seedRequests {
		w.ok(q, map[string]any{"rule": hotRule})
	}
	for _, q := range seedDescribed("") {
		w.ok(q, nil)
	}
}

func with(m map[string]any, name string, v any) map[string]any {
	m = maps.Clone(m)
	m[name] = v
	return m
}

func (w *registryWorld) create(typ string, request map[string]any) (query string, variables map[string]any) {
	return fmt.Sprintf(`mutation ($r: %sCreateRequest!) { create%s(request: $r) { id token } }`, typ, typ), map[string]any{"r": request}
}

func TestTokensFollowThePattern(t *testing.T) {
	draws.NeedsAll(t)
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	longest := "A" + strings.Repeat("z-_9", 31) + "abc"
	for typ, request := range createWith() {
		for _, bad := range []string{longest + "x", "", "-a", "_a", "a.b", "a*", "a>", "a+", "a#", "a/b", "a:b", "a b", "é", "a\nb"} {
			q, vars := w.create(typ, with(request, "token", bad))
			w.refuses(q, vars, model.CodeInvalidInput, "token")
			if found := w.ok(fmt.Sprintf(`query ($t: [String!]!) { %sByToken(tokens: $t) { id } }`, pluralOf(typ)), map[string]any{"t": []string{bad}}, pluralOf(typ)+"ByToken"); len(found.([]any)) != 0 {
				t.Errorf("%s %q was stored", typ, bad)
			}
		}
		q, vars := w.create(typ, with(request, "token", longest))
		if got := w.ok(q, vars, "create"+typ, "token"); got != longest || len(longest) != 128 {
			t.Errorf("%s: token %v of %d characters", typ, got, len(longest))
		}
		w.refuses(q, vars, model.CodeConflict, "must be unique")
	}
	for _, bad := range []string{longest + "x", "", " ", "-a", "_a", "a.b", "a*", "a>", "a+", "a#", "a/b", "a:b", "a b"} {
		w.refuses(`mutation ($n: String!) { renameDeviceProfile(token: "q", newToken: $n) { token } }`, map[string]any{"n": bad}, model.CodeInvalidInput, "newToken")
	}
	if got := w.ok(`mutation { renameDeviceProfile(token: "q", newToken: "Q-2_x") { token } }`, nil, "renameDeviceProfile", "token"); got != "Q-2_x" {
		t.Errorf("renamed to %v", got)
	}
	conformance.Shown(t, "S3-014", "S3-015", "S3-016", "S3-017", "S3-018")
}

func TestExternalIDsOverTheAPI(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	const create = `mutation ($r: DeviceCreateRequest) { createDevice(request: $r) { externalId } }`
	device := func(token string, external any) map[string]any {
		return map[string]any{"r": map[string]any{"token": token, "deviceTypeToken": "t", "externalId": external}}
	}
	const id = "00:1b.44/11 x+#>*é"
	if got := w.ok(create, device("x1", id), "createDevice", "externalId"); got != id {
		t.Errorf("external id %v", got)
	}
	conformance.Shown(t, "S3-020")
	w.refuses(create, device("x2", id), model.CodeConflict, "unique")
	w.refuses(create, device("x2", strings.Repeat("x", 257)), model.CodeInvalidInput, "externalId")
	w.ok(create, device("x3", nil))
	w.ok(create, device("x4", nil))
	w.value(w.as(neighbour, `mutation { createDeviceType(request: {token: "t"}) { id } }`, nil), "another tenant's type")
	w.value(w.as(neighbour, create, device("x1", id)), "another tenant's device")
	if got := w.ok(`query ($i: [String!]!) { devicesByExternalId(externalIds: $i) { token } }`, map[string]any{"i": []string{id, "none"}}, "devicesByExternalId", "token"); got != "x1" {
		t.Errorf("found %v", got)
	}
	conformance.Shown(t, "S3-021")
}

// updateField says how one field of an update input behaves.
type updateField struct {
	first, second any
	nulls         string // "clears" or "refused"
	read          string // selection that shows the field, default its name; a nested one as "profile.token"
	empty         bool   // "" clears too
	cleared       any    // what a cleared field reads as, default null
}

// updatesByHand are the fields of update inputs of which the description does not say it all.
var updatesByHand = map[string]map[string]updateField{
	"DeviceProfile": {
		"lwm2m": {first: `{"observe":[{"path":"/3303/0"}]}`, second: `{"location":true}`, nulls: "clears"},
		"location": {first: map[string]any{"expectedAccuracyMeters": 1.5, "expectedUpdateIntervalSeconds": 30.0},
			second: map[string]any{"expectedAccuracyMeters": 2.0, "expectedUpdateIntervalSeconds": nil}, nulls: "clears",
			read: "location {expectedAccuracyMeters expectedUpdateIntervalSeconds}"},
	},
	"DeviceType": {
		"profileToken": {first: "p", second: "q", nulls: "clears", read: "profile.token", empty: true},
	},
	"MetricDefinition": {
		"minValue": {first: -1.5, second: 0.0, nulls: "clears"}, "maxValue": {first: 7.0, second: 7.25, nulls: "clears"},
		"enum":        {first: `["a"]`, second: `["a", "b"]`, nulls: "clears"},
		"metricKey":   {first: "k1", second: "k2", nulls: "refused"},
		"sourceNames": {first: []any{"/3303/0/5700", "Node Temperature"}, second: []any{"t"}, nulls: "clears"},
		"dataType":    {first: "INT", second: "STRING", nulls: "refused"},
	},
	"CommandDefinition": {
		"commandKey":      {first: "k1", second: "k2", nulls: "refused"},
		"parameterSchema": {first: `[{"name": "on", "dataType": "BOOLEAN"}]`, second: `[]`, nulls: "clears"},
	},
	"DetectionRule": {
		"authoringGraph": {first: `{"n":1}`, second: `{}`, nulls: "clears"},
		"definition":     {first: brokenRule, second: hotRule, nulls: "refused"},
		// One of the two alone is refused; TestARulesGroupScopeIsAPair shows the rest.
		"entityGroupToken": {nulls: "clears"}, "entityGroupVersion": {nulls: "clears"},
		"placement": {first: "EDGE", second: "CLOUD", nulls: "clears"},
	},
	"EntityGroup": {
		"selector": {first: `memberType == "device"`, second: `memberType != "asset"`, nulls: "refused"},
	},
	"GeoFence": {
		"geometry": {first: squareAt(1), second: squareAt(2), nulls: "refused"},
	},
	"ProvisioningProfile": {
		"provisionSecret": {nulls: "refused"}, // it cannot be read; devices show in package e2e_test which one is stored
	},
	"DeviceCredential": {
		"credentialType":  {first: "ACCESS_TOKEN", second: "MQTT_BASIC", nulls: "refused"},
		"credentialId":    {first: "id-1", second: "id-2", nulls: "refused"},
		"credentialValue": {first: "password", second: "longer password", nulls: "clears", read: "hash", empty: true},
	},
}

var (
	text3 = updateField{first: "one", second: "two", nulls: "clears"}
	json3 = updateField{first: `{"a": [1, 2.50]}`, second: `"text"`, nulls: "clears"}
)

// shown reads a field of a record back through the API; a password, which cannot be read, from its hash.
func (w *registryWorld) shown(typ, token, field string, f updateField) any {
	w.Helper()
	read := f.read
	switch {
	case read == "hash":
		var hash any
		err := w.db.Read(w.Context(), func(tx store.Tx) error {
			return tx.QueryRow(`SELECT value_hash FROM device_credentials WHERE tenant_id = 1 AND token = ?`, token).Scan(&hash)
		})
		if err != nil {
			w.Fatal(err)
		}
		if s, ok := w.ok(fmt.Sprintf(`{ deviceCredentialsByToken(tokens: %q) { credentialValue } }`, token), nil, "deviceCredentialsByToken", "credentialValue").(string); ok {
			w.Errorf("a password reads as %q", s)
		}
		return hash
	case read == "":
		read = field
	}
	selection, nested, isNested := strings.Cut(read, ".")
	path := []string{pluralOf(typ) + "ByToken", strings.Fields(selection)[0]}
	if isNested {
		selection += " { " + nested + " }"
		path = append(path, nested)
	}
	return w.ok(fmt.Sprintf(`{ %sByToken(tokens: [%q]) { %s } }`, pluralOf(typ), token, selection), nil, path...)
}

// stored is how a value reads back.
func stored(f updateField, v any) any {
	if s, ok := v.(string); ok && f.read == "hash" {
		return fmt.Sprint("hash of ", len(s))
	}
	return v
}

// literal writes a value as GraphQL text.
func literal(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case map[string]any:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, name+": "+literal(v[name]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		var parts []string
		for _, one := range v {
			parts = append(parts, literal(one))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// Every field of every update input: absent keeps, null clears or is refused, a value sets; as a literal, as a variable
// of the field, and in a variable of the whole request.
func TestEveryUpdateFieldHasThreeStates(t *testing.T) {
	draws.NeedsAll(t)
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	schema := deviceManagementSchema(t)
	for typ, kind := range updateInputs() {
		input := schema.Types[typ+"UpdateRequest"]
		for _, def := range input.Fields {
			if _, ok := kind.fields[def.Name]; !ok {
				t.Errorf("%s.%s is not in the table", input.Name, def.Name)
			}
		}
		for field, f := range kind.fields {
			def := input.Fields.ForName(field)
			if def == nil {
				t.Errorf("%s has no field %s", input.Name, field)
				continue
			}
			w.threeStates(typ, kind.token, field, def.Type.String(), f)
		}
	}
	conformance.Shown(t, "S3-042", "S3-048", "S3-113")
	for typ, fields := range nullRefused {
		for _, field := range fields {
			if updateInputs()[typ].fields[field].nulls != "refused" {
				t.Errorf("%s.%s takes null", typ, field)
			}
		}
	}
	conformance.Shown(t, "S3-081")
}

// nullRefused are the fields for which the contract names the refusal of null, whatever the descriptions of the kinds say.
var nullRefused = map[string][]string{"MetricDefinition": {"dataType"}, "DeviceCredential": {"credentialType", "enabled"}, "DetectionRule": {"definition", "enabled"},
	"GeoFence": {"geometry"}, "ProvisioningProfile": {"provisionKey", "provisionSecret"}}

func (w *registryWorld) threeStates(typ, token, field, graphqlType string, f updateField) {
	w.Helper()
	where := typ + "." + field
	byLiteral := func(v string) string {
		return fmt.Sprintf(`mutation { u: update%s(token: %q, request: {%s: %s}) { token } }`, typ, token, field, v)
	}
	byField := fmt.Sprintf(`mutation ($v: %s) { u: update%s(token: %q, request: {%s: $v}) { token } }`, graphqlType, typ, token, field)
	byRequest := fmt.Sprintf(`mutation ($r: %sUpdateRequest!) { u: update%s(token: %q, request: $r) { token } }`, typ, typ, token)
	expect := func(what string, want any) {
		w.Helper()
		if got := w.shown(typ, token, field, f); !reflect.DeepEqual(got, stored(f, want)) {
			w.Errorf("%s, %s: reads as %v, want %v", where, what, got, stored(f, want))
		}
	}
	update := func(query string, variables map[string]any) {
		w.Helper()
		if got := w.ok(query, variables, "u", "token"); got != token {
			w.Errorf("%s: the update returned %v", where, got)
		}
	}
	if f.first != nil {
		update(byRequest, map[string]any{"r": map[string]any{field: f.first}})
		expect("value in the request", f.first)
		update(byRequest, map[string]any{"r": another(typ, field)})
		expect("absent in the request", f.first)
		update(byField, nil)
		expect("absent variable", f.first)
		update(byField, map[string]any{"v": f.second})
		expect("value in a variable", f.second)
		update(byLiteral(literal(f.first)), nil)
		expect("literal value", f.first)
	}
	nulls := []func(func(string, map[string]any)){
		func(run func(string, map[string]any)) { run(byLiteral("null"), nil) },
		func(run func(string, map[string]any)) { run(byField, map[string]any{"v": nil}) },
		func(run func(string, map[string]any)) {
			run(byRequest, map[string]any{"r": map[string]any{field: nil}})
		},
	}
	if f.empty {
		nulls = append(nulls, func(run func(string, map[string]any)) { run(byLiteral(`""`), nil) })
	}
	for _, null := range nulls {
		if f.nulls == "refused" {
			null(func(q string, vars map[string]any) { w.refuses(q, vars, model.CodeInvalidInput, field) })
			continue
		}
		if f.first != nil {
			update(byLiteral(literal(f.first)), nil)
		}
		null(update)
		expect("null", nil)
	}
	if f.first != nil { // a state that the other fields can be tried on
		update(byLiteral(literal(f.second)), nil)
	}
}

// another is a request that names another field.
func another(typ, field string) map[string]any {
	switch {
	case typ == "Dashboard" && field != "name":
		return map[string]any{"name": "another"}
	case typ == "Dashboard":
		return map[string]any{"description": "another"}
	case field != "metadata":
		return map[string]any{"metadata": `{}`}
	case typ == "DeviceCredential":
		return map[string]any{"enabled": true}
	}
	return map[string]any{"name": "another"}
}

func TestAnUpdateThatNamesNothingWritesNothing(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	for typ, kind := range updateInputs() {
		before := w.dump()
		q := fmt.Sprintf(`mutation { u: update%s(token: %q, request: {}) { token updatedAt } }`, typ, kind.token)
		if got := w.ok(q, nil, "u", "token"); got != kind.token {
			t.Errorf("%s returned %v", typ, got)
		}
		if before != w.dump() {
			t.Errorf("%s: rows changed", typ)
		}
		w.refuses(fmt.Sprintf(`mutation { u: update%s(token: "nobody", request: {}) { token } }`, typ), nil, model.CodeNotFound, `"nobody"`)
		w.refusesFor(neighbour, q, nil, model.CodeNotFound, kind.token)
	}
}

func TestATokenIsNoFieldOfAnUpdate(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	schema := deviceManagementSchema(t)
	for typ, kind := range updateInputs() {
		if schema.Types[typ+"UpdateRequest"].Fields.ForName("token") != nil {
			t.Errorf("%sUpdateRequest has a token", typ)
		}
		w.refuses(fmt.Sprintf(`mutation { update%s(token: %q, request: {metadata: "{}", token: "x"}) { token } }`, typ, kind.token), nil, model.CodeInvalidInput, `Field "token" is not defined by type`)
		w.refuses(fmt.Sprintf(`mutation ($r: %sUpdateRequest!) { update%s(token: %q, request: $r) { token } }`, typ, typ, kind.token),
			map[string]any{"r": map[string]any{"metadata": "{}", "token": "x"}}, model.CodeInvalidInput, `invalid value`)
	}
	conformance.Shown(t, "S3-022", "S3-043")
}

func TestMetadataAndUpdatedAt(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	for typ, kind := range updateInputs() {
		read := func() (metadata, updated any) {
			q := fmt.Sprintf(`{ %sByToken(tokens: %q) { metadata createdAt updatedAt deletedAt } }`, pluralOf(typ), kind.token)
			at := []string{pluralOf(typ) + "ByToken"}
			if deleted := w.ok(q, nil, append(at, "deletedAt")...); deleted != nil {
				t.Errorf("%s: deletedAt %v", typ, deleted)
			}
			return w.ok(q, nil, append(at, "metadata")...), w.ok(q, nil, append(at, "updatedAt")...)
		}
		update := func(request string) {
			w.ok(fmt.Sprintf(`mutation { update%s(token: %q, request: {%s}) { token } }`, typ, kind.token, request), nil)
		}
		moved := func(before any) any {
			t.Helper()
			_, after := read()
			from, err1 := time.Parse(time.RFC3339Nano, before.(string))
			to, err2 := time.Parse(time.RFC3339Nano, after.(string))
			if err1 != nil || err2 != nil || !to.After(from) || !strings.HasSuffix(after.(string), "Z") {
				t.Errorf("%s: updatedAt went from %v to %v", typ, before, after)
			}
			return after
		}
		_, at := read()
		update(`metadata: "{\"a\": 1, \"b\": {\"c\": 2}}"`)
		at = moved(at)
		update(`metadata: "{\"b\":3}"`)
		if got, _ := read(); got != `{"b":3}` {
			t.Errorf("%s: metadata %v was not replaced as a whole", typ, got)
		}
		at = moved(at)
		w.refuses(fmt.Sprintf(`mutation { update%s(token: %q, request: {metadata: "{"}) { token } }`, typ, kind.token), nil, model.CodeInvalidInput, "metadata")
		w.refuses(fmt.Sprintf(`mutation { update%s(token: %q, request: {metadata: "null"}) { token } }`, typ, kind.token), nil, model.CodeInvalidInput, "metadata")
		w.refuses(fmt.Sprintf(`mutation ($m: String) { update%s(token: %q, request: {metadata: $m}) { token } }`, typ, kind.token),
			map[string]any{"m": `"` + strings.Repeat("x", 64<<10) + `"`}, model.CodeLimitExceeded, "metadata")
		update(`metadata: null`)
		if got, _ := read(); got != nil {
			t.Errorf("%s: metadata %v after null", typ, got)
		}
		moved(at)
	}
	conformance.Shown(t, "S3-023", "S3-024")
}

func TestReferencesOfUpdates(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	for _, kind := range described() {
		typ, token := kind.Info().Type, seededRows(kind.Info().Type)[0]
		for _, ref := range kind.Info().Refs() {
			if !ref.Immutable {
				q := fmt.Sprintf(`mutation { update%s(token: %q, request: {metadata: "{}", %s: "nowhere"}) { token } }`, typ, token, ref.Name)
				w.refuses(q, nil, model.CodeInvalidInput, ref.Name)
			}
			create, vars := w.create(typ, with(with(createWith()[typ], "token", "fresh"), ref.Name, "nowhere"))
			w.refuses(create, vars, model.CodeInvalidInput, ref.Name)
		}
	}
	conformance.Shown(t, "S3-080")
	profile := func() any {
		return w.ok(`{ deviceTypesByToken(tokens: ["t"]) { profile { token } } }`, nil, "deviceTypesByToken", "profile", "token")
	}
	for _, step := range []struct {
		request string
		want    any
	}{
		{`name: "T"`, "p"}, {`profileToken: null`, nil}, {`profileToken: "q"`, "q"}, {`name: "U"`, "q"}, {`profileToken: ""`, nil},
	} {
		w.ok(`mutation { updateDeviceType(token: "t", request: {`+step.request+`}) { token } }`, nil)
		if got := profile(); got != step.want {
			t.Errorf("{%s}: profile %v, want %v", step.request, got, step.want)
		}
	}
	conformance.Shown(t, "S3-078")
	w.refuses(`mutation { updateDevice(token: "d", request: {deviceTypeToken: ""}) { token } }`, nil, model.CodeInvalidInput, "deviceTypeToken")
}

// The type of a device, an asset, a customer and an area: an update that omits it keeps it, a value re-points it, null and an
// unknown token refuse the whole update.
func TestTypesOfDevicesAssetsCustomersAndAreasInUpdates(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	seen := 0
	for _, typ := range []string{"Device", "Asset", "Customer", "Area"} {
		row, of := seededRows(typ)[0], seededRows(typ+"Type")
		field := strings.ToLower(typ[:1]) + typ[1:] + "Type"
		read := func() any {
			return w.ok(fmt.Sprintf(`{ %sByToken(tokens: [%q]) { %s { token } } }`, pluralOf(typ), row, field), nil, pluralOf(typ)+"ByToken", field, "token")
		}
		update := func(request string) string {
			return fmt.Sprintf(`mutation { update%s(token: %q, request: {name: "n %d", %s}) { token } }`, typ, row, seen, request)
		}
		for _, step := range []struct{ request, want string }{
			{field + `Token: "` + of[1] + `"`, of[1]}, {`description: "d"`, of[1]}, {field + `Token: "` + of[0] + `"`, of[0]},
		} {
			w.ok(update(step.request), nil)
			if got := read(); got != step.want {
				t.Errorf("%s {%s}: %v, want %v", typ, step.request, got, step.want)
			}
			seen++
		}
		for _, bad := range []string{"null", `""`, `"nowhere"`} {
			w.refuses(update(field+"Token: "+bad), nil, model.CodeInvalidInput, field+"Token")
		}
	}
	if seen == 12 {
		conformance.Shown(t, "S3-079")
	}
}

func TestARulesGroupScopeIsAPair(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	update := func(request string) string {
		return `mutation { updateDetectionRule(token: "r", request: {` + request + `}) { token entityGroupToken entityGroupVersion } }`
	}
	w.refuses(update(`entityGroupToken: "g"`), nil, model.CodeInvalidInput, "entityGroupVersion")
	w.refuses(update(`entityGroupVersion: 1`), nil, model.CodeInvalidInput, "entityGroupToken")
	w.refuses(update(`name: "n", entityGroupToken: "g", entityGroupVersion: 1`), nil, model.CodeInvalidInput, `entity group "g"`)
	w.ok(update(`entityGroupToken: null, entityGroupVersion: null`), nil)
	w.ok(`mutation { createEntityGroup(request: {token: "g", memberType: "device", membershipMode: "dynamic", selector: "\"a\" in attr"}) { id } publishEntityGroup(token: "g") { version } }`, nil)
	w.ok(update(`entityGroupToken: "g", entityGroupVersion: 1`), nil)
	w.refuses(update(`entityGroupToken: null`), nil, model.CodeInvalidInput, "entityGroupToken: is required with entityGroupVersion")
	w.refuses(update(`entityGroupVersion: 2`), nil, model.CodeInvalidInput, "has no published version 2")
	w.refuses(`mutation { deleteEntityGroup(token: "g") }`, nil, model.CodeInUse, "in use by a detection rule")
	if got := w.ok(`{ detectionRulesByToken(tokens: ["r"]) { entityGroupToken } }`, nil, "detectionRulesByToken", "entityGroupToken"); got != "g" {
		t.Errorf("scoped to %v", got)
	}
	w.ok(update(`entityGroupToken: null, entityGroupVersion: null`), nil)
	w.ok(`mutation { deleteEntityGroup(token: "g") }`, nil)
}

func TestTwoWritersOfDifferentFieldsBothSurvive(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	var wg sync.WaitGroup
	for _, field := range []string{"name", "description"} {
		wg.Go(func() {
			for i := range 10 {
				resp := w.as(writer, fmt.Sprintf(`mutation { updateDevice(token: "d", request: {%s: "%s %d"}) { token } }`, field, field, i), nil)
				if len(resp.Errors) > 0 {
					t.Error(resp.Errors[0].Message)
				}
			}
		})
	}
	wg.Wait()
	q := `{ devicesByToken(tokens: ["d"]) { name description } }`
	if name, description := w.ok(q, nil, "devicesByToken", "name"), w.ok(q, nil, "devicesByToken", "description"); name != "name 9" || description != "description 9" {
		t.Errorf("%v, %v", name, description)
	}
	conformance.Shown(t, "S3-052")
}
