package gql

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/vektah/gqlparser/v2/ast"

	"weir/model"
)

// Resolver computes a field. src is nil for a root field, else the value of the object. It may return a Thunk (as a
// Loader does), which runs after all its siblings have been asked. A *model.Error is shown to the caller; any other
// error is logged and replaced by "internal error".
type Resolver func(ctx context.Context, src any, args Args) (any, error)

// Thunk is a value that is computed later.
type Thunk = func() (any, error)

// Subscriber opens a stream of values of a subscription field.
type Subscriber func(ctx context.Context, args Args) (Stream, error)

// Do makes a resolver of a root field whose arguments are decoded into In (see Args.Decode).
func Do[In any](fn func(ctx context.Context, in In) (any, error)) Resolver {
	return func(ctx context.Context, _ any, args Args) (any, error) {
		var in In
		if err := args.Decode(&in); err != nil {
			return nil, err
		}
		return fn(ctx, in)
	}
}

// On makes a resolver of a field of objects whose values are Src or *Src.
func On[Src any](fn func(ctx context.Context, src Src, args Args) (any, error)) Resolver {
	return func(ctx context.Context, src any, args Args) (any, error) {
		switch s := src.(type) {
		case Src:
			return fn(ctx, s, args)
		case *Src:
			if s == nil {
				return nil, nil
			}
			return fn(ctx, *s, args)
		}
		return nil, fmt.Errorf("gql: source is %T, want %s", src, reflect.TypeFor[Src]())
	}
}

// Listen makes a subscriber whose arguments are decoded into In.
func Listen[In any](fn func(ctx context.Context, in In) (Stream, error)) Subscriber {
	return func(ctx context.Context, args Args) (Stream, error) {
		var in In
		if err := args.Decode(&in); err != nil {
			return nil, err
		}
		return fn(ctx, in)
	}
}

// Option changes how a field is run.
type Option func(*field)

// CredentialCheck marks an operation that verifies a secret: a request may hold only few of them.
func CredentialCheck() Option { return func(f *field) { f.credentialCheck = true } }

// Timeout gives a root field its own time limit.
func Timeout(d time.Duration) Option { return func(f *field) { f.timeout = d } }

// ListLimit allows the list at path ("ids", "request.deviceTokens") up to maximum elements instead of the common limit.
func ListLimit(path string, maximum int) Option {
	return func(f *field) {
		if f.listLimits == nil {
			f.listLimits = map[string]int{}
		}
		f.listLimits[path] = maximum
	}
}

// Cost sets the factor by which the cost of a field's selections is multiplied, where the common rule (page size, length
// of the list of keys, 10 for a plain list) does not fit.
func Cost(fn func(Args) int) Option { return func(f *field) { f.multiplier = fn } }

// refers marks a field that only reads the target of a reference, through a Loader, so that the plain path may do so,
// too.
func refers() Option { return func(f *field) { f.refers = true } }

// field is the registration of one field of the schema.
type field struct {
	typ, name       string
	root            bool
	access          Access
	resolve         Resolver
	subscribe       Subscriber
	credentialCheck bool
	timeout         time.Duration
	listLimits      map[string]int
	multiplier      func(Args) int
	refers          bool
}

func (f *field) String() string { return f.typ + "." + f.name }

// Area is one endpoint under construction: register everything, then Build the server.
type Area struct {
	server *Server
	name   string
	plane  Plane
	sdl    string
	fields map[string]*field // by Type.field
	types  map[string][]*binding
	errs   []error
	engine *Engine
	// lacking are called once the schema is parsed; each registers fields that have no registration yet.
	lacking []func(*ast.Schema)
}

func newArea(s *Server, name string, plane Plane, sdl string) *Area {
	s.metrics.create(name)
	return &Area{server: s, name: name, plane: plane, sdl: sdl, fields: map[string]*field{}, types: map[string][]*binding{}}
}

// Name returns the area's name, which is also that of its schema file.
func (a *Area) Name() string { return a.name }

// SDL returns the schema text as it is published.
func (a *Area) SDL() string { return a.sdl }

// Query registers a field of the query root.
func (a *Area) Query(name string, access Access, fn Resolver, opts ...Option) {
	a.add(&field{typ: "Query", name: name, root: true, access: access, resolve: fn}, opts)
}

// Mutation registers a field of the mutation root.
func (a *Area) Mutation(name string, access Access, fn Resolver, opts ...Option) {
	a.add(&field{typ: "Mutation", name: name, root: true, access: access, resolve: fn}, opts)
}

// Subscription registers a field of the subscription root.
func (a *Area) Subscription(name string, access Access, fn Subscriber, opts ...Option) {
	a.add(&field{typ: "Subscription", name: name, root: true, access: access, subscribe: fn}, opts)
}

// Field registers a field of an object type that is not simply read from the Go value.
func (a *Area) Field(typ, name string, fn Resolver, opts ...Option) {
	a.add(&field{typ: typ, name: name, resolve: fn}, opts)
}

// Type binds the samples' Go types (structs, or pointers to them, or map[string]any) to the schema type. Fields without
// a resolver are read from the Go fields tagged with their name; gql:"name,omitzero" shows a zero value as null. A nil
// pointer is null.
func (a *Area) Type(name string, samples ...any) {
	for _, sample := range samples {
		b, err := newBinding(sample)
		if err != nil {
			a.fail(fmt.Errorf("type %s: %w", name, err))
			continue
		}
		a.types[name] = append(a.types[name], b)
	}
}

func (a *Area) add(f *field, opts []Option) {
	for _, o := range opts {
		o(f)
	}
	if _, dup := a.fields[f.String()]; dup {
		a.fail(fmt.Errorf("%s is registered twice", f))
	}
	if f.resolve == nil && f.subscribe == nil {
		a.fail(fmt.Errorf("%s is registered without a function", f))
	}
	for _, authority := range f.access.authorities {
		if model.TierOf(authority) == 0 {
			a.fail(fmt.Errorf("%s requires the unknown authority %q", f, authority))
		}
	}
	a.fields[f.String()] = f
}

func (a *Area) fail(err error) {
	if err != nil {
		a.errs = append(a.errs, err)
	}
}

func (a *Area) build() error {
	if len(a.errs) > 0 {
		return errors.Join(a.errs...)
	}
	schema, err := loadSchema(a.name, a.sdl)
	if err != nil {
		return err
	}
	for _, register := range a.lacking {
		register(schema)
	}
	if len(a.errs) > 0 {
		return errors.Join(a.errs...)
	}
	a.engine, err = newEngine(a, schema)
	return err
}

func (a *Area) operations() []Operation {
	var ops []Operation
	for _, key := range slices.Sorted(maps.Keys(a.fields)) {
		if f := a.fields[key]; f.root {
			ops = append(ops, Operation{Area: a.name, Plane: a.plane, Kind: strings.ToLower(f.typ), Name: f.name, Access: f.access})
		}
	}
	return ops
}
