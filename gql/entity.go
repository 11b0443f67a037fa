package gql

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"

	"weir/gql/engine"
	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// Entities registers the kinds of a catalog in the area: their types, queries and mutations as far as the schema has
// them, with the targets of their references and their parts. A field that is registered by hand takes precedence.
func (a *Area) Entities(c *entity.Catalog) {
	e := &entities{area: a, catalog: c, byID: map[string]*engine.Loader[int64, any]{}}
	a.schema.Complete(e.register)
}

// searchPage is the position of a page in a list.
type searchPage struct {
	Start int   `gql:"pageStart"`
	End   int   `gql:"pageEnd"`
	Total int64 `gql:"totalRecords"`
}

// AsOf returns the receive time up to which everything that was received is in what is queried now; nil: it is not known.
type AsOf func() model.Micros

// now is the time for a query that has not read anything yet.
func (f AsOf) now() *model.Micros {
	if f == nil {
		return nil
	}
	return new(f())
}

// searchResults is a page of rows.
type searchResults struct {
	Results    []any      `gql:"results"`
	Pagination searchPage `gql:"pagination"`
}

// entities registers the kinds of an area once its schema is known.
type entities struct {
	area    *Area
	catalog *entity.Catalog
	schema  *ast.Schema
	byID    map[string]*engine.Loader[int64, any] // of rows, by table
}

func (e *entities) register(schema *ast.Schema) {
	e.schema = schema
	if e.schema.Types["SearchResultsPagination"] != nil && !e.area.schema.Bound("SearchResultsPagination") {
		e.area.Type("SearchResultsPagination", searchPage{})
	}
	for _, kind := range e.catalog.Area(e.area.name) {
		info := kind.Info()
		if schema.Types[info.Type] == nil {
			e.area.schema.Fail(fmt.Errorf("the schema has no type %s, which %s is shown as", info.Type, info.Kind))
			continue
		}
		e.shown(kind)
		e.reads(kind)
		e.writes(kind)
		e.versions(kind)
		for _, problem := range checkEntity(schema, info) {
			e.area.schema.Fail(problem)
		}
	}
}

// shown registers the fields of a kind's type: those of the row, and the entities that it refers to.
func (e *entities) shown(kind entity.Any) {
	info := kind.Info()
	e.bind(kind)
	if results := info.Type + "SearchResults"; e.schema.Types[results] != nil {
		e.area.Type(results, searchResults{})
	}
	for _, ref := range info.Refs() {
		if to := e.catalog.Of(ref.Ref); to != nil {
			e.showForeign(to)
			e.refer(info.Type, entity.Object(ref), e.leadsTo(kind, ref.Column, to))
		}
	}
	if info.Secret {
		e.refer(info.Type, "hasSecret", func(_ context.Context, src any, _ engine.Args) (any, error) {
			return kind.Value(src, "has_secret"), nil
		})
	}
	for _, part := range kind.Parts() {
		e.refer(info.Type, part.Info().Plural, e.partsOf(kind, part))
	}
}

// showForeign registers the fields of a kind that another area serves, as far as the schema of this one has its type.
func (e *entities) showForeign(kind entity.Any) {
	info := kind.Info()
	if info.Area == e.area.name || e.schema.Types[info.Type] == nil || e.area.schema.Bound(info.Type) {
		return
	}
	e.shown(kind)
}

// bind binds the rows of a kind: the fields of the row, and those whose tag names a field of the API. References have a tag
// too, but it is the name under which requests set them. Secrets are shown as null.
func (e *entities) bind(kind entity.Any) {
	b, err := rowBinding(kind.New())
	if err != nil {
		e.area.schema.Fail(err)
		return
	}
	for _, f := range kind.Info().Fields {
		switch {
		case f.Ref != "", f.Hidden:
			b.Hide(f.Name)
		case f.Secret:
			b.Null(f.Name)
		case f.Large:
			b.Hide(f.Name)
			e.refer(kind.Info().Type, f.Name, notListed(kind, f))
		}
	}
	if kind.Info().Area != e.area.name { // this area shows a part of it
		shown := e.schema.Types[kind.Info().Type].Fields
		b.Only(func(name string) bool { return shown.ForName(name) != nil })
	}
	e.area.schema.Bind(kind.Info().Type, b)
}

// notListed shows a large field, which rows of lists do not have.
func notListed(kind entity.Any, f store.Field) engine.Resolver {
	info := kind.Info()
	return func(_ context.Context, src any, _ engine.Args) (any, error) {
		if text, _ := kind.Value(src, f.Column).(string); text != "" {
			return text, nil
		}
		return nil, model.Invalid(f.Name, "%s does not return it, read it with %s(token)", info.Plural, small(info.Type))
	}
}

