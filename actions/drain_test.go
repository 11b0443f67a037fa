package actions

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/model"
	"weir/store"
	"weir/store/outbox"
)

func TestOrdersOfADeviceAreNeverOvertakenAndThoseOfOthersDoNotWait(t *testing.T) {
	bubble(t, Config{}, func(w *world) {
		refused := 0
		w.set(func(o *Order) error {
			if o.DeviceID == 1 && refused < 2 {
				refused++
				return errTarget
			}
			return nil
		}, nil)
		w.order(in(1, 1), "a")
		w.order(in(1, 1), "b")
		w.order(in(1, 2), "c")
		w.after(0)
		w.want("t1//c")
		w.order(in(1, 1), "d")
		w.order(in(1, 3), "e")
		w.after(9 * time.Second)
		w.want("t1//c", "t1//e")
		w.after(2 * time.Second) // refused again: 20 s
		w.want("t1//c", "t1//e")
		w.after(18 * time.Second)
		w.want("t1//c", "t1//e")
		w.after(2 * time.Second)
		w.want("t1//c", "t1//e", "t1//a", "t1//b", "t1//d")
		if rows := w.waiting(); len(rows) > 0 || refused != 2 {
			t.Errorf("%d rows are left after %d refusals", len(rows), refused)
		}
	})
}

func TestWhatWasWrittenBeforeAnErrorIsUndoneAndWhatWasDoneIsDoneOnce(t *testing.T) {
	bubble(t, Config{}, func(w *world) {
		var refuse atomic.Bool
		refuse.Store(true)
		w.set(func(o *Order) error {
			if refuse.Load() && o.DeviceID == 2 {
				return errTarget
			}
			return nil
		}, nil)
		for i := range 3 {
			w.order(in(1, int64(i)+1), fmt.Sprint(i))
		}
		w.after(0)
		performed := func() (out []string) {
			w.must(w.db.Read(w.Context(), func(tx store.Tx) error {
				for i := range 3 {
					n, _, err := store.MetaInt(tx, fmt.Sprintf("performed:key-%d-%d", i, i+1))
					if err != nil {
						return err
					}
					out = append(out, fmt.Sprint(n))
				}
				return nil
			}))
			return out
		}
		if got := performed(); !slices.Equal(got, []string{"1", "0", "1"}) {
			t.Errorf("performed %v", got)
		}
		refuse.Store(false)
		w.stop()
		w.start()
		w.after(11 * time.Second)
		if got := performed(); !slices.Equal(got, []string{"1", "1", "1"}) {
			t.Errorf("performed %v after a restart", got)
		}
	})
}

func TestATargetWithoutRoomHoldsItsTenantsOrdersWithoutSpendingAttempts(t *testing.T) {
	bubble(t, Config{}, func(w *world) {
		var full atomic.Bool
		full.Store(true)
		w.set(func(o *Order) error {
			if full.Load() && o.TenantID == 1 {
				return Fail(Full, errTarget)
			}
			return nil
		}, nil)
		w.order(in(1, 1), "a")
		w.order(in(1, 2), "b")
		w.order(in(2, 1), "c")
		w.after(10 * time.Minute)
		w.want("t2//c")
		for _, r := range w.waiting() {
			if r.Attempts != 0 || r.Due != 0 {
				t.Errorf("%+v", r.Head)
			}
		}
		standing := w.drain.Standing()
		if len(standing) != 1 || standing[0].Tenant != "t1" || standing[0].Kind != "in" || standing[0].Rows != 2 || standing[0].Error != errTarget.Error() || !standing[0].Since.Equal(began) {
			t.Errorf("%+v", standing)
		}
		full.Store(false)
		w.after(time.Minute)
		w.want("t2//c", "t1//a", "t1//b")
		if standing := w.drain.Standing(); len(standing) > 0 {
			t.Errorf("%+v", standing)
		}
	})
}

