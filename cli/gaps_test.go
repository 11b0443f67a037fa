package cli

import (
	"strings"
	"testing"
	"time"

	"weir/operate"
)

// After many unclean stops the newest gaps are printed, and how many there are besides.
func TestGapsAreSummarised(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		gaps, lines int
		all         bool
		last        string
	}{
		{0, 0, false, ""}, {3, 3, false, "gap: "}, {4, 4, false, "and 1 gap before; weir ledger --all shows them\n"},
		{94, 4, false, "and 91 gaps before; weir ledger --all shows them\n"}, {94, 94, true, "gap: "},
	} {
		r := &operate.LedgerReport{}
		for i := range c.gaps {
			r.Gaps = append(r.Gaps, operate.Gap{From: at.Add(time.Duration(-i) * time.Hour), To: at})
		}
		var b strings.Builder
		printGaps(&b, r.Gaps, c.all)
		lines := strings.SplitAfter(b.String(), "\n")
		lines = lines[:len(lines)-1]
		if len(lines) != c.lines || c.lines > 0 && (!strings.HasPrefix(lines[len(lines)-1], c.last) || !strings.Contains(lines[0], "2026-03-01T00:00:00Z")) {
			t.Errorf("%d gaps, all %v: %q", c.gaps, c.all, lines)
		}
	}
}
