package actions

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/model"
	"weir/store"
	"weir/store/outbox"
)

// failingStore is a store that, while it is broken, refuses functions of the drain.
type failingStore struct {
	store.Store
	broken atomic.Bool
}

func (s *failingStore) WriteAll(ctx context.Context, d store.Durability, fns ...func(store.Tx) error) []error {
	if !s.broken.Load() {
		return s.Store.WriteAll(ctx, d, fns...)
	}
	errs := make([]error, len(fns))
	for i := range errs {
		errs[i] = store.ErrBusy
	}
	return errs
}

// onFailingStore restarts the drain on a store that can be broken.
func (w *world) onFailingStore() *failingStore {
	w.stop()
	st := &failingStore{Store: w.db}
	w.db = st
	w.start()
	return st
}

func alone(tenant int64) model.Order {
	return model.Order{TenantID: tenant, Kind: "alone", Target: "ops", DeviceID: 1}
}

// gathering performs all that waits for a target together with the order, and keeps what each attempt performed.
func (w *world) gathering(attempts *[][]string, verdict func(o *Order) error) func(context.Context, *Order) error {
	return func(_ context.Context, o *Order) error {
		var names []string
		if err := w.db.Read(w.Context(), func(tx store.Tx) error {
			heads, err := outbox.Next(tx, o.TenantID, o.Kind, o.Target, 0, o.Synced, 1000)
			for _, h := range heads {
				row, err := outbox.Read(tx, h.ID)
				if err != nil {
					return err
				}
				names = append(names, row.Dispatch.Payload)
				if h.ID != o.ID {
					o.With = append(o.With, h.ID)
				}
			}
			return err
		}); err != nil {
			return err
		}
		w.mu.Lock()
		*attempts = append(*attempts, names)
		w.mu.Unlock()
		return verdict(o)
	}
}

func (w *world) wantAttempts(got *[][]string, want ...string) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	var texts []string
	for _, a := range *got {
		texts = append(texts, fmt.Sprint(a))
	}
	if !slices.Equal(texts, want) {
		w.Errorf("attempts %q, want %q", texts, want)
	}
}

// wantNothingLeft says that nothing waits, in the store and in memory.
func (w *world) wantNothingLeft() {
	w.Helper()
	w.drain.Wake()
	synctest.Wait()
	if rows := w.waiting(); len(rows) > 0 {
		w.Errorf("%d rows are left", len(rows))
	}
	if n := testutil.ToFloat64(w.drain.m.rows); n != 0 {
		w.Errorf("%v rows are counted that are gone", n)
	}
	if n := testutil.ToFloat64(w.drain.m.ending); n != 0 {
		w.Errorf("%v ends are still to be stored", n)
	}
}

func TestOrdersThatArePerformedTogetherEndTogether(t *testing.T) {
	bubble(t, Config{}, func(w *world) {
		var attempts [][]string
		proceed := make(chan struct{})
		w.set(nil, w.gathering(&attempts, func(*Order) error { <-proceed; return nil }))
		w.order(alone(1), "a")
		w.after(0)
		for _, name := range []string{"b", "c", "d"} { // while the first is at the target
			w.order(alone(1), name)
		}
		w.after(time.Second)
		w.wantAttempts(&attempts, "[a]")
		proceed <- struct{}{}
		w.after(0)
		w.wantAttempts(&attempts, "[a]", "[b c d]")
		rows := w.waiting()
		w.must(w.db.Write(w.Context(), store.Results, func(tx store.Tx) error { // one of them goes meanwhile
			_, err := outbox.Remove(tx, rows[1].ID)
			return err
		}))
		proceed <- struct{}{}
		w.after(0)
		if n := w.ends("alone", Performed); n != 3 || w.ends("alone", Gone) != 0 || len(w.waiting()) != 0 {
			t.Errorf("%d performed, %d gone, %d wait", n, w.ends("alone", Gone), len(w.waiting()))
		}
		w.wantAttempts(&attempts, "[a]", "[b c d]")
		w.after(time.Minute)
		w.wantNothingLeft()
		close(proceed)
		w.order(alone(1), "e")
		w.after(0)
		w.wantAttempts(&attempts, "[a]", "[b c d]", "[e]")
	})
}

