package web

import (
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/connlimit"
)

// Bounded returns a listener for the server s that holds at most limit open connections, and shows how many as
// weir_<name>_connections. A nil registerer registers no metrics.
func Bounded(s *http.Server, l net.Listener, limit int, name string, reg prometheus.Registerer) net.Listener {
	c := connlimit.New(limit, newListenerMetrics(name, limit, reg))
	c.Guard(s)
	return c.Listen(l)
}

// newListenerMetrics makes the metrics of a connection limit.
func newListenerMetrics(name string, limit int, reg prometheus.Registerer) connlimit.Metrics {
	m := connlimit.Metrics{
		Connections: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_" + name + "_connections", Help: "Open connections of the listener."}),
		Waits: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_" + name + "_connection_waits_total",
			Help: "Times that accept waited because the listener had its maximum of connections."}),
		Closed: connlimit.NewClosed("weir_" + name + "_connections_closed_total"),
	}
	if reg != nil {
		reg.MustRegister(m.Connections, m.Waits, m.Closed, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_" + name + "_max_connections",
			Help: "Maximum number of connections of the listener."}, func() float64 { return float64(limit) }))
	}
	return m
}
