package connectors

import (
	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/delivery"
)

type metrics struct {
	dispatches *prometheus.CounterVec
	kept       prometheus.Gauge
}

// dispatchActions are what is dispatched: the actions of rules, and messages on demand.
var dispatchActions = []string{"httpCall", "publish", "test"}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		dispatches: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_connectors_dispatch_total",
			Help: "Attempts to deliver to other systems, by action (httpCall, publish, test) and outcome."}, []string{"action", "outcome"}),
		kept: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_connectors_connections", Help: "Connections to other systems that are kept for the next delivery, of all tenants."}),
	}
	for _, a := range dispatchActions {
		for _, o := range delivery.Outcomes() {
			m.dispatches.WithLabelValues(a, string(o))
		}
	}
	if reg != nil {
		reg.MustRegister(m.dispatches, m.kept)
	}
	return m
}

func (m *metrics) dispatched(action string, o Outcome) {
	m.dispatches.WithLabelValues(action, string(o)).Inc()
}
