package series

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

// keeping is a series with its housekeeping, and what must be in it.
type keeping struct {
	t      *rapid.T
	st     store.Store
	s      *Series
	put    map[model.Offset]model.Micros // event time of each reading
	last   model.Offset
	before model.Micros // what lies before has no right to stay
}

// step does one thing; a merging does others between its reading and its writing.
func (k *keeping) step(nested bool) {
	kinds := []string{"readings", "head", "retention", "merge"}
	if nested {
		kinds = kinds[:3]
	}
	var err error
	switch rapid.SampledFrom(kinds).Draw(k.t, "step") {
	case "readings":
		for range rapid.IntRange(1, 12).Draw(k.t, "readings") {
			k.last++
			day := rapid.IntRange(0, 3).Draw(k.t, "day")
			at := day0 + model.Micros(day)*microsPerDay + model.Micros(rapid.IntRange(0, 86_399).Draw(k.t, "second"))*1_000_000
			k.put[k.last] = at
			if err := k.s.Put(context.Background(), []Point{reading(k.last, rapid.Int64Range(1, 3).Draw(k.t, "device"), "temp", at, float64(k.last))}); err != nil {
				k.t.Fatal(err)
			}
		}
	case "head":
		if k.last > k.s.HeadOffset() {
			err = writeHead(k.s, k.last)
		}
	case "retention":
		k.before = max(k.before, day0+model.Micros(rapid.IntRange(0, 3).Draw(k.t, "until"))*microsPerDay)
		err = k.st.Write(context.Background(), store.Results, func(tx store.Tx) error {
			_, err := store.RemoveBefore(tx, store.KeptReadings, k.before, rapid.IntRange(1, 8).Draw(k.t, "rows"))
			return err
		})
	case "merge":
		_, err = k.s.Merge(context.Background(), day0+model.Micros(rapid.IntRange(0, 5).Draw(k.t, "now"))*microsPerDay, func() error {
			for range rapid.IntRange(0, 3).Draw(k.t, "meanwhile") {
				k.step(true)
			}
			return nil
		})
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

// check looks for every reading that is young enough, and for each only once; and what is gone must be counted.
func (k *keeping) check() {
	res, err := k.s.Measurements(context.Background(), Query{TenantID: 1, Page: Page{1, 1000}})
	if err != nil {
		k.t.Fatal(err)
	}
	there := map[model.Offset]bool{}
	for i := range res.Events {
		e := &res.Events[i]
		if at, ok := k.put[e.Offset]; !ok || there[e.Offset] || at != e.Occurred || e.Value != float64(e.Offset) {
			k.t.Fatalf("the reading of %d is there again, or another", e.Offset)
		}
		there[e.Offset] = true
	}
	for offset, at := range k.put {
		if at >= k.before && !there[offset] {
			k.t.Fatalf("the reading of %d is gone", offset)
		}
	}
	if err := k.st.Read(context.Background(), func(tx store.Tx) error {
		removed, err := store.Removed(tx)
		if gone := int64(len(k.put) - len(there)); err == nil && removed[store.KeptReadings] != gone {
			k.t.Fatalf("%d are gone and %d counted as removed", gone, removed[store.KeptReadings])
		}
		return err
	}); err != nil {
		k.t.Fatal(err)
	}
}

func TestHeadsMergingAndRetentionMeetInAnyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		st := fixture.Store(t)
		k := &keeping{t: r, st: st, s: open(r, st, Config{ChunkReadings: 16, FullReadings: 8, ChunkBytes: 400}), put: map[model.Offset]model.Micros{}}
		for range rapid.IntRange(5, 25).Draw(r, "steps") {
			k.step(false)
		}
		k.check()
	})
}
