package gql

import (
	"context"
	"strconv"

	"weir/gql/engine"
	"weir/model"
	"weir/registry"
	"weir/store"
	"weir/store/fenceset"
)

// registerPlaces registers attributes and geofences: where entities are, and what is known of them.
func registerPlaces(a *Area, r *registry.Registry) {
	registerAttributes(a, r)
	registerFences(a, r.GeoFences)
}

type attributeView struct {
	ID         string        `gql:"id"`
	CreatedAt  model.Micros  `gql:"createdAt"`
	UpdatedAt  model.Micros  `gql:"updatedAt"`
	DeletedAt  *model.Micros `gql:"deletedAt"`
	EntityType string        `gql:"entityType"`
	Scope      string        `gql:"scope"`
	Key        string        `gql:"attrKey"`
	Type       string        `gql:"valueType"`
	Value      *string       `gql:"value"`
	Updated    model.Micros  `gql:"lastUpdated"`

	entity entityRef
}

// entityRef names a row of a kind by the name of its entity type.
type entityRef struct {
	typ string
	id  int64
}

func showAttribute(a *registry.Attribute) attributeView {
	return attributeView{ID: strconv.FormatInt(a.ID, 10), CreatedAt: a.CreatedAt, UpdatedAt: a.UpdatedAt, EntityType: a.EntityType, Scope: a.Scope,
		Key: a.Key, Type: a.Type, Value: a.Value(), Updated: a.UpdatedAt, entity: entityRef{a.EntityType, a.EntityID}}
}

func registerAttributes(a *Area, r *registry.Registry) {
	a.Type("EntityAttribute", attributeView{})
	a.Type("EntityAttributeSearchResults", searchResults{})
	entities := entityLoader(r)
	a.Field("EntityAttribute", "entity", engine.On(func(ctx context.Context, v attributeView, _ engine.Args) (any, error) {
		return entities.Load(ctx, v.entity), nil
	}))
	a.Query("entityAttributes", Requires(model.DeviceRead), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		criteria := args.Object("criteria")
		var f registry.AttributeFilter
		if err := criteria.Decode(&f); err != nil {
			return nil, err
		}
		page := store.Page{Number: criteria.Int("pageNumber"), Size: criteria.Int("pageSize")}
		rows, total, err := r.Attributes.List(ctx, PrincipalFrom(ctx), page, f)
		if err == nil && total == 0 {
			err = hintNoEntity(ctx, r, f)
		}
		if err != nil {
			return nil, err
		}
		shown := make([]any, len(rows))
		for i, row := range rows {
			shown[i] = showAttribute(row)
		}
		return resultsOf(shown, page, total), nil
	})
	a.Mutation("setEntityAttribute", Requires(model.DeviceWrite), engine.Do(func(ctx context.Context, in struct {
		Request registry.AttributeSet `gql:"request"`
	}) (any, error) {
		row, err := r.Attributes.Set(ctx, PrincipalFrom(ctx), in.Request)
		if err != nil {
			return nil, err
		}
		return showAttribute(row), nil
	}))
	a.Mutation("deleteEntityAttribute", Requires(model.DeviceWrite), engine.Do(func(ctx context.Context, in registry.AttributeRef) (any, error) {
		return r.Attributes.Delete(ctx, PrincipalFrom(ctx), in)
	}))
}

// hintNoEntity says in the response when the criteria name an entity that does not exist.
func hintNoEntity(ctx context.Context, r *registry.Registry, f registry.AttributeFilter) error {
	if f.Entity == nil {
		return nil
	}
	kind := r.EntityKind(*f.EntityType)
	if kind == nil {
		engine.Hint(ctx, "entityType: there are no entities of the type %.40q", *f.EntityType)
		return nil
	}
	rows, err := kind.Follow(ctx, PrincipalFrom(ctx), "token", *f.Entity)
	if err == nil && len(rows) == 0 {
		hintNone(ctx, "entity", kind.Info().Kind, *f.Entity)
	}
	return err
}

// entityLoader reads the entities that rows address by type and id, each kind in one batch.
func entityLoader(r *registry.Registry) *engine.Loader[entityRef, any] {
	return engine.NewLoader(func(ctx context.Context, refs []entityRef) (map[entityRef]any, error) {
		ids := map[string][]int64{}
		for _, ref := range refs {
			ids[ref.typ] = append(ids[ref.typ], ref.id)
		}
		found := make(map[entityRef]any, len(refs))
		for typ, of := range ids {
			kind := r.EntityKind(typ)
			rows, err := kind.Follow(ctx, PrincipalFrom(ctx), "id", anys(of)...)
			if err != nil {
				return nil, err
			}
			for _, row := range rows {
				found[entityRef{typ, kind.Head(row).ID}] = row
			}
		}
		return found, nil
	})
}

// resultsOf is a page of rows.
func resultsOf(rows []any, page store.Page, total int64) searchResults {
	start, end := page.Span(len(rows))
	return searchResults{Results: rows, Pagination: searchPage{Start: start, End: end, Total: total}}
}

// fenceSet is a version of the tenant's set of geofences.
type fenceSet struct {
	Version int64 `gql:"version"`
}

func registerFences(a *Area, sets *registry.Fences) {
	a.Type("GeoFenceSetSnapshot", fenceSet{})
	a.Type("GeoFenceSnapshotEntry", fenceset.Fence{})
	a.Type("GeoFenceSnapshotEntrySearchResults", searchResults{})
	a.Field("GeoFence", "kind", engine.On(func(_ context.Context, f registry.GeoFence, _ engine.Args) (any, error) { return f.Kind(), nil }))
	a.Field("GeoFenceSetSnapshot", "fences", engine.On(func(ctx context.Context, s fenceSet, args engine.Args) (any, error) {
		pagination := args.Object("pagination")
		hintPage(ctx, pagination)
		page := store.Page{Number: pagination.Int("pageNumber"), Size: pagination.Int("pageSize")}
		fences, total, err := sets.OfSet(ctx, PrincipalFrom(ctx), s.Version, page)
		if err != nil {
			return nil, err
		}
		shown := make([]any, len(fences))
		for i := range fences {
			shown[i] = &fences[i]
		}
		return resultsOf(shown, page, total), nil
	}))
	read := Requires(model.DeviceRead)
	a.Query("currentFenceSetVersion", read, func(ctx context.Context, _ any, _ engine.Args) (any, error) {
		return sets.NewestVersion(ctx, PrincipalFrom(ctx))
	})
	a.Query("currentGeoFenceSet", read, func(ctx context.Context, _ any, _ engine.Args) (any, error) {
		version, err := sets.NewestVersion(ctx, PrincipalFrom(ctx))
		return fenceSet{version}, err
	})
	a.Query("geoFenceSetSnapshot", read, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		version := int64(args.Int("version"))
		return fenceSet{version}, sets.HasSet(ctx, PrincipalFrom(ctx), version)
	})
}
