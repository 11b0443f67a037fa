package gql_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/internal/test/conformance"
	"weir/model"
	"weir/store"
)

func TestPublishAndRollbackOverTheAPI(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	const publish = `mutation { v: publishDeviceProfile(token: "p", label: "one") { version label description publishedAt publishedBy } }`
	active := func() any {
		return w.ok(`{ deviceProfilesByToken(tokens: ["p"]) { activeVersion } }`, nil, "deviceProfilesByToken", "activeVersion")
	}
	rule := func(request string, vars map[string]any) {
		head := "mutation "
		if vars != nil {
			head += "($d: String) "
		}
		w.ok(head+`{ updateDetectionRule(token: "r", request: {`+request+`}) { token } }`, vars)
	}
	rule(`definition: $d`, map[string]any{"d": brokenRule})
	w.refuses(publish, nil, model.CodeInvalidInput, `"r": `)
	if active() != nil {
		t.Error("a refused publish moved the active version")
	}
	conformance.Shown(t, "S1-032")
	rule(`enabled: false`, nil)
	if v := w.ok(publish, nil, "v", "version"); v != 1.0 {
		t.Errorf("published version %v", v)
	}
	conformance.Shown(t, "S1-031")
	if active() != 1.0 {
		t.Errorf("active version %v", active())
	}
	rule(`definition: $d, enabled: true`, map[string]any{"d": hotRule})
	got := w.ok(`mutation { v: publishDeviceProfile(token: "p") { version label description publishedBy } }`, nil, "v")
	if want := (map[string]any{"version": 2.0, "label": nil, "description": nil, "publishedBy": "ada"}); !reflect.DeepEqual(got, want) {
		t.Errorf("published %v, want %v", got, want)
	}
	if active() != 2.0 {
		t.Errorf("active version %v", active())
	}
	if v := w.ok(`mutation { rollbackDeviceProfile(token: "p", version: 1) { activeVersion } }`, nil, "rollbackDeviceProfile", "activeVersion"); v != 1.0 || active() != 1.0 {
		t.Errorf("rolled back to %v", v)
	}
	conformance.Shown(t, "S3-068")
	w.refuses(`mutation { rollbackDeviceProfile(token: "p", version: 9) { token } }`, nil, model.CodeNotFound, `"p@9"`)
	w.refuses(`mutation { publishDeviceProfile(token: "nope") { version } }`, nil, model.CodeNotFound, `device profile "nope"`)
	versions := w.ok(`{ deviceProfileVersions(token: "p") { version publishedAt } }`, nil, "deviceProfileVersions").([]any)
	if len(versions) != 2 || versions[0].(map[string]any)["version"] != 2.0 {
		t.Errorf("versions %v", versions)
	}
	w.refuses(`mutation { renameDeviceProfile(token: "p", newToken: "p2") { token } }`, nil, model.CodeInUse, "in use")
	w.ok(`mutation { updateDeviceType(token: "u", request: {profileToken: "q"}) { token } }`, nil)
	w.refuses(`mutation { renameDeviceProfile(token: "q", newToken: "q2") { token } }`, nil, model.CodeInUse, "device type")
	w.ok(`mutation { updateDeviceType(token: "u", request: {profileToken: null}) { token } }`, nil)
	w.ok(`mutation { renameDeviceProfile(token: "q", newToken: "q2") { token } }`, nil)
	conformance.Shown(t, "S3-092")
}

func TestACreateNeedsItsRequest(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	schema := deviceManagementSchema(t)
	for typ := range createWith() {
		if schema.Mutation.Fields.ForName("create" + typ).Arguments.ForName("request").Type.NonNull {
			continue
		}
		for _, null := range []string{"", "(request: null)"} {
			w.refuses(fmt.Sprintf(`mutation { create%s%s { id } }`, typ, null), nil, model.CodeInvalidInput, "request")
		}
		q := fmt.Sprintf(`mutation ($r: %sCreateRequest) { create%s(request: $r) { id } }`, typ, typ)
		w.refuses(q, map[string]any{}, model.CodeInvalidInput, "request")
		w.refuses(q, map[string]any{"r": nil}, model.CodeInvalidInput, "request")
	}
}

