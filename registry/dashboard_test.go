package registry

import (
	"testing"

	"weir/model"
	"weir/store"
)

// What a publish froze is read for ever: the text is that of format 1.
func TestTheSnapshotOfADashboardIsFrozen(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	by := model.Service("test", acme.Tenant, acme.TenantID, model.DashboardRead, model.DashboardWrite)
	kind := b.Kinds.Of("dashboards")
	const definition = `{ "title": "é <b>", "n": 1.50 }`
	must(kind.Create(t.Context(), by, store.Patch{"token": "d", "name": "N", "definition": definition}))(t)
	must(kind.Versions().Publish(t.Context(), by, "d", nil, nil))(t)
	must(kind.Update(t.Context(), by, "d", store.Patch{"name": nil, "definition": "{}"}))(t)
	must(kind.Versions().Publish(t.Context(), by, "d", nil, nil))(t)
	got := b.rows(`SELECT snapshot FROM dashboard_versions ORDER BY version`)
	want := []string{`{"v":1,"name":"N","definition":"{ \"title\": \"é \u003cb\u003e\", \"n\": 1.50 }"}`, `{"v":1,"definition":"{}"}`}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%q, want %q", got, want)
	}
}
