package rules

import "github.com/prometheus/client_golang/prometheus"

// metrics counts for the operator, over all tenants. What a rule's author is shown is kept with the rule.
type metrics struct {
	applied    prometheus.Counter
	late       prometheus.Counter
	evalErrors prometheus.Counter
	refused    prometheus.Counter
	rules      prometheus.Gauge
	keys       prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	const prefix = "weir_eventprocessing_detect_"
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + name, Help: help})
	}
	m := &metrics{
		applied:    counter("events_applied_total", "Samples of devices whose profile has rules."),
		late:       counter("late_samples_total", "Samples and edges discarded because they were too old."),
		evalErrors: counter("eval_errors_total", "Samples for which the evaluation of a rule failed."),
		refused:    counter("keys_refused_total", "Samples refused because the tenant or the instance had its maximum of keys."),
		rules:      gauge("rules_active", "Active rules."),
		keys:       gauge("live_keys", "Keys with state."),
	}
	if reg != nil {
		reg.MustRegister(m.applied, m.late, m.evalErrors, m.refused, m.rules, m.keys)
	}
	return m
}