// leadsTo resolves a reference; the targets of many rows are read in one batch.
func (e *entities) leadsTo(kind entity.Any, column string, to entity.Any) engine.Resolver {
	rows := e.byID[to.Info().Table]
	if rows == nil {
		rows = rowsByID(to)
		e.byID[to.Info().Table] = rows
	}
	return func(ctx context.Context, src any, _ engine.Args) (any, error) {
		id, ok := kind.Value(src, column).(int64)
		if !ok {
			return nil, nil
		}
		return rows.Load(ctx, id), nil
	}
}

// rowsByID loads the rows of a kind that others refer to.
func rowsByID(kind entity.Any) *engine.Loader[int64, any] {
	return engine.NewLoader(func(ctx context.Context, ids []int64) (map[int64]any, error) {
		some, err := kind.Follow(ctx, PrincipalFrom(ctx), "id", anys(ids)...)
		found := make(map[int64]any, len(some))
		for _, row := range some {
			found[kind.Head(row).ID] = row
		}
		return found, err
	})
}

// partsOf resolves the parts of a row, in the order of lists.
func (e *entities) partsOf(kind, part entity.Any) engine.Resolver {
	column := part.Info().Parent.Column
	rows := engine.NewLoader(func(ctx context.Context, owners []int64) (map[int64][]any, error) {
		some, err := part.Follow(ctx, PrincipalFrom(ctx), column, anys(owners)...)
		found := make(map[int64][]any, len(owners))
		for _, row := range some {
			owner := part.Value(row, column).(int64)
			found[owner] = append(found[owner], row)
		}
		for _, rows := range found {
			part.Sort(rows)
		}
		return found, err
	})
	return func(ctx context.Context, src any, _ engine.Args) (any, error) {
		return rows.Then(ctx, kind.Head(src).ID, func(rows []any, _ bool) (any, error) {
			if rows == nil {
				rows = []any{} // an empty list, not null
			}
			return rows, nil
		}), nil
	}
}

// loadRows loads rows by their keys, those of several fields together: each once, in the order of row ids.
func loadRows[K comparable](ctx context.Context, rows *engine.Loader[K, any], keys []K, head func(any) *store.Row) engine.Thunk {
	thunks := make([]engine.Thunk, len(keys))
	for i, key := range keys {
		thunks[i] = rows.Load(ctx, key)
	}
	return func() (any, error) {
		found := make([]any, 0, len(keys))
		for _, load := range thunks {
			row, err := load()
			if err != nil {
				return nil, err
			}
			if row != nil {
				found = append(found, row)
			}
		}
		slices.SortFunc(found, func(a, b any) int { return cmp.Compare(head(a).ID, head(b).ID) })
		return slices.CompactFunc(found, func(a, b any) bool { return head(a).ID == head(b).ID }), nil
	}
}

func keyed[K comparable](rows []any, key func(row any) K) map[K]any {
	found := make(map[K]any, len(rows))
	for _, row := range rows {
		found[key(row)] = row
	}
	return found
}

func anys(ids []int64) []any {
	out := make([]any, len(ids))
	for i, id := range ids {
		out[i] = id
	}
	return out
}

func (e *entities) reads(kind entity.Any) {
	info := kind.Info()
	access := Requires(info.Read...)
	byID := engine.NewLoader(func(ctx context.Context, ids []int64) (map[int64]any, error) {
		rows, err := kind.ByID(ctx, PrincipalFrom(ctx), ids)
		return keyed(rows, func(row any) int64 { return kind.Head(row).ID }), err
	})
	e.query(info.Plural+"ById", access, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		ids, err := RowIDs("ids", args.Strings("ids"))
		if err != nil {
			return nil, err
		}
		return loadRows(ctx, byID, ids, kind.Head), nil
	})
	byToken := engine.NewLoader(func(ctx context.Context, tokens []string) (map[string]any, error) {
		rows, err := kind.ByToken(ctx, PrincipalFrom(ctx), tokens)
		return keyed(rows, kind.Token), err
	})
	e.query(info.Plural+"ByToken", access, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return loadRows(ctx, byToken, args.Strings("tokens"), kind.Head), nil
	})
	e.query(small(info.Type), access, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		rows, err := kind.ByToken(ctx, PrincipalFrom(ctx), []string{args.String("token")})
		if err != nil || len(rows) == 0 {
			return nil, err
		}
		return rows[0], nil
	})
	e.query(info.Plural, access, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		criteria := args.Object("criteria")
		page := store.Page{Number: criteria.Int("pageNumber"), Size: criteria.Int("pageSize")}
		filters, err := info.Criteria(ctx, PrincipalFrom(ctx), criteria.Map())
		if err != nil {
			return nil, err
		}
		rows, total, err := kind.List(ctx, PrincipalFrom(ctx), page, filters...)
		if err == nil && total == 0 {
			err = e.hintUnknown(ctx, info, criteria)
		}
		if err != nil {
			return nil, err
		}
		return Results(page, rows, total), nil
	})
}

