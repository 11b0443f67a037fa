package e2e_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"weir/internal/test/conformance"
)

// longest is a token of 128 characters.
var longest = "A" + strings.Repeat("z-_9", 31) + "abc"

func tokens(t *testing.T, w *world) {
	tn := w.tenant(t, "tokens")
	tn.devices(`mutation{a:createDeviceProfile(request:{token:"p"}){id} b:createDeviceType(request:{token:"t"}){id} c:createDevice(request:{token:"d",deviceTypeToken:"t"}){id}
		d:createAssetType(request:{token:"at"}){id} e:createEntityRelationshipType(request:{token:"rel",tracked:true}){id}}`, nil)
	tn.devices(`mutation{a:createCustomerType(request:{token:"ct"}){id} b:createAreaType(request:{token:"rt"}){id}}`, nil)
	creates := map[string]map[string]any{
		"DeviceType": {}, "DeviceProfile": {}, "Device": {"deviceTypeToken": "t"},
		"MetricDefinition": {"deviceProfileToken": "p", "metricKey": "fresh", "dataType": "INT"},
		"DetectionRule":    {"deviceProfileToken": "p", "definition": above("r", "t", 1, ""), "enabled": true},
		"DeviceCredential": {"deviceToken": "d", "credentialType": "ACCESS_TOKEN", "credentialId": "fresh", "enabled": true},
		"AssetType":        {}, "Asset": {"assetTypeToken": "at"},
		"CustomerType": {}, "Customer": {"customerTypeToken": "ct"},
		"AreaType": {}, "Area": {"areaTypeToken": "rt"},
		"CommandDefinition": {"deviceProfileToken": "p", "commandKey": "fresh"},
		"EntityGroup":       {"memberType": "device"}, "EntityRelationshipType": {"tracked": false},
		"EntityRelationship":  {"sourceType": "device", "source": "d", "targetType": "device", "target": "d", "relationshipType": "rel"},
		"ProvisioningProfile": {"provisionSecret": "secret", "strategy": "ALLOW_NEW", "deviceTypeToken": "t", "enabled": true},
		"Edge":                {"deviceToken": "d", "enabled": true},
		"GeoFence":            {"geometry": `{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,0]]]}}`},
	}
	_, sdl := w.get(t, "/schema/device-management.graphql")
	inputs := regexp.MustCompile(`(?m)^input (\w+)CreateRequest `).FindAllStringSubmatch(sdl, -1)
	for _, input := range inputs {
		if takes := slices.Contains(fieldsOf(t, sdl, "input", input[1]+"CreateRequest"), "token: String!"); takes && creates[input[1]] == nil {
			t.Errorf("%s has a token and is not tried", input[1])
		}
	}
	if len(inputs) < len(creates) {
		t.Errorf("%d kinds are created, %d are tried", len(inputs), len(creates))
	}
	bad := []string{longest + "x", "", "-a", "_a", "a.b", "a*", "a>", "a+", "a#", "a/b", "a:b", "a b"}
	for typ, request := range creates {
		q := fmt.Sprintf(`mutation($r:%sCreateRequest!){create%s(request:$r){token}}`, typ, typ)
		plural := strings.ToLower(typ[:1]) + typ[1:] + "s"
		count := fmt.Sprintf(`{%s(criteria:{pageNumber:1,pageSize:1000}){pagination{totalRecords}}}`, plural)
		before := tn.devices(count, nil).raw
		for _, token := range bad {
			request["token"] = token
			tn.refused(q, map[string]any{"r": request}, "INVALID_INPUT", "token")
		}
		if after := tn.devices(count, nil).raw; after != before {
			t.Errorf("%s: something was stored: %s, before %s", typ, after, before)
		}
		request["token"] = longest
		if got := tn.devices(q, map[string]any{"r": request}); !strings.Contains(got.raw, longest) {
			t.Errorf("%s", got.raw)
		}
	}
	renames := regexp.MustCompile(`(?m)^  (rename\w+)\(token: String!, newToken: String!\)`).FindAllStringSubmatch(sdl, -1)
	for _, rename := range renames {
		for _, token := range append(bad, " ") {
			tn.refused(`mutation($n:String!){`+rename[1]+`(token:"p",newToken:$n){token}}`, map[string]any{"n": token}, "INVALID_INPUT", "newToken")
		}
	}
	if len(renames) == 0 {
		t.Error("nothing can be renamed")
	}
	conformance.Shown(t, "S3-014", "S3-015", "S3-016", "S3-017", "S3-018")
}

