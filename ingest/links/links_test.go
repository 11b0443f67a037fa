package links

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// bubble is a time that runs in a synctest bubble.
func bubble() *Links {
	started := time.Now()
	return New(func() time.Duration { return time.Since(started) })
}

func TestATenantIsHeldFromARefusalUntilTenSecondsWithoutOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := bubble()
		l.Open()
		want := func(when string, hs ...Hold) {
			t.Helper()
			if got := l.Take().Holds; !slices.Equal(got, hs) {
				t.Errorf("%s: %v, want %v", when, got, hs)
			}
			l.Settle(true)
		}
		time.Sleep(time.Second)
		l.Refused("a")
		time.Sleep(9 * time.Second)
		l.Refused("a") // goes on
		done := l.Waits("b")
		want("begun", Hold{"a", 1e9, false}, Hold{"b", 10e9, false})
		time.Sleep(9 * time.Second)
		if l.Pending() {
			t.Error("something is pending")
		}
		time.Sleep(6 * time.Second)
		if !l.Pending() {
			t.Error("the end is not pending")
		}
		l.Take()
		l.Settle(false) // the batch was not stored
		want("ended, noticed late", Hold{"a", 20e9, true})
		done()
		time.Sleep(11 * time.Second)
		want("waited for 15 s", Hold{"b", 35e9, true})
		want("nothing else")
	})
}

// TestWakerAppendsOnlyWhenSomethingIsDue: what is due in a step shares a record, and without anything due there is none.
func TestWakerAppendsOnlyWhenSomethingIsDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := bubble()
		started := time.Now()
		var mu sync.Mutex
		due := []int64{10e9, 10.01e9, 10.04e9, 20e9, 40e9}
		moved := make(chan struct{}, 1)
		var at []time.Duration
		fail, waiting := false, false
		w := &Waker{Links: l, Moved: moved, Logger: slog.New(slog.DiscardHandler),
			Waiting: func() bool { mu.Lock(); defer mu.Unlock(); return waiting },
			Due: func() int64 {
				mu.Lock()
				defer mu.Unlock()
				if len(due) == 0 {
					return 0
				}
				return due[0]
			},
			Append: func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Since(started))
				if fail {
					fail = false
					return errors.New("the log refuses")
				}
				for len(due) > 0 && due[0] <= l.Now() {
					due = due[1:]
				}
				select {
				case moved <- struct{}{}:
				default:
				}
				return nil
			}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		want := func(until time.Duration, what string, times ...time.Duration) {
			t.Helper()
			time.Sleep(until - time.Since(started))
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(at, times) {
				t.Errorf("%s: appended at %v, want %v", what, at, times)
			}
			at = nil
		}
		want(5*time.Second, "the time stands still")
		l.Open() // at 5 s
		want(15*time.Second+49*time.Millisecond, "first", 15*time.Second)
		want(24*time.Second, "those of a step", 15*time.Second+50*time.Millisecond)
		mu.Lock()
		fail = true
		mu.Unlock()
		want(27*time.Second, "a log that refuses is asked again", 25*time.Second, 26*time.Second)
		l.Shut()
		want(40*time.Second, "it stands still again")
		mu.Lock()
		waiting = true
		mu.Unlock()
		l.Open() // 22 s at 40 s
		want(60*time.Second, "records are on their way")
		mu.Lock()
		waiting = false
		mu.Unlock()
		want(time.Hour, "then one, and none when nothing is due", 60*time.Second+50*time.Millisecond)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
