package gql

import (
	"context"
	"fmt"
	"sync"

	"weir/gql/engine"
	"weir/model"
	"weir/store"
)

// Area is one endpoint under construction: register everything, then Build or Open the server. Root fields are registered with the
// access that they demand, the fields of types as in its schema.
type Area struct {
	schema     *engine.Schema
	name       string
	plane      Plane
	operations []Operation
	once       sync.Once // of engine and err
	engine     *engine.Engine
	err        error
	starting   func() *Starting // nil: the area answers from the first moment on
}

// built returns the engine of the area, which the first call prepares.
func (a *Area) built() (*engine.Engine, error) {
	a.once.Do(func() {
		var err error
		if a.engine, err = a.schema.Build(); err != nil {
			a.engine, a.err = nil, fmt.Errorf("gql: area %s: %w", a.name, err)
		}
	})
	return a.engine, a.err
}

// Starting is why an area does not answer yet: it shows what is applied of the log, and a start is at it.
type Starting struct {
	Applied, Records int64
	RetryAfter       int // whole seconds
}

// WaitFor makes an area answer UNAVAILABLE as long as starting does not return nil. It is called before Build or Open.
func (a *Area) WaitFor(starting func() *Starting) { a.starting = starting }

// refusal is the answer of an area that does not answer yet, nil for one that does. How much there is to apply is shown to
// callers that have proven who they are.
func (a *Area) refusal(anonymous bool) *model.Error {
	if a.starting == nil {
		return nil
	}
	s := a.starting()
	if s == nil {
		return nil
	}
	e := model.Errorf(model.CodeUnavailable, "Weir is starting: queries wait until what was acknowledged before the start is applied; devices are served")
	e.Ext = map[string]any{"retryAfterSeconds": s.RetryAfter}
	if !anonymous {
		e.Message += fmt.Sprintf("; %d of %d records are applied", s.Applied, s.Records)
		e.Ext["appliedRecords"], e.Ext["recordsToApply"] = s.Applied, s.Records
	}
	return e
}

// Name returns the area's name, which is also that of its schema file.
func (a *Area) Name() string { return a.name }

// SDL returns the schema text as it is published.
func (a *Area) SDL() string { return a.schema.SDL() }

// Query registers a field of the query root.
func (a *Area) Query(name string, access Access, fn engine.Resolver, opts ...engine.Option) {
	a.schema.Query(name, a.demand("query", name, access), withPageHints(fn), opts...)
}

// Mutation registers a field of the mutation root.
func (a *Area) Mutation(name string, access Access, fn engine.Resolver, opts ...engine.Option) {
	a.schema.Mutation(name, a.demand("mutation", name, access), fn, opts...)
}

// Subscription registers a field of the subscription root.
func (a *Area) Subscription(name string, access Access, fn engine.Subscriber, opts ...engine.Option) {
	a.schema.Subscription(name, a.demand("subscription", name, access), fn, opts...)
}

// Field registers a field of an object type that is not simply read from the Go value.
func (a *Area) Field(typ, name string, fn engine.Resolver, opts ...engine.Option) {
	a.schema.Field(typ, name, fn, opts...)
}

// Type binds Go types to a type of the schema, see engine.Schema.
func (a *Area) Type(name string, samples ...any) { a.schema.Type(name, samples...) }

// Types is Type for each of some types, by name.
func (a *Area) Types(samples map[string]any) {
	for name, sample := range samples {
		a.schema.Type(name, sample)
	}
}

// Row binds the rows of a table to a type of the schema: the fields of store.Row, and those whose tag names a field.
// Fields named in hidden are not shown.
func (a *Area) Row(name string, sample any, hidden ...string) {
	b, err := rowBinding(sample)
	if err != nil {
		a.schema.Fail(fmt.Errorf("type %s: %w", name, err))
		return
	}
	for _, field := range hidden {
		b.Hide(field)
	}
	a.schema.Bind(name, b)
}

// rowBinding binds the rows of a table. The time of deletion is shown as null: rows are deleted for good.
func rowBinding(sample any) (*engine.Binding, error) {
	b, err := engine.NewBinding(sample)
	if err != nil {
		return nil, err
	}
	b.Null("deletedAt")
	b.Show("id", "ID")
	b.Show("createdAt", "CreatedAt")
	b.Show("updatedAt", "UpdatedAt")
	return b, nil
}

// Paged binds types of search results, which Results makes.
func (a *Area) Paged(names ...string) {
	if !a.schema.Bound("SearchResultsPagination") {
		a.Type("SearchResultsPagination", searchPage{})
	}
	for _, name := range names {
		a.Type(name, searchResults{})
	}
}

// Results are the rows of a page of a list.
func Results[T any](page store.Page, rows []T, total int64) any {
	out := searchResults{Results: make([]any, len(rows)), Pagination: searchPage{Total: total}}
	for i := range rows {
		out.Results[i] = rows[i]
	}
	out.Pagination.Start, out.Pagination.End = page.Span(len(rows))
	return out
}

// demand lists an operation and returns the check of its access.
func (a *Area) demand(kind, name string, access Access) engine.Check {
	a.operations = append(a.operations, Operation{Area: a.name, Plane: a.plane, Kind: kind, Name: name, Access: access})
	for _, authority := range access.authorities {
		if model.TierOf(authority) == 0 {
			a.schema.Fail(fmt.Errorf("%s %s requires the unknown authority %q", kind, name, authority))
		}
	}
	return func(ctx context.Context) error {
		call := CallFrom(ctx)
		return access.check(a.plane, call.Transport, call.Principal)
	}
}

// RegisterPlaceholder registers the area event-sources, which has a route but no operations: devices send by transports.
func RegisterPlaceholder(a *Area) {
	null := func(context.Context, any, engine.Args) (any, error) { return nil, nil }
	a.Query("_empty", Anonymous(), null)
	a.Mutation("_empty", Anonymous(), null)
}
