package ingest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/ingest/view"
	"weir/model"
	"weir/series"
	"weir/store"
)

// ranged is a metric of 0..40.
func ranged(dataType, outOfRange string, enum ...string) model.MetricView {
	return model.MetricView{Key: "x", DataType: dataType, Min: new(0.0), Max: new(40.0), Enum: enum, OutOfRange: outOfRange}
}

func (w *world) declares(version int, rs []model.RuleView, ms ...model.MetricView) {
	w.t.Helper()
	w.change(row(model.ViewProfile, "20", model.ProfileView{V: 1, Tenant: "acme", Token: "boiler", Version: version, Metrics: ms, Rules: rs}))
}

// marked lists the readings of device 1, newest first, with their marks.
func (w *world) marked() []string {
	w.t.Helper()
	page, err := w.applier.deps.Series.Measurements(context.Background(), series.Query{TenantID: 1, Device: new(int64(1))})
	w.must(err)
	out := []string{}
	for _, e := range page.Events {
		out = append(out, fmt.Sprintf("%s=%v%s", e.Metric, e.Value, e.Mark))
	}
	return out
}

// TestAValueOutsideItsRangeIsRefusedFlaggedOrClamped: both bounds belong to the range, and the next float beyond does not. What
// the type or the enum does not allow is refused whatever becomes of the range.
func TestAValueOutsideItsRangeIsRefusedFlaggedOrClamped(t *testing.T) {
	t.Parallel()
	const refused = "refused"
	above, below := math.Nextafter(40, 99), -math.SmallestNonzeroFloat64
	for _, c := range []struct {
		m    model.MetricView
		v    float64
		want string
	}{
		{ranged("DOUBLE", ""), 40, "40"}, {ranged("DOUBLE", ""), 0, "0"}, {ranged("DOUBLE", ""), above, refused}, {ranged("DOUBLE", ""), below, refused},
		{ranged("DOUBLE", "FLAG"), 40, "40"}, {ranged("DOUBLE", "FLAG"), 0, "0"}, {ranged("DOUBLE", "FLAG"), 39.999999999999996, "39.99999999999999"},
		{ranged("DOUBLE", "FLAG"), above, "40.00000000000001FLAGGED"}, {ranged("DOUBLE", "FLAG"), below, "-4.940656458412465e-324FLAGGED"}, {ranged("DOUBLE", "FLAG"), 99, "99FLAGGED"},
		{ranged("DOUBLE", "CLAMP"), 40, "40"}, {ranged("DOUBLE", "CLAMP"), above, "40CLAMPED"}, {ranged("DOUBLE", "CLAMP"), below, "0CLAMPED"},
		{ranged("DOUBLE", "CLAMP"), -1e300, "0CLAMPED"},
		{ranged("INT", "FLAG"), 41, "41FLAGGED"}, {ranged("INT", "FLAG"), 41.5, refused}, {ranged("INT", "CLAMP"), 41, "40CLAMPED"}, {ranged("INT", "CLAMP"), 41.5, refused},
		{ranged("BOOLEAN", "FLAG"), 1, "1"}, {ranged("BOOLEAN", "FLAG"), 41, refused}, {ranged("STRING", "FLAG"), 1, refused},
		{ranged("DOUBLE", "FLAG", "1", "41"), 41, "41FLAGGED"}, {ranged("DOUBLE", "FLAG", "1", "41"), 42, refused}, {ranged("DOUBLE", "CLAMP", "0", "40", "41"), 41, "40CLAMPED"},
		{model.MetricView{Key: "x", DataType: "BOOLEAN", Max: new(0.0), OutOfRange: "FLAG"}, 1, "1FLAGGED"},
		{model.MetricView{Key: "x", DataType: "DOUBLE", Min: new(5.0), OutOfRange: "FLAG"}, 4, "4FLAGGED"},
		{model.MetricView{Key: "x", DataType: "DOUBLE", OutOfRange: "CLAMP"}, 1e9, "1000000000"},
	} {
		sent := model.Record{Kind: model.KindMessage, Message: &model.Message{Type: model.MeasurementEvent, Measurements: []model.Reading{{Metric: "other", Value: 77}, {Metric: "x", Value: c.v}}}}
		e := Event{Record: &sent, profile: &view.Profile{Metrics: map[string]*model.MetricView{"x": &c.m}}}
		got := refused
		if e.checkValues() == "" {
			if e.outside {
				e.markOutOfRange()
			}
			x := e.Record.Message.Measurements[1]
			got = fmt.Sprintf("%.16g%s", x.Value, x.Mark)
			if (x.Mark != model.InRange) != (e.OutOfRange == 1) || e.Record.Message.Measurements[0] != sent.Message.Measurements[0] {
				t.Errorf("%v of %+v: %d are out of range; %+v", c.v, c.m, e.OutOfRange, e.Record.Message.Measurements)
			}
		}
		if got != c.want {
			t.Errorf("%v with %s %s %v: %s, want %s", c.v, c.m.DataType, c.m.OutOfRange, c.m.Enum, got, c.want)
		}
		if x := sent.Message.Measurements[1]; x.Value != c.v || x.Mark != model.InRange {
			t.Errorf("the record of the log was changed: %+v", x)
		}
	}
}

