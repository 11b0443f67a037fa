package engine

import (
	"context"
	"errors"
	"time"

	"weir/internal/hub"
)

// Stream returns the values of a subscription one by one.
type Stream interface {
	// Next waits for a value. An error ends the subscription: hub.ErrSlow and *model.Error are reported to the subscriber
	// as they are, hub.ErrClosed ends it without an error, any other error becomes "internal error".
	Next(ctx context.Context) (any, error)
	// Close releases the stream. It is called once.
	Close()
}

// SubscriptionBuffer is the maximum number of values that wait for a subscriber. With more, its subscription ends.
const SubscriptionBuffer = 256

// StreamOf makes a stream of the values of a hub's subscription (with a buffer of SubscriptionBuffer values); show
// converts each into the Go type that the schema's type is bound to.
func StreamOf[T any](sub *hub.Subscription[T], show func(T) any) Stream {
	return hubStream[T]{sub, show}
}

type hubStream[T any] struct {
	sub  *hub.Subscription[T]
	show func(T) any
}

func (s hubStream[T]) Next(ctx context.Context) (any, error) {
	v, err := s.sub.Next(ctx)
	if err != nil {
		return nil, err
	}
	return s.show(v), nil
}

func (s hubStream[T]) Close() { s.sub.Close() }

// event is the root value of one execution of a subscription's selection.
type event struct{ value any }

// Subscription is an open subscription: Next executes its selection for the next value.
type Subscription struct {
	engine *Engine
	op     *Operation
	inputs inputs
	stream Stream
}

// Subscribes reports whether the operation is a subscription.
func (op *Operation) Subscribes() bool { return op.subscription != nil }

// Subscribe opens the subscription of an operation; a response means that it was refused.
func (e *Engine) Subscribe(ctx context.Context, op *Operation, in map[string]any) (*Subscription, *Response) {
	start := time.Now()
	inputs, errs := e.inputs(op, in)
	if len(errs) > 0 {
		return nil, e.refused(start, errs...)
	}
	s := &Subscription{engine: e, op: op, inputs: inputs}
	sc, cancel := e.newScope(ctx, op, inputs)
	defer cancel()
	stream, err := s.open(ctx, sc)
	if err != nil {
		return nil, e.refused(start, sc.translate(op.subscription.String(), err))
	}
	s.stream = stream
	e.metrics.requests.WithLabelValues(e.name, "subscription").Inc()
	return s, nil
}

// open calls the subscriber. Its stream ends with ctx and not with the scope of one execution.
func (s *Subscription) open(ctx context.Context, sc *scope) (stream Stream, err error) {
	var opened any
	func() {
		defer sc.masked(s.op.subscription.String(), &opened, &err)
		if err = sc.authorize(s.op.subscription); err != nil {
			return
		}
		opened, err = s.op.subscription.subscribe(ctx, s.inputs.args[s.op.subField])
	}()
	if err != nil {
		return nil, err
	}
	stream, ok := opened.(Stream)
	if !ok || stream == nil {
		return nil, errors.New("the subscriber returned no stream")
	}
	return stream, nil
}

// Next waits for a value and returns the response for it. At the end it returns nil and, unless the client
// or the hub ended it, the errors.
func (s *Subscription) Next(ctx context.Context) (*Response, []*Error) {
	v, err := s.wait(ctx)
	if err != nil {
		return nil, s.ended(ctx, err)
	}
	sc, cancel := s.engine.newScope(ctx, s.op, s.inputs)
	defer cancel()
	resp := &Response{limit: s.engine.limits.ResponseBytes, shape: s.op.shape, data: map[string]any{}}
	sc.runStep(s.op.steps[0], event{v}, s.inputs, resp)
	return sc.finish(resp), nil
}

// Close releases the subscription. It is called once.
func (s *Subscription) Close() { s.stream.Close() }

func (s *Subscription) wait(ctx context.Context) (v any, err error) {
	sc := &scope{engine: s.engine, ctx: ctx, op: s.op}
	defer sc.masked(s.op.subscription.String(), &v, &err)
	return s.stream.Next(ctx)
}

func (s *Subscription) ended(ctx context.Context, err error) []*Error {
	switch {
	case errors.Is(err, hub.ErrSlow):
		s.engine.metrics.slow.Inc()
		return []*Error{LimitError("subscription buffer",
			"the subscriber is too slow: more than %d items were waiting, the subscription has ended", SubscriptionBuffer)}
	case ctx.Err() != nil, errors.Is(err, hub.ErrClosed):
		return nil
	}
	sc := &scope{engine: s.engine, ctx: ctx, op: s.op}
	return []*Error{sc.translate(s.op.subscription.String(), err)}
}
