package engine

import (
	"container/list"
	"sync"
)

// cache keeps the most recently used documents of all areas, bounded by their estimated size. The key holds the whole
// text and not a hash, so that two different texts never share an entry.
type cache struct {
	maximum int64
	metrics *metrics

	mu    sync.Mutex
	bytes int64
	used  list.List // of *cacheEntry, most recently used first
	byKey map[cacheKey]*list.Element
}

type cacheKey struct {
	engine *Engine
	text   string
}

type cacheEntry struct {
	key   cacheKey
	doc   *document
	bytes int64
}

func newCache(maximum int64, m *metrics) *cache {
	return &cache{maximum: maximum, metrics: m, byKey: map[cacheKey]*list.Element{}}
}

func (c *cache) get(key cacheKey) *document {
	c.mu.Lock()
	defer c.mu.Unlock()
	el, ok := c.byKey[key]
	if !ok {
		c.metrics.cacheMisses.Inc()
		return nil
	}
	c.metrics.cacheHits.Inc()
	c.used.MoveToFront(el)
	return el.Value.(*cacheEntry).doc
}

// put adds d and evicts the least recently used documents. A document larger than an eighth of the cache is not kept.
func (c *cache) put(key cacheKey, d *document) {
	size := documentBytes(key.text, d)
	if size > c.maximum/8 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.byKey[key]; ok { // prepared twice at the same time
		return
	}
	c.byKey[key] = c.used.PushFront(&cacheEntry{key, d, size})
	c.bytes += size
	for c.bytes > c.maximum {
		last := c.used.Back()
		e := c.used.Remove(last).(*cacheEntry)
		delete(c.byKey, e.key)
		c.bytes -= e.bytes
		c.metrics.cacheEvictions.Inc()
	}
	c.metrics.cacheBytes.Set(float64(c.bytes))
}

// documentBytes estimates the memory of a document. Measured: about 20 bytes for each byte of text and 750 for each
// selection with fragments spread (the parsed tree, the executor's tree, the plain fields, the shape and the cost).
func documentBytes(text string, d *document) int64 {
	n := int64(1024) + 20*int64(len(text))
	for _, op := range d.operations {
		n += 750 * int64(countCost(op.cost))
	}
	return n
}

func countCost(nodes []costNode) int {
	n := len(nodes)
	for i := range nodes {
		n += countCost(nodes[i].children)
	}
	return n
}
