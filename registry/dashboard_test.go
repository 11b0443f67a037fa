package registry

import (
	"strings"
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

func TestADashboardThatCouldNotBeReadIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{AnswerBytes: 1000})
	by := model.Service("test", acme.Tenant, acme.TenantID, model.DashboardRead, model.DashboardWrite)
	kind := b.Kinds.Of("dashboards")
	definition := func(n int) string { return `{"a":"` + strings.Repeat("x", n) + `"}` } // 10 bytes, 4 quotes and 2 around it
	must(kind.Create(t.Context(), by, store.Patch{"token": "d", "definition": definition(986)}))(t)
	_, err := kind.Update(t.Context(), by, "d", store.Patch{"definition": definition(987)})
	b.refused("one byte more", err, model.CodeLimitExceeded, "limits.memory: the definition takes 1001 bytes of an answer")
	_, err = kind.Create(t.Context(), by, store.Patch{"token": "e", "definition": `{"a":"` + strings.Repeat(`\n`, 400) + `"}`})
	b.refused("one that escapes make longer", err, model.CodeLimitExceeded, "the definition takes 1214 bytes")
}
