package gql

import (
	"context"
	"fmt"

	"weir/gql/engine"
	"weir/model"
)

// Area is one endpoint under construction: register everything, then Build the server. Root fields are registered with the
// access that they demand, the fields of types as in its schema.
type Area struct {
	schema     *engine.Schema
	name       string
	plane      Plane
	operations []Operation
	engine     *engine.Engine
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
