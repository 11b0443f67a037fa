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
		what          string
		after         time.Duration
		applied, last model.Offset
		failing       bool
		pending       int64
		lag           time.Duration
		stalled       bool
	}{
		{"a quiet hour", 0, 1000, 1000, false, 0, 0, false},
		{"a record that has just come", 10 * time.Second, 1000, 1001, false, 1, 0, false},
		{"it still waits", 10 * time.Second, 1000, 1005, false, 5, 10 * time.Second, false},
		{"and no other was applied", 20 * time.Second, 1000, 1005, false, 5, 30 * time.Second, true},
		{"busy, and behind", 60 * time.Second, 1400, 90_000, false, 88_600, 90 * time.Second, false},
		{"the store refuses", 10 * time.Second, 1500, 90_000, true, 88_500, 100 * time.Second, true},
		{"caught up", 10 * time.Second, 90_000, 90_000, false, 0, 0, false},
	} {
		now = now.Add(c.after)
		pending, lag, stalled := p.beat(now, c.applied, c.last, model.NanosOf(now.Add(-40*time.Minute)), c.failing)
		if pending != c.pending || lag != c.lag || stalled != c.stalled {
			t.Errorf("%s: %d pending, lag %s, stalled %v; want %d, %s, %v", c.what, pending, lag, stalled, c.pending, c.lag, c.stalled)
		}
	}
	p.beat(now.Add(time.Second), 90_000, 90_001, 0, false)
	if _, lag, _ := p.beat(now.Add(20*time.Second), 95_000, 99_000, model.NanosOf(now.Add(19*time.Second)), false); lag != time.Second {
		t.Errorf("always something on its way, and one second behind: lag %s", lag)
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
