package engine

import (
	"context"
	"fmt"
	"maps"
	"sync"
)

// maxBatch bounds the keys of one batch of a Loader.
const maxBatch = 1000

// Loader fetches values by key in batches: the keys that the fields of one level of a response load are fetched together,
// each key once per request. A Loader is made once and used by all requests; the fetched values belong to the request.
type Loader[K comparable, V any] struct {
	fetch func(ctx context.Context, keys []K) (map[K]V, error)
}

// NewLoader returns a loader over fetch, which leaves out keys without a value. fetch gets at most 1000 distinct keys.
func NewLoader[K comparable, V any](fetch func(ctx context.Context, keys []K) (map[K]V, error)) *Loader[K, V] {
	return &Loader[K, V]{fetch: fetch}
}

// Load returns a Thunk of the value of key, null when there is none. A resolver returns it as its result.
func (l *Loader[K, V]) Load(ctx context.Context, key K) Thunk {
	return l.Then(ctx, key, func(v V, ok bool) (any, error) {
		if !ok {
			return nil, nil
		}
		return v, nil
	})
}

// Then is Load with a conversion: fn gets the value and whether there is one.
func (l *Loader[K, V]) Then(ctx context.Context, key K, fn func(v V, ok bool) (any, error)) Thunk {
	b := batchOf(ctx, l)
	b.want(key)
	return func() (any, error) {
		v, ok, err := b.get(ctx, key)
		if err != nil {
			return nil, err
		}
		return fn(v, ok)
	}
}

// loaderSet holds the batches of one execution.
type loaderSet struct {
	mu      sync.Mutex
	batches map[any]any // *Loader → *batch
}

func (s *loaderSet) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches = nil
}

func batchOf[K comparable, V any](ctx context.Context, l *Loader[K, V]) *batch[K, V] {
	fresh := func() *batch[K, V] { return &batch[K, V]{fetch: l.fetch, known: map[K]V{}, asked: map[K]bool{}} }
	sc, ok := ctx.Value(scopeKey{}).(*scope)
	if !ok {
		return fresh() // outside an execution there is nothing to share
	}
	sc.loaders.mu.Lock()
	defer sc.loaders.mu.Unlock()
	if b, ok := sc.loaders.batches[l]; ok {
		return b.(*batch[K, V])
	}
	if sc.loaders.batches == nil {
		sc.loaders.batches = map[any]any{}
	}
	b := fresh()
	sc.loaders.batches[l] = b
	return b
}

type batch[K comparable, V any] struct {
	fetch func(context.Context, []K) (map[K]V, error)

	mu      sync.Mutex
	pending []K
	asked   map[K]bool
	known   map[K]V
	err     error // of the last fetch, which is not repeated
}

func (b *batch[K, V]) want(key K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.asked[key] {
		b.asked[key] = true
		b.pending = append(b.pending, key)
	}
}

func (b *batch[K, V]) get(ctx context.Context, key K) (v V, ok bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.pending) > 0 && b.err == nil {
		n := min(len(b.pending), maxBatch)
		keys := b.pending[:n:n]
		b.pending = b.pending[n:]
		found, err := b.fetch(ctx, keys)
		if err != nil {
			b.err = fmt.Errorf("load %d values: %w", n, err)
			break
		}
		maps.Copy(b.known, found)
	}
	if v, ok = b.known[key]; ok {
		return v, true, nil
	}
	return v, false, b.err
}
