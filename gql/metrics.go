package gql

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	pendingRefused prometheus.Counter
	bodiesStopped  prometheus.Counter
	sockets        prometheus.Gauge
	socketsPending prometheus.Gauge
	subscriptions  prometheus.Gauge
	socketsClosed  *prometheus.CounterVec // code
	socketsRefused *prometheus.CounterVec // limit
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
		pendingRefused: counter("weir_graphql_pending_refused_total", "Requests refused because the maximum of pending bytes was reached."),
		bodiesStopped:  counter("weir_graphql_bodies_stopped_total", "Request bodies that did not arrive while others waited: their connections were closed."),
		sockets:        gauge("weir_graphql_websocket_connections", "Open WebSocket connections."),
		socketsPending: gauge("weir_graphql_websocket_pending", "WebSocket connections without a connection_init."),
		subscriptions:  gauge("weir_graphql_websocket_operations", "Operations running on WebSocket connections."),
		socketsClosed:  counters("weir_graphql_websocket_closed_total", "WebSocket connections closed by the server, by close code.", "code"),
		socketsRefused: counters("weir_graphql_websocket_refused_total", "WebSocket connections and subscriptions refused, by limit (instance, identity, subscriptions).", "limit"),
	}
	for _, limit := range []string{"instance", "identity", "subscriptions", "pending", "unauthenticated"} { // exported from the start
		m.socketsRefused.WithLabelValues(limit)
	}
	m.socketsClosed.WithLabelValues(strconv.Itoa(int(closeMalformed)))
	if reg != nil {
		reg.MustRegister(m.pendingRefused, m.bodiesStopped, m.sockets, m.socketsPending, m.subscriptions, m.socketsClosed, m.socketsRefused)
	}
	return m
}

// registerBounds shows how much of what is bounded may be used, and is.
func (s *Server) registerBounds(reg prometheus.Registerer) {
	gauge := func(name, help string, value func() int64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_graphql_" + name, Help: help}, func() float64 { return float64(value()) }))
	}
	l := s.cfg.Limits
	gauge("pending_bytes", "Size of the request bodies being read and executed.", s.admission.held.Load)
	gauge("max_pending_bytes", "Maximum of pending bytes; further requests wait.", func() int64 { return l.PendingBytes })
	gauge("medium_bodies", "Request bodies over 4 KiB being read.", func() int64 { return int64(s.admission.medium.Len()) })
	gauge("max_medium_bodies", "Maximum number of request bodies over 4 KiB being read.", func() int64 { return int64(s.admission.medium.Max()) })
	gauge("large_bodies", "Request bodies over 64 KiB being read and executed.", func() int64 { return int64(s.admission.large.Len()) })
	gauge("max_large_bodies", "Maximum number of request bodies over 64 KiB being read and executed.", func() int64 { return int64(s.admission.large.Max()) })
	gauge("max_websocket_connections", "Maximum number of WebSocket connections.", func() int64 { return int64(l.Connections) })
}
