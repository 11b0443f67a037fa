package registry

import "github.com/prometheus/client_golang/prometheus"

// metrics are the registry's counters.
type metrics struct {
	publishes *prometheus.CounterVec // by result
	lookups   *prometheus.CounterVec // by result
	forgotten prometheus.Counter
}

// newMetrics makes the counters and registers them; with a nil reg they count unseen.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		publishes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_registry_publishes_total",
			Help: "Publishes of device profiles by result: published, refused, failed."}, []string{"result"}),
		lookups: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_registry_credential_lookups_total",
			Help: "Look-ups of device credentials in the store by result: found, none, failed."}, []string{"result"}),
		forgotten: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_registry_credentials_forgotten_total",
			Help: "Changes of devices and credentials that verified credentials were forgotten for."}),
	}
	if reg != nil {
		reg.MustRegister(m.publishes, m.lookups, m.forgotten)
	}
	return m
}
