package draws

import (
	"slices"
	"testing"
)

func TestAFifthOfTheDrawsIsMadeWhereThereAreToBeFew(t *testing.T) {
	for _, c := range []struct {
		said      string
		all, want int
		seeds     []uint64
		whole     bool
	}{
		{"", 6, 6, []uint64{0, 1, 2, 3, 4, 5}, true},
		{"all", 2, 2, []uint64{0, 1}, true},
		{"few", 24, 5, []uint64{0, 5, 10, 15, 20}, false},
		{"few", 5, 1, []uint64{0}, false},
		{"few", 6, 2, []uint64{0, 5}, false},
	} {
		t.Setenv("DRAWS", c.said)
		if got := Of(c.all); got != c.want || All() != c.whole {
			t.Errorf("DRAWS=%q: %d of %d draws, want %d; all: %v", c.said, got, c.all, c.want, All())
		}
		if got := slices.Collect(Seeds(c.all)); !slices.Equal(got, c.seeds) {
			t.Errorf("DRAWS=%q: seeds %d, want %d", c.said, got, c.seeds)
		}
		var inner *testing.T
		t.Run("needs all", func(t *testing.T) { inner = t; NeedsAll(t) })
		if inner.Skipped() == c.whole {
			t.Errorf("DRAWS=%q: skipped is %v", c.said, inner.Skipped())
		}
	}
}
