package auth

import "container/list"

// lru is a bounded map that evicts the least recently used entry when it is full. Not safe for concurrent use.
type lru[K comparable, V any] struct {
	max     int
	entries map[K]*list.Element
	order   *list.List // most recent first
	evicted func(K, V)
}

type lruEntry[K comparable, V any] struct {
	key   K
	value V
}

func newLRU[K comparable, V any](most int, evicted func(K, V)) *lru[K, V] {
	return &lru[K, V]{max: most, entries: make(map[K]*list.Element), order: list.New(), evicted: evicted}
}

// get returns the entry and marks it as used.
func (l *lru[K, V]) get(k K) (V, bool) {
	e, ok := l.entries[k]
	if !ok {
		var none V
		return none, false
	}
	l.order.MoveToFront(e)
	return e.Value.(*lruEntry[K, V]).value, true
}

func (l *lru[K, V]) put(k K, v V) {
	if e, ok := l.entries[k]; ok {
		e.Value.(*lruEntry[K, V]).value = v
		l.order.MoveToFront(e)
		return
	}
	// Put first, then evict: the newest never goes.
	l.entries[k] = l.order.PushFront(&lruEntry[K, V]{k, v})
	if len(l.entries) > l.max {
		l.drop(l.order.Back())
	}
}

func (l *lru[K, V]) remove(k K) {
	if e, ok := l.entries[k]; ok {
		l.drop(e)
	}
}

func (l *lru[K, V]) drop(e *list.Element) {
	en := e.Value.(*lruEntry[K, V])
	l.order.Remove(e)
	delete(l.entries, en.key)
	if l.evicted != nil {
		l.evicted(en.key, en.value)
	}
}

func (l *lru[K, V]) len() int { return len(l.entries) }
