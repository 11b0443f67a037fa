package registry

import "github.com/prometheus/client_golang/prometheus"

// metrics are the registry's counters.
type metrics struct {
	publishes *prometheus.CounterVec // by outcome
	lookups   *prometheus.CounterVec // by outcome
	forgotten prometheus.Counter
	pruned    prometheus.Counter
	fences    prometheus.Counter
	edges     *prometheus.CounterVec // by finding
}

// newMetrics makes the counters and registers them; with a nil reg they count unseen.
func newMetrics(reg prometheus.Registerer, adopted func() float64) *metrics {
	m := &metrics{
		publishes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_registry_publishes_total",
			Help: "Publishes of device profiles by outcome (published, refused, failed)."}, []string{"outcome"}),
		lookups: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_registry_credential_lookups_total",
			Help: "Lookups of device credentials in the store by outcome (found, none, failed)."}, []string{"outcome"}),
		forgotten: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_registry_credential_invalidations_total",
			Help: "Changes of devices and credentials that invalidated cached credentials."}),
		pruned: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_registry_versions_removed_total",
			Help: "Versions of device profiles that a publish removed because there were more than are kept."}),
		fences: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_registry_geofence_rows_removed_total",
			Help: "Former geometries that a change of a geofence removed because they were in no version of the set that is kept."}),
		edges: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_uplink_findings_total",
			Help: "What was found as edges signed in: a copy of an installation, another installation, numbers that are nowhere."}, []string{"finding"}),
	}
	for _, outcome := range []string{"published", "refused", "failed"} { // exported from the start
		m.publishes.WithLabelValues(outcome)
	}
	for _, outcome := range []string{"found", "none", "failed"} {
		m.lookups.WithLabelValues(outcome)
	}
	for _, finding := range []string{EdgeCloned, EdgeReplaced, EdgeGap} {
		m.edges.WithLabelValues(finding)
	}
	if reg != nil {
		reg.MustRegister(m.publishes, m.lookups, m.forgotten, m.pruned, m.fences, m.edges, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_registry_adopted_ids",
			Help: "External ids whose device, or whose absence, is remembered for messages of event sources."}, adopted))
	}
	return m
}
