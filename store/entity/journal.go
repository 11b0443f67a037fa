package entity

import (
	"context"

	"weir/model"
	"weir/store"
)

// Journal reads the journal of changes.
type Journal struct{ Store store.Store }

// Event is a row of the journal with the token of its tenant, "" for what concerns the instance.
type Event struct {
	store.AuditEvent
	Tenant string `gql:"tenant,omitzero"`
}

// Own lists what was changed in the tenant of the principal, newest first.
func (j Journal) Own(ctx context.Context, by *model.Principal, page store.Page, f store.AuditFilter) (events []store.AuditEvent, total int64, err error) {
	tenant, err := TenantOf(by)
	if err != nil {
		return nil, 0, err
	}
	f.TenantID = &tenant
	err = j.read(ctx, by, func(tx store.Tx) error {
		events, total, err = store.ListAudit(tx, page, f)
		return err
	})
	return events, total, err
}

// Instance lists what was changed in the instance and in all of its tenants, newest first.
func (j Journal) Instance(ctx context.Context, by *model.Principal, page store.Page, f store.AuditFilter) (events []Event, total int64, err error) {
	err = j.read(ctx, by, func(tx store.Tx) error {
		rows, n, err := store.ListAudit(tx, page, f)
		if err != nil {
			return err
		}
		ids := make([]int64, len(rows))
		for i, r := range rows {
			ids[i] = r.TenantID
		}
		tenants, err := store.Tokens(tx, "tenants", unique(ids))
		total = n
		for _, r := range rows {
			events = append(events, Event{r, tenants[r.TenantID]})
		}
		return err
	})
	return events, total, err
}

func (j Journal) read(ctx context.Context, by *model.Principal, fn func(tx store.Tx) error) error {
	if err := Demand(by, Needs(model.AuditRead)); err != nil {
		return err
	}
	return store.Read(ctx, j.Store, fn)
}
