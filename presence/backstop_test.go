package presence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/model"
)

// timeline is an instance whose wall clock, listening time and sources a test moves. States are folded as the applier does.
type timeline struct {
	t *testing.T

	mu     sync.Mutex
	step   time.Duration // by which the wall clock was set
	heard  time.Duration // listening time until since
	since  time.Time     // zero while Weir does not listen
	up     map[string]bool
	states map[int64]State
	said   []string
	reads  int
	err    error

	backstop *Backstop
	end      func()
}

func (w *timeline) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.step)
}

func (w *timeline) listening() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() {
		return int64(w.heard)
	}
	return int64(w.heard + time.Since(w.since))
}

// listen lets the listening time run, or stand still.
func (w *timeline) listen(on bool) {
	now := w.listening()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.heard, w.since = time.Duration(now), time.Now(); !on {
		w.since = time.Time{}
	}
}

func (w *timeline) set(source string, up bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.up[source] = up
}

func (w *timeline) PresenceSources(context.Context) (all []string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.states {
		if !slices.Contains(all, s.Source) {
			all = append(all, s.Source)
		}
	}
	slices.Sort(all)
	return all, w.err
}

func (w *timeline) AssertedPresence(_ context.Context, source string, after int64, limit int) (all []Asserted, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	for id := range int64(2000) {
		if s, ok := w.states[id]; ok && id > after && s.Asserted && s.Source == source && len(all) < limit {
			all = append(all, Asserted{Binding: model.Binding{Device: fmt.Sprint("d", id), DeviceID: id}, Session: s.Session, Connected: s.Active, At: s.PresenceTime})
		}
	}
	return all, w.err
}

// start begins a run of Weir, stop ends it.
func (w *timeline) start(after time.Duration) {
	w.listen(true)
	w.backstop = NewBackstop(after, BackstopDeps{Store: w, Listening: w.listening, Now: w.Now,
		Up: func(source string) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.up[source]
		},
		Emit: func(_ context.Context, source string, b model.Binding, p model.Presence) {
			w.mu.Lock()
			defer w.mu.Unlock()
			next, changed := Fold(w.states[b.DeviceID], Claim{Presence: p, Source: source})
			if !changed {
				w.t.Errorf("the demotion of %s has lost", b.Device)
			}
			w.states[b.DeviceID] = next
			w.said = append(w.said, b.Device+" "+p.State.String()+" "+p.Reason)
		}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.backstop.Run(ctx) }()
	w.end = func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	}
}

func (w *timeline) stop() {
	w.listen(false)
	w.end()
}

// expect fails unless just this was asserted since the last call.
func (w *timeline) expect(what string, want ...string) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.said, want) {
		w.t.Errorf("%s: %q, want %q", what, w.said, want)
	}
	w.said = nil
}

// goneAfter runs a test in a bubble with d1 and d2 connected by the source "far", d3 by "near", both up.
func goneAfter(t *testing.T, after time.Duration, test func(w *timeline)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		at := model.NanosOf(time.Now()).Micros()
		of := func(source string) State {
			return State{Active: true, Asserted: true, Source: source, Session: 7, PresenceTime: at, LastConnect: at}
		}
		w := &timeline{t: t, up: map[string]bool{"far": true, "near": true}, states: map[int64]State{1: of("far"), 2: of("far"), 3: of("near")}}
		w.start(after)
		defer w.stop()
		test(w)
	})
}

const quarter = 15 * time.Minute

// demotions are those of the devices behind the source "far".
var demotions = []string{"d1 DEMOTED source-gone", "d2 DEMOTED source-gone"}

func TestDevicesOfASourceThatIsGoneAreDemoted(t *testing.T) {
	t.Parallel()
	goneAfter(t, quarter, func(w *timeline) {
		time.Sleep(time.Hour)
		w.expect("all are up")
		w.set("far", false)
		time.Sleep(quarter - time.Second)
		w.expect("not yet")
		if n := testutil.ToFloat64(w.backstop.gone); n != 1 {
			t.Errorf("%v sources are gone", n)
		}
		time.Sleep(time.Second + 2*backstopCheck)
		w.expect("gone", demotions...)
		if s := w.states[1]; s.Asserted || !s.Active {
			t.Errorf("the state is %+v: it is judged by its activity from here on", s)
		}
		time.Sleep(time.Hour)
		w.expect("once")
		if w.reads > 3 {
			t.Errorf("what it asserts was read %d times", w.reads)
		}
		if n := testutil.ToFloat64(w.backstop.gone); n != 0 {
			t.Errorf("%v sources assert something and are gone", n)
		}
	})
}

