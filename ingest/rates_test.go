package ingest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/model"
	"weir/store"
)

func rateAt(s int) model.Nanos {
	return model.NanosOf(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(s) * time.Second))
}

func TestRatesCountAMessageInTheSlotOfItsReceipt(t *testing.T) {
	t.Parallel()
	r := NewRates(nil)
	r.Received("acme", "mqtt", rateAt(1))
	r.Received("acme", "mqtt", rateAt(9))
	r.Received("acme", "http", rateAt(9))
	r.Received("globex", "mqtt", rateAt(9))
	r.Received("acme", "mqtt", rateAt(12))
	r.Ended("acme", "mqtt", rateAt(1), store.OutcomeStored)
	r.Ended("acme", "mqtt", rateAt(9), store.OutcomeDeadLetter)
	r.Ended("acme", "mqtt", rateAt(12), store.OutcomeRefused)
	r.Ended("acme", "mqtt", rateAt(25), store.OutcomeStored) // nothing was received then
	var got strings.Builder
	for _, p := range r.Of("acme", rateAt(0)) {
		got.WriteString(fmt.Sprintf("%s %s %d %d %d %d; ", p.At.Format("04:05"), p.Transport, p.Received, p.Outcomes[store.OutcomeStored], p.Outcomes[store.OutcomeDeadLetter], p.Outcomes[store.OutcomeRefused]))
	}
	if want := "00:00 http 1 0 0 0; 00:00 mqtt 2 1 1 0; 00:10 mqtt 1 0 0 1; "; got.String() != want {
		t.Errorf("%s, want %s", got.String(), want)
	}
	if n := len(r.Of("acme", rateAt(10))); n != 1 {
		t.Errorf("%d points since the second slot", n)
	}
}

func TestRatesKeepAnHour(t *testing.T) {
	t.Parallel()
	r := NewRates(nil)
	for s := 0; s < 3600; s += 10 {
		r.Received("acme", "mqtt", rateAt(s))
	}
	if n := len(r.Of("acme", 0)); n != 360 || r.held != 360 {
		t.Errorf("%d points, %d counts", n, r.held)
	}
	r.Received("acme", "mqtt", rateAt(3610))
	if all := r.Of("acme", 0); len(all) != 359 || !all[0].At.Equal(rateAt(20).Time()) {
		t.Errorf("after two more slots %d points, from %s", len(all), all[0].At)
	}
	r.Ended("acme", "mqtt", rateAt(0), store.OutcomeStored) // too old
	r.Received("acme", "mqtt", rateAt(100_000))
	if n := len(r.Of("acme", 0)); n != 1 || r.held != 1 {
		t.Errorf("a day later %d points, %d counts", n, r.held)
	}
	r.Received("acme", "mqtt", rateAt(0)) // the clock was set back
	if all := r.Of("acme", 0); len(all) != 1 || !all[0].At.Equal(rateAt(0).Time()) {
		t.Errorf("after the clock was set back: %+v", all)
	}
}

func TestRatesAreBounded(t *testing.T) {
	t.Parallel()
	r := NewRates(nil)
	for i := range maxRateCounts / 2 {
		r.Received(fmt.Sprint("t", i), "mqtt", rateAt(0))
	}
	for i := range maxRateCounts + 1 {
		r.Received(fmt.Sprint("t", i), "mqtt", rateAt(10))
	}
	if r.held != maxRateCounts {
		t.Errorf("%d counts are held", r.held)
	}
	if all := r.Of("t0", 0); len(all) != 1 || !all[0].At.Equal(rateAt(10).Time()) {
		t.Errorf("the oldest slot stays: %+v", all)
	}
	if len(r.Of(fmt.Sprint("t", maxRateCounts), 0)) != 0 {
		t.Error("one more than there may be is counted")
	}
}
