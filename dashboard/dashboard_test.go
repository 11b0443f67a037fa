package dashboard

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// member is a principal that may read and write the dashboards of a tenant.
var member = model.Service("test", "acme", 1, model.DashboardRead, model.DashboardWrite)

// bench are the dashboards of a store, and that store.
type bench struct {
	*Dashboards
	store store.Store
}

func newBench(t *testing.T, d Deps) *bench {
	t.Helper()
	b := &bench{store: fixture.Store(t)}
	d.Base = entity.Base{Store: b.store, Writer: store.Direct{Store: b.store}}
	b.Dashboards = New(DashboardSettings{}, d)
	return b
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// What a publish froze is read for ever: the text is that of format 1.
func TestTheSnapshotOfADashboardIsFrozen(t *testing.T) {
	t.Parallel()
	b := newBench(t, Deps{})
	kind, by := b.Kinds.Of("dashboards"), member
	const definition = `{ "title": "é <b>", "n": 1.50 }`
	must(kind.Create(t.Context(), by, store.Patch{"token": "d", "name": "N", "definition": definition}))(t)
	must(kind.Versions().Publish(t.Context(), by, "d", nil, nil))(t)
	must(kind.Update(t.Context(), by, "d", store.Patch{"name": nil, "definition": "{}"}))(t)
	must(kind.Versions().Publish(t.Context(), by, "d", nil, nil))(t)
	var got []string
	fixture.EachRow(t, b.store, func(_ []string, values []any) { got = append(got, values[0].(string)) }, `SELECT snapshot FROM dashboard_versions ORDER BY version`)
	want := []string{`{"v":1,"name":"N","definition":"{ \"title\": \"é \u003cb\u003e\", \"n\": 1.50 }"}`, `{"v":1,"definition":"{}"}`}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestADashboardThatCouldNotBeReadIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, Deps{AnswerBytes: 1000})
	kind, by := b.Kinds.Of("dashboards"), member
	definition := func(n int) string { return `{"a":"` + strings.Repeat("x", n) + `"}` } // 10 bytes, 4 quotes and 2 around it
	must(kind.Create(t.Context(), by, store.Patch{"token": "d", "definition": definition(986)}))(t)
	_, err := kind.Update(t.Context(), by, "d", store.Patch{"definition": definition(987)})
	refused(t, "one byte more", err, model.CodeLimitExceeded, "limits.memory: the definition takes 1001 bytes of an answer")
	_, err = kind.Create(t.Context(), by, store.Patch{"token": "e", "definition": `{"a":"` + strings.Repeat(`\n`, 400) + `"}`})
	refused(t, "one that escapes make longer", err, model.CodeLimitExceeded, "the definition takes 1214 bytes")
}

// Writers that expect the row which they have read: of those that read the same one succeeds, the others are told of the conflict
// and change nothing, so that every change is in the row which is there at the end.
func TestWritersThatExpectARowLoseNoChange(t *testing.T) {
	t.Parallel()
	b := newBench(t, Deps{})
	kind, by := b.Kinds.Of("dashboards"), member
	must(kind.Create(t.Context(), by, store.Patch{"token": "board", "name": "", "definition": `{}`}))(t)
	const writers, each = 4, 5
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			for made := 0; made < each; {
				row := must(kind.ByToken(t.Context(), by, []string{"board"}))(t)[0].(*Dashboard)
				name := fmt.Sprint(*row.Name, n)
				_, err := kind.Update(t.Context(), by, "board", store.Patch{"name": name}, entity.Expect(row.UpdatedAt))
				switch {
				case err == nil:
					made++
				case model.CodeOf(err) != model.CodeConflict:
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	row := must(kind.ByToken(t.Context(), by, []string{"board"}))(t)[0].(*Dashboard)
	counts := map[rune]int{}
	for _, n := range *row.Name {
		counts[n]++
	}
	for n := range writers {
		if counts[rune('0'+n)] != each {
			t.Errorf("of %d changes of the writer %d the name has %d: %s", each, n, counts[rune('0'+n)], *row.Name)
		}
	}
}

func refused(t *testing.T, what string, err error, code model.Code, part string) {
	t.Helper()
	if model.CodeOf(err) != code || !strings.Contains(err.Error(), part) {
		t.Errorf("%s: %v, want %s with %q", what, err, code, part)
	}
}

// What a dashboard has published goes with it.
func TestVersionsGoWithTheirDashboard(t *testing.T) {
	t.Parallel()
	b := newBench(t, Deps{})
	must(b.Create(t.Context(), member, store.Patch{"token": "v", "definition": "{}"}))(t)
	must(b.Publish(t.Context(), member, "v", nil, nil))(t)
	must(b.Delete(t.Context(), member, "v"))(t)
	fixture.EachRow(t, b.store, func(_ []string, values []any) { t.Errorf("a version is left: %v", values) }, `SELECT * FROM dashboard_versions`)
}

func TestATenantHasAsManyDashboardsAsItMay(t *testing.T) {
	t.Parallel()
	b := newBench(t, Deps{})
	b.SetLimits(DashboardSettings{PerTenant: 1})
	must(b.Create(t.Context(), member, store.Patch{"token": "a", "definition": "{}"}))(t)
	_, err := b.Create(t.Context(), member, store.Patch{"token": "b", "definition": "{}"})
	refused(t, "one more", err, model.CodeLimitExceeded, "limits.dashboards_per_tenant: a tenant has at most 1")
	must(b.Delete(t.Context(), member, "a"))(t)
	must(b.Create(t.Context(), member, store.Patch{"token": "b", "definition": "{}"}))(t)
}
