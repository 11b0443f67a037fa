package ingest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"weir/model"
	"weir/store"
)

// removeBefore removes a kind in steps of so many rows and returns how many steps found something.
func (w *world) removeBefore(k store.Retained, t time.Time, limit int) (steps int) {
	w.t.Helper()
	for {
		var step store.Removal
		w.must(w.db.Write(context.Background(), store.Results, func(tx store.Tx) (err error) {
			step, err = store.RemoveBefore(tx, k, model.MicrosOf(t), limit)
			return err
		}))
		if step.Rows > int64(limit) {
			w.t.Fatalf("%s: a step of at most %d removed %d rows", k, limit, step.Rows)
		}
		if step.Rows == 0 {
			return steps
		}
		steps++
	}
}

func (w *world) removed() (out map[store.Retained]int64) {
	w.t.Helper()
	w.must(w.db.Read(context.Background(), func(tx store.Tx) (err error) { out, err = store.Removed(tx); return err }))
	return out
}

// aged is a world with 40 days of history: a reading, a location, an alert, a detection and a dead letter a day.
func aged(t *testing.T) *world {
	w := newWorld(t)
	w.furnish(2, thresholdRule("hot", "temp", "gt", 60))
	for day := range 40 {
		w.clock.advance(24 * time.Hour)
		w.send(w.arrival(1, temp(float64(day))))
		w.send(w.arrival(2, temp(float64(50+20*(day%2)))))
		w.send(w.arrival(1, `{"eventType":"Location","payload":{"entries":[{"latitude":"47.1","longitude":"8.5"}]}}`))
		w.send(w.arrival(1, `{"eventType":"Alert","payload":{"entries":[{"type":"door","level":2}]}}`))
		w.send(w.arrival(1, temp(900)))
	}
	w.apply()
	return w
}

func TestHistoryGoesInStepsWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	w := aged(t)
	w.finishHead(w.applier)
	tenDays := w.clock.stamp().Wall.Time().Add(-10*24*time.Hour + time.Second)
	before := dump(t, w.db)
	for _, k := range store.AllKept[:5] {
		if steps := w.removeBefore(k, tenDays, 7); steps < 2 {
			t.Errorf("%s went in %d steps", k, steps)
		}
	}
	if got, want := w.removed(), (map[store.Retained]int64{store.KeptReadings: 60, store.KeptEvents: 30, store.KeptLocations: 30, store.KeptDetections: 29,
		store.KeptDeadLetters: 30}); !maps.Equal(got, want) {
		// Thirty days are over; the rule fired on the second and changed on each one after it.
		t.Errorf("removed %v, want %v", got, want)
	}
	if ms := w.measurements(1); len(ms) != 10 || ms[0] != "temp=39" || ms[9] != "temp=30" {
		t.Errorf("left are %v", ms)
	}
	after := dump(t, w.db)
	for _, table := range []string{"ledger", "latest_measurements", "latest_locations", "rule_fires", "rule_pages", "series"} {
		if fmt.Sprint(after[table]) != fmt.Sprint(before[table]) {
			t.Errorf("%s was touched", table)
		}
	}
}

func TestWhatAReplayMayMeetAgainIsNotRemoved(t *testing.T) {
	t.Parallel()
	w := aged(t)
	now := w.clock.stamp().Wall.Time()
	for _, k := range []store.Retained{store.KeptReadings, store.KeptEvents, store.KeptLocations, store.KeptDetections} {
		w.removeBefore(k, now, 1000)
	}
	// What heads have passed is gone, the rest is there: a replay changes nothing.
	want := dump(t, w.db)
	if len(want["row_events"]) == 0 || len(want["edge_blocks"]) == 0 {
		t.Fatal("rows that a replay meets again were removed")
	}
	w.restart()
	w.apply()
	got := dump(t, w.db)
	for _, table := range []string{"row_events", "edge_blocks", "rule_fires"} {
		if fmt.Sprint(got[table]) != fmt.Sprint(want[table]) {
			t.Errorf("the replay changed %s: %d rows, want %d", table, len(got[table]), len(want[table]))
		}
	}
}

func TestNothingIsRemovedOfARowThatReachesIntoTheTimeThatIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(1)
	for i := range 5 {
		w.send(w.arrival(1, temp(float64(i))))
		w.clock.advance(time.Minute)
	}
	w.apply()
	w.finishHead(w.applier)
	w.removeBefore(store.KeptReadings, noon.Add(3*time.Minute), 100)
	if n := len(w.measurements(1)); n != 5 {
		t.Errorf("%d readings are left of a row that is half over, want 5", n)
	}
	w.removeBefore(store.KeptReadings, noon.Add(4*time.Minute+time.Second), 100)
	if n := len(w.measurements(1)); n != 0 {
		t.Errorf("%d readings are left", n)
	}
}

// TestWhatTheRegistrySaidBeforeGoes: rows that are effective stay, however old they are, and so do those that ended after the
// checkpoint, since a start reads the metadata as of there.
func TestWhatTheRegistrySaidBeforeGoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.cfg.HeadAge = 1000 * time.Hour })
	w.furnish(2)
	rows := func() (ended, effective int) {
		for _, r := range tableRows(t, w.db, "view_rows", `SELECT kind, key, to_offset FROM view_rows WHERE kind <> 'control-sequence'`) {
			if ended++; strings.Contains(r, "to_offset=<nil>") {
				ended, effective = ended-1, effective+1
			}
		}
		return ended, effective
	}
	const days = 20
	for day := range days {
		w.clock.advance(24 * time.Hour)
		w.change(anchored(1, model.Anchor{Type: "area", Token: fmt.Sprint("a", day)}))
		w.apply()
		if day == days-4 {
			w.finishHead(w.applier)
		}
	}
	now := w.clock.stamp().Wall.Time()
	w.removeBefore(store.KeptMetadata, now.Add(-10*24*time.Hour+time.Second), 3)
	if ended, effective := rows(); ended != 10 || effective != 6 { // those of the tenant, type, profile, devices and anchors
		t.Errorf("%d rows that ended, %d effective", ended, effective)
	}
	w.removeBefore(store.KeptMetadata, now.Add(time.Hour), 100)
	if ended, _ := rows(); ended != 3 {
		t.Errorf("%d rows that ended after the checkpoint are left, want 3", ended)
	}
	w.finishHead(w.applier)
	excess := func(bytes int64) (n int) {
		w.must(w.db.Read(context.Background(), func(tx store.Tx) error {
			e, err := store.FindExcess(tx, store.KeptMetadata, bytes, 100)
			n = e.Rows()
			return err
		}))
		return n
	}
	for bytes, some := range map[int64]bool{0: true, 300: true, 1 << 20: false} {
		if n := excess(bytes); n > 0 != some {
			t.Errorf("%d bytes may stay: %d rows are too many", bytes, n)
		}
	}
	if all, some := excess(0), excess(300); all <= some {
		t.Errorf("%d of all rows are too many, and %d with room for two", all, some)
	}
	w.restart()
	w.send(w.arrival(1, temp(1)))
	w.apply()
	if got := w.borne(w.applier, 1, seriesAll); len(got) != 1 || got[0] != "2: area/a19" {
		t.Errorf("a reading bears %q", got)
	}
}