func TestListsArePagedNewestFirst(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	w.ok(`mutation { createDevices(request: {deviceTypeToken: "u", count: 250, tokenTemplate: "b{n:03d}"}) { token } }`, nil)
	page := func(number, size int, filter string) (tokens []string, pagination map[string]any) {
		t.Helper()
		q := fmt.Sprintf(`{ devices(criteria: {pageNumber: %d, pageSize: %d%s}) { results { token } pagination { pageStart pageEnd totalRecords } } }`, number, size, filter)
		for _, r := range w.ok(q, nil, "devices", "results").([]any) {
			tokens = append(tokens, r.(map[string]any)["token"].(string))
		}
		return tokens, w.ok(q, nil, "devices", "pagination").(map[string]any)
	}
	for _, c := range []struct {
		number, size    int
		filter          string
		n               int
		first, last     string
		start, end, all float64
	}{
		{1, 10, "", 10, "b001", "b010", 1, 10, 252},
		{0, 0, "", 100, "b001", "b100", 1, 100, 252},
		{-3, -1, "", 100, "b001", "b100", 1, 100, 252},
		{26, 10, "", 2, "e", "d", 251, 252, 252},
		{1, 2000000000, "", 252, "b001", "d", 1, 252, 252},
		{27, 10, "", 0, "", "", 0, 0, 252},
		{2000000000, 1000, "", 0, "", "", 0, 0, 252},
		{1, 10, `, deviceType: "t"`, 1, "d", "d", 1, 1, 1},
		{1, 10, `, deviceType: null`, 10, "b001", "b010", 1, 10, 252},
		{1, 10, `, deviceType: "no.such type"`, 0, "", "", 0, 0, 0},
	} {
		tokens, p := page(c.number, c.size, c.filter)
		if len(tokens) != c.n || c.n > 0 && (tokens[0] != c.first || tokens[c.n-1] != c.last) ||
			p["pageStart"] != c.start || p["pageEnd"] != c.end || p["totalRecords"] != c.all {
			t.Errorf("page %d of %d%s: %d devices %v, %v, want %+v", c.number, c.size, c.filter, len(tokens), tokens, p, c)
		}
	}
}

func TestReadsByIDAndTokenLeaveOutTheUnknown(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	schema := deviceManagementSchema(t)
	for typ, kind := range updateInputs() {
		plural := pluralOf(typ)
		id := w.ok(fmt.Sprintf(`{ %sByToken(tokens: [%q, %q, "nope", "", "a.b"]) { id } }`, plural, kind.token, kind.token), nil, plural+"ByToken", "id")
		ids := schema.Query.Fields.ForName(plural + "ById").Arguments.ForName("ids").Type
		byID := fmt.Sprintf(`query ($i: %s) { %sById(ids: $i) { token } }`, ids, plural)
		if got := w.ok(byID, map[string]any{"i": []any{id, id, "9999", "99999999999999999999"}}, plural+"ById", "token"); got != kind.token {
			t.Errorf("%s by id: %v", typ, got)
		}
		if got := w.ok(byID, map[string]any{"i": []any{}}, plural+"ById").([]any); len(got) != 0 {
			t.Errorf("%s by no id: %v", typ, got)
		}
		for _, bad := range []string{"x", "", "-1", "1.5", " 1", "0x1"} {
			w.refuses(byID, map[string]any{"i": []any{bad}}, model.CodeInvalidInput, "ids")
		}
		if b, err := w.as(neighbour, byID, map[string]any{"i": []any{id}}).MarshalJSON(); err != nil || string(b) != `{"data":{"`+plural+`ById":[]}}` {
			t.Errorf("%s: another tenant reads by id: %s %v", typ, b, err)
		}
	}
}

