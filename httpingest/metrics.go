package httpingest

import "github.com/prometheus/client_golang/prometheus"

// metrics are the door's figures. None carries a tenant.
type metrics struct {
	requests     *prometheus.CounterVec
	connections  prometheus.Gauge
	closedBefore prometheus.Counter
}

// newMetrics makes the metrics and registers them when reg is not nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_httpingest_requests_total",
			Help: "Requests of the ingest listener, by the status that they were answered with."}, []string{"status"}),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_httpingest_connections",
			Help: "Connections of the ingest listener that are open."}),
		closedBefore: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_eventsources_total_http_connections_closed_before_request",
			Help: "Connections that were closed before a request was complete: it did not come, or not in time."}),
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.connections, m.closedBefore)
	}
	return m
}
