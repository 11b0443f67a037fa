package main

import (
	"math"
	"testing"
	"time"

	"weir/ingest"
)

// decoded reads a body's messages as the server would.
func decoded(t *testing.T, b *body, messages int) (values []float64, times []time.Time, altIDs []string) {
	t.Helper()
	for range messages {
		d, err := ingest.Decode(b.append(nil))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range d.Message.Measurements {
			at := d.Message.Occurred
			if b.perMsg > 1 {
				at = r.Time.At
			}
			values, times = append(values, r.Value), append(times, time.Unix(0, int64(at)).UTC())
		}
		altIDs = append(altIDs, d.Message.AltID)
	}
	return values, times, altIDs
}

func TestALiveBodyIsWhatItsSumsSay(t *testing.T) {
	t.Parallel()
	b := newBody(live, 1)
	if n := len(b.append(nil)); n < 110 || n > 130 {
		t.Errorf("a message has %d bytes, about 120 are meant", n)
	}
	sum, edges, over := b.sum, int64(0), false
	values, times, _ := decoded(t, b, 20_500)
	for i, v := range values {
		sum += v
		if hit := v > ruleThreshold; hit != over {
			over = hit
			edges++
		}
		if i > 0 && !times[i].After(times[i-1]) {
			t.Fatalf("reading %d has the time of the one before", i)
		}
	}
	if math.Abs(sum-b.sum) > 1e-6 || edges != b.edges || edges != 4 {
		t.Errorf("sum %v and %d edges, the body says %v and %d", sum, edges, b.sum, b.edges)
	}
}

func TestAStoredBodyFollowsItsClock(t *testing.T) {
	t.Parallel()
	base := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	b := newBody(sensor, 2)
	b.base, b.step, b.perMsg, b.altEvery = base, 10*time.Second, 50, 0
	_, times, _ := decoded(t, b, 20)
	if len(times) != 1000 || b.number != 1000 {
		t.Fatalf("%d readings, %d counted", len(times), b.number)
	}
	for i, at := range times {
		if off := at.Sub(base) - time.Duration(i)*10*time.Second; off < 0 || off >= 100*time.Millisecond {
			t.Fatalf("reading %d lies %v from its place", i, off)
		}
	}
}

func TestAThirdOfTheMessagesHasAnAltID(t *testing.T) {
	t.Parallel()
	b := newBody(noise, 3)
	b.altEvery = 3
	values, _, alts := decoded(t, b, 300)
	seen := map[string]bool{}
	for _, a := range alts {
		if a != "" {
			seen[a] = true
		}
	}
	if len(seen) != 100 {
		t.Errorf("%d different altIds in 300 messages", len(seen))
	}
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Errorf("%v is no reading", v)
		}
	}
}