func externalIDs(t *testing.T, w *world) {
	one, two := w.tenant(t, "external-one"), w.tenant(t, "external-two")
	const create = `mutation($t:String!,$x:String){createDevice(request:{token:$t,deviceTypeToken:"plain",externalId:$x}){externalId}}`
	for _, tn := range []*tenant{one, two} {
		tn.plain()
		for i, id := range []string{"00:1b:44:11", "a.b.c", "site/line 3", "é*>#+"} {
			if got := tn.devices(create, map[string]any{"t": fmt.Sprint("x", i), "x": id}).raw; !strings.Contains(got, id) && !strings.Contains(got, `\u003e`) {
				t.Errorf("%s: %s", id, got)
			}
		}
		for _, token := range []string{"n1", "n2"} {
			tn.devices(create, map[string]any{"t": token})
		}
	}
	conformance.Shown(t, "S3-020")
	one.refused(create, map[string]any{"t": "again", "x": "a.b.c"}, "CONFLICT", "unique")
	conformance.Shown(t, "S3-021")
}

func commonProperties(t *testing.T, w *world) {
	tn := w.tenant(t, "properties")
	tn.plain()
	read := func() (token, metadata, updated string) {
		var out struct {
			DeviceTypesByToken []struct {
				Token, UpdatedAt string
				Metadata         *string
			}
		}
		tn.devices(`{deviceTypesByToken(tokens:["plain"]){token updatedAt metadata}}`, nil).into(t, &out)
		d := out.DeviceTypesByToken[0]
		if d.Metadata == nil {
			return d.Token, "", d.UpdatedAt
		}
		return d.Token, *d.Metadata, d.UpdatedAt
	}
	update := func(request string) {
		t.Helper()
		tn.devices(`mutation{updateDeviceType(token:"plain",request:{`+request+`}){token}}`, nil)
	}
	_, _, last := read()
	for _, c := range []struct{ request, metadata string }{
		{`metadata:"{\"a\":1,\"b\":2}"`, `{"a":1,"b":2}`}, {`metadata:"{\"b\":3}"`, `{"b":3}`}, {`name:"kept"`, `{"b":3}`}, {`metadata:null`, ""},
	} {
		update(c.request)
		token, metadata, updated := read()
		if token != "plain" || metadata != c.metadata || updated <= last {
			t.Errorf("%s: token %s, metadata %s, updatedAt %s after %s", c.request, token, metadata, updated, last)
		}
		last = updated
	}
	conformance.Shown(t, "S3-023", "S3-024")
	for _, q := range []string{`mutation{updateDeviceType(token:"plain",request:{token:"new"}){token}}`} {
		tn.refused(q, nil, "INVALID_INPUT", `Field "token" is not defined by type "DeviceTypeUpdateRequest"`)
	}
	conformance.Shown(t, "S3-022")
}

// Many writers, each with a field of its own: all values stand in the end.
func concurrentUpdates(t *testing.T, w *world) {
	tn := w.tenant(t, "concurrent")
	tn.plain()
	fields := []string{"name", "description", "imageUrl", "icon", "manufacturer", "model"}
	var wg sync.WaitGroup
	for _, f := range fields {
		wg.Go(func() {
			for i := range 10 {
				a := w.ask(t, "device-management", tn.token, fmt.Sprintf(`mutation{updateDeviceType(token:"plain",request:{%s:"%s %d"}){id}}`, f, f, i), nil)
				if len(a.Errors) > 0 {
					t.Error(a.raw)
				}
			}
		})
	}
	wg.Wait()
	got := tn.devices(`{deviceTypesByToken(tokens:["plain"]){`+strings.Join(fields, " ")+`}}`, nil).raw
	for _, f := range fields {
		if !strings.Contains(got, fmt.Sprintf("%q:%q", f, f+" 9")) {
			t.Errorf("%s is lost: %s", f, got)
		}
	}
	conformance.Shown(t, "S3-052")
}

