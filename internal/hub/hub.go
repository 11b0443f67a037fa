// Package hub distributes values from one publisher to many subscribers and never blocks the publisher. Each
// subscriber has a bounded buffer; a subscription whose buffer is full ends with ErrSlow after the values that it still
// has: it never misses a value silently.
package hub

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// The reasons, besides its context, why a subscription ends.
var (
	// ErrSlow is returned when the subscriber's buffer was full when more values were published.
	ErrSlow = errors.New("hub: subscriber is too slow")
	// ErrClosed is returned when the hub or the subscription was closed.
	ErrClosed = errors.New("hub: closed")
)

// Hub distributes values of T to its subscribers, which share them: published values must not change.
type Hub[T any] struct {
	metrics *metrics
	mu      sync.Mutex // guards changes of subs and closed
	closed  bool
	subs    atomic.Pointer[[]*Subscription[T]] // copied on change, so that Publish takes no common lock
}

// New returns a hub; name becomes the label "stream" of its metrics. A nil registerer registers nothing.
func New[T any](name string, reg prometheus.Registerer) *Hub[T] {
	h := &Hub[T]{metrics: newMetrics(name, reg)}
	h.subs.Store(new([]*Subscription[T]))
	return h
}

// Busy reports whether there is a subscriber, so that a publisher can avoid making values in vain.
func (h *Hub[T]) Busy() bool { return len(*h.subs.Load()) > 0 }

// Publish passes values to every subscriber whose filter accepts them. It never blocks; filters run in the caller's
// goroutine. Values published together form a batch: whether a subscriber is too slow depends on the values that it had
// not fetched before them, so that its buffer holds at most its bound and one batch.
func (h *Hub[T]) Publish(vs ...T) {
	for _, s := range *h.subs.Load() {
		s.offer(vs)
	}
}

// Subscribe returns a subscription to the values that filter (nil: all) accepts, with a buffer for buffer values (at least
// 1) not yet fetched. The caller closes it.
func (h *Hub[T]) Subscribe(filter func(T) bool, buffer int) *Subscription[T] {
	s := &Subscription[T]{hub: h, filter: filter, most: max(buffer, 1), wake: make(chan struct{}, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		s.end(ErrClosed)
		return s
	}
	subs := append(slices.Clone(*h.subs.Load()), s)
	h.subs.Store(&subs)
	h.metrics.subscribers.Set(float64(len(subs)))
	return s
}

// Close ends all subscriptions with ErrClosed, present and later ones.
func (h *Hub[T]) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, s := range *h.subs.Swap(new([]*Subscription[T])) {
		s.end(ErrClosed)
	}
	h.metrics.subscribers.Set(0)
}

func (h *Hub[T]) remove(s *Subscription[T]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	subs := slices.DeleteFunc(slices.Clone(*h.subs.Load()), func(x *Subscription[T]) bool { return x == s })
	h.subs.Store(&subs)
	h.metrics.subscribers.Set(float64(len(subs)))
}

// Subscription is one subscriber's subscription. One goroutine fetches; Close may be called from any.
type Subscription[T any] struct {
	hub    *Hub[T]
	filter func(T) bool
	most   int
	wake   chan struct{}

	mu    sync.Mutex
	queue []T
	err   error // the reason why no more values are queued
}

func (s *Subscription[T]) offer(vs []T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	behind, offered := len(s.queue) >= s.most, false
	for _, v := range vs {
		if s.err != nil || s.filter != nil && !s.filter(v) {
			continue
		}
		if offered = true; behind {
			s.err = ErrSlow
			s.hub.metrics.slow.Inc()
			break
		}
		s.queue = append(s.queue, v)
	}
	if offered {
		s.signal()
	}
}

func (s *Subscription[T]) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.signal()
}

func (s *Subscription[T]) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Next waits for the next value. When the subscription has ended it returns the queued values, and then ErrSlow,
// ErrClosed or the error of ctx.
func (s *Subscription[T]) Next(ctx context.Context) (T, error) {
	for {
		if v, ok, err := s.take(); ok {
			return v, err
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			var none T
			return none, ctx.Err()
		}
	}
}

func (s *Subscription[T]) take() (v T, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return v, s.err != nil, s.err
	}
	v = s.queue[0]
	var none T
	s.queue[0] = none
	if s.queue = s.queue[1:]; len(s.queue) == 0 {
		s.queue = nil // give the buffer back while the stream is quiet
	}
	return v, true, nil
}

// Close ends the subscription and drops the queued values.
func (s *Subscription[T]) Close() {
	s.hub.remove(s)
	s.end(ErrClosed)
	s.mu.Lock()
	s.queue = nil
	s.mu.Unlock()
}

type metrics struct {
	subscribers prometheus.Gauge
	slow        prometheus.Counter
}

func newMetrics(name string, reg prometheus.Registerer) *metrics {
	labels := prometheus.Labels{"stream": name}
	m := &metrics{
		subscribers: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_stream_subscribers",
			Help: "Open subscriptions.", ConstLabels: labels}),
		slow: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_stream_slow_subscribers_total",
			Help: "Subscriptions ended because the subscriber was too slow.", ConstLabels: labels}),
	}
	if reg != nil {
		reg.MustRegister(m.subscribers, m.slow)
	}
	return m
}