func TestNestedFieldsAreReadTogether(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	w.ok(`mutation { createDevices(request: {deviceTypeToken: "t", count: 50, tokenTemplate: "n{n}"}) { token } }`, nil)
	before := w.reads.Load()
	q := `{ devices(criteria: {pageNumber: 1, pageSize: 100}) { results { token deviceType { token profile { token deviceTypeCount
		metricDefinitions { token deviceProfile { token } } detectionRules { token definition } } } } } }`
	results := w.ok(q, nil, "devices", "results").([]any)
	// The page, types, profiles, their counts, metrics and rules, and the profiles of the metrics.
	if n := w.reads.Load() - before; n > 7 {
		t.Errorf("%d reads for %d devices", n, len(results))
	}
	profile := results[0].(map[string]any)["deviceType"].(map[string]any)["profile"].(map[string]any)
	want := map[string]any{"token": "p", "deviceTypeCount": 1.0,
		"metricDefinitions": []any{map[string]any{"token": "m", "deviceProfile": map[string]any{"token": "p"}}},
		"detectionRules":    []any{map[string]any{"token": "r", "definition": hotRule}}}
	if !reflect.DeepEqual(profile, want) {
		t.Errorf("profile %v, want %v", profile, want)
	}
	// A client that asks for a whole profile, commands included, gets one.
	whole := w.ok(`{ deviceProfilesByToken(tokens: ["q"]) { commandDefinitions { id token commandKey parameterSchema deviceProfile { token } } } }`, nil, "deviceProfilesByToken")
	if want := ([]any{map[string]any{"commandDefinitions": []any{}}}); !reflect.DeepEqual(whole, want) {
		t.Errorf("%v, not %v", whole, want)
	}
	empty := w.ok(`{ deviceProfilesByToken(tokens: ["q"]) { deviceTypeCount metricDefinitions { id } detectionRules { id } location { expectedAccuracyMeters } } }`, nil, "deviceProfilesByToken")
	if want := ([]any{map[string]any{"deviceTypeCount": 0.0, "metricDefinitions": []any{}, "detectionRules": []any{}, "location": nil}}); !reflect.DeepEqual(empty, want) {
		t.Errorf("an empty profile reads as %v", empty)
	}
}

func TestPartsOfAProfileAreInTheOrderOfLists(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	for _, token := range []string{"a", "z", "k"} {
		w.ok(fmt.Sprintf(`mutation { createMetricDefinition(request: {token: %q, deviceProfileToken: "p", metricKey: %q, dataType: "INT"}) { id } }`, token, token), nil)
	}
	nested := w.ok(`{ deviceProfilesByToken(tokens: ["p"]) { metricDefinitions { token } } }`, nil, "deviceProfilesByToken", "metricDefinitions")
	listed := w.ok(`{ metricDefinitions(criteria: {pageNumber: 1, pageSize: 9}) { results { token } } }`, nil, "metricDefinitions", "results")
	if !reflect.DeepEqual(nested, listed) || listed.([]any)[0].(map[string]any)["token"] != "k" {
		t.Errorf("nested %v, listed %v", nested, listed)
	}
}

