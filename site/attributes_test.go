package site

import (
	"path/filepath"
	"strings"
	"testing"

	"weir/registry"
	"weir/store"
)

func TestAttributesAreDeclaredInsideOfTheirEntity(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := func(device, asset string) *Document {
		return w.read("version: 1\ntenants:\n  - token: acme\n    deviceTypes: [{token: t}]\n    devices: [{token: d, deviceTypeToken: t" + device +
			"}]\n    assetTypes: [{token: at}]\n    assets: [{token: d, assetTypeToken: at" + asset + "}]\n")
	}
	stored := func(want string) {
		t.Helper()
		rows, _, err := w.registry.Attributes.List(t.Context(), w.by("acme"), store.Page{}, registry.AttributeFilter{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range rows {
			value := "null"
			if a.Value() != nil {
				value = *a.Value()
			}
			got = append(got, strings.Join([]string{a.EntityType, a.Scope, a.Key, a.Type, value}, " "))
		}
		if text := strings.Join(got, "; "); text != want {
			t.Errorf("stored are\n%s\nwant\n%s", text, want)
		}
	}
	declared := file(`, serverAttributes: {limit: 80.5}, sharedAttributes: {site: north, floor: 2, on: true, at: {type: JSON, value: [1, 2]}, half: {type: DOUBLE, value: 5}, none: {type: LONG, value: null}}`, `, sharedAttributes: {site: south}`)
	w.apply(declared, Options{})
	stored(`device SERVER limit DOUBLE 80.5; device SHARED at JSON [1,2]; device SHARED floor LONG 2; device SHARED half DOUBLE 5; ` +
		`device SHARED none LONG null; device SHARED on BOOLEAN true; device SHARED site STRING north; asset SHARED site STRING south`)
	w.wantPlan(declared, Options{Prune: true}, "")
	w.wantPlan(w.export(), Options{Prune: true}, "")
	w.wantPlan(file(``, ``), Options{Prune: true}, "") // absent keeps
	d, err := w.Export(t.Context(), operator, "acme")
	if err != nil {
		t.Fatal(err)
	}
	if text := d.YAML(); !strings.Contains(text, "        serverAttributes:\n          limit: 80.5\n        sharedAttributes:\n") || !strings.Contains(text, "          site: north\n") {
		t.Errorf("exported\n%s", text)
	}
	client := registry.AttributeSet{AttributeRef: registry.AttributeRef{EntityType: "device", Entity: "d", Scope: registry.ScopeClient, Key: "own"}, Type: registry.ValueLong}
	if _, err := w.registry.Attributes.Set(t.Context(), w.by("acme"), client); err != nil {
		t.Fatal(err)
	}
	less := file(`, serverAttributes: {}, sharedAttributes: {site: east, floor: 2}`, `, sharedAttributes: null`)
	if got := lines(w.plan(less, Options{})); strings.Count(got, "~ ") != 2 || !strings.Contains(got, "sharedAttributes.site \"north\" → \"east\"") {
		t.Errorf("the plan is %s", got)
	}
	w.apply(less, Options{})
	stored(`device CLIENT own LONG null; device SHARED floor LONG 2; device SHARED site STRING east`)
	w.wantPlan(less, Options{Prune: true}, "")
}

func TestAWrongAttributeIsReportedAtItsPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for given, want := range map[string]string{
		"[1]":                         "must be a mapping of keys to values",
		"{a: [1]}":                    "a: must be a text, a number, true, false or {type: …, value: …}",
		"{a: null}":                   "a: must be a text",
		"{a: {type: LONG}}":           "a: must be a text",
		"{a: {type: INT, value: 1}}":  `a: valueType: "INT" is none of STRING`,
		"{a: {type: LONG, value: x}}": `a: value: "x" is no whole number`,
		"{' ': 1}":                    "attrKey: must not be empty",
	} {
		w.files(map[string]string{"wrong.yaml": "version: 1\ntenants:\n  - token: acme\n    deviceTypes: [{token: t}]\n    devices:\n      - token: d\n        deviceTypeToken: t\n        sharedAttributes: " + given + "\n"})
		_, _, err := Read(Source{Checked: true}, filepath.Join(w.dir, "wrong.yaml"))
		if err == nil || !strings.Contains(err.Error(), "wrong.yaml:8:9") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", given, err, want)
		}
	}
}