// TestWhatIsTriedAgainTogetherCountsForEach: each order has its own attempts, and the drain knows of none of them twice.
func TestWhatIsTriedAgainTogetherCountsForEach(t *testing.T) {
	bubble(t, Config{}, func(w *world) {
		var attempts [][]string
		refused := 0
		proceed := make(chan struct{})
		w.set(nil, w.gathering(&attempts, func(*Order) error {
			<-proceed
			if refused++; refused <= 3 {
				return errTarget
			}
			return nil
		}))
		w.order(alone(1), "a")
		w.after(0)
		w.order(alone(1), "b")
		close(proceed)
		w.after(0)
		w.wantAttempts(&attempts, "[a]", "[a b]") // a is tried again with b, whose turn it is
		for i, want := range []int{2, 1} {
			if r := w.waiting()[i]; r.Attempts != want || r.Due == 0 || r.Error != errTarget.Error() {
				t.Errorf("%s has %d attempts, want %d: %+v", r.Dispatch.Payload, r.Attempts, want, r.Head)
			}
		}
		w.after(10 * time.Second) // that of b, which was tried once; a is due in 20 s
		w.wantAttempts(&attempts, "[a]", "[a b]", "[a b]")
		w.after(time.Minute)
		w.wantAttempts(&attempts, "[a]", "[a b]", "[a b]", "[a b]")
		if n := w.ends("alone", Performed); n != 2 {
			t.Errorf("%d performed", n)
		}
		w.wantNothingLeft()
	})
}

// TestNothingIsSentAgainWhileItsEndIsNotStored: while the store fails no second attempt at the target of a kind Alone begins, and what was sent
// together ends once the store takes it.
func TestNothingIsSentAgainWhileItsEndIsNotStored(t *testing.T) {
	bubble(t, Config{}, func(w *world) {
		st := w.onFailingStore()
		var attempts [][]string
		proceed := make(chan struct{}, 10)
		w.set(nil, w.gathering(&attempts, func(*Order) error { <-proceed; return nil }))
		w.order(alone(1), "a")
		w.after(0)
		w.order(alone(1), "b")
		w.order(alone(1), "c")
		proceed <- struct{}{}
		w.after(0)
		st.broken.Store(true)
		proceed <- struct{}{}
		w.order(alone(1), "d")
		w.after(time.Hour)
		w.wantAttempts(&attempts, "[a]", "[b c]")
		if rows := w.waiting(); len(rows) != 3 || rows[0].Attempts != 0 {
			t.Errorf("%+v", rows)
		}
		if n := testutil.ToFloat64(w.drain.m.ending); n != 1 {
			t.Errorf("%v ends are to be stored", n)
		}
		if n := testutil.ToFloat64(w.drain.m.unrecorded); n < 3000 || n > 3700 {
			t.Errorf("%v failed writes in an hour", n)
		}
		proceed <- struct{}{}
		st.broken.Store(false)
		w.after(2 * time.Second)
		w.wantAttempts(&attempts, "[a]", "[b c]", "[d]")
		if n := w.ends("alone", Performed); n != 4 {
			t.Errorf("%d performed", n)
		}
		w.wantNothingLeft()
	})
}

func TestATurnThatComesLaterIsNoFailure(t *testing.T) {
	bubble(t, Config{}, func(w *world) {
		w.set(nil, func(context.Context, *Order) error {
			if time.Since(began) < 10*time.Minute {
				return &Failure{Reason: Later, Err: errTarget, After: time.Minute}
			}
			return nil
		})
		for _, name := range []string{"a", "b", "c"} {
			w.order(alone(1), name)
		}
		w.after(10*time.Minute - time.Second)
		if n := len(w.performed()); n != 10 { // one asks for all of them
			t.Errorf("asked %d times", n)
		}
		for i, s := range w.sendings() {
			if s.what != "t1/ops/a" || s.at != time.Duration(i)*time.Minute {
				t.Errorf("%+v", s)
			}
		}
		for _, r := range w.waiting() {
			if r.Attempts != 0 || r.Due != 0 || r.Error != "" {
				t.Errorf("%+v", r)
			}
		}
		if s := w.drain.Standing(); len(s) > 0 || testutil.ToFloat64(w.drain.m.again) != 0 {
			t.Errorf("%+v", s)
		}
		w.after(2 * time.Second)
		if n := w.ends("alone", Performed); n != 3 {
			t.Errorf("%d performed", n)
		}
		w.wantNothingLeft()
	})
}

// TestTheNextAttemptPerformsTheRest: what a target has taken of an order is not in its next attempt, nor in that of its dead letter.
func TestTheNextAttemptPerformsTheRest(t *testing.T) {
	for _, last := range []Reason{Again, Unprocessable} {
		t.Run(string(last), func(t *testing.T) {
			bubble(t, Config{}, func(w *world) {
				var attempts [][]string
				tried := 0
				proceed := make(chan struct{})
				w.set(nil, w.gathering(&attempts, func(o *Order) error {
					<-proceed
					if tried++; tried == 1 {
						return nil
					}
					o.Rewrite = func(d *model.Dispatch) { d.Payload += "'" }
					if tried > 2 {
						return &Failure{Reason: last, Err: errTarget, Tries: 2}
					}
					return errTarget
				}))
				w.order(alone(1), "x")
				w.after(0)
				w.order(alone(1), "a")
				w.order(alone(1), "b")
				close(proceed)
				w.after(time.Second)
				w.wantAttempts(&attempts, "[x]", "[a b]")
				w.after(time.Hour)
				w.wantAttempts(&attempts, "[x]", "[a b]", "[a' b']")
				var details []string
				for _, l := range w.letters("t1") {
					details = append(details, l.Detail)
				}
				if !slices.Equal(details, []string{"a''", "b''"}) {
					t.Errorf("dead letters of %q", details)
				}
				w.wantNothingLeft()
			})
		})
	}
}

