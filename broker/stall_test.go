package broker

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestStallIsNoticedWhenItsTimeIsUp: however the timer has run before, work that does not end is noticed after the limit, to the
// moment, and neither many pieces of work nor none are taken for a stall.
func TestStallIsNoticedWhenItsTimeIsUp(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*stall){
		"at once": func(*stall) {},
		"after much work": func(w *stall) {
			for range 100 {
				w.begin(time.Now())
				time.Sleep(900 * time.Millisecond)
				w.over()
			}
		},
		"after idleness": func(w *stall) {
			w.begin(time.Now())
			w.over()
			time.Sleep(time.Hour)
		},
		"with the timer under way": func(w *stall) {
			w.begin(time.Now())
			w.over()
			time.Sleep(700 * time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var ended time.Time
				w := &stall{}
				w.init(time.Second, func() { ended = time.Now() })
				before(w)
				synctest.Wait()
				if !ended.IsZero() {
					t.Fatal("noticed without a stall")
				}
				began := time.Now()
				w.begin(began)
				time.Sleep(time.Minute)
				synctest.Wait()
				if took := ended.Sub(began); took != time.Second {
					t.Errorf("noticed after %v", took)
				}
				w.stop()
			})
		})
	}
}
