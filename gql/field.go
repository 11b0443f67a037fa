package gql

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/graphql-go/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"weir/model"
)

// scope is one execution: what its resolvers share. graphql-go gets a context that is never over and finds the scope in
// it, the resolvers get ctx: so an execution ends by its resolvers heeding ctx, and nothing is left running behind an
// answer that was given early.
type scope struct {
	engine   *Engine
	ctx      context.Context
	call     Call
	time     time.Duration
	args     map[*ast.Field]Args
	op       *operation
	bytes    atomic.Int64
	crowded  atomic.Bool // there was no room among the results of all
	internal atomic.Int64
	loaders  loaderSet
	ahead    map[string]outcome // of root fields that were resolved before the executor began, by response key
}

type scopeKey struct{}

func scopeFrom(ctx context.Context) *scope { return ctx.Value(scopeKey{}).(*scope) }

func (sc *scope) expired() bool { return errors.Is(sc.ctx.Err(), context.DeadlineExceeded) }

// over is the error of a field that is not begun any more.
func (sc *scope) over(where string) error {
	if sc.expired() {
		return timeError(sc.time)
	}
	if err := sc.ctx.Err(); err != nil {
		return sc.translate(where, err)
	}
	return nil
}

// count adds what a leaf will cost in the response, so that an answer that grows too large ends early.
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

// errCrowded says that all answers together leave no room for this one.
var errCrowded = errorf(model.CodeUnavailable, "too much is being answered at this moment; try again, or ask for less")

func responseLimit(most int) *Error {
	return limitError("response", "the response is larger than the limit of %d bytes", most)
}

// run makes graphql-go's function of a registered resolver.
func (e *Engine) run(f *field) graphql.FieldResolveFn {
	where := f.String()
	return func(p graphql.ResolveParams) (any, error) {
		sc := scopeFrom(p.Context)
		src := p.Source
		if f.root {
			if done, ok := sc.ahead[p.Info.Path.Key.(string)]; ok {
				return done.value, done.err
			}
			src = nil
		}
		var args Args
		if len(sc.args) > 0 {
			args = sc.args[sc.op.byField[p.Info.FieldASTs[0]]]
		}
		return sc.resolve(f, where, src, args)
	}
}

// resolve calls a registered resolver, for those who may.
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
	return f.access.check(sc.engine.area.plane, sc.call.Transport, sc.call.Principal)
}

// thunk guards a value that is computed later, which may again be one.
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