func unknownReferences(t *testing.T, w *world) {
	tn := w.tenant(t, "references")
	tn.profile("p", map[string]string{"r": above("r", "t", 1, "")})
	tn.device("d", "p")
	tn.devices(`mutation{createMetricDefinition(request:{token:"m",deviceProfileToken:"p",metricKey:"t",dataType:"INT"}){id}}`, nil)
	for _, c := range []struct{ mutation, read string }{
		{`updateDeviceType(token:"p",request:{name:"new",profileToken:"nope"})`, `deviceTypesByToken(tokens:["p"])`},
		{`updateDevice(token:"d",request:{name:"new",deviceTypeToken:"nope"})`, `devicesByToken(tokens:["d"])`},
		{`updateDetectionRule(token:"r",request:{name:"new",deviceProfileToken:"nope"})`, `detectionRulesByToken(tokens:["r"])`},
		{`updateMetricDefinition(token:"m",request:{name:"new",deviceProfileToken:"nope"})`, `metricDefinitionsByToken(tokens:["m"])`},
		{`updateDeviceCredential(token:"d",request:{metadata:"1",deviceToken:"nope"})`, `deviceCredentialsByToken(tokens:["d"])`},
	} {
		read := `{` + c.read + `{token metadata updatedAt}}`
		before := tn.devices(read, nil).raw
		tn.refused(`mutation{`+c.mutation+`{id}}`, nil, "INVALID_INPUT", `"nope"`)
		if after := tn.devices(read, nil).raw; after != before {
			t.Errorf("%s wrote: %s, before %s", c.mutation, after, before)
		}
	}
	conformance.Shown(t, "S3-080")
}

func rename(t *testing.T, w *world) {
	tn := w.tenant(t, "rename")
	tn.devices(`mutation{a:createDeviceProfile(request:{token:"p",name:"kept"}){id} b:createDeviceProfile(request:{token:"q"}){id}
		c:createMetricDefinition(request:{token:"m",deviceProfileToken:"p",metricKey:"t",dataType:"INT"}){id}}`, nil)
	const q = `mutation($n:String!){renameDeviceProfile(token:"p",newToken:$n){token name metricDefinitions{token}}}`
	for _, blank := range []string{"", " ", "\t "} {
		tn.refused(q, map[string]any{"n": blank}, "INVALID_INPUT", "newToken")
	}
	same := `{"renameDeviceProfile":{"token":"p","name":"kept","metricDefinitions":[{"token":"m"}]}}`
	if got := string(tn.devices(q, map[string]any{"n": "p"}).Data); got != same {
		t.Errorf("%s, want %s", got, same)
	}
	tn.refused(q, map[string]any{"n": "q"}, "CONFLICT", `"q"`)
	if got := tn.devices(`{deviceProfilesByToken(tokens:["p","q"]){token}}`, nil).raw; !strings.Contains(got, `"p"`) || !strings.Contains(got, `"q"`) {
		t.Error(got)
	}
	if got, want := string(tn.devices(q, map[string]any{"n": "P2"}).Data), strings.Replace(same, `"p"`, `"P2"`, 1); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	tn.devices(`mutation{createDeviceType(request:{token:"t",profileToken:"q"}){id}}`, nil)
	tn.refused(`mutation{renameDeviceProfile(token:"q",newToken:"q2"){token}}`, nil, "IN_USE", "device type")
	tn.publish("P2")
	tn.refused(`mutation{renameDeviceProfile(token:"P2",newToken:"p3"){token}}`, nil, "IN_USE", "P2")
	conformance.Shown(t, "S3-092")
}

func activeVersion(t *testing.T, w *world) {
	tn := w.tenant(t, "active-version")
	tn.profile("p", map[string]string{"r": above("first", "temp", 30, "")})
	is := func(version int, name string) {
		t.Helper()
		var out struct{ DeviceProfilesByToken []struct{ ActiveVersion int } }
		tn.devices(`{deviceProfilesByToken(tokens:["p"]){activeVersion}}`, nil).into(t, &out)
		h := tn.health("p")
		if out.DeviceProfilesByToken[0].ActiveVersion != version || len(h) != 1 || h[0].Name != name || h[0].RuleID != fmt.Sprintf("active-version/p@%d/r", version) {
			t.Errorf("active version %v, rules %+v, want %d with %s", out, h, version, name)
		}
	}
	is(1, "first")
	tn.devices(`mutation($d:String!){updateDetectionRule(token:"r",request:{definition:$d}){id}}`, map[string]any{"d": above("second", "temp", 20, "")})
	is(1, "first")
	tn.publish("p")
	is(2, "second")
	tn.devices(`mutation{rollbackDeviceProfile(token:"p",version:1){activeVersion}}`, nil)
	is(1, "first")
	tn.refused(`mutation{rollbackDeviceProfile(token:"p",version:9){activeVersion}}`, nil, "NOT_FOUND", "p@9")
	is(1, "first")
	conformance.Shown(t, "S3-068")
}
