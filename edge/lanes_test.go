package edge

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"weir/internal/ranges"
	"weir/internal/setting"
	"weir/internal/test/poll"
)

// TestTheRateOfBytesIsKept: a second's worth at once, and then no more than the rate.
func TestTheRateOfBytesIsKept(t *testing.T) {
	t.Parallel()
	r := throttle{rate: 1000}
	sent := 0
	for now := 10 * time.Second; now < 20*time.Second; {
		if wait := r.wait(now); wait > 0 {
			now += wait
			continue
		}
		r.spend(300, now)
		sent += 300
	}
	if sent < 10_500 || sent > 11_600 {
		t.Errorf("%d bytes in ten seconds at 1,000 a second", sent)
	}
	free := throttle{}
	if free.wait(0) != 0 {
		t.Error("without a rate it waits")
	}
}

// valueOf is the number in the body of an event of these tests.
func valueOf(t *testing.T, payload string) int {
	t.Helper()
	var e struct{ N int }
	if err := json.Unmarshal([]byte(payload), &e); err != nil {
		t.Fatal(err)
	}
	return e.N
}

// twoLanes opens a site whose backlog has begun to go up to w at a rate of bytes a second, and which has taken event(1000) since. dir and set open it again.
func (w *weirAbove) twoLanes(t *testing.T, waiting int, rate setting.Size) (s *site, dir string, set func(*Settings)) {
	t.Helper()
	dir = t.TempDir()
	set = func(s *Settings) {
		s.AgentID, s.Uplink.Username = "gw", "acme:secret"
		s.Uplink.Window, s.Uplink.Order, s.Uplink.Rate = 16, orderLive, rate
	}
	s = openSite(t, dir, refusingAddress(t), nil, set)
	for n := range waiting {
		s.take(t, event(n))
	}
	s.stop()
	s = openSite(t, dir, "127.0.0.1:"+w.Port(), nil, set)
	poll.True(t, "the backlog begins to go up", func() bool { return len(w.relayed()) > 0 })
	s.take(t, event(1000))
	return s, dir, set
}

// TestWhatComesNowGoesUpFirst while a backlog waits; everything is above once in the end, under the numbers of the log, and the ledger balances.
func TestWhatComesNowGoesUpFirst(t *testing.T) {
	t.Parallel()
	const waiting = 400
	w := startWeirAbove(t)
	s, _, _ := w.twoLanes(t, waiting, 40_000)
	position := 0
	poll.Until(t, "everything is above", func() error {
		got := w.relayed()
		if len(got) < waiting+1 || s.Status().Waiting != 0 {
			return fmt.Errorf("%d messages, %+v", len(got), s.Status())
		}
		for i, m := range got {
			if valueOf(t, m.Payload) == 1000 {
				position = i
			}
		}
		return nil
	})
	if position > waiting*3/4 {
		t.Errorf("what came last was sent as number %d of %d", position, waiting+1)
	}
	if got := len(w.relayed()); got != waiting+1 {
		t.Errorf("%d messages were sent, %d came in", got, waiting+1)
	}
	w.with(func() {
		for link, have := range w.have {
			if !reflect.DeepEqual(have, ranges.Set{{1, waiting + 1}}) {
				t.Errorf("%s: %v", link, have)
			}
		}
	})
	if got := s.outcomes(t); got["stored"] != waiting+1 || len(got) != 1 {
		t.Errorf("%v", got)
	}
}

// TestACutInTheMiddleOfTwoLanes: what the live lane has handed over is neither counted nor, as far as the state says so, sent twice after a restart.
func TestACutInTheMiddleOfTwoLanes(t *testing.T) {
	t.Parallel()
	const waiting = 300
	w := startWeirAbove(t)
	s, dir, set := w.twoLanes(t, waiting, 30_000)
	poll.True(t, "what came last is above", func() bool {
		for _, m := range w.relayed() {
			if valueOf(t, m.Payload) == 1000 {
				return true
			}
		}
		return false
	})
	s.stop()
	set2 := func(s *Settings) { set(s); s.Uplink.Rate = 0 }
	s = openSite(t, dir, "127.0.0.1:"+w.Port(), nil, set2)
	s.take(t, event(1001))
	s.drained(t)
	if got := s.outcomes(t); got["stored"] != waiting+2 || len(got) != 1 {
		t.Errorf("%v", got)
	}
	w.with(func() {
		for link, have := range w.have {
			if !reflect.DeepEqual(have, ranges.Set{{1, waiting + 2}}) {
				t.Errorf("%s: %v", link, have)
			}
		}
	})
	times := 0
	for _, m := range w.relayed() {
		if valueOf(t, m.Payload) == 1000 {
			times++
		}
	}
	if times != 1 {
		t.Errorf("the message of the live lane was sent %d times", times)
	}
}
