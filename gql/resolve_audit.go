package gql

import (
	"context"

	"weir/gql/engine"
	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// registerAudit registers the tenant's own part of the journal.
func registerAudit(a *Area, j entity.Journal) {
	a.Type("AuditEvent", store.AuditEvent{})
	a.Paged("AuditEventSearchResults")
	a.Query("auditEvents", Requires(model.AuditRead), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		page, f, err := AuditCriteria(args)
		if err != nil {
			return nil, err
		}
		events, total, err := j.Own(ctx, PrincipalFrom(ctx), page, f)
		return Results(page, events, total), err
	})
}

// AuditCriteria reads the argument criteria of a list of the journal.
func AuditCriteria(args engine.Args) (page store.Page, f store.AuditFilter, err error) {
	c := args.Object("criteria")
	page = store.Page{Number: c.Int("pageNumber"), Size: c.Int("pageSize")}
	f = store.AuditFilter{Category: c.String("category"), Operation: c.String("operation"), Actor: c.String("actor"),
		Table: c.String("tableName"), Key: c.String("entityPk"), Tenant: c.String("tenant")}
	f.Start, f.End, err = Span(c)
	return page, f, err
}

// Span reads the criteria startTime and endTime, both inclusive.
func Span(c engine.Args) (start, end *model.Micros, err error) {
	if start, err = instant(c, "startTime", false); err == nil {
		end, err = instant(c, "endTime", true)
	}
	return start, end, err
}
