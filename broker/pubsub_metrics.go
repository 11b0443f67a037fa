package broker

import "github.com/prometheus/client_golang/prometheus"

// pubsubMetrics are the figures of the open topics. What they count is in no ledger: nothing of it is stored.
type pubsubMetrics struct {
	connections, kept, retained, retainedBytes, queued, queuedBytes, subscriptions, nodes prometheus.Gauge
	received, delivered, wills, evicted                                                   prometheus.Counter
	refused, dropped                                                                      *prometheus.CounterVec
}

func newPubsubMetrics(reg prometheus.Registerer) *pubsubMetrics {
	var all []prometheus.Collector
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "weir", Subsystem: "broker_open", Name: name, Help: help}
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts(opts(name, help)))
		all = append(all, g)
		return g
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts(opts(name, help)))
		all = append(all, c)
		return c
	}
	vec := func(name, help string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts(opts(name, help)), []string{"reason"})
		all = append(all, v)
		return v
	}
	m := &pubsubMetrics{
		connections:   gauge("connections", "Connections to the open topics."),
		kept:          gauge("kept_sessions", "Sessions kept for disconnected clients of the open topics."),
		retained:      gauge("retained_messages", "Retained messages."),
		retainedBytes: gauge("retained_bytes", "Bytes of the retained messages."),
		queued:        gauge("queued_messages", "Messages queued for a client or not yet acknowledged by it."),
		queuedBytes:   gauge("queued_bytes", "Bytes of the queued messages, counted once per client."),
		subscriptions: gauge("subscriptions", "Subscriptions to open topics."),
		nodes:         gauge("topic_nodes", "Nodes of the topic tree: levels of filters and retained topic names."),
		received:      counter("received_messages_total", "Publishes accepted, wills included; they are not stored."),
		delivered:     counter("delivered_messages_total", "Publishes written to clients, repeats included."),
		wills:         counter("wills_total", "Wills published."),
		evicted:       counter("kept_sessions_evicted_total", "Kept sessions evicted because there were too many."),
		refused:       vec("refused_total", "Publishes and subscriptions refused, by reason."),
		dropped:       vec("dropped_messages_total", "Messages dropped for one client, by reason."),
	}
	for _, reason := range []string{openRetainedFull, openSubsFull, openQueueFull} { // exported from the start
		m.refused.WithLabelValues(reason)
	}
	for _, reason := range []string{openTooLarge, openExpired, openQueueFull} {
		m.dropped.WithLabelValues(reason)
	}
	if reg != nil {
		reg.MustRegister(all...)
	}
	return m
}
