package engine

import (
	"context"
	"maps"
	"time"

	"github.com/graphql-go/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator/core"
)

// Engine executes the requests of one schema.
type Engine struct {
	*Runtime
	name          string // of the area, in the log and the metrics
	fields        map[string]*field
	types         map[string][]*Binding
	schema        *ast.Schema
	rules         []core.Rule
	introspection *introspection
	roots         map[ast.Operation]*graphql.Schema
	shown         map[string]shownField             // by type.field, of fields without a resolver
	leaves        map[string]func(any) (any, error) // how scalars and enums are shown
}

// Execute runs a query or mutation and returns after its last resolver has returned.
// While it runs, its result counts against Limits.ResultBytes; the response that it returns no longer does.
func (e *Engine) Execute(ctx context.Context, req Request) *Response {
	resp := e.Respond(ctx, req)
	resp.Done()
	return resp
}

// Respond is Execute with a response that counts against Limits.ResultBytes until the caller has written it and calls
// its Done.
func (e *Engine) Respond(ctx context.Context, req Request) *Response {
	start := time.Now()
	op, resp := e.Prepare(req)
	if resp != nil {
		return resp
	}
	return e.perform(ctx, op, req.Variables, start)
}

// Prepare parses and checks a request. A response means that it was refused.
func (e *Engine) Prepare(req Request) (*Operation, *Response) {
	start := time.Now()
	doc, errs := e.document(req.Query)
	if len(errs) > 0 {
		return nil, e.refused(start, errs...)
	}
	op, err := doc.find(req.OperationName)
	if err != nil {
		return nil, e.refused(start, err)
	}
	return op, nil
}

// refused counts the refusal of a request and returns it.
func (e *Engine) refused(start time.Time, errs ...*Error) *Response {
	resp := Refuse(errs...)
	e.observe("refused", start, resp)
	return resp
}

// Perform is Respond for a prepared operation.
func (e *Engine) Perform(ctx context.Context, op *Operation, variables map[string]any) *Response {
	return e.perform(ctx, op, variables, time.Now())
}

// perform is Perform with the beginning of the duration in the metrics.
func (e *Engine) perform(ctx context.Context, op *Operation, in map[string]any, start time.Time) *Response {
	resp := e.execute(ctx, op, in)
	e.observe(string(op.def.Operation), start, resp)
	return resp
}

func (e *Engine) observe(kind string, start time.Time, resp *Response) {
	if resp.Refused() {
		kind = "refused"
	}
	e.metrics.requests.WithLabelValues(e.name, kind).Inc()
	e.metrics.seconds.WithLabelValues(e.name).Observe(time.Since(start).Seconds())
	for _, err := range resp.Errors {
		if code := err.Code(); code != "" {
			e.metrics.errors.WithLabelValues(string(code)).Inc()
		}
	}
}

func (e *Engine) execute(ctx context.Context, op *Operation, in map[string]any) *Response {
	if op.def.Operation == ast.Subscription {
		return Refuse(Errorf("", "subscriptions are served over a WebSocket with the subprotocol graphql-transport-ws"))
	}
	inputs, errs := e.inputs(op, in)
	if len(errs) > 0 {
		return Refuse(errs...)
	}
	sc, cancel := e.newScope(ctx, op, inputs)
	defer cancel()
	resp := &Response{limit: e.limits.ResponseBytes, shape: op.shape, data: map[string]any{}}
	if len(op.introspection) > 0 {
		e.introspection.answer(op, inputs.variables, resp.data)
	}
	for _, s := range op.steps {
		if !sc.runStep(s, nil, inputs, resp) {
			break
		}
	}
	return sc.finish(resp)
}

// finish replaces a response over a limit by an error, except for mutations, whose effects the caller must see.
func (sc *scope) finish(resp *Response) *Response {
	resp.held, resp.results, resp.hints = sc.bytes.Load(), sc.engine.results, sc.hints.list()
	switch {
	case sc.crowded.Load() && sc.op.def.Operation != ast.Mutation:
		sc.engine.results.refused.Inc()
		resp.data, resp.Errors = nil, []*Error{errCrowded}
	case sc.bytes.Load() > int64(sc.engine.limits.ResponseBytes):
		resp.data, resp.Errors = nil, []*Error{responseLimit(sc.engine.limits.ResponseBytes)}
	case sc.expired() && sc.op.def.Operation != ast.Mutation && len(resp.Errors) > 0:
		resp.data, resp.Errors = nil, []*Error{timeError(sc.op.within)}
	}
	return resp
}

// inputs are the variables of a request and the arguments of every field, coerced.
type inputs struct {
	variables map[string]any
	args      map[*ast.Field]Args
	booleans  map[string]any
}

func (e *Engine) inputs(op *Operation, in map[string]any) (inputs, []*Error) {
	vars, errs := e.variables(op.def, in)
	if len(errs) > 0 {
		return inputs{}, errs
	}
	out := inputs{variables: vars, args: make(map[*ast.Field]Args, len(op.sites))}
	c := literalCoercer{schema: e.schema, vars: vars, run: true}
	for _, s := range op.sites {
		if s.constant {
			out.args[s.field] = s.args
			continue
		}
		args := c.arguments(s.field.Definition.Arguments, s.field.Arguments, s.field.Position)
		if err := e.checkLists(s.reg, args); err != nil {
			return inputs{}, []*Error{err.at(s.field.Position)}
		}
		out.args[s.field] = args
	}
	for _, d := range op.conditions {
		c.arguments(d.Definition.Arguments, d.Arguments, d.Position)
	}
	if len(c.errs) > 0 {
		return inputs{}, c.errs
	}
	if len(op.booleans) > 0 {
		out.booleans = make(map[string]any, len(op.booleans))
		for name := range op.booleans {
			out.booleans[name] = vars[name]
		}
	}
	return out, e.checkCost(op, out.args)
}

func (e *Engine) checkCost(op *Operation, args map[*ast.Field]Args) []*Error {
	cost := price(op.cost, 1, e.limits.Cost, func(i int) Args { return args[op.sites[i].field] })
	if cost > e.limits.Cost {
		return []*Error{LimitError("cost", "the request costs more than %d: select less, or smaller pages", e.limits.Cost)}
	}
	return nil
}

func (e *Engine) newScope(ctx context.Context, op *Operation, in inputs) (*scope, context.CancelFunc) {
	sc := &scope{engine: e, args: in.args, op: op}
	ctx, cancel := context.WithTimeout(ctx, op.within)
	sc.ctx = context.WithValue(ctx, scopeKey{}, sc)
	return sc, cancel
}

// runStep executes one step and adds its result to resp. It returns false when no further step may run: a null has
// reached the root, or the time is over.
func (sc *scope) runStep(s step, root any, in inputs, resp *Response) bool {
	sc.loaders.reset() // values that an earlier mutation changed are read again
	if s.plain != nil && sc.runPlain(s.plain, resp) {
		return true
	}
	res := graphql.Execute(graphql.ExecuteParams{
		Schema:  *sc.engine.roots[sc.op.def.Operation],
		Root:    root,
		AST:     s.doc,
		Args:    in.booleans,
		Context: context.WithoutCancel(sc.ctx),
	})
	resp.Errors = append(resp.Errors, sc.collect(res.Errors)...)
	data, ok := res.Data.(map[string]any)
	if !ok {
		resp.data = nil
		return false
	}
	maps.Copy(resp.data, data)
	return sc.ctx.Err() == nil
}
