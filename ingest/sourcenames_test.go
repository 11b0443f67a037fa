package ingest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"weir/model"
	"weir/series"
	"weir/store"
)

// named is a metric of 0..40 that is sent under other names too; a value outside is flagged.
func named(names ...string) model.MetricView {
	m := ranged("DOUBLE", model.OutOfRangeFlag)
	m.Key, m.Unit, m.SourceNames = "temp", "Cel", names
	return m
}

// TestAReadingUnderASourceNameIsOneOfItsMetric: it is stored and judged under the key, with unit and range, as the version at its record says,
// and found so after a replay. What was sent stays as it was.
func TestAReadingUnderASourceNameIsOneOfItsMetric(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hot := []model.RuleView{thresholdRule("hot", "temp", "gt", 90), thresholdRule("never", "/3303/0/5700", "gt", 0)}
	w.furnish(1)
	w.declares(2, hot, named("/3303/0/5700", "Node Temperature"))
	watcher := w.watch(Watch{})
	w.send(w.arrival(1, measurement("/3303/0/5700", 99, "")))
	w.send(w.arrival(1, measurement("temp", 20, "")))
	w.send(w.arrival(1, `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"/3303/0/5700":"30","Node Temperature":"31","temp":"32","other":"7"}}]}}`))
	w.apply()
	want := []string{"other=7", "temp=20", "temp=30", "temp=31", "temp=32", "temp=99FLAGGED"}
	holds := func(when string) {
		t.Helper()
		if got := w.marked(); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
		page, err := w.applier.deps.Series.Measurements(context.Background(), series.Query{TenantID: 1, Device: new(int64(1)), Metric: "temp"})
		w.must(err)
		for _, e := range page.Events {
			if e.Unit != "Cel" || e.DataType != "DOUBLE" {
				t.Errorf("%s: %+v", when, e)
			}
		}
		if v := w.verifyDisk(); len(v.Wrongs) != 0 {
			t.Errorf("%s: %s", when, wrongsOf(v))
		}
	}
	holds("in the head")
	var fired []string
	for _, e := range w.edges {
		fired = append(fired, fmt.Sprintf("%s %s %v", e.Rule, e.Signal, e.Value))
	}
	if !slices.Equal(fired, []string{"hot raised 99", "hot resolved 0"}) {
		t.Errorf("fired: %v", fired)
	}
	seen, _ := w.seen(watcher)
	if len(seen) != 3 || !slices.Equal(seen[0].Values, []string{"/3303/0/5700=99"}) || seen[0].OutOfRange != 1 {
		t.Errorf("shown as it was sent: %+v", seen)
	}
	w.restart()
	w.apply()
	holds("replayed")
	w.writeHead()
	w.declares(3, hot, named())
	w.send(w.arrival(1, measurement("/3303/0/5700", 12, "")))
	w.apply()
	want = append([]string{"/3303/0/5700=12"}, want...)
	holds("with a version without the names")
	w.restart()
	w.apply()
	holds("replayed by both versions")
}

// TestWhatIsNotStoredKeepsTheNamesThatWereSent: a dead letter may be judged again by another version, and a reading that was set aside is
// named as its device names it. The series are those of the keys.
func TestWhatIsNotStoredKeepsTheNamesThatWereSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.kept = series.Config{Settings: series.Settings{SeriesPerDevice: 2}} })
	w.furnish(1)
	whole := model.MetricView{Key: "n", DataType: "INT", SourceNames: []string{"count"}}
	w.declares(2, nil, named("t1", "t2"), whole)
	w.send(w.arrival(1, `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"t1":"1","t2":"2"}}]}}`)) // one series
	w.send(w.arrival(1, measurement("count", 1.5, "")))
	partial := w.arrival(1, `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"a":"1","count":"3","t1":"3"}}]}}`)
	partial.Partial = true
	w.send(partial)
	w.send(w.arrival(1, measurement("count", 4, "")))
	w.apply()
	got := w.marked()
	if slices.Sort(got); !slices.Equal(got, []string{"a=1", "temp=1", "temp=2", "temp=3"}) {
		t.Errorf("stored: %v", got)
	}
	var dead []string
	w.must(w.db.Read(context.Background(), func(tx store.Tx) error {
		rows, err := store.DeadLetters(tx, store.DeadLetterFilter{Limit: 9})
		for _, d := range rows {
			dead = append(dead, d.Reason+" "+d.Detail)
		}
		return err
	}))
	slices.Sort(dead)
	if want := []string{"invalid-value Measurement count=1.5", "series_limit Measurement count=4", "series_limit count"}; !slices.Equal(dead, want) {
		t.Errorf("%q, want %q", dead, want)
	}
}
