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
		kept:          gauge("kept_sessions", "Sessions kept for clients of the open topics that are away."),
		retained:      gauge("retained", "Retained messages."),
		retainedBytes: gauge("retained_bytes", "Bytes of the retained messages."),
		queued:        gauge("queued", "Messages that wait for a client or for its acknowledgement."),
		queuedBytes:   gauge("queued_bytes", "Bytes of those messages, each counted for each client."),
		subscriptions: gauge("subscriptions", "Subscriptions."),
		nodes:         gauge("topic_nodes", "Levels of filters and retained names that are held."),
		received:      counter("received_total", "Publishes taken, wills included; none of them is stored."),
		delivered:     counter("delivered_total", "Publishes written to clients, repeats included."),
		wills:         counter("wills_total", "Wills published."),
		evicted:       counter("kept_sessions_evicted_total", "Kept sessions that went because there were too many."),
		refused:       vec("refused_total", "Publishes and subscriptions that were refused."),
		dropped:       vec("dropped_total", "Messages that one client was not sent, by why."),
	}
	if reg != nil {
		reg.MustRegister(all...)
	}
	return m
}
