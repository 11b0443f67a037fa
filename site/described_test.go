package site

import (
	"path/filepath"
	"strings"
	"testing"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

// Asset types and assets are described in the registry, and that is all that site files know of them.
func TestADescribedKindIsDeclaredWithoutAnEditHere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := func(types, assets string) *Document {
		return w.read("version: 1\ntenants: [{token: acme, assetTypes: " + types + ", assets: " + assets + "}]")
	}
	types := `[{token: pump, name: Pump, icon: drop}, {token: line}]`
	declared := file(types, `[{token: p1, assetTypeToken: pump, metadata: {floor: 2}}, {token: p2, assetTypeToken: pump}]`)
	made := "+ asset type acme/pump\n+ asset type acme/line\n+ asset acme/p1\n+ asset acme/p2\n"
	w.wantPlan(declared, Options{}, "+ tenant acme\n"+made)
	if got := lines(w.apply(declared, Options{})); got != "+ tenant acme\n"+made {
		t.Errorf("applied %s", got)
	}
	w.wantPlan(declared, Options{Prune: true}, "")
	w.wantPlan(w.export(), Options{Prune: true}, "")
	d, err := w.Export(t.Context(), operator, "acme")
	if err != nil {
		t.Fatal(err)
	}
	want := `    assetTypes:
      - token: line
      - token: pump
        name: Pump
        icon: drop
    assets:
      - token: p1
        assetTypeToken: pump
        metadata:
          floor: 2
      - token: p2
        assetTypeToken: pump
`
	if !strings.HasSuffix(d.YAML(), want) {
		t.Errorf("exported\n%s\nwant at the end\n%s", d.YAML(), want)
	}

	less := file(`[{token: line, name: Line}]`, `[{token: p1, assetTypeToken: line, metadata: null}]`)
	w.wantPlan(less, Options{}, "~ asset type acme/line: name none → \"Line\"\n~ asset acme/p1: assetTypeToken \"pump\" → \"line\", metadata \"{\\\"floor\\\":2}\" → none\n")
	w.wantPlan(less, Options{Prune: true}, lines(w.plan(less, Options{}))+"- asset acme/p2\n- asset type acme/pump\n")
	w.apply(less, Options{Prune: true})
	w.wantPlan(w.export(), Options{Prune: true}, "")

	used := file(`[]`, `[{token: p1, name: x}]`)
	if _, err := w.Apply(t.Context(), operator, used, Options{Prune: true}); err == nil || !strings.Contains(err.Error(), "deleting what is not declared") {
		t.Errorf("a type in use is pruned: %v", err)
	}
	w.files(map[string]string{"wrong.yaml": "version: 1\ntenants: [{token: acme, assetTypes: [], assets: [{token: p1, assetTypeToken: pumpe}]}]"})
	if _, _, err := Read(Source{}, filepath.Join(w.dir, "wrong.yaml")); err == nil || !strings.Contains(err.Error(), `"pumpe" is not declared under assetTypes`) {
		t.Errorf("a reference to what is not declared: %v", err)
	}
}

// A geometry is compared by its meaning: how it is written changes nothing.
func TestGeofencesAreDeclared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := func(coordinates string) *Document {
		return w.read("version: 1\ntenants:\n  - token: acme\n    geoFences:\n      - token: yard\n        name: Yard\n        geometry:\n          kind: POLYGON_2D\n          geometry: {type: Polygon, coordinates: " + coordinates + "}\n")
	}
	declared := file(`[[[8.50, 47.3], [8.6, 47.3], [8.6, 47.4], [8.5, 47.3]]]`)
	w.wantPlan(declared, Options{}, "+ tenant acme\n+ geofence acme/yard\n")
	w.apply(declared, Options{})
	w.wantPlan(declared, Options{Prune: true}, "")
	w.wantPlan(file(`[[[8.5, 47.30], [8.6, 4.73e1], [8.6, 47.4], [8.5, 47.3]]]`), Options{Prune: true}, "")
	w.wantPlan(w.export(), Options{Prune: true}, "")
	moved := file(`[[[8.5, 47.3], [8.7, 47.3], [8.6, 47.4], [8.5, 47.3]]]`)
	w.wantPlan(moved, Options{}, "~ geofence acme/yard: geometry.geometry.coordinates[0][1][0] 8.6 → 8.7\n")
	w.apply(moved, Options{})
	none := w.read("version: 1\ntenants: [{token: acme, geoFences: []}]")
	w.wantPlan(none, Options{Prune: true}, "- geofence acme/yard\n")
	w.apply(none, Options{Prune: true})
	w.files(map[string]string{"wrong.yaml": "version: 1\ntenants:\n  - token: acme\n    geoFences:\n      - token: yard\n        geometry: {kind: POLYGON_2D, geometry: {type: Polygon, coordinates: [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]}}\n"})
	if _, _, err := Read(Source{Complete: true}, filepath.Join(w.dir, "wrong.yaml")); err == nil || !strings.Contains(err.Error(), "wrong.yaml:6") || !strings.Contains(err.Error(), "ring 1, position 1: the edge from here meets") {
		t.Errorf("rings that cross: %v", err)
	}
}

// Tenants are never deleted, whoever asks their kind for it.
func TestATenantIsNeverDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(w.read("version: 1\ntenants: [{token: acme}]"), Options{})
	before := w.dump()
	deleted, err := w.govern.Tenants.Delete(t.Context(), operator, "acme")
	fixture.Refused(t, err, model.CodeInvalidInput, "a tenant cannot be deleted, disable it")
	if deleted {
		t.Error("a tenant is deleted")
	}
	_, err = w.govern.Tenants.Update(t.Context(), operator, "acme", store.Patch{"enabled": false})
	fixture.Refused(t, err, model.CodeInvalidInput, "enabled: ")
	if after := w.dump(); after != before {
		t.Errorf("refused, but rows changed from\n%s\nto\n%s", before, after)
	}
}
