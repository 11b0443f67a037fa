package actions

import (
	"cmp"
	"context"
	"errors"
	"time"

	"weir/connectors"
	"weir/model"
	"weir/rules"
	"weir/store"
)

// Deliverer delivers to other systems: connectors.Connectors.
type Deliverer interface {
	Call(ctx context.Context, tenant int64, d *model.Dispatch) error
	Publish(ctx context.Context, tenant int64, d *model.Dispatch) error
}

// Calls performs httpCall.
func Calls(d Deliverer) Kind {
	return Kind{Name: string(rules.ActionHTTPCall), Letters: store.DeadLetterConnector,
		Outside: func(ctx context.Context, o *Order) error { return delivered(d.Call(ctx, o.TenantID, dispatch(o))) }}
}

// Publishes performs publish.
func Publishes(d Deliverer) Kind {
	return Kind{Name: string(rules.ActionPublish), Letters: store.DeadLetterConnector,
		Outside: func(ctx context.Context, o *Order) error { return delivered(d.Publish(ctx, o.TenantID, dispatch(o))) }}
}

// dispatch is what is to be performed, with the key and the tenant of the row: those of the order were written long ago.
func dispatch(o *Order) *model.Dispatch {
	d := o.Dispatch
	d.Tenant, d.Key = o.Tenant, o.Order.Key
	return &d
}

// reasonsOf are what failed deliveries are to the drain.
var reasonsOf = map[connectors.Outcome]Reason{connectors.Retry: Again, connectors.Unreachable: Unreachable, connectors.Invalid: Unprocessable,
	connectors.Unsupported: Unsupported, connectors.Blocked: Blocked}

// delivered makes a failure of what a delivery came to.
func delivered(err error) error {
	f, ok := errors.AsType[*connectors.Failure](err)
	if !ok {
		return err
	}
	return &Failure{Reason: reasonsOf[f.Outcome], Err: err, After: f.After, Tries: f.Tries}
}

// maxTimeout is the longest time that an attempt may take, whatever its rule says.
const maxTimeout = 20 * time.Second

// timeoutOf is how long an attempt at an order may take.
func (d *Drain) timeoutOf(k *Kind, o *Order) time.Duration {
	ms := int32(0)
	switch x := &o.Dispatch; {
	case x.HTTPCall != nil:
		ms = x.HTTPCall.TimeoutMs
	case x.Publish != nil:
		ms = x.Publish.TimeoutMs
	}
	if ms <= 0 {
		return cmp.Or(k.Timeout, d.cfg.Timeout)
	}
	return min(time.Duration(ms)*time.Millisecond, maxTimeout)
}
