package govern

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	overCeiling            prometheus.Counter
	unauthenticatedRefused prometheus.Counter
	outboundWaits          prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, g *Govern) metrics {
	m := metrics{
		overCeiling: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_govern_ceiling_refused_total",
			Help: "Messages refused because the tenant's ingest bucket was empty."}),
		unauthenticatedRefused: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_govern_unauthenticated_refused_total",
			Help: "Messages of unauthenticated senders refused because their common bucket was empty."}),
	}
	m.outboundWaits = prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_govern_outbound_waits_total",
		Help: "Messages out of Weir that had to wait because their tenant's ceiling was reached."})
	if reg == nil {
		return m
	}
	reg.MustRegister(m.overCeiling, m.unauthenticatedRefused, m.outboundWaits,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_govern_unknown_tenant_buckets",
			Help: "Unknown tenant names that have a bucket of their own."}, func() float64 { return float64(g.unknown.size()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_govern_tenants",
			Help: "Tenants in memory."}, func() float64 { return float64(len(g.index.tokens())) }))
	return m
}
