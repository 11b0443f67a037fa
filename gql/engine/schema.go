package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/vektah/gqlparser/v2/ast"
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
		return nil, fmt.Errorf("engine: source is %T, want %s", src, reflect.TypeFor[Src]())
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

// Within gives a request with this root field the time limit d, where that is longer than the common one: for what waits for
// another system.
func Within(d time.Duration) Option { return func(f *field) { f.within = d } }

// Refers marks a field that only reads the target of a reference, through a Loader, so that the plain path may do so,
// too.
func Refers() Option { return func(f *field) { f.refers = true } }

// field is the registration of one field of the schema.
type field struct {
	typ, name       string
	root            bool
	check           Check // nil: none
	resolve         Resolver
	subscribe       Subscriber
	credentialCheck bool
	listLimits      map[string]int
	multiplier      func(Args) int
	refers          bool
	within          time.Duration // 0: the common time limit
}

func (f *field) String() string { return f.typ + "." + f.name }

// Check decides whether the caller in ctx may use a root field. Its error is returned to the caller.
type Check func(ctx context.Context) error

// Schema is a schema under construction: register everything, then Build it.
type Schema struct {
	runtime *Runtime
	name    string
	sdl     string
	fields  map[string]*field // by Type.field
	types   map[string][]*Binding
	errs    []error
	// lacking are called once the schema is parsed; each registers fields that have no registration yet.
	lacking []func(*ast.Schema)
}

// Schema begins a schema with the given text. The name is that of its metrics and log lines.
func (r *Runtime) Schema(name, sdl string) *Schema {
	r.metrics.create(name)
	return &Schema{runtime: r, name: name, sdl: sdl, fields: map[string]*field{}, types: map[string][]*Binding{}}
}

// SDL returns the schema text as it is published.
func (s *Schema) SDL() string { return s.sdl }

// Query registers a field of the query root. check is nil for a field that everyone may use.
func (s *Schema) Query(name string, check Check, fn Resolver, opts ...Option) {
	s.add(&field{typ: "Query", name: name, root: true, check: check, resolve: fn}, opts)
}

// Mutation registers a field of the mutation root.
func (s *Schema) Mutation(name string, check Check, fn Resolver, opts ...Option) {
	s.add(&field{typ: "Mutation", name: name, root: true, check: check, resolve: fn}, opts)
}

// Subscription registers a field of the subscription root.
func (s *Schema) Subscription(name string, check Check, fn Subscriber, opts ...Option) {
	s.add(&field{typ: "Subscription", name: name, root: true, check: check, subscribe: fn}, opts)
}

// Field registers a field of an object type that is not simply read from the Go value.
func (s *Schema) Field(typ, name string, fn Resolver, opts ...Option) {
	s.add(&field{typ: typ, name: name, resolve: fn}, opts)
}

// Type binds the samples' Go types (structs, or pointers to them, or map[string]any) to the schema type. Fields without
// a resolver are read from the Go fields tagged with their name; gql:"name,omitzero" shows a zero value as null. A nil
// pointer is null.
func (s *Schema) Type(name string, samples ...any) {
	for _, sample := range samples {
		b, err := NewBinding(sample)
		if err != nil {
			s.Fail(fmt.Errorf("type %s: %w", name, err))
			continue
		}
		s.Bind(name, b)
	}
}

// Bind is Type with a binding that was made field by field.
func (s *Schema) Bind(name string, b *Binding) { s.types[name] = append(s.types[name], b) }

// Bound reports whether a Go type is bound to the schema type.
func (s *Schema) Bound(typ string) bool { return s.types[typ] != nil }

// Registered reports whether a field of the type has a resolver.
func (s *Schema) Registered(typ, name string) bool { return s.fields[typ+"."+name] != nil }

// Complete has fn called once the schema is parsed, to register what has no registration yet.
func (s *Schema) Complete(fn func(*ast.Schema)) { s.lacking = append(s.lacking, fn) }

// Fail adds an error to that of Build. nil is ignored.
func (s *Schema) Fail(err error) {
	if err != nil {
		s.errs = append(s.errs, err)
	}
}

func (s *Schema) add(f *field, opts []Option) {
	for _, o := range opts {
		o(f)
	}
	if _, dup := s.fields[f.String()]; dup {
		s.Fail(fmt.Errorf("%s is registered twice", f))
	}
	if f.resolve == nil && f.subscribe == nil {
		s.Fail(fmt.Errorf("%s is registered without a function", f))
	}
	s.fields[f.String()] = f
}

// Build returns the engine of the schema. Its error lists everything that does not fit: fields without a resolver,
// resolvers without a field, Go fields of a type that the schema's type cannot show.
func (s *Schema) Build() (*Engine, error) {
	if len(s.errs) > 0 {
		return nil, errors.Join(s.errs...)
	}
	parsed, err := loadSchema(s.name, s.sdl)
	if err != nil {
		return nil, err
	}
	for _, register := range s.lacking {
		register(parsed)
	}
	if len(s.errs) > 0 {
		return nil, errors.Join(s.errs...)
	}
	return newEngine(s, parsed)
}