func TestALinkThatComesBackInTimeLosesNothing(t *testing.T) {
	t.Parallel()
	goneAfter(t, quarter, func(w *timeline) {
		for range 5 {
			w.set("far", false)
			time.Sleep(quarter - time.Minute)
			w.set("far", true)
			time.Sleep(time.Minute)
		}
		w.expect("cut and back")
		w.set("far", false)
		time.Sleep(quarter + 2*backstopCheck)
		w.expect("for good", demotions...)
		w.mu.Lock() // and asserted by its source again
		next, _ := Fold(w.states[1], Claim{Presence: model.Presence{State: model.Connected, Session: 8, Occurred: model.NanosOf(time.Now())}, Source: "far"})
		w.states[1], w.up["far"] = next, true
		w.mu.Unlock()
		time.Sleep(time.Hour)
		w.expect("back")
		w.set("far", false)
		time.Sleep(quarter + 2*backstopCheck)
		w.expect("gone again", demotions[0])
	})
}

// While Weir is down nobody listens: the time does not count, and every source has the whole time after the start.
func TestAStopOfWeirDoesNotCount(t *testing.T) {
	t.Parallel()
	goneAfter(t, quarter, func(w *timeline) {
		w.set("far", false)
		time.Sleep(10 * time.Minute)
		w.stop()
		time.Sleep(48 * time.Hour)
		w.start(quarter)
		time.Sleep(quarter - time.Second)
		w.expect("after the start")
		time.Sleep(time.Second + 2*backstopCheck)
		w.expect("still gone", demotions...)
	})
}

func TestTimeInWhichWeirDoesNotListenDoesNotCount(t *testing.T) {
	t.Parallel()
	goneAfter(t, quarter, func(w *timeline) {
		w.set("far", false)
		time.Sleep(10 * time.Minute)
		w.listen(false)
		time.Sleep(10 * time.Hour)
		w.expect("the transports are shut")
		w.listen(true)
		time.Sleep(4 * time.Minute)
		w.expect("14 minutes")
		time.Sleep(time.Minute + 2*backstopCheck)
		w.expect("gone", demotions...)
	})
}

// A step of the clock brings the end neither nearer nor puts it off, and a demotion wins while the clock is behind what is stored.
func TestAStepOfTheClockChangesNothing(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{-400 * 24 * time.Hour, 400 * 24 * time.Hour} {
		goneAfter(t, quarter, func(w *timeline) {
			w.set("far", false)
			time.Sleep(10 * time.Minute)
			w.mu.Lock()
			w.step = step
			w.mu.Unlock()
			time.Sleep(4 * time.Minute)
			w.expect("not yet")
			time.Sleep(time.Minute + 2*backstopCheck)
			w.expect("gone", demotions...)
		})
	}
}

func TestABackstopOf0NeverDemotes(t *testing.T) {
	t.Parallel()
	goneAfter(t, 0, func(w *timeline) {
		w.set("far", false)
		time.Sleep(1000 * time.Hour)
		w.expect("never")
		w.backstop.Set(quarter)
		time.Sleep(2 * backstopCheck)
		w.expect("set while it runs", demotions...)
	})
}

// A source that is back while its devices are being demoted keeps the rest.
func TestASourceThatIsBackInTheMiddleKeepsTheRest(t *testing.T) {
	t.Parallel()
	goneAfter(t, quarter, func(w *timeline) {
		w.mu.Lock()
		for id := int64(10); id < 1500; id++ {
			w.states[id] = w.states[1]
		}
		w.mu.Unlock()
		time.Sleep(time.Second)
		w.set("far", false)
		time.Sleep(quarter + backstopCheck + 10*time.Second) // 25 a second
		w.set("far", true)
		time.Sleep(time.Hour)
		w.mu.Lock()
		defer w.mu.Unlock()
		if n := len(w.said); n < 200 || n > 1000 {
			t.Errorf("%d devices were demoted", n)
		}
	})
}

func TestABackstopReadsAgainWhatItCouldNotRead(t *testing.T) {
	t.Parallel()
	goneAfter(t, quarter, func(w *timeline) {
		w.set("far", false)
		time.Sleep(time.Minute)
		w.mu.Lock()
		w.err = errors.New("broken")
		w.mu.Unlock()
		time.Sleep(time.Hour)
		w.expect("nothing is known")
		if n := testutil.ToFloat64(w.backstop.readErrors); n < 100 {
			t.Errorf("%v failures", n)
		}
		w.mu.Lock()
		w.err = nil
		w.mu.Unlock()
		time.Sleep(2 * backstopCheck)
		w.expect("the time has counted", demotions...)
	})
}

// A source that asserted nothing for a while has the whole time again.
func TestTheTimeOfASourceThatAssertsNothingIsForgotten(t *testing.T) {
	t.Parallel()
	goneAfter(t, quarter, func(w *timeline) {
		move := func(source string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for id := range int64(3) {
				if s, ok := w.states[id]; ok {
					s.Source = source
					w.states[id] = s
				}
			}
		}
		w.set("far", false)
		time.Sleep(quarter - 2*backstopCheck)
		move("near")
		time.Sleep(2 * backstopCheck)
		move("far")
		time.Sleep(quarter - 2*backstopCheck)
		w.expect("not yet")
		time.Sleep(4 * backstopCheck)
		w.expect("gone", demotions...)
	})
}
