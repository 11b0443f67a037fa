package ranges

import (
	"math/rand/v2"
	"testing"
)

// TestSetsOfNumbers compares with a plain set.
func TestSetsOfNumbers(t *testing.T) {
	t.Parallel()
	const most = 60
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2_000 {
		var sets [2]Set
		var plain [2][most + 1]bool
		for i := range sets {
			for range rng.IntN(40) {
				n := 1 + rng.Uint64N(most)
				sets[i].Add(n, most)
				plain[i][n] = true
			}
			if err := sets[i].Check(most); err != nil {
				t.Fatal(err, sets[i])
			}
		}
		first, last := 1+rng.Uint64N(most), 1+rng.Uint64N(most)
		lacking := Lacking(first, last, sets[0], sets[1])
		if err := lacking.Check(most); err != nil {
			t.Fatal(err, lacking)
		}
		at := 1 + rng.Uint64N(most)
		below, rest := lacking.Split(at)
		count := uint64(0)
		both := Union(sets[0], sets[1])
		if err := both.Check(most); err != nil {
			t.Fatal(err, both)
		}
		for n := uint64(1); n <= most; n++ {
			if both.Has(n) != (plain[0][n] || plain[1][n]) {
				t.Fatalf("%d of the union of %v: %v", n, sets, both)
			}
			if sets[0].Has(n) != plain[0][n] {
				t.Fatalf("%d of %v", n, sets[0])
			}
			want := n >= first && n <= last && !plain[0][n] && !plain[1][n]
			if lacking.Has(n) != want || below.Has(n) != (want && n < at) || rest.Has(n) != (want && n >= at) {
				t.Fatalf("%d lacks in %v of %d to %d: %v", n, sets, first, last, lacking)
			}
			if want {
				count++
			}
		}
		if lacking.Count() != count {
			t.Fatalf("%v has %d", lacking, lacking.Count())
		}
	}
}

func TestTheOldestHoleIsClosed(t *testing.T) {
	t.Parallel()
	var s Set
	for n := uint64(1); n <= 9; n += 2 {
		s.Add(n, 3)
	}
	if len(s) != 3 || !s.Has(4) || s.Has(6) || s.Last() != 9 || (Set{}).Last() != 0 {
		t.Error(s)
	}
	for _, bad := range []Set{{{0, 1}}, {{2, 1}}, {{1, 2}, {3, 4}}, {{5, 6}, {1, 2}}, {{1, 1}, {3, 3}, {5, 5}, {7, 7}}} {
		if bad.Check(3) == nil {
			t.Error(bad)
		}
	}
}
