package engine

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/graphql-go/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"weir/model"
)

// scope is the state of one execution that its resolvers share. graphql-go gets a context that is never cancelled and
// carries the scope; the resolvers get ctx. So an execution ends when its resolvers return, and no goroutine outlives the
// response.
type scope struct {
	engine   *Engine
	ctx      context.Context
	args     map[*ast.Field]Args
	op       *Operation
	bytes    atomic.Int64
	crowded  atomic.Bool // the bound on all results together was reached
	internal atomic.Int64
	loaders  loaderSet
	hints    hints
	ahead    map[string]outcome // of root fields that the plain path resolved before the executor, by response key
}

type scopeKey struct{}

func scopeFrom(ctx context.Context) *scope { return ctx.Value(scopeKey{}).(*scope) }

func (sc *scope) expired() bool { return errors.Is(sc.ctx.Err(), context.DeadlineExceeded) }

// over returns an error when the execution has ended and no further field may be resolved.
func (sc *scope) over(where string) error {
	if sc.expired() {
		return timeError(sc.op.within)
	}
	if err := sc.ctx.Err(); err != nil {
		return sc.translate(where, err)
	}
	return nil
}

// count adds the size of a leaf in the response, so that a response over the limit ends early.
func (sc *scope) count(where string, v any) (any, error) {
	if fn, ok := v.(Thunk); ok {
		return sc.thunk(where, fn), nil
	}
	n := 8
	if s, ok := v.(string); ok {
		n += len(s)
	}
	room, size := sc.engine.results.add(int64(n)), sc.bytes.Add(int64(n))
	switch {
	case size > int64(sc.engine.limits.ResponseBytes):
		return nil, responseLimit(sc.engine.limits.ResponseBytes)
	case !room:
		sc.crowded.Store(true)
		return nil, errCrowded
	}
	return v, nil
}

// errCrowded: the bound on all results together is reached.
var errCrowded = Errorf(model.CodeUnavailable, "too much is being answered at this moment; try again, or ask for less")

func responseLimit(maximum int) *Error {
	return LimitError("response", "the response is larger than the limit of %d bytes", maximum)
}

// run returns graphql-go's function for a registered resolver.
func (e *Engine) run(f *field) graphql.FieldResolveFn {
	where := f.String()
	return func(p graphql.ResolveParams) (any, error) {
		sc := scopeFrom(p.Context)
		src := p.Source
		if f.root {
			if done, ok := sc.ahead[p.Info.Path.Key.(string)]; ok {
				return atOnce(done.value), done.err
			}
			src = nil
		}
		var args Args
		if len(sc.args) > 0 {
			args = sc.args[sc.op.byField[p.Info.FieldASTs[0]]]
		}
		out, err := sc.resolve(f, where, src, args)
		return atOnce(out), err
	}
}

// atOnce makes one Thunk of a Thunk whose value may be a Thunk again, which graphql-go shows as null.
func atOnce(v any) any {
	first, ok := v.(Thunk)
	if !ok {
		return v
	}
	return Thunk(func() (any, error) {
		v, err := first()
		for err == nil {
			next, later := v.(Thunk)
			if !later {
				break
			}
			v, err = next()
		}
		return v, err
	})
}

// resolve calls a registered resolver if the caller may use it.
func (sc *scope) resolve(f *field, where string, src any, args Args) (out any, err error) {
	defer sc.masked(where, &out, &err)
	if f.root {
		if err := sc.authorize(f); err != nil {
			return nil, sc.translate(where, err)
		}
	}
	if err := sc.over(where); err != nil {
		return nil, err
	}
	v, err := f.resolve(sc.ctx, src, args)
	if err != nil {
		return nil, sc.translate(where, err)
	}
	return sc.count(where, v)
}

// authorize returns an error unless the caller may use a root field.
func (sc *scope) authorize(f *field) error {
	if f.check == nil {
		return nil
	}
	return f.check(sc.ctx)
}

// thunk wraps a value that is computed later with the checks of resolve. The value may be a Thunk again.
func (sc *scope) thunk(where string, fn Thunk) Thunk {
	return func() (out any, err error) {
		defer sc.masked(where, &out, &err)
		if err := sc.over(where); err != nil {
			return nil, err
		}
		v, err := fn()
		if err != nil {
			return nil, sc.translate(where, err)
		}
		return sc.count(where, v)
	}
}
