package gql

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	requests       *prometheus.CounterVec   // area, kind
	seconds        *prometheus.HistogramVec // area
	errors         *prometheus.CounterVec   // code
	internal       *prometheus.CounterVec   // area
	cacheHits      prometheus.Counter
	cacheMisses    prometheus.Counter
	cacheEvictions prometheus.Counter
	cacheBytes     prometheus.Gauge
	pendingRefused prometheus.Counter
	resultsRefused prometheus.Counter
	sockets        prometheus.Gauge
	subscriptions  prometheus.Gauge
	socketsClosed  *prometheus.CounterVec // code
	socketsRefused *prometheus.CounterVec // limit
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
			Help: "Time that queries and mutations took.", Buckets: []float64{.001, .005, .02, .1, .5, 2, 10, 30}}, []string{"area"}),
		errors:         counters("weir_graphql_errors_total", "Errors that callers were shown, by code.", "code"),
		internal:       counters("weir_graphql_internal_errors_total", "Errors that callers were not shown.", "area"),
		cacheHits:      counter("weir_graphql_document_cache_hits_total", "Requests whose document was ready."),
		cacheMisses:    counter("weir_graphql_document_cache_misses_total", "Requests whose document had to be prepared."),
		cacheEvictions: counter("weir_graphql_document_cache_evictions_total", "Documents that made room."),
		cacheBytes:     gauge("weir_graphql_document_cache_bytes", "Estimated size of the documents kept."),
		pendingRefused: counter("weir_graphql_pending_refused_total", "Requests refused because too much was pending."),
		resultsRefused: counter("weir_graphql_results_refused_total", "Answers given up because all answers together were too large."),
		sockets:        gauge("weir_graphql_websocket_connections", "Open WebSocket connections."),
		subscriptions:  gauge("weir_graphql_websocket_operations", "Operations running on WebSocket connections."),
		socketsClosed:  counters("weir_graphql_websocket_closed_total", "WebSocket connections closed by the server, by close code.", "code"),
		socketsRefused: counters("weir_graphql_websocket_refused_total", "What was refused at a limit: instance, identity, subscriptions.", "limit"),
		slow:           counter("weir_graphql_websocket_slow_total", "Subscriptions ended because the subscriber was too slow."),
	}
	for _, limit := range []string{"instance", "identity", "subscriptions"} { // shown from the start
		m.socketsRefused.WithLabelValues(limit)
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.seconds, m.errors, m.internal, m.cacheHits, m.cacheMisses, m.cacheEvictions, m.cacheBytes,
			m.pendingRefused, m.resultsRefused, m.sockets, m.subscriptions, m.socketsClosed, m.socketsRefused, m.slow)
	}
	return m
}

// registerBounds shows how much of what is bounded may be used, and is.
func (s *Server) registerBounds(reg prometheus.Registerer) {
	gauge := func(name, help string, value func() int64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_graphql_" + name, Help: help}, func() float64 { return float64(value()) }))
	}
	l := s.cfg.Limits
	gauge("pending_bytes", "Bodies that are being read and run.", s.admission.held.Load)
	gauge("max_pending_bytes", "Most bytes of bodies that may be at a time; others wait.", func() int64 { return l.PendingBytes })
	gauge("result_bytes", "Answers that are being put together or written.", s.results.used.Load)
	gauge("max_result_bytes", "Most bytes of answers at a time.", func() int64 { return l.ResultBytes })
	gauge("max_document_cache_bytes", "Most bytes of documents that are kept.", func() int64 { return l.CacheBytes })
	gauge("max_websocket_connections", "Most WebSocket connections at once.", func() int64 { return int64(l.Connections) })
}