func TestFiltersOfMetricsAndRules(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	w.ok(`mutation { createMetricDefinition(request: {token: "m2", deviceProfileToken: "q", metricKey: "temp", dataType: "INT"}) { id } }`, nil)
	for q, want := range map[string]float64{
		`metricDefinitions(criteria: {pageNumber: 1, pageSize: 5})`:                                             2,
		`metricDefinitions(criteria: {pageNumber: 1, pageSize: 5, metricKey: "temp"})`:                          2,
		`metricDefinitions(criteria: {pageNumber: 1, pageSize: 5, metricKey: "temp", deviceProfile: "q"})`:      1,
		`metricDefinitions(criteria: {pageNumber: 1, pageSize: 5, metricKey: "TEMP"})`:                          0,
		`metricDefinitions(criteria: {pageNumber: 1, pageSize: 5, deviceProfile: "zz"})`:                        0,
		`detectionRules(criteria: {pageNumber: 1, pageSize: 5, deviceProfile: "p"})`:                            1,
		`detectionRules(criteria: {pageNumber: 1, pageSize: 5, deviceProfile: "q"})`:                            0,
		`deviceTypes(criteria: {pageNumber: 1, pageSize: 5})`:                                                   2,
		`deviceProfiles(criteria: {pageNumber: 1, pageSize: 5})`:                                                2,
		`deviceCredentials(criteria: {pageNumber: 1, pageSize: 5})`:                                             2,
		`deviceCredentials(criteria: {pageNumber: 1, pageSize: 5, device: "d", enabled: true})`:                 2,
		`deviceCredentials(criteria: {pageNumber: 1, pageSize: 5, credentialType: "MQTT_BASIC"})`:               1,
		`deviceCredentials(criteria: {pageNumber: 1, pageSize: 5, credentialId: "a-secret"})`:                   1,
		`deviceCredentials(criteria: {pageNumber: 1, pageSize: 5, credentialId: "a-secret", enabled: false})`:   0,
		`deviceCredentials(criteria: {pageNumber: 1, pageSize: 5, credentialType: null, device: "nobody"})`:     0,
		`deviceCredentials(criteria: {pageNumber: 1, pageSize: 5, credentialType: null, credentialId: "user"})`: 1,
	} {
		name, _, _ := strings.Cut(q, "(")
		if got := w.ok(`{ `+q+` { results { token } pagination { totalRecords } } }`, nil, name, "pagination", "totalRecords"); got != want {
			t.Errorf("%s: %v, want %v", q, got, want)
		}
	}
}

