package connectors

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"weir/model"
	"weir/store"
)

// DeliveryTest is what a message on demand came to.
type DeliveryTest struct {
	OK        bool    `gql:"ok"`
	Outcome   string  `gql:"outcome"`
	Detail    *string `gql:"detail"`
	ElapsedMs int64   `gql:"elapsedMs"`
}

// testTimeout is how long a test may take.
const testTimeout = 10 * time.Second

// testMessage is the marked message.
type testMessage struct {
	Test      bool   `json:"test"`
	Tenant    string `json:"tenant"`
	Connector string `json:"connector"`
	SentTime  string `json:"sentTime"`
}

// Test sends a marked message to a connector as its draft is saved, over a connection of its own. It is bounded for each tenant (THROTTLED), and
// takes from the tenant's ceiling as a delivery does.
func (c *Connectors) Test(ctx context.Context, by *model.Principal, token string) (*DeliveryTest, error) {
	if err := c.Connectors.MayWrite(by); err != nil {
		return nil, err
	}
	if c.deps.Guard == nil {
		return nil, model.Errorf(model.CodeUnavailable, "unavailable: no instance runs that could deliver")
	}
	var row *Connector
	if err := store.Read(ctx, c.deps.Store, func(tx store.Tx) (err error) {
		row, err = c.Connectors.Must(tx, by.TenantID, token)
		return err
	}); err != nil {
		return nil, err
	}
	began := c.deps.Now()
	if wait := c.tests.Take(by.TenantID, began); wait > 0 {
		return nil, &model.Error{Code: model.CodeThrottled, Message: "throttled: a tenant may test 6 times a minute", Ext: map[string]any{"retryAfterSeconds": int(wait/time.Second) + 1}}
	}
	if wait := c.deps.Tenants.TakeOutbound(by.Tenant); wait > 0 {
		return tested(fail(RateLimited, "the tenant is over its ceiling of outbound messages"), 0), nil
	}
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	err := c.testOnce(ctx, by, row, began)
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, ctx.Err()
	}
	return tested(c.note(ctx, "test", by.Tenant, token, err), c.deps.Now().Sub(began)), nil
}

func (c *Connectors) testOnce(ctx context.Context, by *model.Principal, row *Connector, now time.Time) error {
	t := typeNamed(row.Type)
	if t == nil || t.open == nil {
		return fail(Unsupported, "nothing delivers to connectors of the type %s", row.Type)
	}
	s, err := c.open(ctx, t, by.TenantID, by.Tenant, &target{id: row.ID, typ: row.Type, config: row.Config})
	if err != nil {
		return err
	}
	defer s.Close()
	text, err := json.Marshal(testMessage{true, by.Tenant, row.Token, model.MicrosOf(now).String()})
	if err != nil {
		return err
	}
	return s.send(ctx, &outgoing{payload: text, key: "test-" + model.MicrosOf(now).String()})
}

func tested(err error, took time.Duration) *DeliveryTest {
	r := &DeliveryTest{OK: err == nil, Outcome: string(Sent), ElapsedMs: took.Milliseconds()}
	if f := failureOf(err); f != nil {
		r.Outcome, r.Detail = string(f.Outcome), &f.Text
		if f.Outcome == Unreachable {
			r.Outcome = string(Retry)
		}
	}
	return r
}