// TestEndsThatCannotBeStoredHoldAttemptsBack: while the store takes no ends, at most maxUnrecorded are kept and the attempts that were under way;
// once it does, each order was performed once.
func TestEndsThatCannotBeStoredHoldAttemptsBack(t *testing.T) {
	bubble(t, Config{Settings: Settings{Workers: 16, PerDestination: 8}}, func(w *world) {
		st := w.onFailingStore()
		const all = maxUnrecorded + 300
		var open atomic.Bool
		w.set(nil, func(ctx context.Context, _ *Order) error {
			for !open.Load() {
				select {
				case <-ctx.Done():
					return Fail(Unreachable, ctx.Err())
				case <-time.After(100 * time.Millisecond):
				}
			}
			return nil
		})
		w.stop()
		for i := range all {
			w.order(out(int64(i%4)+1, fmt.Sprint("x:", i%8)), fmt.Sprint(i))
		}
		w.start()
		w.after(time.Second) // all of them survive a power cut, and the first are at their targets
		begun := len(w.performed())
		st.broken.Store(true)
		open.Store(true)
		w.after(10 * time.Minute)
		if n := len(w.performed()); n < maxUnrecorded || n > maxUnrecorded+16 || begun > 16 {
			t.Errorf("%d attempts without a stored end, %d of them before", n, begun)
		}
		if n := testutil.ToFloat64(w.drain.m.ending); n < maxUnrecorded || n > maxUnrecorded+16 {
			t.Errorf("%v ends are to be stored", n)
		}
		if n := len(w.performed()); w.ends("out", Performed) != 0 {
			t.Errorf("%d of %d ended", w.ends("out", Performed), n)
		}
		st.broken.Store(false)
		w.after(time.Minute)
		if n := len(w.performed()); n != all || w.ends("out", Performed) != all {
			t.Errorf("%d attempts at %d orders, %d ended", n, all, w.ends("out", Performed))
		}
		w.wantNothingLeft()
	})
}

// TestWhatFailsTogetherIsOneFailure: a connection that breaks under many attempts pauses its target as one failed probe does.
func TestWhatFailsTogetherIsOneFailure(t *testing.T) {
	for reason, again := range map[Reason]time.Duration{Unreachable: time.Second, Again: 10 * time.Second} { // when the orders are due
		t.Run(string(reason), func(t *testing.T) {
			bubble(t, Config{Settings: Settings{Workers: 128, PerDestination: 64}}, func(w *world) {
				broke := make(chan struct{})
				var away atomic.Bool
				away.Store(true)
				w.set(nil, func(context.Context, *Order) error {
					<-broke
					if away.Load() {
						return Fail(reason, errTarget)
					}
					return nil
				})
				for i := range 64 {
					w.order(out(1, "x:1"), fmt.Sprint(i))
				}
				attempts := func(want int) {
					t.Helper()
					if n := len(w.performed()); n != want {
						t.Errorf("%d attempts after %s, want %d", n, time.Since(began), want)
					}
				}
				w.after(0)
				attempts(64)
				close(broke)
				w.after(0)
				if s := w.drain.Standing(); len(s) != 1 || s[0].Failures != downAfter || s[0].Next.After(time.Now().Add(time.Second)) || s[0].Error != errTarget.Error() {
					t.Fatalf("%+v", s)
				}
				w.after(again - time.Millisecond)
				attempts(64)
				w.after(2 * time.Millisecond) // the first probe
				attempts(65)
				if s := w.drain.Standing(); len(s) != 1 || s[0].Failures != downAfter+1 {
					t.Errorf("%+v", s)
				}
				w.after(1900 * time.Millisecond)
				attempts(65)
				away.Store(false)
				w.after(200 * time.Millisecond)
				if n := w.ends("out", Performed); n < 60 || len(w.drain.Standing()) != 0 {
					t.Errorf("%d performed, %+v", n, w.drain.Standing())
				}
				w.after(time.Minute)
				if n := w.ends("out", Performed); n != 64 {
					t.Errorf("%d performed", n)
				}
				w.wantNothingLeft()
			})
		})
	}
}
