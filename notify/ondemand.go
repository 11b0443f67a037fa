package notify

import (
	"context"
	"errors"
	"fmt"
	"time"
	"weir/internal/delivery"

	"weir/internal/ondemand"
	"weir/model"
	"weir/notify/channel"
	"weir/store"
	"weir/store/notices"
)

// DeliveryTest is what a message on demand came to.
type DeliveryTest struct {
	OK        bool    `gql:"ok"`
	Outcome   string  `gql:"outcome"`
	Detail    *string `gql:"detail"`
	ElapsedMs int64   `gql:"elapsedMs"`
}

// Test sends a marked message over a channel as it is stored, enabled or not. recipients are those of a rule. It is bounded for each tenant (THROTTLED), and
// takes from the tenant's ceiling as any message does.
func (n *Notify) Test(ctx context.Context, by *model.Principal, token, recipients string) (*DeliveryTest, error) {
	if err := n.Channels.MayWrite(by); err != nil {
		return nil, err
	}
	if n.deps.Guard == nil {
		return nil, model.Errorf(model.CodeUnavailable, "unavailable: no instance runs that could deliver")
	}
	var row *Channel
	var secret string
	if err := store.Read(ctx, n.deps.Store, func(tx store.Tx) (err error) {
		if row, err = n.Channels.Must(tx, by.TenantID, token); err == nil && row.HasSecret {
			secret, _, err = n.Channels.Reveal(tx, row)
		}
		return err
	}); err != nil {
		return nil, err
	}
	to, err := channel.ParseRecipients(row.Type, recipients)
	if err != nil {
		return nil, err
	}
	wall, began := n.deps.Now()
	if wait := n.tests.Take(by.TenantID, wall); wait > 0 {
		return nil, &model.Error{Code: model.CodeThrottled, Message: fmt.Sprintf("throttled: a tenant may test %d times a minute", ondemand.Max), Ext: map[string]any{"retryAfterSeconds": int(wait/time.Second) + 1}}
	}
	if wait := n.deps.Tenants.TakeOutbound(by.Tenant); wait > 0 {
		return tested(&delivery.Failure{Outcome: delivery.RateLimited, Text: "the tenant is over its ceiling of outbound messages"}, 0), nil
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
	defer cancel()
	err = n.send(ctx, n.env(by.Tenant), channel.Channel{Type: row.Type, Config: row.config(), Secret: secret},
		channel.Message{Kind: channel.Test, Recipients: to, Key: "test-" + model.MicrosOf(wall).String(), Tenant: by.Tenant, Note: "The channel is " + row.Token + "."})
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, ctx.Err()
	}
	_, ended := n.deps.Now()
	return tested(n.note(ctx, row.Type, by.Tenant, token, err), ended-began), nil
}

func tested(err error, took time.Duration) *DeliveryTest {
	r := &DeliveryTest{OK: err == nil, Outcome: string(delivery.Sent), ElapsedMs: took.Milliseconds()}
	if f := delivery.Of(err); f != nil {
		r.Outcome, r.Detail = string(f.Outcome), &f.Text
		if f.Outcome == delivery.Unreachable {
			r.Outcome = string(delivery.Retry)
		}
	}
	return r
}

// States returns what was notified of alarms of the caller's tenant.
func (n *Notify) States(ctx context.Context, by *model.Principal, f *notices.Filter) (found []*notices.State, err error) {
	err = store.Read(ctx, n.deps.Store, func(tx store.Tx) (err error) {
		found, err = notices.Find(tx, by.TenantID, f)
		return err
	})
	return found, err
}

// ListStates returns a page of what was notified of alarms of the caller's tenant, newest first, and the number of all.
func (n *Notify) ListStates(ctx context.Context, by *model.Principal, f *notices.Filter, page store.Page) (found []*notices.State, total int64, err error) {
	err = store.Read(ctx, n.deps.Store, func(tx store.Tx) (err error) {
		found, total, err = notices.List(tx, by.TenantID, f, page)
		return err
	})
	return found, total, err
}