func (e *entities) writes(kind entity.Any) {
	info := kind.Info()
	access := Requires(info.Write...)
	e.mutation("create"+info.Type, access, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		if !args.Has("request") || args.IsNull("request") { // the schema declares it optional
			return nil, model.Invalid("request", "is required")
		}
		patch := args.Patch("request")
		row, err := kind.Create(ctx, PrincipalFrom(ctx), patch)
		hintAdvice(ctx, kind, row, patch)
		return row, err
	})
	e.mutation("update"+info.Type, access, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		expect, err := expected(args)
		if err != nil {
			return nil, err
		}
		patch := args.Patch("request")
		row, err := kind.Update(ctx, PrincipalFrom(ctx), args.String("token"), patch, expect)
		hintAdvice(ctx, kind, row, patch)
		return row, err
	})
	e.mutation("delete"+info.Type, Requires(info.Delete...), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return kind.Delete(ctx, PrincipalFrom(ctx), args.String("token"))
	})
	e.mutation("rename"+info.Type, access, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		return kind.Rename(ctx, PrincipalFrom(ctx), args.String("token"), args.String("newToken"))
	})
}

func (e *entities) versions(kind entity.Any) {
	info, versions := kind.Info(), kind.Versions()
	if versions == nil {
		return
	}
	e.area.Type(info.Type+"Version", entity.Version{})
	write := Requires(info.Write...)
	e.mutation("publish"+info.Type, write, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		expect, err := expected(args)
		if err != nil {
			return nil, err
		}
		v, err := versions.Publish(ctx, PrincipalFrom(ctx), args.String("token"), args.Text("label"), args.Text("description"), expect)
		if err == nil {
			for _, r := range v.Remarks {
				engine.Hint(ctx, "%s: %s", r.Token, r.Message)
			}
		}
		return v, err
	})
	e.mutation("rollback"+info.Type, write, func(ctx context.Context, _ any, args engine.Args) (any, error) {
		expect, err := expected(args)
		if err != nil {
			return nil, err
		}
		return versions.Rollback(ctx, PrincipalFrom(ctx), args.String("token"), int64(args.Int("version")), expect)
	})
	e.query(small(info.Type)+"Versions", Requires(info.Read...), func(ctx context.Context, _ any, args engine.Args) (any, error) {
		limit, offset, err := span(args)
		if err != nil {
			return nil, err
		}
		return versions.History(ctx, PrincipalFrom(ctx), args.String("token"), limit, offset)
	})
}

// Bounds of the arguments limit and offset. Where the schema has none all is returned that is kept.
const (
	standardLimit = 100
	maxLimit      = 1000
)

// span reads the arguments limit and offset.
func span(args engine.Args) (limit, offset int64, err error) {
	limit, offset = standardLimit, 0
	if args.Has("limit") && !args.IsNull("limit") {
		if limit = int64(args.Int("limit")); limit < 1 || limit > maxLimit {
			return 0, 0, model.Invalid("limit", "must be between 1 and %d", maxLimit)
		}
	}
	if args.Has("offset") && !args.IsNull("offset") {
		if offset = int64(args.Int("offset")); offset < 0 {
			return 0, 0, model.Invalid("offset", "must not be negative")
		}
	}
	return limit, offset, nil
}

// query, mutation and refer register a field that the schema has and that has no registration yet.
func (e *entities) query(name string, access Access, fn engine.Resolver) {
	if e.lacks(e.schema.Query, "Query", name) {
		e.area.Query(name, access, fn)
	}
}

func (e *entities) mutation(name string, access Access, fn engine.Resolver) {
	if e.lacks(e.schema.Mutation, "Mutation", name) {
		e.area.Mutation(name, access, fn)
	}
}

func (e *entities) refer(typ, name string, fn engine.Resolver) {
	if e.lacks(e.schema.Types[typ], typ, name) {
		e.area.Field(typ, name, fn, engine.Refers())
	}
}

func (e *entities) lacks(def *ast.Definition, typ, name string) bool {
	return def != nil && def.Fields.ForName(name) != nil && !e.area.schema.Registered(typ, name)
}

// small returns the name with a lower-case first letter.
func small(name string) string { return strings.ToLower(name[:1]) + name[1:] }

// expected reads the precondition of a write.
func expected(args engine.Args) (entity.Expect, error) {
	text := args.Text("expectedUpdatedAt")
	if text == nil {
		return 0, nil
	}
	at, err := model.ParseTime(*text)
	if err != nil {
		return 0, model.Invalid("expectedUpdatedAt", "%.40q is no RFC 3339 time", *text)
	}
	return entity.Expect(model.MicrosOf(at)), nil
}

// RowIDs parses row ids. Decimal numbers that no row can have are left out, as unknown ids are.
func RowIDs(argument string, texts []string) ([]int64, error) {
	ids := make([]int64, 0, len(texts))
	for _, s := range texts {
		if s == "" || strings.Trim(s, "0123456789") != "" {
			return nil, model.Invalid(argument, "%.40q is no decimal id", s)
		}
		if id, err := strconv.ParseInt(s, 10, 64); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
