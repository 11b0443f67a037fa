package actions

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// remote is a target outside that may be away. It keeps what it received, and how much of it at a time.
type remote struct {
	*world
	away     bool
	takes    time.Duration // for one order
	tried    []time.Duration
	received map[string][]time.Duration // by key, since the start of the bubble
	busy     int
	most     int
}

// serve is the target "away:1", and others that take everything at once.
func (r *remote) serve(_ context.Context, o *Order) error {
	at := time.Since(began)
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.Target == "away:1" {
		r.tried = append(r.tried, at)
		if r.away {
			return Fail(Unreachable, errTarget)
		}
		if r.busy++; r.busy > r.most {
			r.most = r.busy
		}
		r.mu.Unlock()
		time.Sleep(r.takes)
		r.mu.Lock()
		r.busy--
	}
	r.received[o.Order.Key] = append(r.received[o.Order.Key], at)
	return nil
}

func (r *remote) leave(away bool) (tried int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = away
	return len(r.tried)
}

// TestATargetThatIsAwayForADay: an order each two minutes for it, for another target of its tenant, and for one of another tenant. The others are served
// at once. The target is asked as often as its back-off says, its return is seen within one probe, and then it gets each order once, at most
// connectors.per_destination at a time. What waited longer than connectors.max_age is a dead letter, and nothing is neither.
func TestATargetThatIsAwayForADay(t *testing.T) {
	t.Parallel()
	const (
		day   = 24 * time.Hour
		every = 2 * time.Minute
		probe = 5 * time.Minute
	)
	for _, c := range []struct {
		maxAge  time.Duration
		givenUp bool
	}{{maxAge: 2 * day}, {maxAge: 0, givenUp: true}} {
		t.Run(fmt.Sprintf("max_age %s", c.maxAge), func(t *testing.T) {
			t.Parallel()
			bubble(t, Config{Settings: Settings{MaxAge: c.maxAge}}, func(w *world) {
				r := &remote{world: w, away: true, takes: time.Second, received: map[string][]time.Duration{}}
				w.set(nil, r.serve)
				var names []string
				for i := range int(day / every) {
					name := fmt.Sprint(i)
					w.order(out(1, "away:1"), name)
					names = append(names, fmt.Sprintf("key-%s-%d", name, w.n))
					for tenant, target := range map[int64]string{1: "well:1", 2: "away:1 of another"} {
						w.order(out(tenant, target), "beside")
						key, now := fmt.Sprintf("key-beside-%d", w.n), time.Since(began)
						w.after(0)
						r.mu.Lock()
						if got := r.received[key]; !slices.Equal(got, []time.Duration{now}) {
							t.Fatalf("%s of tenant %d was ordered at %s and served at %v", target, tenant, now, got)
						}
						r.mu.Unlock()
					}
					w.after(every)
				}
				// Five failures, a probe after 1, 2, 4 … 256 s, and then one in five minutes.
				tried := r.leave(false)
				if want := 5 + 9 + int((day-511*time.Second)/probe); tried != want {
					t.Errorf("tried %d times in a day, want %d", tried, want)
				}
				if s := w.drain.Standing(); len(s) != 1 || s[0].Target != "away:1" || !s[0].Since.Equal(began) || s[0].Rows != int64(len(names)) {
					t.Errorf("standing %+v", s)
				}
				back := time.Since(began)
				w.after(probe + time.Duration(len(names)/4+1)*r.takes)
				if s := w.drain.Standing(); len(s) > 0 {
					t.Errorf("it is back, and stands still: %+v", s)
				}

				r.mu.Lock()
				if first := r.tried[tried] - back; first > probe {
					t.Errorf("its return was seen after %s", first)
				}
				if r.most != 4 {
					t.Errorf("%d at a time", r.most)
				}
				r.mu.Unlock()
				letters := map[string]string{}
				for _, l := range w.letters("t1") {
					letters[l.Correlation] = l.Reason
				}
				for i, key := range names {
					got, ended := r.received[key], letters[key]
					tooOld := c.givenUp && time.Duration(i)*every+day < r.tried[tried]
					switch {
					case tooOld && (len(got) > 0 || ended != string(Exhausted)):
						t.Errorf("%s waited longer than a day: received at %v, dead letter %q", key, got, ended)
					case !tooOld && (len(got) != 1 || ended != ""):
						t.Errorf("%s was received at %v, dead letter %q", key, got, ended)
					}
				}
				if n := len(w.waiting()); n > 0 {
					t.Errorf("%d orders wait", n)
				}
				if c.givenUp != (len(letters) > 0) || len(letters) > int(probe/every)+1 {
					t.Errorf("%d are given up", len(letters))
				}
			})
		})
	}
}

// TestATargetThatRefusesAtOnceIsAskedFiveTimes: whatever waits for it, and whether it refuses the connection or answers with an error, as many attempts
// are made before it stands still as failures let it, and one at a time from then on.
func TestATargetThatRefusesAtOnceIsAskedFiveTimes(t *testing.T) {
	t.Parallel()
	for _, reason := range []Reason{Unreachable, Again} {
		for _, atOnce := range []int{1, 4, 16} {
			t.Run(fmt.Sprintf("%s, %d at a time", reason, atOnce), func(t *testing.T) {
				t.Parallel()
				bubble(t, Config{Settings: Settings{PerDestination: atOnce, Workers: 64, Attempts: 100}}, func(w *world) {
					w.stop() // so that all wait before the first attempt
					w.set(nil, func(context.Context, *Order) error { return Fail(reason, errTarget) })
					for i := range 300 {
						w.order(out(1, "dead:1"), fmt.Sprint(i))
					}
					w.start()
					w.after(0)
					if n := len(w.performed()); n != max(downAfter, atOnce) {
						t.Errorf("asked %d times before it stands still", n)
					}
					if s := w.drain.Standing(); len(s) != 1 || s[0].Rows != 300 || s[0].Failures != downAfter {
						t.Errorf("standing %+v", s)
					}
					w.after(511*time.Second - time.Millisecond) // after 1, 3, 7 … 255 s
					if n := len(w.performed()) - max(downAfter, atOnce); n != 8 {
						t.Errorf("asked %d times in the next eight minutes", n)
					}
				})
			})
		}
	}
}

// TestOrdersThatATargetNeverAnswersKeepNoOthersFromIt: a target stands still after five calls that it never answers, and the probes reach what waits
// behind them.
func TestOrdersThatATargetNeverAnswersKeepNoOthersFromIt(t *testing.T) {
	t.Parallel()
	for _, atOnce := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d at a time", atOnce), func(t *testing.T) {
			t.Parallel()
			bubble(t, Config{Settings: Settings{PerDestination: atOnce, Workers: 64, Attempts: 100}}, func(w *world) {
				w.stop()
				var taken []string
				w.set(nil, func(_ context.Context, o *Order) error {
					if strings.HasPrefix(o.Dispatch.Payload, "hangs") {
						return Fail(Unreachable, errTarget)
					}
					w.mu.Lock()
					defer w.mu.Unlock()
					taken = append(taken, o.Dispatch.Payload)
					return nil
				})
				for i := range 8 {
					w.order(out(1, "half:1"), fmt.Sprint("hangs ", i))
				}
				w.order(out(1, "half:1"), "works")
				w.start()
				w.after(16 * time.Second) // after 1, 3, 7 and 15 s
				w.mu.Lock()
				defer w.mu.Unlock()
				if !slices.Equal(taken, []string{"works"}) {
					t.Errorf("taken %q", taken)
				}
			})
		})
	}
}
