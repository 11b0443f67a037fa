package actions

import (
	"cmp"
	"context"
	"slices"
	"time"

	"weir/model"
	"weir/store"
	"weir/store/outbox"
)

// Query narrows what is shown.
type Query struct {
	Tenant string `json:"tenant,omitempty"`
	Kind   string `json:"kind,omitempty"`
	Target string `json:"target,omitempty"`
	Orders bool   `json:"orders,omitempty"` // each order, too
	Limit  int    `json:"limit"`
}

// MaxLimit is the maximum of targets, and of orders, in one answer.
const MaxLimit = 1000

// Waiting is what waits.
type Waiting struct {
	Rows int64 `json:"rows"` // of all targets, those that are not listed included
	// Targets are those with orders that wait, the longest first.
	Targets []WaitingTarget `json:"targets"`
	// Orders are the oldest; nil unless they were asked for.
	Orders []WaitingOrder `json:"orders,omitempty"`
}

// WaitingTarget is what waits for one target.
type WaitingTarget struct {
	Tenant  string    `json:"tenant"`
	Kind    string    `json:"kind"`
	Target  string    `json:"target,omitempty"` // "": the devices themselves
	Rows    int64     `json:"rows"`
	Bytes   int64     `json:"bytes"`
	Devices int64     `json:"devices"`
	Since   time.Time `json:"since"` // receive time of the reading that caused the oldest order
	Tried   int64     `json:"tried"` // orders with a failed attempt
	Error   string    `json:"error,omitempty"`
	// Standing says since when the target stands still, nil when it does not, or nothing runs.
	Standing *Standing `json:"standing,omitempty"`
}

// WaitingOrder is one that waits.
type WaitingOrder struct {
	ID       int64      `json:"id"`
	Tenant   string     `json:"tenant"`
	Kind     string     `json:"kind"`
	Target   string     `json:"target,omitempty"`
	Device   string     `json:"device"`
	Rule     string     `json:"ruleId"`
	Key      string     `json:"idempotencyKey"`
	Since    time.Time  `json:"since"`
	Attempts int        `json:"attempts"` // that failed
	Next     *time.Time `json:"nextAttempt,omitempty"`
	Expires  *time.Time `json:"expiresAt,omitempty"`
	Error    string     `json:"error,omitempty"`
}

// Look reads what waits. tenant is the row id of the query's tenant, 0 for all; token gives that of a tenant.
func Look(ctx context.Context, st store.Store, q Query, tenant int64, token func(int64) string, standing []Standing) (*Waiting, error) {
	if q.Limit < 1 || q.Limit > MaxLimit {
		return nil, model.Invalid("limit", "must lie in 1..%d", MaxLimit)
	}
	f := outbox.Filter{TenantID: tenant, Kind: q.Kind, Target: q.Target}
	r := &Waiting{Targets: []WaitingTarget{}}
	err := st.Read(ctx, func(tx store.Tx) error {
		found, all, err := outbox.Summary(tx, f, q.Limit)
		if err != nil {
			return err
		}
		r.Rows = all
		for _, w := range found {
			r.Targets = append(r.Targets, waitingTarget(&w, token, standing))
		}
		if !q.Orders {
			return nil
		}
		rows, err := outbox.List(tx, f, q.Limit)
		for _, row := range rows {
			r.Orders = append(r.Orders, waitingOrder(row, token))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

func waitingTarget(w *outbox.Waiting, token func(int64) string, standing []Standing) WaitingTarget {
	t := WaitingTarget{Tenant: cmp.Or(token(w.TenantID), "(deleted)"), Kind: w.Kind, Target: w.Target, Rows: w.Rows, Bytes: w.Bytes, Devices: w.Devices, Since: w.Oldest.Time(), Tried: w.Tried, Error: w.Error}
	if i := slices.IndexFunc(standing, func(s Standing) bool {
		return s.Tenant == t.Tenant && s.Kind == t.Kind && s.Target == t.Target
	}); i >= 0 {
		t.Standing, t.Error = &standing[i], standing[i].Error
	}
	return t
}

func waitingOrder(r *outbox.Row, token func(int64) string) WaitingOrder {
	o := WaitingOrder{ID: r.ID, Tenant: cmp.Or(token(r.TenantID), "(deleted)"), Kind: r.Kind, Target: r.Target, Device: r.Dispatch.Device, Rule: r.Dispatch.Rule, Key: r.Order.Key,
		Since: r.Received.Time(), Attempts: r.Attempts, Error: r.Error}
	if r.Due != 0 {
		o.Next = new(r.Due.Time())
	}
	if r.Expires != 0 {
		o.Expires = new(r.Expires.Time())
	}
	return o
}