func TestAnOrderIsTriedWithBackOffAndThenADeadLetterThatKeepsEverything(t *testing.T) {
	bubble(t, Config{}, func(w *world) {
		w.set(nil, func(context.Context, *Order) error { return errTarget })
		o := out(1, "host:443")
		o.Edge.Offset = 77
		w.order(o, "a")
		w.after(24 * time.Hour)
		var at []time.Duration
		keys := map[string]bool{}
		for _, s := range w.sendings() {
			at, keys[s.key] = append(at, s.at), true
		}
		// Five failures in a row let the target stand still: the order waits for the longer of both.
		want := []time.Duration{0, 10 * time.Second, 30 * time.Second, 70 * time.Second, 150 * time.Second, 310 * time.Second, 630 * time.Second, 1270 * time.Second}
		if !slices.Equal(at, want) || len(keys) != 1 || !keys["key-a-1"] {
			t.Errorf("tried at %v under %v", at, keys)
		}
		letters := w.letters("t1")
		if len(letters) != 1 || len(w.waiting()) > 0 {
			t.Fatalf("%+v", letters)
		}
		l := letters[0]
		if l.Kind != "connector-dispatch" || l.Reason != "exhausted" || l.Source != "out" || l.Summary != errTarget.Error() || l.Attempts != 8 || l.Subject != "d1" || l.Correlation != "key-a-1" ||
			l.Reference != "t1/p/1/r" || l.Detail != "a" || l.Offset != 0 {
			t.Errorf("%+v", l)
		}

		// It is sent again under its own key, with all attempts.
		w.set(nil, func(context.Context, *Order) error { return nil })
		again := func() error {
			return w.db.Write(w.Context(), store.Durable, func(tx store.Tx) error {
				ds, err := store.OpenDeadLetters(tx, []int64{l.ID})
				if err != nil {
					return err
				}
				return outbox.Again(tx, &ds[0], 1, w.drain.micros())
			})
		}
		w.must(again())
		if err := again(); err != outbox.ErrNoOrder {
			t.Errorf("it waits twice: %v", err)
		}
		w.drain.Wake()
		w.after(0)
		if s := w.sendings()[len(w.sendings())-1]; len(w.sendings()) != 9 || s.key != "key-a-1" || s.what != "t1/host:443/a" {
			t.Errorf("%+v", w.sendings())
		}
	})
}

func TestADeadTargetSpendsNoAttemptsAndNoWritesAndIsTriedEveryFiveMinutesAtLast(t *testing.T) {
	bubble(t, Config{}, func(w *world) {
		var dead atomic.Bool
		dead.Store(true)
		w.set(nil, func(_ context.Context, o *Order) error {
			if dead.Load() && o.Target == "dead:1" {
				return Fail(Unreachable, errTarget)
			}
			return nil
		})
		for i := range 20 {
			w.order(out(1, "dead:1"), fmt.Sprint(i))
		}
		w.after(time.Hour)
		tried := len(w.performed())
		commits := w.drain.deps.Store.Stats().Commits
		w.after(10 * time.Hour)
		if n := len(w.performed()) - tried; n < 118 || n > 122 {
			t.Errorf("tried %d times in ten hours", n)
		}
		if wrote := w.drain.deps.Store.Stats().Commits - commits; wrote != 0 {
			t.Errorf("%d commits for a target that is away", wrote)
		}
		for _, r := range w.waiting() {
			if r.Attempts != 0 || r.Due != 0 {
				t.Errorf("%+v", r.Head)
			}
		}
		// Others of the tenant do not wait with it.
		w.order(out(1, "well:1"), "x")
		w.after(0)
		if got := w.performed(); got[len(got)-1] != "t1/well:1/x" {
			t.Error(got[len(got)-3:])
		}
		dead.Store(false)
		w.after(5 * time.Minute)
		if rows := w.waiting(); len(rows) > 0 || w.ends("out", Performed) != 21 {
			t.Errorf("%d rows are left once it is back", len(rows))
		}
	})
}

func TestWhatATargetDoesNotTakeForADayIsADeadLetter(t *testing.T) {
	bubble(t, Config{}, func(w *world) {
		w.set(nil, func(context.Context, *Order) error { return Fail(Unreachable, errTarget) })
		w.order(out(1, "dead:1"), "a")
		w.after(12 * time.Hour)
		w.order(out(1, "dead:1"), "b")
		w.after(11 * time.Hour)
		if got := w.reasons("t1"); len(got) > 0 {
			t.Error(got)
		}
		w.after(2 * time.Hour)
		if got := w.reasons("t1"); !slices.Equal(got, []string{"exhausted a"}) || !strings.Contains(w.letters("t1")[0].Summary, errTarget.Error()) {
			t.Errorf("%+v", w.letters("t1"))
		}
	})
}

