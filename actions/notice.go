package actions

import (
	"context"
	"errors"
	"time"

	"weir/model"
	"weir/notify"
	"weir/notify/channel"
	"weir/store"
	"weir/store/outbox"
)

// Teller tells people: notify.Notify.
type Teller interface {
	Deliver(ctx context.Context, tenant string, row *outbox.Row, upto int64) (with []int64, err error)
}

// Notifications delivers notifications to people. An attempt may take timeout.
func Notifications(t Teller, timeout time.Duration) Kind {
	return Kind{Name: notify.OrderKind, Letters: store.DeadLetterNotice, Alone: true, Timeout: timeout,
		Outside: func(ctx context.Context, o *Order) (err error) {
			o.With, err = t.Deliver(ctx, o.Tenant, o.Row, o.Synced)
			if u, ok := errors.AsType[*channel.Undelivered](err); ok { // the others must not get it again
				o.Rewrite = func(d *model.Dispatch) {
					if d.Notification != nil {
						d.Notification.Recipients = u.Recipients
					}
				}
			}
			return notified(err)
		}}
}

// notified makes a failure of what a notification came to.
func notified(err error) error {
	if w, ok := errors.AsType[*notify.Wait](err); ok {
		return &Failure{Reason: Later, Err: err, After: w.For}
	}
	if errors.Is(err, notify.ErrGone) {
		return Fail(Gone, err)
	}
	return delivered(err)
}
