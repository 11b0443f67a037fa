package actions

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	rows, bytes, standing prometheus.Gauge
	ending                prometheus.Gauge
	ends                  *prometheus.CounterVec
	again                 prometheus.Counter
	trimmed, unrecorded   prometheus.Counter
	kinds                 map[string]bool
}

// otherKind labels orders of kinds that nothing performs.
const otherKind = "other"

func newMetrics(reg prometheus.Registerer, kinds []Kind) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{kinds: map[string]bool{},
		rows:     gauge("weir_actions_outbox_rows", "Orders of rules that wait to be performed, of all tenants."),
		bytes:    gauge("weir_actions_outbox_bytes", "Bytes of the orders that wait to be performed, of all tenants."),
		standing: gauge("weir_actions_standing_targets", "Targets that stand still: they failed several times in a row, and their orders wait."),
		ending: gauge("weir_actions_ends_to_be_stored",
			"Attempts at other systems that were made and of which the store does not know yet what they came to. With 1024 none begins until it does."),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_actions_orders_total",
			Help: "Orders of rules that ended, by kind and by how: performed, gone with their device, or the reason of their dead letter."}, []string{"kind", "end"}),
		again:      counter("weir_actions_failed_attempts_total", "Attempts that failed and are made again."),
		trimmed:    counter("weir_actions_dead_letters_trimmed_total", "Dead letters of what was to go out that were removed because their tenant had more than it may."),
		unrecorded: counter("weir_actions_unrecorded_total", "Failed writes of what came of an attempt, which is written again. Meanwhile the order may be performed once more after a crash."),
	}
	for _, k := range kinds {
		m.kinds[k.Name] = true
		for _, e := range Ends() {
			m.ends.WithLabelValues(k.Name, string(e))
		}
	}
	for _, e := range []Reason{Unsupported, Shed, Gone} {
		m.ends.WithLabelValues(otherKind, string(e))
	}
	if reg != nil {
		reg.MustRegister(m.rows, m.bytes, m.standing, m.ending, m.ends, m.again, m.trimmed, m.unrecorded)
	}
	return m
}

// label is the label of a kind: rows may name others.
func (m *metrics) label(kind string) string {
	if m.kinds[kind] {
		return kind
	}
	return otherKind
}

// Gone counts orders of a kind that were removed with what they were for. It may be called at any time.
func (d *Drain) Gone(kind string, n int64) {
	d.m.ends.WithLabelValues(d.m.label(kind), string(Gone)).Add(float64(n))
}