func TestEndsWithoutAnotherTry(t *testing.T) {
	bubble(t, Config{}, func(w *world) {
		w.set(func(o *Order) error { return Fail(Reason(o.Dispatch.Payload), errTarget) }, func(_ context.Context, o *Order) error { return Fail(Reason(o.Dispatch.Payload), errTarget) })
		for i, r := range []Reason{Unprocessable, Blocked, Unsupported, Gone} {
			w.order(in(1, int64(i)+1), string(r))
			w.order(out(2, "x:1"), string(r))
		}
		w.order(model.Order{TenantID: 3, Kind: "notification", Target: "mail", DeviceID: 1}, "n")
		late := in(4, 1)
		late.Expires = model.MicrosOf(time.Now()) - 1
		w.order(late, "late")
		late.Kind, late.Target = "out", "x:1"
		w.order(late, "late")
		w.delete(5)
		w.order(in(5, 1), "y")
		w.order(out(5, "x:1"), "y")
		w.after(time.Minute)
		for tenant, want := range map[string][]string{"t1": {"unprocessable unprocessable", "blocked blocked", "unsupported unsupported"},
			"t2": {"unprocessable unprocessable", "blocked blocked", "unsupported unsupported"}, "t3": {"unsupported n"}, "t4": {"expired late", "expired late"}, "t5": nil, "": nil} {
			if got := w.reasons(tenant); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
				t.Errorf("%s: %q, want %q", tenant, got, want)
			}
		}
		if len(w.waiting()) > 0 || w.ends("in", Gone) != 2 || w.ends("out", Gone) != 2 || w.ends(otherKind, Unsupported) != 1 {
			t.Errorf("%d wait, %d and %d are gone", len(w.waiting()), w.ends("in", Gone), w.ends("out", Gone))
		}
	})
}

func TestATargetSaysHowOftenAndWhenItIsTriedAgain(t *testing.T) {
	bubble(t, Config{}, func(w *world) {
		w.set(nil, func(_ context.Context, o *Order) error {
			return &Failure{Reason: Again, Err: errTarget, After: 3 * time.Minute, Tries: 2}
		})
		w.order(out(1, "x:1"), "a")
		w.after(time.Hour)
		if len(w.sendings()) != 2 || w.sendings()[1].at != 3*time.Minute || !slices.Equal(w.reasons("t1"), []string{"exhausted a"}) {
			t.Errorf("%+v, %q", w.sendings(), w.reasons("t1"))
		}
	})
}

func TestTheCeilingOfATenantSlowsItsOrdersAlone(t *testing.T) {
	bubble(t, Config{}, func(w *world) {
		w.gap = time.Second
		w.outbound["t2"] = time.Time{}
		for i := range 5 {
			w.order(out(1, fmt.Sprintf("x:%d", i)), "a")
		}
		w.order(in(1, 1), "inside")
		w.order(out(2, "x:1"), "b")
		w.after(2500 * time.Millisecond)
		got := slices.Sorted(slices.Values(w.performed()))
		if len(got) != 5 || !slices.Contains(got, "t1//inside") || !slices.Contains(got, "t2/x:1/b") {
			t.Error(got)
		}
		w.after(3 * time.Second)
		if n := len(w.performed()); n != 7 || w.ends("out", Performed) != 6 {
			t.Errorf("%d performed: %+v", n, w.sendings())
		}
	})
}

func TestAWaitThatBeganBeforeARestartGoesOnAfterIt(t *testing.T) {
	bubble(t, Config{}, func(w *world) {
		w.set(nil, func(context.Context, *Order) error { return errTarget })
		w.order(out(1, "x:1"), "a")
		w.after(time.Minute) // tried at 0, 10, 30 s; the next is at 70 s
		w.stop()
		w.after(time.Second)
		w.start()
		w.after(8 * time.Second)
		if len(w.sendings()) != 3 {
			t.Errorf("%+v", w.sendings())
		}
		w.after(2 * time.Second)
		if len(w.sendings()) != 4 {
			t.Errorf("%+v", w.sendings())
		}
	})
}

// A stop that comes while a target takes its time leaves the order where it was: nothing is counted, and it is sent again.
func TestAStopDuringAnAttemptCountsNothing(t *testing.T) {
	bubble(t, Config{}, func(w *world) {
		w.set(nil, func(ctx context.Context, _ *Order) error { <-ctx.Done(); return ctx.Err() })
		w.order(out(1, "x:1"), "a")
		w.after(time.Second)
		w.stop()
		if rows := w.waiting(); len(rows) != 1 || rows[0].Attempts != 0 || rows[0].Due != 0 {
			t.Errorf("%+v", rows)
		}
		w.set(nil, func(context.Context, *Order) error { return nil })
		w.start()
		w.after(0)
		w.want("t1/x:1/a", "t1/x:1/a")
	})
}