// TestTheWorstReadingRaisesTheAlarm: what is kept is judged as it is kept, counted, balances, and is found with its mark after a
// replay of the log, from the rows of a checkpoint and after a newer version has another range.
func TestTheWorstReadingRaisesTheAlarm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	flag, clamp := ranged("DOUBLE", model.OutOfRangeFlag), ranged("DOUBLE", model.OutOfRangeClamp)
	flag.Key, clamp.Key = "flag", "clamp"
	hot := []model.RuleView{thresholdRule("high", "flag", "gt", 90), thresholdRule("full", "clamp", "ge", 40), thresholdRule("never", "clamp", "gt", 40)}
	w.furnish(1)
	w.declares(2, hot, flag, clamp)
	watcher := w.watch(Watch{})
	w.send(w.arrival(1, measurement("flag", 99, "")))
	w.send(w.arrival(1, measurement("flag", 20, "")))
	w.send(w.arrival(1, `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"clamp":"77","flag":"39"}}]}}`))
	w.apply()
	want := []string{"flag=39", "clamp=40CLAMPED", "flag=20", "flag=99FLAGGED"}
	holds := func(when string) {
		t.Helper()
		got := w.marked()
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
		lines, err := w.applier.Ledger().Lines(context.Background(), store.LedgerFilter{})
		w.must(err)
		if l := w.ledger(); l[store.OutcomeStored] != 3 || len(lines) != 1 || lines[0].OutOfRange != 2 || lines[0].Readings() != 4 || len(lines[0].Reasons) != 0 {
			t.Errorf("%s: ledger %v, %+v", when, l, lines)
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
	if !slices.Equal(fired, []string{"high raised 99", "high resolved 0", "full raised 40"}) {
		t.Errorf("fired: %v", fired)
	}
	m := w.applier.metrics.marked
	if f, c := testutil.ToFloat64(m.WithLabelValues("acme", "flagged")), testutil.ToFloat64(m.WithLabelValues("acme", "clamped")); f != 1 || c != 1 {
		t.Errorf("counted %v flagged, %v clamped", f, c)
	}
	seen, _ := w.seen(watcher)
	var shown []string
	for _, s := range seen {
		shown = append(shown, fmt.Sprintf("%v %d %v", s.Values, s.OutOfRange, s.Marked))
	}
	if len(shown) != 3 || shown[0] != "[flag=99] 1 [{flag FLAGGED 99}]" || shown[1] != "[flag=20] 0 []" || seen[2].OutOfRange != 1 || seen[2].Marked[0] != (Marked{"clamp", model.Clamped, 40}) {
		t.Errorf("shown: %q", shown)
	}
	w.restart()
	w.apply()
	holds("replayed")
	w.writeHead()
	holds("in rows")
	w.declares(3, hot, model.MetricView{Key: "flag", DataType: "DOUBLE"}, model.MetricView{Key: "clamp", DataType: "DOUBLE"})
	w.apply()
	w.restart()
	w.apply()
	holds("with another range")
}

// TestADeadLetterKeepsTheValueThatWasSent: it may be judged again, by another range.
func TestADeadLetterKeepsTheValueThatWasSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.kept = series.Config{Settings: series.Settings{SeriesPerDevice: 1}} })
	w.furnish(1)
	w.declares(2, nil, ranged("DOUBLE", model.OutOfRangeClamp))
	w.send(w.arrival(1, measurement("other", 1, "")))
	w.send(w.arrival(1, measurement("x", 99, "")))
	w.apply()
	var dead []store.DeadLetter
	w.must(w.db.Read(context.Background(), func(tx store.Tx) (err error) {
		dead, err = store.DeadLetters(tx, store.DeadLetterFilter{Limit: 1})
		return err
	}))
	if len(dead) != 1 || dead[0].Reason != string(ReasonSeriesLimit) || dead[0].Detail != "Measurement x=99" {
		t.Errorf("%+v", dead)
	}
}

func TestMarksAreCountedWithBoundedLabels(t *testing.T) {
	t.Parallel()
	c := newMarkCounter()
	e := func(tenant string) *Event {
		return &Event{Record: &model.Record{Account: tenant, Message: &model.Message{Measurements: []model.Reading{{Mark: model.Flagged}, {}, {Mark: model.Flagged}}}}}
	}
	for i := range 2 * maxMarkLabels {
		c.count(e(fmt.Sprint("t", i)))
	}
	c.count(e("t0"))
	if n := testutil.CollectAndCount(c); n != maxMarkLabels+2 {
		t.Errorf("%d series, want %d and those of the others", n, maxMarkLabels)
	}
	if first, other := testutil.ToFloat64(c.WithLabelValues("t0", "flagged")), testutil.ToFloat64(c.WithLabelValues(otherTenants, "flagged")); first != 4 || other != 2*maxMarkLabels {
		t.Errorf("t0 %v, others %v", first, other)
	}
}