func TestCredentialsShowTheirIDAndNeverTheirValue(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	got := w.ok(`{ deviceCredentialsByToken(tokens: ["k"]) { credentialType credentialId credentialValue enabled expiresAt device { token } } }`, nil, "deviceCredentialsByToken")
	want := []any{map[string]any{"credentialType": "ACCESS_TOKEN", "credentialId": "a-secret", "credentialValue": nil, "enabled": true, "expiresAt": nil,
		"device": map[string]any{"token": "d"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, secret := range []string{"a-secret", "pw]", "user"} {
		if strings.Contains(w.dump(), secret) {
			t.Errorf("the store holds %q in the clear", secret)
		}
	}
}

func TestBulkCreateOverTheAPI(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	made := w.ok(`mutation { createDevices(request: {deviceTypeToken: "t", count: 2, startIndex: 7, tokenTemplate: "pump-{n:03d}", nameTemplate: "Pump {n}",
		externalIdTemplate: "sn/{n}"}) { token name externalId deviceType { token } } }`, nil, "createDevices")
	one := func(n int) any {
		return map[string]any{"token": fmt.Sprintf("pump-%03d", n), "name": fmt.Sprintf("Pump %d", n), "externalId": fmt.Sprintf("sn/%d", n),
			"deviceType": map[string]any{"token": "t"}}
	}
	if !reflect.DeepEqual(made, []any{one(7), one(8)}) {
		t.Errorf("made %v", made)
	}
	for _, bad := range []string{`count: 1001, tokenTemplate: "x{n}"`, `count: 0, tokenTemplate: "x{n}"`, `count: 2, tokenTemplate: "x"`,
		`count: 2, startIndex: 0, tokenTemplate: "x{n}"`, `count: 2, tokenTemplate: "x{n}", externalIdTemplate: "same"`,
		`count: 2, tokenTemplate: "x{n}{random}"`} {
		w.refuses(`mutation { createDevices(request: {deviceTypeToken: "t", `+bad+`}) { token } }`, nil, model.CodeInvalidInput, "")
	}
	w.refuses(`mutation { createDevices(request: {deviceTypeToken: "t", count: 9, tokenTemplate: "pump-{n:03d}"}) { token } }`, nil, model.CodeConflict, "unique")
}

func TestDeletesAnswerWhetherThereWasARow(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	del := func(typ, token string) any {
		t.Helper()
		return w.ok(fmt.Sprintf(`mutation { delete%s(token: %q) }`, typ, token), nil, "delete"+typ)
	}
	for typ := range updateInputs() {
		if del(typ, "nobody") != false || del(typ, "a.b") != false {
			t.Errorf("%s: a row was removed", typ)
		}
	}
	w.refuses(`mutation { deleteDeviceType(token: "t") }`, nil, model.CodeInUse, "device")
	w.refuses(`mutation { deleteDeviceProfile(token: "p") }`, nil, model.CodeInUse, "device type")
	for _, c := range []struct{ typ, token string }{{"DeviceCredential", "c"}, {"DetectionRule", "r"}, {"MetricDefinition", "m"}, {"Device", "d"},
		{"ProvisioningProfile", "ProvisioningProfile-1"}, {"ProvisioningProfile", "ProvisioningProfile-2"}, {"DeviceType", "t"}, {"DeviceProfile", "p"}} {
		if del(c.typ, c.token) != true || del(c.typ, c.token) != false {
			t.Errorf("%s %s was not removed once", c.typ, c.token)
		}
	}
}

func TestFacetsAndLocationDeclarations(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	w.ok(`mutation { a: createDeviceType(request: {token: "x", manufacturer: "Zeta", model: "b"}) { id } b: createDeviceType(request: {token: "y", manufacturer: "Alpha", model: "b"}) { id }
		c: createDeviceType(request: {token: "z", manufacturer: "Zeta"}) { id } d: updateDeviceProfile(token: "p", request: {category: "pumps"}) { id } }`, nil)
	for facet, want := range map[string][]any{"MANUFACTURER": {"Alpha", "Zeta"}, "MODEL": {"b"}, "CATEGORY": {"pumps"}} {
		if got := w.ok(`{ facetValues(facet: `+facet+`) }`, nil, "facetValues"); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", facet, got, want)
		}
	}
	location := func(device string) any {
		return w.ok(`query ($d: String!) { deviceLocationDeclaration(deviceToken: $d) { declared declaration { expectedAccuracyMeters expectedUpdateIntervalSeconds } } }`,
			map[string]any{"d": device}, "deviceLocationDeclaration")
	}
	undeclared := map[string]any{"declared": false, "declaration": nil}
	if got := location("nobody"); got != nil {
		t.Errorf("an unknown device: %v", got)
	}
	w.ok(`mutation { updateDeviceProfile(token: "p", request: {location: {}}) { location { expectedAccuracyMeters } } }`, nil)
	for _, device := range []string{"d", "e"} { // a draft has no effect; no profile at all
		if got := location(device); !reflect.DeepEqual(got, undeclared) {
			t.Errorf("%s: %v", device, got)
		}
	}
	w.ok(`mutation { publishDeviceProfile(token: "p") { version } }`, nil)
	want := map[string]any{"declared": true, "declaration": map[string]any{"expectedAccuracyMeters": nil, "expectedUpdateIntervalSeconds": nil}}
	if got := location("d"); !reflect.DeepEqual(got, want) {
		t.Errorf("after a publish: %v", got)
	}
}

func TestChangesAreInTheJournal(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	w.ok(`mutation { a: updateDeviceCredential(token: "k", request: {credentialId: "another-secret"}) { id } b: deleteDevice(token: "d") }`, nil)
	var events []store.AuditEvent
	err := w.db.Read(t.Context(), func(tx store.Tx) (err error) {
		events, _, err = store.ListAudit(tx, store.Page{Size: 6}, store.AuditFilter{TenantID: new(int64(1))})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		got = append(got, fmt.Sprint(e.Category, " ", e.Operation, " ", e.Actor, " ", e.Table, " ", e.Label, " ", e.Rows))
	}
	want := []string{"mutation delete ada devices d 1", "mutation delete ada edges_of_sites Edge-2 1", "mutation delete ada edges_of_sites Edge-1 1", "mutation delete ada device_credentials k 1", "mutation delete ada device_credentials c 1",
		"mutation update ada device_credentials k 1"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("journal %q, want %q", got, want)
	}
}

// TestAnAccessTokenIsReplacedInOneChange: a change that fails leaves the old tokens, one that succeeds the new token alone.
func TestAnAccessTokenIsReplacedInOneChange(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	secrets := func() (ids []string) {
		q := `{ deviceCredentials(criteria: {pageNumber: 1, pageSize: 9, device: "d", credentialType: "ACCESS_TOKEN"}) { results { credentialId } } }`
		for _, c := range w.ok(q, nil, "deviceCredentials", "results").([]any) {
			ids = append(ids, c.(map[string]any)["credentialId"].(string))
		}
		return ids
	}
	const replace = `mutation { issueAccessToken(request: {deviceToken: "d", replace: true}) {
		accessToken replaced credential { enabled device { token deviceType { token } } } } }`
	w.broken.Store(true)
	w.refuses(replace, nil, "", "internal error")
	w.broken.Store(false)
	if have := secrets(); !slices.Equal(have, []string{"a-secret"}) {
		t.Fatalf("after a failed change there are %q", have)
	}
	before := w.writes.Load()
	got := w.ok(replace, nil, "issueAccessToken").(map[string]any)
	if n := w.writes.Load() - before; n != 1 {
		t.Errorf("%d changes", n)
	}
	if have := secrets(); got["replaced"] != 1.0 || !slices.Equal(have, []string{got["accessToken"].(string)}) {
		t.Errorf("replaced %v, left %q", got, have)
	}
	want := map[string]any{"enabled": true, "device": map[string]any{"token": "d", "deviceType": map[string]any{"token": "t"}}}
	if !reflect.DeepEqual(got["credential"], want) {
		t.Errorf("credential %v, want %v", got["credential"], want)
	}
	kept := w.ok(`mutation { issueAccessToken(request: {deviceToken: "d", expiresAt: "2001-01-01T00:00:00Z"}) { replaced credential { expiresAt } } }`, nil, "issueAccessToken")
	if want := (map[string]any{"replaced": 0.0, "credential": map[string]any{"expiresAt": "2001-01-01T00:00:00Z"}}); !reflect.DeepEqual(kept, want) || len(secrets()) != 2 {
		t.Errorf("added %v, want %v, left %q", kept, want, secrets())
	}
	w.ok(`mutation { issueAccessToken(request: {deviceToken: "d", expiresAt: "2100-01-01T00:00:00Z"}) { replaced } }`, nil)
	if have := secrets(); len(have) != 2 {
		t.Errorf("the expired token is kept: %q", have)
	}
	w.refuses(`mutation { issueAccessToken(request: {deviceToken: "nope"}) { replaced } }`, nil, model.CodeNotFound, `device "nope"`)
	w.refuses(`mutation { issueAccessToken(request: {deviceToken: "d", expiresAt: "soon"}) { replaced } }`, nil, model.CodeInvalidInput, "expiresAt")
	w.refusesFor(reader, replace, nil, model.CodeForbidden, "device:write")
}

func TestDevicesAreDeletedTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	w.ok(`mutation { createDevice(request: {token: "f", deviceTypeToken: "u"}) { token } }`, nil)
	const rest = `{ devicesByToken(tokens: ["d", "e", "f"]) { token } }`
	w.refuses(`mutation { deleteDevices(tokens: ["d", "nope", "f"]) }`, nil, model.CodeNotFound, `device "nope"`)
	w.refusesFor(neighbour, `mutation { deleteDevices(tokens: ["d", "f"]) }`, nil, model.CodeNotFound, `device "d"`)
	w.broken.Store(true)
	w.refuses(`mutation { deleteDevices(tokens: ["d", "e", "f"]) }`, nil, "", "internal error")
	w.broken.Store(false)
	if n := len(w.ok(rest, nil, "devicesByToken").([]any)); n != 3 {
		t.Fatalf("%d of 3 devices are left", n)
	}
	many := make([]string, 1001) // more than the common limit of a list
	for i := range many {
		many[i] = "d"
	}
	before := w.writes.Load()
	if n := w.ok(`mutation ($t: [String!]!) { deleteDevices(tokens: $t) }`, map[string]any{"t": jsonList(append(many, "f"))}, "deleteDevices"); n != 2.0 {
		t.Errorf("%v devices were deleted", n)
	}
	if n := w.writes.Load() - before; n != 1 {
		t.Errorf("%d changes", n)
	}
	if left := fmt.Sprint(w.ok(rest, nil, "devicesByToken")); left != "[map[token:e]]" {
		t.Errorf("left %s", left)
	}
}

func jsonList(texts []string) []any {
	out := make([]any, len(texts))
	for i, s := range texts {
		out[i] = s
	}
	return out
}

// TestAPageThatIsReplacedAndAFilterThatNamesNothingAreReported: the contract answers both without an error.
func TestAPageThatIsReplacedAndAFilterThatNamesNothingAreReported(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	for criteria, want := range map[string][]string{
		`pageNumber: 1, pageSize: 1000`:               nil,
		`pageNumber: 2, pageSize: 5, deviceType: "t"`: nil,
		`pageNumber: 1, pageSize: 1001`:               {"pageSize: 1001 is outside of 1 to 1000, a page of 1000 was given"},
		`pageNumber: 0, pageSize: 0`:                  {"pageSize: 0 is outside of 1 to 1000, a page of 100 was given", "pageNumber: pages are counted from 1, so 0 gave page 1"},
		`pageNumber: 1, pageSize: 5, deviceType: "T"`: {`deviceType: there is no device type "T"`},
	} {
		resp := w.as(writer, `{ devices(criteria: {`+criteria+`}) { results { token } } }`, nil)
		b, err := json.Marshal(resp)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Data       map[string]any
			Errors     []any
			Extensions struct{ Hints []string }
		}
		if err := json.Unmarshal(b, &answer); err != nil || answer.Data["devices"] == nil || len(answer.Errors) > 0 || !slices.Equal(answer.Extensions.Hints, want) {
			t.Errorf("%s: %s, want the hints %q", criteria, b, want)
		}
		if want == nil && strings.Contains(string(b), "extensions") {
			t.Errorf("%s: %s", criteria, b)
		}
	}
}

// TestWhatIsAllowedAndProbablyNotMeantIsSaid: of a range whose outliers no rule sees, of metrics that no reading fits, and of rules that could
// not be published; a change that is as it should be has no hint.
func TestWhatIsAllowedAndProbablyNotMeantIsSaid(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.ok(`mutation { createDeviceProfile(request: {token: "hinted"}) { token } }`, nil, "createDeviceProfile")
	metric := func(fields string) string {
		return `mutation { createMetricDefinition(request: {deviceProfileToken: "hinted", ` + fields + `}) { token } }`
	}
	rule := func(token, definition, more string) string {
		return `mutation { createDetectionRule(request: {deviceProfileToken: "hinted", token: "` + token + `", definition: ` + strconv.Quote(definition) + more + `}) { token } }`
	}
	const outside = `{"name":"n","type":"threshold","when":{"metric":"temp","op":"gt","threshold":95}}`
	for _, c := range []struct{ name, query, want string }{
		{"a range, with the default", metric(`token: "m1", metricKey: "temp", dataType: "DOUBLE", maxValue: 40`), "outOfRange: REFUSE, the default, makes a message"},
		{"a range that flags", metric(`token: "m2", metricKey: "flow", dataType: "DOUBLE", maxValue: 40, outOfRange: "FLAG"`), ""},
		{"no range", metric(`token: "m3", metricKey: "rpm", dataType: "INT"`), ""},
		{"a range that comes later", `mutation { updateMetricDefinition(token: "m3", request: {minValue: 0}) { token } }`, "outOfRange: REFUSE"},
		{"another field", `mutation { updateMetricDefinition(token: "m3", request: {unit: "1/min"}) { token } }`, ""},
		{"a metric of texts", metric(`token: "m4", metricKey: "mode", dataType: "STRING"`), "dataType: no message with a reading"},
		{"an enum of words", metric(`token: "m5", metricKey: "state", dataType: "INT", enum: "[\"on\",\"off\"]"`), "enum: none of the values is a number"},
		{"an enum of numbers", metric(`token: "m6", metricKey: "level", dataType: "INT", enum: "[\"0\",\"1\"]"`), ""},
		{"a misspelt rule", rule("r1", `{"name":"n","type":"threshold","when":{"metric":"temp","op":"gt","treshold":1}}`, ", enabled: true"), "definition: the rule cannot be published as it is: "},
		{"a misspelt rule that is off", rule("r2", `{"name":"n","type":"threshold","when":{"metric":"temp","op":"gt","treshold":1}}`, ", enabled: false"), ""},
		{"a rule", rule("r3", outside, ", enabled: true"), ""},
		{"its publish", `mutation { deleteDetectionRule(token: "r1") publishDeviceProfile(token: "hinted") { warnings { code params } } }`, `r3: 95 lies outside of the range of the metric "temp", ..40: no value crosses it`},
	} {
		b, err := json.Marshal(w.as(writer, c.query, nil))
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Errors     []any
			Extensions struct{ Hints []string }
		}
		err = json.Unmarshal(b, &answer)
		said := strings.Join(answer.Extensions.Hints, "|")
		if err != nil || len(answer.Errors) > 0 || (said == "") != (c.want == "") || !strings.HasPrefix(said, c.want) {
			t.Errorf("%s: %s, want the hint %q", c.name, b, c.want)
		}
	}
}

