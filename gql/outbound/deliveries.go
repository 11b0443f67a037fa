package outbound

import (
	"context"

	"weir/actions"
	"weir/gql"
	"weir/gql/engine"
	"weir/model"
)

// deliveryView is a target of orders of rules, and what waits for it.
type deliveryView struct {
	Kind     string        `gql:"kind"`
	Target   string        `gql:"target"`
	Waiting  int64         `gql:"waiting"`
	Devices  int64         `gql:"devices"`
	Oldest   model.Micros  `gql:"oldestWaiting"`
	Tried    int64         `gql:"failed"`
	Outcome  *string       `gql:"lastError"`
	Standing *model.Micros `gql:"standingSince"`
	Next     *model.Micros `gql:"nextAttempt"`
}

// registerDeliveries registers what waits for the targets of the tenant: what weir outbox shows.
func registerDeliveries(a *gql.Area, d gql.LetterDeps) {
	a.Type("Delivery", deliveryView{})
	a.Query("deliveries", gql.Requires(model.ConnectorRead), func(ctx context.Context, _ any, _ engine.Args) (any, error) {
		by := gql.PrincipalFrom(ctx)
		var standing []actions.Standing
		if d.Standing != nil {
			standing = d.Standing()
		}
		waiting, err := actions.Look(ctx, d.Store, actions.Query{Limit: actions.MaxLimit}, by.TenantID, func(int64) string { return by.Tenant }, standing)
		if err != nil {
			return nil, err
		}
		views := make([]deliveryView, len(waiting.Targets))
		for i, t := range waiting.Targets {
			views[i] = deliveryView{Kind: t.Kind, Target: t.Target, Waiting: t.Rows, Devices: t.Devices, Oldest: model.MicrosOf(t.Since), Tried: t.Tried, Outcome: textOrNil(t.Error)}
			if t.Standing != nil {
				views[i].Standing, views[i].Next = new(model.MicrosOf(t.Standing.Since)), new(model.MicrosOf(t.Standing.Next))
			}
		}
		return views, nil
	})
}
