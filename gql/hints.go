package gql

import (
	"context"

	"weir/gql/engine"
	"weir/store"
	"weir/store/entity"
)

// withPageHints says in the response when criteria ask for a page that the contract replaces by another.
func withPageHints(fn engine.Resolver) engine.Resolver {
	return func(ctx context.Context, src any, args engine.Args) (any, error) {
		if args.Has("criteria") {
			hintPage(ctx, args.Object("criteria"))
		}
		return fn(ctx, src, args)
	}
}

func hintPage(ctx context.Context, c engine.Args) {
	if !c.Has("pageNumber") || !c.Has("pageSize") {
		return
	}
	asked := store.Page{Number: c.Int("pageNumber"), Size: c.Int("pageSize")}
	given := asked.Norm()
	if asked.Size != given.Size {
		engine.Hint(ctx, "pageSize: %d is outside of 1 to %d, a page of %d was given", asked.Size, store.MaxPageSize, given.Size)
	}
	if asked.Number != given.Number {
		engine.Hint(ctx, "pageNumber: pages are counted from 1, so %d gave page %d", asked.Number, given.Number)
	}
}

// hintNone says in the response that a filter names what does not exist; the contract answers it with an empty result.
func hintNone(ctx context.Context, field, kind, token string) {
	engine.Hint(ctx, "%s: there is no %s %q", field, kind, token)
}

// hintAdvice says in the response what the caller probably did not mean by a change that was made; a nil row was not changed.
func hintAdvice(ctx context.Context, kind entity.Any, row any, p store.Patch) {
	if row == nil {
		return
	}
	for _, text := range kind.Advise(ctx, PrincipalFrom(ctx), row, p) {
		engine.Hint(ctx, "%s", text)
	}
}

// hintUnknown adds a hint for each reference in criteria that names no entity.
func (e *entities) hintUnknown(ctx context.Context, info *entity.Info, criteria engine.Args) error {
	for _, ref := range info.Refs() {
		to := e.catalog.Of(ref.Ref)
		if to == nil || ref.Filter == "" || criteria.String(ref.Filter) == "" {
			continue
		}
		token := criteria.String(ref.Filter)
		rows, err := to.Follow(ctx, PrincipalFrom(ctx), "token", token)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			hintNone(ctx, ref.Filter, to.Info().Kind, token)
		}
	}
	return nil
}
