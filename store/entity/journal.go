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

// Instance lists what was changed in the instance and in all of its tenants, newest first.
func (j Journal) Instance(ctx context.Context, by *model.Principal, page store.Page, f store.AuditFilter) (events []Event, total int64, err error) {
	return j.list(ctx, by, page, f)
}

// Own lists what was changed in the tenant of the principal, newest first.
func (j Journal) Own(ctx context.Context, by *model.Principal, page store.Page, f store.AuditFilter) (events []Event, total int64, err error) {
	tenant, err := TenantOf(by)
	if err != nil {
		return nil, 0, err
	}
	f.TenantID = &tenant
	return j.list(ctx, by, page, f)
}

func (j Journal) list(ctx context.Context, by *model.Principal, page store.Page, f store.AuditFilter) (events []Event, total int64, err error) {
	if err := Demand(by, Needs(model.AuditRead)); err != nil {
		return nil, 0, err
	}
	err = store.Read(ctx, j.Store, func(tx store.Tx) error {
		rows, n, err := store.ListAudit(tx, page, f)
		if err != nil {
			return err
		}
		var ids []int64
		for _, r := range rows {
			ids = append(ids, r.TenantID)
		}
		tenants, err := store.Tokens(tx, "tenants", unique(ids))
		if err != nil {
			return err
		}
		total = n
		for _, r := range rows {
			events = append(events, Event{r, tenants[r.TenantID]})
		}
		return nil
	})
	return events, total, err
}
