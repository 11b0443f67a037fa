package ingest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/model"
	"weir/series"
	"weir/store"
)

// manyMetrics is a message of a transport with readings m0, m1, …
func (w *world) manyMetrics(from, n int, partial bool) *Arrival {
	a := w.arrival(1, "")
	a.Message, a.Partial = &model.Message{Type: model.MeasurementEvent}, partial
	for i := range n {
		a.Message.Measurements = append(a.Message.Measurements, model.Reading{Metric: fmt.Sprintf("m%d", from+i), Value: float64(from + i)})
	}
	return a
}

func (w *world) deadLetters() []store.DeadLetter {
	w.t.Helper()
	var all []store.DeadLetter
	w.must(w.db.Read(context.Background(), func(tx store.Tx) (err error) {
		all, err = store.DeadLetters(tx, store.DeadLetterFilter{Limit: 100})
		return err
	}))
	return all
}

// TestASeriesLimitSetsAsideReadingByReading: of a partial message what fits is stored, what does not is counted and named, and
// the ledger balances, also when the log is replayed.
func TestASeriesLimitSetsAsideReadingByReading(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.kept = series.Config{Settings: series.Settings{SeriesPerDevice: 5}} })
	w.furnish(1)
	for _, a := range []*Arrival{
		w.manyMetrics(0, 3, true),   // all fit
		w.manyMetrics(1, 30, true),  // m1, m2 are known, m3 and m4 fit
		w.manyMetrics(40, 2, true),  // none fits
		w.manyMetrics(4, 2, false),  // not partial: all or nothing
		w.manyMetrics(60, 30, true), // none fits
	} {
		if an := w.send(a); an.Outcome != Stored {
			t.Fatalf("%+v", an)
		}
	}
	check := func(when string) {
		t.Helper()
		got := w.measurements(1)
		slices.Sort(got)
		if s := strings.Join(got, " "); s != "m0=0 m1=1 m1=1 m2=2 m2=2 m3=3 m4=4" {
			t.Errorf("%s: stored %s", when, s)
		}
		if l := w.ledger(); l[store.OutcomeStored] != 2 || l[store.OutcomeDeadLetter] != 3 || l[store.OutcomeReceived] != 5 {
			t.Errorf("%s: ledger %v", when, l)
		}
		var aside []store.DeadLetter
		for _, d := range w.deadLetters() {
			if d.Kind == store.DeadLetterReadings {
				aside = append(aside, d)
			}
		}
		if len(aside) != 1 || len(strings.Fields(aside[0].Detail)) != namesSetAside || !strings.HasPrefix(aside[0].Detail, "m5 m6 ") ||
			!strings.HasPrefix(aside[0].Summary, "26 of 30 readings") || aside[0].Reason != string(ReasonSeriesLimit) {
			t.Errorf("%s: set aside %+v", when, aside)
		}
		if n := testutil.ToFloat64(w.applier.metrics.setAside); n != 26 {
			t.Errorf("%s: %v are counted", when, n)
		}
		if v := w.verifyDisk(); len(v.Wrongs) != 0 {
			t.Errorf("%s: %s", when, wrongsOf(v))
		}
	}
	w.apply()
	check("applied")
	w.restart()
	w.apply()
	check("replayed")
	w.writeHead()
	if v := w.verifyDisk(); len(v.Wrongs) != 0 || v.Messages != 2 || v.Readings != 7 {
		t.Errorf("written: %d messages, %d readings: %s", v.Messages, v.Readings, wrongsOf(v))
	}
}
