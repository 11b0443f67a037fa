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
