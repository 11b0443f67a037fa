package inference

import (
	"sync"
	"time"

	"weir/model"
)

// rates are the buckets of tenants, counted in requests.
type rates struct {
	now func() time.Time

	mu      sync.Mutex
	buckets map[int64]*bucket // by row id of the tenant
}

// sweepFrom is the number of buckets from which those that are full again are removed.
const sweepFrom = 1024

type bucket struct {
	tokens, perMinute, burst float64
	at                       time.Time
}

func newRates(now func() time.Time) *rates { return &rates{now: now, buckets: map[int64]*bucket{}} }

// take takes a request of a tenant and returns 0, or how long it has to wait for one. Other tenants are not affected.
func (r *rates) take(tenant int64, perMinute float64, burst int64) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	b := r.buckets[tenant]
	if b == nil {
		if len(r.buckets) >= sweepFrom {
			r.sweep(now)
		}
		b = &bucket{tokens: float64(burst), burst: float64(burst), at: now}
		r.buckets[tenant] = b
	}
	b.refill(now)
	if size := float64(burst); size != b.burst { // used tokens stay used
		b.tokens, b.burst = max(0, b.tokens+size-b.burst), size
	}
	b.perMinute = perMinute
	if b.tokens >= 1 {
		b.tokens--
		return 0
	}
	if perMinute <= 0 {
		return time.Hour
	}
	return max(time.Duration((1-b.tokens)/perMinute*float64(time.Minute)), 1)
}

func (b *bucket) refill(now time.Time) {
	if d := now.Sub(b.at); d > 0 {
		b.tokens, b.at = min(b.burst, b.tokens+b.perMinute*d.Minutes()), now
	}
}

// sweep removes the buckets that are full: a new one is the same.
func (r *rates) sweep(now time.Time) {
	for tenant, b := range r.buckets {
		if b.refill(now); b.tokens >= b.burst {
			delete(r.buckets, tenant)
		}
	}
}

// Requests that are under way at a time.
const (
	maxInFlight  = 16
	maxPerTenant = 4 // and of the operator
)

// places bound the requests that are under way.
type places struct {
	mu       sync.Mutex
	all      int
	ofTenant map[string]int
}

func newPlaces() *places { return &places{ofTenant: map[string]int{}} }

// enter takes a place for a request, which release gives back, or returns why there is none.
func (p *places) enter(tenant string) (release func(), why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ofTenant[tenant] >= maxPerTenant:
		return nil, &model.Error{Code: model.CodeThrottled, Message: "throttled: four requests to AI providers are under way",
			Ext: map[string]any{"retryAfterSeconds": 1}}
	case p.all >= maxInFlight:
		return nil, &model.Error{Code: model.CodeUnavailable, Reason: ReasonUnreachable, Message: "unavailable: too many requests to AI providers are under way"}
	}
	p.all++
	p.ofTenant[tenant]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.all--
		if p.ofTenant[tenant]--; p.ofTenant[tenant] == 0 {
			delete(p.ofTenant, tenant)
		}
	}, nil
}
