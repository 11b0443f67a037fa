package gql

import (
	"context"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"weir/model"
	"weir/registry"
	"weir/store"
)

// RegisterRegistry gives the device-management area its device types, profiles, metric definitions, detection rules,
// devices and device credentials.
func RegisterRegistry(a *Area, r *registry.Registry) {
	g := &registryResolvers{area: a, r: r}
	a.Type("SearchResultsPagination", searchPage{})
	g.deviceTypes()
	g.deviceProfiles()
	g.metricDefinitions()
	g.detectionRules()
	g.devices()
	g.deviceCredentials()
}

// registryResolvers registers the kinds of the registry; one method and file per kind.
type registryResolvers struct {
	area *Area
	r    *registry.Registry
}

// searchPage is the place of a page in a list.
type searchPage struct {
	Start int   `gql:"pageStart"`
	End   int   `gql:"pageEnd"`
	Total int64 `gql:"totalRecords"`
}

// searchResults is a page of records.
type searchResults[T any] struct {
	Results    []*T       `gql:"results"`
	Pagination searchPage `gql:"pagination"`
}

// entity describes how a kind of record shows in the API.
type entity[T any] struct {
	kind   *registry.Kind[T]
	typ    string          // "DeviceType"
	plural string          // "deviceTypes"
	read   model.Authority // of the queries; mutations take device:write
	filter func(criteria Args) []store.Filter
	own    []string // fields of the type that the kind's own file resolves, though the Go type has them
}

// registerEntity adds what all kinds of records share: reads by id, by token and by page, create, update, delete, and the
// fields that stand in the record.
func registerEntity[T any](a *Area, e entity[T]) {
	read, write := Requires(e.read), Requires(model.DeviceWrite)
	a.Query(e.plural+"ById", read, func(ctx context.Context, _ any, args Args) (any, error) {
		ids, err := rowIDs("ids", args.Strings("ids"))
		if err != nil {
			return nil, err
		}
		return e.kind.ByID(ctx, PrincipalFrom(ctx), ids)
	})
	a.Query(e.plural+"ByToken", read, func(ctx context.Context, _ any, args Args) (any, error) {
		return e.kind.ByToken(ctx, PrincipalFrom(ctx), args.Strings("tokens"))
	})
	a.Query(e.plural, read, func(ctx context.Context, _ any, args Args) (any, error) {
		return listRecords(ctx, e, args.Object("criteria"))
	})
	a.Mutation("create"+e.typ, write, func(ctx context.Context, _ any, args Args) (any, error) {
		request, err := createRequest(args)
		if err != nil {
			return nil, err
		}
		return e.kind.Create(ctx, PrincipalFrom(ctx), request)
	})
	a.Mutation("update"+e.typ, write, func(ctx context.Context, _ any, args Args) (any, error) {
		return e.kind.Update(ctx, PrincipalFrom(ctx), args.String("token"), args.Patch("request"))
	})
	a.Mutation("delete"+e.typ, write, func(ctx context.Context, _ any, args Args) (any, error) {
		return e.kind.Delete(ctx, PrincipalFrom(ctx), args.String("token"))
	})
	a.Type(e.typ+"SearchResults", searchResults[T]{})
	recordFields(a, e)
}

// createRequest is the request of a create, which the schema lets clients leave out.
func createRequest(args Args) (store.Patch, error) {
	if !args.Has("request") || args.IsNull("request") {
		return nil, model.Invalid("request", "is required")
	}
	return args.Patch("request"), nil
}

func listRecords[T any](ctx context.Context, e entity[T], criteria Args) (any, error) {
	page := store.Page{Number: criteria.Int("pageNumber"), Size: criteria.Int("pageSize")}
	var filters []store.Filter
	if e.filter != nil {
		filters = e.filter(criteria)
	}
	rows, total, err := e.kind.List(ctx, PrincipalFrom(ctx), page, filters...)
	if err != nil {
		return nil, err
	}
	start, end := page.Span(len(rows))
	return searchResults[T]{Results: rows, Pagination: searchPage{Start: start, End: end, Total: total}}, nil
}

// recordFields registers the fields of a record's type that stand in its Go type: the row's own, and those whose tag
// names a field of the API. References and secrets have a tag too, but it is the name under which requests set them.
func recordFields[T any](a *Area, e entity[T]) {
	skip := slices.Clone(e.own)
	for _, f := range e.kind.Fields() {
		if f.Ref != "" || f.Secret {
			skip = append(skip, f.Name)
		}
	}
	t := reflect.TypeFor[T]()
	for _, f := range taggedFields(t) {
		if !slices.Contains(skip, f.name) {
			a.Field(e.typ, f.name, readField(f.index))
		}
	}
	row, _ := t.FieldByName("Row")
	for name, goName := range map[string]string{"id": "ID", "createdAt": "CreatedAt", "updatedAt": "UpdatedAt"} {
		f, _ := row.Type.FieldByName(goName)
		a.Field(e.typ, name, readField(append(slices.Clone(row.Index), f.Index...)))
	}
	a.Field(e.typ, "deletedAt", alwaysNull) // records are deleted for good
}

func readField(index []int) Resolver {
	return func(_ context.Context, src any, _ Args) (any, error) {
		v := reflect.Indirect(reflect.ValueOf(src)).FieldByIndex(index)
		if v.Kind() == reflect.Pointer && v.IsNil() {
			return nil, nil
		}
		return v.Interface(), nil
	}
}

func alwaysNull(context.Context, any, Args) (any, error) { return nil, nil }

// rowIDs reads row ids. Decimal ones that no row can have are left out, as unknown ones are.
func rowIDs(argument string, texts []string) ([]int64, error) {
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

// byRow is a loader of records by their row ids.
func byRow[T any](kind *registry.Kind[T], id func(*T) int64) *Loader[int64, *T] {
	return NewLoader(func(ctx context.Context, ids []int64) (map[int64]*T, error) {
		rows, err := kind.ByID(ctx, PrincipalFrom(ctx), ids)
		if err != nil {
			return nil, err
		}
		found := make(map[int64]*T, len(rows))
		for _, row := range rows {
			found[id(row)] = row
		}
		return found, nil
	})
}

// below is a loader of the records under an owner, in the order of lists: newest first, then by token.
func below[T any](kind *registry.Kind[T], column string, owner func(*T) int64, compare func(a, b *T) int) *Loader[int64, []*T] {
	return NewLoader(func(ctx context.Context, owners []int64) (map[int64][]*T, error) {
		values := make([]any, len(owners))
		for i, id := range owners {
			values[i] = id
		}
		rows, err := kind.By(ctx, PrincipalFrom(ctx), column, values...)
		if err != nil {
			return nil, err
		}
		found := make(map[int64][]*T, len(owners))
		for _, row := range rows {
			found[owner(row)] = append(found[owner(row)], row)
		}
		for _, rows := range found {
			slices.SortFunc(rows, compare)
		}
		return found, nil
	})
}

// compareListed is the order of lists.
func compareListed(a, b store.Row, aToken, bToken string) int {
	if a.CreatedAt != b.CreatedAt {
		if a.CreatedAt > b.CreatedAt {
			return -1
		}
		return 1
	}
	return strings.Compare(aToken, bToken)
}

// orEmpty is the last step of a loader of lists: no records are an empty list, not null.
func orEmpty[T any](rows []*T, _ bool) (any, error) {
	if rows == nil {
		return []*T{}, nil
	}
	return rows, nil
}
