package engine

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// results bounds the bytes of all responses that are being built, or written to slow clients. A response over the bound
// is refused at once: requests that each hold a part of their response and wait for one another would never end.
type results struct {
	maximum int64
	used    atomic.Int64
	refused prometheus.Counter
}

// add counts n more bytes and reports whether the sum is within the bound. They count in either case, until give.
func (r *results) add(n int64) bool { return r.used.Add(n) <= r.maximum }

func (r *results) give(n int64) { r.used.Add(-n) }
