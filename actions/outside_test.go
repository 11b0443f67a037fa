package actions

import (
	"context"
	"errors"
	"testing"
	"time"

	"weir/connectors"
	"weir/model"
	"weir/store"
	"weir/store/outbox"
)

// deliverer fails as it is told and keeps what it was asked.
type deliverer struct {
	err   error
	calls []*model.Dispatch
	sent  []*model.Dispatch
}

func (d *deliverer) Call(_ context.Context, _ int64, x *model.Dispatch) error {
	d.calls = append(d.calls, x)
	return d.err
}

func (d *deliverer) Publish(_ context.Context, _ int64, x *model.Dispatch) error {
	d.sent = append(d.sent, x)
	return d.err
}

// TestWhatADeliveryComesTo: each outcome is a reason of the drain, and the key of the row travels with the delivery.
func TestWhatADeliveryComesTo(t *testing.T) {
	t.Parallel()
	d := &deliverer{}
	order := &Order{Row: &outbox.Row{Order: model.Order{Key: "key"}, Dispatch: model.Dispatch{Key: "stale", Tenant: "old"}}, Tenant: "acme"}
	for outcome, want := range map[connectors.Outcome]Reason{connectors.Retry: Again, connectors.Unreachable: Unreachable, connectors.Invalid: Unprocessable, connectors.Unsupported: Unsupported,
		connectors.Blocked: Blocked} {
		d.err = &connectors.Failure{Outcome: outcome, Text: "why", After: time.Minute, Tries: 2}
		for _, k := range []Kind{Calls(d), Publishes(d)} {
			f, ok := errors.AsType[*Failure](k.Outside(t.Context(), order))
			if !ok || f.Reason != want || f.Err.Error() != "why" || f.After != time.Minute || f.Tries != 2 || k.Letters != store.DeadLetterConnector {
				t.Errorf("%s %s: %+v", k.Name, outcome, f)
			}
		}
	}
	d.err = nil
	for _, k := range []Kind{Calls(d), Publishes(d)} {
		if err := k.Outside(t.Context(), order); err != nil {
			t.Error(err)
		}
	}
	if len(d.calls) != 6 || len(d.sent) != 6 || d.calls[5].Key != "key" || d.sent[5].Tenant != "acme" {
		t.Errorf("%d calls, %d messages", len(d.calls), len(d.sent))
	}
}

func TestATimeoutOfARuleIsThatOfItsAttempts(t *testing.T) {
	t.Parallel()
	d := New(Config{}, Deps{})
	for ms, want := range map[int32]time.Duration{0: 10 * time.Second, 500: 500 * time.Millisecond, 20_000: 20 * time.Second, 60_000: 20 * time.Second} {
		for _, x := range []model.Dispatch{{HTTPCall: &model.DispatchCall{TimeoutMs: ms}}, {Publish: &model.DispatchPublish{TimeoutMs: ms}}} {
			if got := d.timeoutOf(&Kind{}, &Order{Row: &outbox.Row{Dispatch: x}}); got != want {
				t.Errorf("%d ms: %s, want %s", ms, got, want)
			}
		}
	}
}

// TestATargetThatHangsTakesItsOwnPlacesAlone: beside one that hangs and one that refuses all, a fast one waits for neither.
func TestATargetThatHangsTakesItsOwnPlacesAlone(t *testing.T) {
	t.Parallel()
	bubble(t, Config{}, func(w *world) {
		hanging, most := 0, 0
		w.set(nil, func(ctx context.Context, o *Order) error {
			switch o.Target {
			case "hangs":
				w.mu.Lock()
				hanging++
				most = max(most, hanging)
				w.mu.Unlock()
				<-ctx.Done()
				w.mu.Lock()
				hanging--
				w.mu.Unlock()
				return ctx.Err()
			case "refuses":
				return Fail(Unreachable, errors.New("refused"))
			}
			return nil
		})
		for range 50 {
			for _, target := range []string{"hangs", "refuses", "fast"} {
				w.order(out(1, target), "m")
			}
		}
		w.after(time.Second)
		if n := w.ends("out", Performed); most != 4 || n != 50 {
			t.Errorf("%d places for the one that hangs, %d of 50 deliveries to the fast one", most, n)
		}
		if n := w.ends("out", Exhausted); n != 0 {
			t.Errorf("%d orders of the one that refuses are given up", n)
		}
	})
}
