package entity

import (
	"context"
	"slices"

	"weir/model"
	"weir/store"
)

// Rows reads the rows of a kind in the principal's tenant without demanding the kind's authority: for what a row refers to
// that the caller was let read, and for operations that demand an authority of their own.
type Rows[T any] struct {
	store    store.Store
	table    *store.Table[T]
	instance bool
}

// ByID returns the rows with these ids that exist.
func (r *Rows[T]) ByID(ctx context.Context, by *model.Principal, ids []int64) ([]*T, error) {
	return r.read(ctx, by, func(tx store.Tx, tenant int64) ([]*T, error) { return r.table.ByID(tx, tenant, unique(ids)) })
}

// ByToken returns the rows with these tokens that exist.
func (r *Rows[T]) ByToken(ctx context.Context, by *model.Principal, tokens []string) ([]*T, error) {
	return r.read(ctx, by, func(tx store.Tx, tenant int64) ([]*T, error) { return r.table.ByToken(tx, tenant, unique(tokens)) })
}

// By returns the rows whose column holds one of the values.
func (r *Rows[T]) By(ctx context.Context, by *model.Principal, column string, values ...any) ([]*T, error) {
	return r.read(ctx, by, func(tx store.Tx, tenant int64) ([]*T, error) {
		return r.table.By(tx, tenant, column, unique(values)...)
	})
}

// List returns a page of the rows that the filters let through, in the kind's order, and how many there are in all.
func (r *Rows[T]) List(ctx context.Context, by *model.Principal, page store.Page, filters ...store.Filter) (rows []*T, total int64, err error) {
	rows, err = r.read(ctx, by, func(tx store.Tx, tenant int64) (rows []*T, err error) {
		rows, total, err = r.table.List(tx, tenant, page, filters...)
		return rows, err
	})
	return rows, total, err
}

func (r *Rows[T]) read(ctx context.Context, by *model.Principal, fn func(tx store.Tx, tenant int64) ([]*T, error)) (rows []*T, err error) {
	tenant, err := r.tenant(by)
	if err != nil {
		return nil, err
	}
	err = store.Read(ctx, r.store, func(tx store.Tx) (err error) {
		rows, err = fn(tx, tenant)
		return err
	})
	return rows, err
}

// tenant is the tenant that the rows belong to: 0 where the kind belongs to the instance.
func (r *Rows[T]) tenant(by *model.Principal) (int64, error) {
	if r.instance {
		return 0, nil
	}
	return TenantOf(by)
}

// TenantOf returns the tenant of a principal, and refuses one for whom none is resolved.
func TenantOf(by *model.Principal) (int64, error) {
	if by == nil || by.TenantID == 0 || by.Tenant == "" {
		return 0, model.Unauthenticated("no tenant is resolved")
	}
	return by.TenantID, nil
}

// Demand refuses a principal that lacks one of the authorities.
func Demand(by *model.Principal, as []model.Authority) error {
	if by == nil || by.Kind == model.Anonymous {
		return model.Unauthenticated("a token is required")
	}
	for _, a := range as {
		if !by.Has(a) {
			return model.Forbidden(a)
		}
	}
	return nil
}

// unique drops repeated keys: each row is returned once.
func unique[K comparable](keys []K) []K {
	seen := make(map[K]bool, len(keys))
	return slices.DeleteFunc(slices.Clone(keys), func(key K) bool {
		again := seen[key]
		seen[key] = true
		return again
	})
}
