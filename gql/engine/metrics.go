package engine

import (
	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
)

type metrics struct {
	requests       *prometheus.CounterVec   // area, kind
	seconds        *prometheus.HistogramVec // area
	errors         *prometheus.CounterVec   // code
	internal       *prometheus.CounterVec   // area
	cacheHits      prometheus.Counter
	cacheMisses    prometheus.Counter
	cacheEvictions prometheus.Counter
	cacheBytes     prometheus.Gauge
	resultsRefused prometheus.Counter
	slow           prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &metrics{
		requests: counters("weir_graphql_requests_total", "GraphQL requests by kind: query, mutation, subscription, refused.", "area", "kind"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "weir_graphql_request_seconds",
			Help: "Duration of queries and mutations.", Buckets: []float64{.001, .005, .02, .1, .5, 2, 10, 30}}, []string{"area"}),
		errors:         counters("weir_graphql_errors_total", "Errors returned to callers, by code.", "code"),
		internal:       counters("weir_graphql_internal_errors_total", "Internal errors, whose details are not returned to callers.", "area"),
		cacheHits:      counter("weir_graphql_document_cache_hits_total", "Requests whose prepared document was in the cache."),
		cacheMisses:    counter("weir_graphql_document_cache_misses_total", "Requests whose document was not in the cache."),
		cacheEvictions: counter("weir_graphql_document_cache_evictions_total", "Documents evicted from the cache."),
		cacheBytes:     gauge("weir_graphql_document_cache_bytes", "Estimated size of the cached documents."),
		resultsRefused: counter("weir_graphql_results_refused_total", "Results abandoned because the maximum of result bytes was reached."),
		slow:           counter("weir_graphql_websocket_slow_subscribers_total", "Subscriptions ended because the subscriber was too slow."),
	}
	m.errors.WithLabelValues(string(model.CodeUnavailable))
	if reg != nil {
		reg.MustRegister(m.requests, m.seconds, m.errors, m.internal, m.cacheHits, m.cacheMisses, m.cacheEvictions, m.cacheBytes,
			m.resultsRefused, m.slow)
	}
	return m
}

// create makes the series of an area, so that a scrape shows them at 0 before they first count.
func (m *metrics) create(area string) {
	for _, kind := range []string{"query", "mutation", "subscription", "refused"} {
		m.requests.WithLabelValues(area, kind)
	}
	m.seconds.WithLabelValues(area)
	m.internal.WithLabelValues(area)
}

// registerBounds shows how much of what is bounded may be used, and is.
func (r *Runtime) registerBounds(reg prometheus.Registerer) {
	gauge := func(name, help string, value func() int64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_graphql_" + name, Help: help}, func() float64 { return float64(value()) }))
	}
	gauge("result_bytes", "Size of the results being built or written.", r.results.used.Load)
	gauge("max_result_bytes", "Maximum of result bytes.", func() int64 { return r.limits.ResultBytes })
	gauge("max_document_cache_bytes", "Maximum size of the document cache.", func() int64 { return r.limits.CacheBytes })
}