// TestTheSnippetsOfADeviceHoldItsAccessToken, and no credential but one of that device has any.
func TestTheSnippetsOfADeviceHoldItsAccessToken(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	issued := w.ok(`mutation { issueAccessToken(request: {deviceToken: "d"}) { accessToken credential { token } } }`, nil, "issueAccessToken").(map[string]any)
	credential := issued["credential"].(map[string]any)["token"].(string)
	const query = `query($d: String!, $c: String!) { deviceSnippets(deviceToken: $d, credentialToken: $c, host: "gateway.lan") { title language text } }`
	got := w.ok(query, map[string]any{"d": "d", "c": credential}, "deviceSnippets").([]any)
	want := map[string]any{"title": "curl", "language": "sh", "text": "acme d " + issued["accessToken"].(string) + " gateway.lan"}
	if len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("%v, want %v", got, want)
	}
	w.ok(`mutation { createDeviceCredential(request: {token: "basic", deviceToken: "d", credentialType: "MQTT_BASIC", credentialId: "u", credentialValue: "a long password", enabled: true}) { token } }`, nil)
	w.refuses(query, map[string]any{"d": "d", "c": "basic"}, model.CodeInvalidInput, "no access token")
	w.refuses(query, map[string]any{"d": "d", "c": "nope"}, model.CodeNotFound, `"nope"`)
	w.refuses(query, map[string]any{"d": "nope", "c": credential}, model.CodeNotFound, `device "nope"`)
	w.refuses(query, map[string]any{"d": "e", "c": credential}, model.CodeNotFound, credential)
}
