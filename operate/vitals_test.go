package operate

import (
	"testing"
	"time"

	"weir/model"
)

func TestAnApplierThatStandsStillIsSeenAndOneThatIsBusyIsNot(t *testing.T) {
	t.Parallel()
	var p pulse
	now := noon
	for _, c := range []struct {
		what             string
		after            time.Duration
		applied, waiting int64
		failing          bool
		stalled          bool
	}{
		{"a quiet hour", 0, 1000, 0, false, false},
		{"a record that has just come", 10 * time.Second, 1000, 1, false, false},
		{"it still waits", 10 * time.Second, 1000, 5, false, false},
		{"and no other was applied", 20 * time.Second, 1000, 5, false, true},
		{"busy, and behind", 60 * time.Second, 1400, 88_600, false, false},
		{"the store refuses", 10 * time.Second, 1500, 88_500, true, true},
		{"caught up", 10 * time.Second, 90_000, 0, false, false},
	} {
		now = now.Add(c.after)
		if stalled := p.beat(now, model.Offset(c.applied), c.waiting, c.failing); stalled != c.stalled {
			t.Errorf("%s: stalled %v, want %v", c.what, stalled, c.stalled)
		}
	}
}

func TestAnHourThatMissesTheSameTwiceIsOutOfBalance(t *testing.T) {
	t.Parallel()
	var s standing
	for _, c := range []struct {
		missing int64
		want    int
	}{{0, 0}, {5, 0}, {6, 0}, {6, 1}, {6, 1}, {0, 0}} {
		if got := s.look([]LedgerEntry{{Tenant: "acme", Transport: "mqtt", Hour: noon, Missing: c.missing}, {Tenant: "other", Hour: noon}}); got != c.want {
			t.Errorf("%d missing: %d lines, want %d", c.missing, got, c.want)
		}
	}
}
