package httpingest

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/connlimit"
)

// metrics are the transport's metrics. None has a tenant label.
type metrics struct {
	requests     *prometheus.CounterVec
	accepted     prometheus.Counter // of requests
	connections  prometheus.Gauge
	closedBefore prometheus.Counter
	waits        prometheus.Counter
	largeWaits   prometheus.Counter
	largeStopped prometheus.Counter
	closed       *prometheus.CounterVec // by reason
	handshakes   prometheus.Counter
}

// newMetrics makes the metrics and registers them when reg is not nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_httpingest_requests_total",
			Help: "Requests of the ingest listener, by status code."}, []string{"code"}),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_httpingest_connections",
			Help: "Open connections of the ingest listener."}),
		closedBefore: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_eventsources_total_http_connections_closed_before_request",
			Help: "Connections closed before a request was complete."}),
	}
	m.waits = prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_httpingest_connection_waits_total",
		Help: "Times that accept waited because the ingest listener had its maximum of connections."})
	m.largeWaits = prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_httpingest_large_body_waits_total",
		Help: "Bodies over 64 KiB that waited because the maximum was being read."})
	m.largeStopped = prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_httpingest_large_bodies_stopped_total",
		Help: "Bodies over 64 KiB that did not arrive while others waited: their connections were closed."})
	m.handshakes = prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_httpingest_failed_handshakes_total",
		Help: "TLS handshakes of the ingest listener that failed."})
	m.closed = connlimit.NewClosed("weir_httpingest_connections_closed_total")
	m.requests.WithLabelValues(strconv.Itoa(http.StatusTooManyRequests)) // what turns away at a bound is shown from the start
	m.accepted = m.requests.WithLabelValues(strconv.Itoa(http.StatusAccepted))
	if reg != nil {
		reg.MustRegister(m.requests, m.connections, m.closedBefore, m.waits, m.largeWaits, m.largeStopped, m.closed, m.handshakes)
	}
	return m
}

// registerBounds registers a gauge for each bound and its use.
func (h *handler) registerBounds(reg prometheus.Registerer) {
	gauge := func(name, help string, value func() int) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_httpingest_" + name, Help: help}, func() float64 { return float64(value()) }))
	}
	gauge("max_connections", "Maximum number of connections of the ingest listener.", func() int { return h.cfg.MaxConnections })
	gauge("polls", "Requests for commands that are being answered or wait.", h.polls.len)
	gauge("polling_devices", "Devices that are remembered to fetch their commands.", h.polls.known)
	gauge("max_polls", "Maximum number of requests for commands that may wait.", func() int { return h.cfg.MaxPolls })
	gauge("large_bodies", "Bodies over 64 KiB being read.", func() int { return h.large.Len() })
	gauge("max_large_bodies", "Maximum number of bodies over 64 KiB being read.", func() int { return h.large.Max() })
}
