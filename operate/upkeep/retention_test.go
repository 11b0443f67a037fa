package upkeep

import (
	"testing"
	"time"

	"weir/config"
	"weir/model"
	"weir/store"
)

func TestNothingIsRemovedByAClockThatLeaps(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) model.Nanos { return model.NanosOf(noonUTC.Add(d)) }
	const day = 24 * time.Hour
	s := steadyClock{newest: at(-time.Hour)}
	for i, step := range []struct {
		wall, mono time.Duration
		want       bool
	}{
		{0, 0, true},
		{time.Hour, time.Hour, true},
		{50 * 365 * day, 2 * time.Hour, false}, // fifty years forward
		{50*365*day + 20*time.Hour, 22 * time.Hour, false},
		{day, day, false}, // undone, and still in the rest
		{27 * time.Hour, 27 * time.Hour, true},
		{27 * time.Hour, 28 * time.Hour, true}, // a step back harms nothing
	} {
		if got := s.look(at(step.wall), step.mono); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
	long := steadyClock{newest: at(-31 * day)}
	if long.look(at(0), 0) || !long.look(at(day), day) {
		t.Error("a start long after the newest message must rest for a day")
	}
}

func TestLocationsAreKeptAsEventsUnlessTheyHaveATimeOfTheirOwn(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	if k := keeping(config.Default()); k[store.KeptReadings] != 0 || k[store.KeptLocations] != 0 || k[store.KeptAudit] != 0 || k[store.KeptDeadLetters] != 30*day || k[store.KeptAlarmEvents] != 90*day || k[store.KeptMetadata] != 7*day || k[store.KeptListening] != 7*day {
		t.Errorf("by default %v", k)
	}
	if k := keeping(config.Config{History: config.History{EventRetentionDays: 5}}); k[store.KeptReadings] != 5*day || k[store.KeptEvents] != 5*day || k[store.KeptDetections] != 5*day || k[store.KeptLocations] != 5*day {
		t.Errorf("%v", k)
	}
	if k := keeping(config.Config{History: config.History{LocationRetentionDays: 2}}); k[store.KeptReadings] != 0 || k[store.KeptLocations] != 2*day {
		t.Errorf("%v", k)
	}
}

// TestWhatPreviewsNeedGoesWithTheReadings: it is kept for its own time, and no longer than there are readings, which go by whole days.
func TestWhatPreviewsNeedGoesWithTheReadings(t *testing.T) {
	t.Parallel()
	noon := model.MicrosOf(noonUTC)
	for _, k := range store.KeptForPreviews {
		for events, want := range map[int]time.Time{0: noonUTC.AddDate(0, 0, -7), 30: noonUTC.AddDate(0, 0, -7), 5: noonUTC.Truncate(24*time.Hour).AddDate(0, 0, -5)} {
			cfg := config.Default()
			cfg.History.EventRetentionDays = events
			if got := over(k, noon, keeping(cfg)); got != model.MicrosOf(want) {
				t.Errorf("%s, readings for %d days: %s, want %s", k, events, got, want)
			}
		}
	}
}

var noonUTC = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
