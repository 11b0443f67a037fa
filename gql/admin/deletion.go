package admin

import (
	"context"
	"math"

	"weir/govern"
	"weir/gql"
	"weir/gql/engine"
	"weir/model"
	"weir/store"
	"weir/store/erase"
)

// tenantDeletion is the deletion of a tenant as operators see it.
type tenantDeletion struct {
	Token     string                `gql:"token"`
	Epoch     model.Micros          `gql:"epoch"`
	Completed model.Micros          `gql:"completedAt,omitzero"`
	Rows      int                   `gql:"rowsErased"`
	Stores    []tenantDeletionStore `gql:"stores"`
	BlockedBy []string              `gql:"blockedBy"`
	Awaiting  govern.DeletionWait   `gql:"awaiting"`
	Elapses   model.Micros          `gql:"elapsesAt,omitzero"`
}

type tenantDeletionStore struct {
	Store      string       `gql:"store"`
	Complete   bool         `gql:"complete"`
	Rows       int          `gql:"rowsErased"`
	Retaining  string       `gql:"retaining,omitzero"`
	LastError  string       `gql:"lastError,omitzero"`
	Note       *string      `gql:"note"` // of stores that do not exist here
	Attempted  model.Micros `gql:"attemptedAt,omitzero"`
	CleanSince model.Micros `gql:"cleanSince,omitzero"`
}

func shownDeletion(d *govern.Deletion) tenantDeletion {
	wait, until := d.Awaiting()
	out := tenantDeletion{Token: d.Token, Epoch: d.Epoch, Completed: d.Completed, Rows: shownCount(d.Rows()), BlockedBy: d.BlockedBy(), Awaiting: wait, Elapses: until}
	for _, p := range d.Parts {
		out.Stores = append(out.Stores, tenantDeletionStore{Store: string(p.Part), Complete: p.Complete, Rows: shownCount(p.Rows), Retaining: p.Retaining,
			LastError: p.LastError, Attempted: p.Attempted, CleanSince: p.CleanSince})
	}
	return out
}

// shownCount is a count as the API's Int can show it.
func shownCount(n int64) int { return int(min(n, math.MaxInt32)) }

func (r *resolvers) deletions() {
	r.area.Type("TenantDeletion", tenantDeletion{})
	r.area.Type("TenantDeletionStore", tenantDeletionStore{})
	r.area.Paged("TenantDeletionSearchResults")
	r.mutation("deleteTenant", model.TenantWrite, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		return r.Govern.DeleteTenant(ctx, by, args.String("token"))
	})
	r.query("tenantDeletion", model.TenantRead, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		f := erase.Filter{Token: args.String("token")}
		if epoch := args.Text("epoch"); epoch != nil {
			at, err := model.ParseTime(*epoch)
			if err != nil {
				return nil, model.Invalid("epoch", "%q is not an RFC 3339 time", *epoch)
			}
			f.Epoch = new(model.MicrosOf(at))
		}
		found, _, err := r.Govern.Deletions(ctx, by, store.Page{Number: 1, Size: 1}, f)
		if err != nil || len(found) == 0 || f.Token == "" {
			return nil, err
		}
		return shownDeletion(&found[0]), nil
	})
	r.query("tenantDeletions", model.TenantRead, func(ctx context.Context, by *model.Principal, args engine.Args) (any, error) {
		c := args.Object("criteria")
		page, f := store.Page{Number: c.Int("pageNumber"), Size: c.Int("pageSize")}, erase.Filter{}
		if c.Has("completed") && !c.IsNull("completed") {
			f.Completed = new(c.Bool("completed"))
		}
		found, total, err := r.Govern.Deletions(ctx, by, page, f)
		out := make([]tenantDeletion, len(found))
		for i := range found {
			out[i] = shownDeletion(&found[i])
		}
		return gql.Results(page, out, total), err
	})
}
