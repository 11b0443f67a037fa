package registry

import (
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// consistent fails unless the store says of itself that it is: every reference leads to a row, and every index to its rows.
func (b *bench) consistent(rt *rapid.T) {
	for _, pragma := range []string{"foreign_key_check", "integrity_check"} {
		for _, found := range fixture.Rows(b, b.db, "PRAGMA "+pragma) {
			if found != "ok" {
				rt.Errorf("%s: %v", pragma, found)
			}
		}
	}
}

// Writers of the same field, none of which expects anything: all succeed, and the row is what the last of them wrote.
func TestWritersOfOneFieldTheLastOneWins(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.seed()
	const writers, each = 4, 10
	var mu sync.Mutex
	var wg sync.WaitGroup
	last := ""
	var at model.Micros
	for n := range writers {
		wg.Go(func() {
			for i := range each {
				name := fmt.Sprintf("%d-%d", n, i)
				d, err := b.Devices.Update(t.Context(), acme, "d", store.Patch{"name": name})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if d.UpdatedAt > at {
					last, at = name, d.UpdatedAt
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	d := must(b.Devices.ByToken(t.Context(), acme, []string{"d"}))(t)[0]
	if d.Name == nil || *d.Name != last || d.UpdatedAt != at {
		t.Errorf("the device is called %v of %s; the last write was %s of %s", d.Name, d.UpdatedAt, last, at)
	}
}

// Writers that expect the row which they have read: of those that read the same one succeeds, the others are told of the conflict
// and change nothing, so that every change is in the row which is there at the end.
func TestWritersThatExpectARowLoseNoChange(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	by := model.Service("test", acme.Tenant, acme.TenantID, model.DashboardRead, model.DashboardWrite)
	kind := b.Kinds.Of("dashboards")
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
