package admin

import (
	"context"

	"weir/gql"
	"weir/gql/engine"
	"weir/model"
	"weir/store/entity"
)

func (r *resolvers) journal() {
	r.area.Type("AdminAuditEvent", entity.Event{})
	r.area.Paged("AdminAuditEventSearchResults")
	r.query("auditEvents", model.AuditRead, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		page, f, err := gql.AuditCriteria(args)
		if err != nil {
			return nil, err
		}
		f.Actor, f.ActorPart = "", f.Actor
		events, total, err := r.Journal.Instance(ctx, by, page, f)
		return gql.Results(page, events, total), err
	})
}
