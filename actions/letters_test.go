package actions

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/model"
	"weir/store"
	"weir/store/outbox"
)

func TestWhatIsOverTheBoundIsShedFromTheTargetWithTheMostNewestFirst(t *testing.T) {
	for _, bound := range []Settings{{OutboxRows: 100, OutboxBytes: 1 << 40}, {OutboxRows: 1 << 40, OutboxBytes: 38_000}} {
		bubble(t, Config{Settings: bound}, func(w *world) {
			w.set(nil, func(_ context.Context, o *Order) error {
				if o.TenantID == 1 {
					return Fail(Unreachable, errTarget)
				}
				return nil
			})
			const small, large = 10, 200
			for i := range small {
				w.order(out(1, "small:1"), fmt.Sprintf("s%03d", i))
			}
			for i := range large {
				w.order(out(1, "large:1"), fmt.Sprintf("l%03d", i))
				w.order(out(2, "x:1"), "other")
				w.after(0) // the drain keeps up
			}
			w.after(2 * time.Minute)
			var left []string
			var bytes int64
			for _, r := range w.waiting() {
				left, bytes = append(left, r.Dispatch.Payload), bytes+r.Bytes
			}
			n := len(left) - small
			if n < 50 || n > 95 || bound.OutboxRows == 100 && n != 90 || bytes > int64(bound.OutboxBytes) {
				t.Fatalf("%d rows of %d bytes are left", len(left), bytes)
			}
			for i := range n {
				if want := fmt.Sprintf("l%03d", i); left[small+i] != want {
					t.Fatalf("%s is left in the place of %s", left[small+i], want)
				}
			}
			letters := w.reasons("t1")
			if len(letters) != large-n || slices.Min(letters) != fmt.Sprintf("shed l%03d", n) || len(w.reasons("t2")) > 0 || w.ends("out", Performed) != large || w.ends("out", Shed) != large-n {
				t.Errorf("%d dead letters, from %s; %d of the other tenant performed", len(letters), slices.Min(letters), w.ends("out", Performed))
			}
		})
	}
}

// A target that takes its orders is not held up by the shedding of what is too much.
func TestATenantOverItsBoundIsPerformedMeanwhile(t *testing.T) {
	bubble(t, Config{Settings: Settings{OutboxRows: 5}}, func(w *world) {
		w.set(nil, func(ctx context.Context, o *Order) error {
			time.Sleep(time.Second)
			return nil
		})
		for i := range 400 {
			w.order(out(1, "x:1"), fmt.Sprint(i))
			w.after(10 * time.Millisecond)
		}
		w.after(10 * time.Second)
		if performed, shed := w.ends("out", Performed), w.ends("out", Shed); performed < 16 || performed+shed != 400 || len(w.waiting()) > 0 {
			t.Errorf("%d performed, %d shed, %d wait", performed, shed, len(w.waiting()))
		}
	})
}

func TestRowsThatWentWithTheirDeviceTakeNoPlace(t *testing.T) {
	bubble(t, Config{Settings: Settings{OutboxRows: 10}}, func(w *world) {
		w.set(func(*Order) error { return Fail(Full, errTarget) }, nil)
		for range 8 {
			w.order(in(1, 1), "a")
		}
		w.after(time.Second)
		w.must(w.db.Write(w.Context(), store.Results, func(tx store.Tx) error {
			n, err := outbox.RemoveOfDevice(tx, 1, "in")
			if n != 8 {
				t.Errorf("%d rows went", n)
			}
			return err
		}))
		for range 8 {
			w.order(in(1, 2), "b")
		}
		w.after(10 * time.Minute)
		if len(w.waiting()) != 8 || len(w.letters("t1")) > 0 {
			t.Errorf("%d wait, %d are shed", len(w.waiting()), len(w.letters("t1")))
		}
	})
}

