package gql

import (
	"context"

	"weir/gql/engine"
	"weir/model"
	"weir/registry"
	"weir/store"
	"weir/store/entity"
	"weir/store/relations"
)

// registerRelationships registers what the description of relationships does not say: both ends, and the verbs for many.
func registerRelationships(a *Area, r *registry.Registry) {
	ends := map[string]*engine.Loader[int64, any]{}
	for name, table := range registry.EntityTypes() {
		ends[name] = rowsByID(r.Kinds.Of(table))
	}
	end := func(of func(registry.Relationship) (string, int64)) engine.Resolver {
		return engine.On(func(ctx context.Context, rel registry.Relationship, _ engine.Args) (any, error) {
			name, id := of(rel)
			rows, ok := ends[name]
			if !ok {
				return nil, nil
			}
			return rows.Load(ctx, id), nil
		})
	}
	a.Field("EntityRelationship", "source", end(func(rel registry.Relationship) (string, int64) { return rel.SourceType, rel.SourceID }))
	a.Field("EntityRelationship", "target", end(func(rel registry.Relationship) (string, int64) { return rel.TargetType, rel.TargetID }))
	a.Mutation("createEntityRelationships", Requires(model.DeviceWrite), engine.Do(func(ctx context.Context, in struct {
		Requests []map[string]any `gql:"requests"`
	}) (any, error) {
		patches := make([]store.Patch, len(in.Requests))
		for i, request := range in.Requests {
			patches[i] = request
		}
		return r.Relationships.CreateAll(ctx, PrincipalFrom(ctx), patches)
	}))
	a.Mutation("removeEntityRelationship", Requires(model.DeviceWrite), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return r.Relationships.Delete(ctx, PrincipalFrom(ctx), args.String("token"))
	})
	a.Mutation("removeEntityRelationships", Requires(model.DeviceWrite), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return r.Relationships.RemoveAll(ctx, PrincipalFrom(ctx), args.Strings("tokens"))
	})
}

// memberResults is a page of members. All of them are counted only where their number is selected.
type memberResults struct {
	Results    []relations.Member `gql:"results"`
	Pagination countedPage        `gql:"pagination"`
}

type countedPage struct {
	Start int          `gql:"pageStart"`
	End   int          `gql:"pageEnd"`
	Total engine.Thunk `gql:"totalRecords"`
}

func memberPage(ctx context.Context, p *registry.MemberPage) *memberResults {
	if p == nil {
		return nil
	}
	results := p.Members
	if results == nil {
		results = []relations.Member{} // an empty list, not null
	}
	start, end := p.Page.Span(len(results))
	return &memberResults{Results: results, Pagination: countedPage{start, end, func() (any, error) { return p.Total(ctx) }}}
}

// selectorPreview is what a selector would select, or why it is refused.
type selectorPreview struct {
	Valid   bool           `gql:"valid"`
	Error   *string        `gql:"error"`
	Members *memberResults `gql:"members"`
}

// registerGroups registers what the description of groups does not say: members, versions and what they froze, the preview
// of a selector, and the targets of commands.
func registerGroups(a *Area, groups *registry.Groups) {
	a.Type("SearchResultsPagination", searchPage{}, countedPage{})
	a.Type("EntityGroupMember", relations.Member{})
	a.Type("EntityGroupMemberSearchResults", memberResults{})
	a.Type("SelectorPreview", selectorPreview{})
	a.Type("DeviceGroupTargetPage", registry.GroupTargets{})
	registerGroupVersions(a, groups)
	a.Field("EntityGroup", "members", engine.On(func(ctx context.Context, g registry.EntityGroup, args engine.Args) (any, error) {
		p, err := groups.MembersOf(ctx, &g, paginated(ctx, args))
		return memberPage(ctx, p), err
	}))
	a.Query("previewSelector", Requires(model.DeviceRead), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		p, err := groups.PreviewSelector(ctx, PrincipalFrom(ctx), args.String("memberType"), args.String("selector"), paginated(ctx, args))
		if err != nil {
			return nil, err
		}
		preview := selectorPreview{Valid: p.Refused == nil, Members: memberPage(ctx, p.Members)}
		if p.Refused != nil {
			preview.Error = new(p.Refused.Error())
		}
		return preview, nil
	})
	a.Query("resolveDeviceGroupTargets", Requires(model.DeviceRead), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		after, err := cursor(args, "afterId")
		if err != nil {
			return nil, err
		}
		var version *int64
		if args.Has("version") && !args.IsNull("version") {
			version = new(int64(args.Int("version")))
		}
		return groups.Targets(ctx, PrincipalFrom(ctx), args.String("groupToken"), version, after, int64(args.Int("limit")))
	})
}

func registerGroupVersions(a *Area, from *registry.Groups) {
	versions := engine.NewLoader(func(ctx context.Context, groups []int64) (map[int64][]*entity.Version, error) {
		return from.VersionsOf(ctx, PrincipalFrom(ctx), groups)
	})
	a.Field("EntityGroup", "versions", engine.On(func(ctx context.Context, g registry.EntityGroup, _ engine.Args) (any, error) {
		return versions.Then(ctx, g.ID, func(some []*entity.Version, _ bool) (any, error) {
			if some == nil {
				some = []*entity.Version{} // an empty list, not null
			}
			return some, nil
		}), nil
	}))
	snapshots := engine.NewLoader(func(ctx context.Context, ids []int64) (map[int64]*registry.GroupSnapshot, error) {
		return from.Snapshots(ctx, PrincipalFrom(ctx), ids)
	})
	frozen := func(of func(*registry.GroupSnapshot) string) engine.Resolver {
		return engine.On(func(ctx context.Context, v entity.Version, _ engine.Args) (any, error) {
			return snapshots.Then(ctx, v.ID, func(s *registry.GroupSnapshot, ok bool) (any, error) {
				if !ok {
					return nil, nil // a publish has removed it since
				}
				return of(s), nil
			}), nil
		})
	}
	a.Field("EntityGroupVersion", "selector", frozen(func(s *registry.GroupSnapshot) string { return s.Selector }))
	a.Field("EntityGroupVersion", "memberType", frozen(func(s *registry.GroupSnapshot) string { return s.MemberType }))
}

// paginated reads the argument pagination.
func paginated(ctx context.Context, args engine.Args) store.Page {
	pagination := args.Object("pagination")
	hintPage(ctx, pagination)
	return store.Page{Number: pagination.Int("pageNumber"), Size: pagination.Int("pageSize")}
}

// cursor reads an argument that a former answer gave, 0 where there is none.
func cursor(args engine.Args, name string) (int64, error) {
	text := args.Text(name)
	if text == nil {
		return 0, nil
	}
	ids, err := RowIDs(name, []string{*text})
	if err != nil || len(ids) == 0 {
		return 0, model.Invalid(name, "%.40q is no cursor: pass the nextCursor of the page before", *text)
	}
	return ids[0], nil
}
