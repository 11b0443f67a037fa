package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/internal/test/conformance"
	"weir/internal/test/poll"
)

// whatRulesKnow: rules that look at attributes, groups and geofences judge by what was set through the API, and publish warns of names that
// do not exist.
func whatRulesKnow(t *testing.T, w *world) {
	tn := w.tenant(t, "what-rules-know")
	tn.devices(`mutation{createDeviceProfile(request:{token:"p"}){id} createDeviceType(request:{token:"p",profileToken:"p"}){id}
		createMetricDefinition(request:{token:"m",deviceProfileToken:"p",metricKey:"temp",dataType:"DOUBLE"}){id}
		createEntityGroup(request:{token:"line",memberType:"device",membershipMode:"dynamic",selector:"attr[\"line\"] == \"one\""}){id} publishEntityGroup(token:"line"){version}}`, nil)
	limited := `{"name":"n","type":"threshold","when":{"metric":"temp","op":"gt","thresholdAttr":"limit"}}`
	scoped := func(token, definition string) {
		tn.devices(`mutation($r:DetectionRuleCreateRequest!){createDetectionRule(request:$r){id}}`, map[string]any{"r": map[string]any{"token": token,
			"deviceProfileToken": "p", "definition": definition, "enabled": true, "entityGroupToken": "line", "entityGroupVersion": 1}})
	}
	v, raw := tn.validate(draft{"limited", limited, true}, draft{Token: "guarded", Definition: attribute}, draft{"scoped", above("s", "temp", 30, ""), true}, draft{Token: "broken", Definition: "{"},
		draft{Token: "negated", Definition: strings.ReplaceAll(attribute, "site", "zone")})
	if v.Valid || len(v.Errors) != 1 || v.Errors[0].Index != 3 || v.Errors[0].Token != "broken" || len(v.Warnings) != 2 || v.Warnings[0].Index != 1 || v.Warnings[0].Token != "guarded" ||
		v.Warnings[1].Index != 4 || v.Warnings[1].Token != "negated" {
		t.Errorf("%s", raw)
	}
	conformance.Shown(t, "S1-020")
	for i, attr := range []string{"site", "zone"} {
		if w := v.Warnings[i]; w.Code != "negatedAttributeGuard" || !slices.Equal(w.Params, []string{attr}) || w.Message != "the condition asks that attribute "+attr+" is missing: it holds for every device that was not given it" {
			t.Errorf("%+v", w)
		}
	}
	conformance.Shown(t, "S1-025")
	if v, raw := tn.validate(draft{Token: "guarded", Definition: attribute}); !v.Valid || len(v.Errors) != 0 || len(v.Warnings) != 1 {
		t.Errorf("%s", raw)
	}
	a := tn.rules(`query($d:String!){validateDetectionRules(rules:[{token:"a",definition:$d,groupScoped:true},{token:"b",definition:$d,groupScoped:false},{token:"c",definition:$d}]){valid errors{index}}}`,
		map[string]any{"d": limited})
	absent := tn.rules(`{validateDetectionRules(rules:[{token:"a",definition:"{\"name\":\"a\",\"type\":\"absence\",\"timeout\":\"5m\"}",groupScoped:true},{token:"b",definition:"{\"name\":\"a\",\"type\":\"absence\",\"timeout\":\"5m\"}"}]){errors{index message}}}`, nil)
	if a.raw != `{"data":{"validateDetectionRules":{"valid":true,"errors":[]}}}` || !strings.Contains(absent.raw, `{"index":0,"message":"a rule of type absence cannot be scoped`) ||
		strings.Contains(strings.TrimPrefix(absent.raw, `{"index":0`), `"index":1,"message":"a rule of`) {
		t.Errorf("%s %s", a.raw, absent.raw)
	}
	conformance.Shown(t, "S1-029")

	tn.rule("p", "limited", limited, true)
	tn.rule("p", "guarded", attribute, true)
	tn.rule("p", "yard", `{"name":"n","type":"threshold","when":{"cel":"geo.inFence(\"yrd\")"}}`, true)
	tn.rule("p", "typo", above("n", "tmp", 30, ""), true)
	scoped("scoped", above("n", "temp", 30, ""))
	fence := func(verb, args, ring string) {
		tn.devices(fmt.Sprintf(`mutation($g:String!){%sGeoFence(%s){id}}`, verb, args), map[string]any{"g": `{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[` + ring + `]}}`})
	}
	const square = `[[8,47],[9,47],[9,48],[8,48],[8,47]]`
	fence("create", `request:{token:"yard",geometry:$g}`, square)
	got := string(tn.devices(`mutation{publishDeviceProfile(token:"p"){version warnings{token code params message}}}`, nil).Data)
	for _, want := range []string{`{"token":"guarded","code":"negatedAttributeGuard","params":["site"]`, `{"token":"typo","code":"unknownMetric","params":["tmp","temp"],"message":"the profile declares no metric \"tmp\" (did you mean temp?)"}`,
		`{"token":"yard","code":"unknownFence","params":["yrd","yard"],"message":"there is no geofence \"yrd\" (did you mean yard?)"}`} {
		if !strings.Contains(got, want) || strings.Count(got, `"token"`) != 3 {
			t.Errorf("%s lacks %s", got, want)
		}
	}
	conformance.Shown(t, "S1-024")
	if got := string(tn.devices(`{deviceProfileVersions(token:"p"){version warnings{code}}}`, nil).Data); got != `{"deviceProfileVersions":[{"version":1,"warnings":null}]}` {
		t.Errorf("%s", got)
	}
	tn.devices(`mutation{a:updateDetectionRule(token:"yard",request:{definition:"{\"name\":\"n\",\"type\":\"threshold\",\"when\":{\"cel\":\"geo.inFence(\\\"yard\\\")\"}}"}){id}
		b:updateDetectionRule(token:"typo",request:{enabled:false}){id} publishDeviceProfile(token:"p"){warnings{code}}}`, nil)

	tn.device("d", "p")
	c := tn.connect("d")
	set := func(scope, key, kind, value string) {
		tn.devices(`mutation($r:EntityAttributeSetRequest!){setEntityAttribute(request:$r){attrKey}}`, map[string]any{"r": map[string]any{"entityType": "device", "entity": "d", "scope": scope, "attrKey": key, "valueType": kind, "value": value}})
	}
	fired := 0
	expect := func(what string, want ...string) {
		t.Helper()
		var rows []string
		poll.Until(t, what, func() error {
			var out struct {
				Detections struct {
					Results []struct{ RuleToken, Edge string }
				}
			}
			tn.rules(`{detections(criteria:{pageNumber:1,pageSize:100}){results{ruleToken edge}}}`, nil).into(t, &out)
			rows = nil
			for _, r := range out.Detections.Results {
				rows = append(rows, r.RuleToken+" "+r.Edge)
			}
			if len(rows) < fired+len(want) {
				return fmt.Errorf("%q, want %q more than %d", rows, want, fired)
			}
			return nil
		})
		newest := rows[:len(rows)-fired]
		slices.Sort(newest)
		slices.Sort(want)
		if !slices.Equal(newest, want) {
			t.Errorf("%s: %q, want %q", what, newest, want)
		}
		fired = len(rows)
	}
	inside := `{"eventType":"Location","payload":{"entries":[{"latitude":"47.5","longitude":"8.5"}]}}`
	c.send(measured("temp", "35"))
	expect("no limit, no group, no site", "guarded raised")
	conformance.Shown(t, "S1-026")
	set("SHARED", "site", "LONG", "1")
	set("SHARED", "line", "STRING", "one")
	set("SHARED", "limit", "DOUBLE", "34.5")
	c.send(measured("temp", "35"))
	expect("a site, in the group, over the limit", "guarded resolved", "scoped raised", "limited raised")
	set("SERVER", "limit", "DOUBLE", "50")
	c.send(measured("temp", "35"))
	expect("another limit", "limited resolved")
	set("SHARED", "line", "STRING", "two")
	expect("out of the group, at once", "scoped resolved")
	c.send(inside)
	expect("in the yard", "yard raised")
	fence("update", `token:"yard",request:{geometry:$g}`, square+`,[[8.4,47.4],[8.6,47.4],[8.6,47.6],[8.4,47.6],[8.4,47.4]]`)
	c.send(inside)
	expect("in the hole", "yard resolved")
	tn.devices(`mutation{deleteGeoFence(token:"yard")}`, nil)
	tn.devices(`mutation{deleteEntityAttribute(entityType:"device",entity:"d",scope:"SERVER",attrKey:"limit") other:deleteEntityAttribute(entityType:"device",entity:"d",scope:"SHARED",attrKey:"limit")}`, nil)
	c.send(inside)
	c.send(measured("temp", "35"))
	poll.Until(t, "what could not be judged", func() error {
		got := string(tn.rules(`{ruleHealth(profileToken:"p"){ruleToken evalErrors missingAttributes}}`, nil).Data)
		if !strings.Contains(got, `{"ruleToken":"limited","evalErrors":0,"missingAttributes":2}`) || !strings.Contains(got, `{"ruleToken":"yard","evalErrors":1,"missingAttributes":0}`) {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
}