func TestDeadLettersOfWhatGoesOutPushOutNothingThatDevicesSent(t *testing.T) {
	bubble(t, Config{LetterSettings: LetterSettings{Letters: 10}}, func(w *world) {
		w.must(w.db.Write(w.Context(), store.Results, func(tx store.Tx) error {
			for i := range 20 {
				if err := store.AddDeadLetter(tx, &store.DeadLetter{Tenant: "t1", Kind: store.DeadLetterIngest, Reason: "unknown-device", Offset: model.Offset(i + 1)}); err != nil {
					return err
				}
			}
			return nil
		}))
		w.set(func(*Order) error { return Fail(Unprocessable, errTarget) }, nil)
		for i := range 50 {
			w.order(in(1, 1), fmt.Sprintf("%02d", i))
		}
		w.after(time.Second)
		var sent, ordered []string
		for _, l := range w.letters("t1") {
			if l.Incoming() {
				sent = append(sent, l.Reason)
			} else {
				ordered = append(ordered, l.Detail)
			}
		}
		if len(sent) != 20 || len(ordered) < 10 || len(ordered) > 11 || ordered[len(ordered)-1] != "49" {
			t.Errorf("%d of devices, %q of what was to go out", len(sent), ordered)
		}
		// And the other way round.
		w.must(w.db.Write(w.Context(), store.Results, func(tx store.Tx) error {
			_, err := store.TrimDeadLetters(tx, "t1", store.DeadLetterBound{Rows: 3, Bytes: 1 << 30})
			return err
		}))
		if n := len(w.letters("t1")); n != 3+len(ordered) {
			t.Errorf("%d are left", n)
		}
	})
}

func TestAnExpiredOrderIsNotPutBack(t *testing.T) {
	bubble(t, Config{}, func(w *world) {
		o := in(1, 1)
		o.Expires = model.MicrosOf(time.Now().Add(time.Minute))
		w.set(func(*Order) error { return Fail(Unprocessable, errTarget) }, nil)
		w.order(o, "a")
		w.after(2 * time.Minute)
		d := w.letters("t1")
		w.must(w.db.Write(w.Context(), store.Durable, func(tx store.Tx) error {
			ds, err := store.OpenDeadLetters(tx, []int64{d[0].ID})
			if err != nil {
				return err
			}
			if err := outbox.Again(tx, &ds[0], 1, w.drain.micros()); err != outbox.ErrNoOrder {
				t.Error(err)
			}
			ds[0].Record = []byte(`{"kind":`)
			if err := outbox.Again(tx, &ds[0], 1, 0); err != outbox.ErrNoOrder {
				t.Error(err)
			}
			return nil
		}))
	})
}

// Tenants whose targets are slow, say nothing or let an answer trickle take what others leave: an order of one that behaves begins at once.
func TestBadTargetsOfOthersCostATenantNothing(t *testing.T) {
	bubble(t, Config{}, func(w *world) {
		w.set(nil, func(ctx context.Context, o *Order) error {
			switch o.TenantID {
			case 1: // says nothing
				<-ctx.Done()
				return ctx.Err()
			case 2: // trickles, and takes it in the end
				time.Sleep(9 * time.Second)
			case 3:
				return errTarget
			}
			return nil
		})
		for i := range 60 {
			for tenant := range int64(3) {
				for range 3 {
					w.order(out(tenant+1, fmt.Sprintf("x:%d", i)), "bad")
				}
			}
		}
		w.after(time.Second)
		for i := range 100 {
			began := time.Now()
			w.order(out(4, "y:1"), fmt.Sprint(i))
			w.order(in(4, 1), fmt.Sprint(i))
			w.after(0)
			if done := w.ends("out", Performed) + w.ends("in", Performed); time.Since(began) > 0 || !slices.Contains(w.performed(), fmt.Sprintf("t4/y:1/%d", i)) ||
				!slices.Contains(w.performed(), fmt.Sprintf("t4//%d", i)) {
				t.Fatalf("order %d waits behind bad targets; %d are done", i, done)
			}
			w.after(700 * time.Millisecond)
		}
	})
}
