package registry

import (
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
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
