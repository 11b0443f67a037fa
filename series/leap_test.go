package series

import (
	"math/rand/v2"
	"slices"
	"testing"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

func TestAPageFarDownIsTheSameHoweverTheWalkGetsThere(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{ChunkReadings: 256, FullReadings: 100})
	r := rand.New(rand.NewPCG(1, 2))
	type key struct {
		at     model.Micros
		offset model.Offset
	}
	var want []key
	// Some devices report often, some seldom, one sends what is three days old, another what is far away; part of it is in
	// rows and part in memory.
	for i := range 60_000 {
		device := int64(1 + min(r.IntN(40), r.IntN(40)))
		at := day0 + model.Micros(i)*1_000_000 + model.Micros(r.IntN(5_000_000))
		switch {
		case device == 3:
			at -= 3 * microsPerDay
		case device == 4 && r.IntN(50) == 0:
			at = model.Micros(r.Int64N(2)-1) * 1000 * microsPerDay
		}
		o := model.Offset(i + 1)
		put(t, s, reading(o, device, "temp", at, 1))
		want = append(want, key{at, o})
		if i%17_000 == 16_999 {
			if err := writeHead(s, o); err != nil {
				t.Fatal(err)
			}
		}
	}
	slices.SortFunc(want, func(a, b key) int { return place{b.at, b.offset, 0}.compare(place{a.at, a.offset, 0}) })
	for _, number := range []int{1, 99, 101, 102, 250, 399, 401, 500, 555, 599, 600} {
		for _, end := range []*model.Micros{nil, &want[5000].at} {
			from := (number - 1) * 100
			if end != nil {
				from += slices.IndexFunc(want, func(k key) bool { return k.at <= *end })
			}
			res, err := s.Measurements(t.Context(), Query{TenantID: 1, End: end, Page: Page{Number: number}})
			if err != nil {
				t.Fatal(err)
			}
			page := want[min(from, len(want)):min(from+100, len(want))]
			if len(res.Events) != len(page) {
				t.Fatalf("page %d has %d events, want %d", number, len(res.Events), len(page))
			}
			for i, e := range res.Events {
				if e.Occurred != page[i].at || e.Offset != page[i].offset {
					t.Fatalf("page %d, event %d: %v %d, want %v %d", number, i, e.Occurred, e.Offset, page[i].at, page[i].offset)
				}
			}
		}
	}
}

func TestALeapLeavesLittleToWalk(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{})
	f := newFleet(100, 10_000_000)
	for n := range 1000 {
		f.round(t, s)
		if n%360 == 359 {
			if err := writeHead(s, f.offset); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, skip := range []int64{20_000, 50_000, 99_000} {
		left := leftToWalk(t, s, skip)
		if left > skip/20 {
			t.Errorf("of %d events %d are left to walk over", skip, left)
		}
	}
}

func leftToWalk(t *testing.T, s *Series, skip int64) (left int64) {
	t.Helper()
	sel, err := (&Query{TenantID: 1}).selection()
	if err != nil {
		t.Fatal(err)
	}
	err = s.read(t.Context(), func(tx store.Tx, snap snapshot) error {
		pieces, err := s.capture(snap, sel)
		if err != nil {
			return err
		}
		w := &walk{ctx: t.Context(), tx: tx, gen: snap.gen, q: sel}
		_, left, err = w.leap(pieces, skip)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return left
}
