package sparkplug

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the transport's. None has a tenant, a node or a device.
type metrics struct {
	connected, last                                                                         *prometheus.GaugeVec   // by source
	received, reconnects                                                                    *prometheus.CounterVec // by source
	messages, reasons, skipped                                                              *prometheus.CounterVec
	presence, rebirths, unknown, malformed, failures, refused, deferred, conflicts, repeats prometheus.Counter
	stale, ignored, tooMany, rowFailures, made, noBirth, waits                              prometheus.Counter
	nodes                                                                                   *prometheus.GaugeVec
	held, duplicates, denied, subscriptions, queued                                         prometheus.Gauge
}

// newMetrics makes the metrics and registers them when reg is not nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	var all []prometheus.Collector
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "weir", Subsystem: "sparkplug", Name: name, Help: help}
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts(opts(name, help)))
		all = append(all, c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts(opts(name, help)))
		all = append(all, g)
		return g
	}
	vec := func(name, help, label string, values []string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts(opts(name, help)), []string{label})
		for _, value := range values { // shown from the start
			v.WithLabelValues(value)
		}
		all = append(all, v)
		return v
	}
	m := &metrics{
		messages:      vec("messages_total", "Messages of nodes and devices received, by type.", "type", kindNames[1:]),
		reasons:       vec("rebirth_reasons_total", "Times that a node came to owe its births, by cause.", "reason", Causes()),
		skipped:       vec("metrics_skipped_total", "Metrics of messages that were not stored, by reason.", "why", SkippedReasons()),
		presence:      counter("presence_emitted_total", "Presence transitions submitted to the intake."),
		rebirths:      counter("rebirth_requests_total", "Requests for a rebirth sent to nodes."),
		unknown:       counter("unknown_device_dropped_total", "Messages dropped because no device has their external id and none was made."),
		malformed:     counter("decode_errors_total", "Messages that could not be decoded."),
		failures:      counter("ingest_failures_total", "Messages that were not stored because of a failure of Weir's own."),
		refused:       counter("subscribe_failures_total", "Subscriptions that a broker refused or did not answer."),
		deferred:      counter("rebirths_deferred_total", "Times that a request for a rebirth waited for the rate of its source."),
		conflicts:     counter("state_conflicts_total", "STATE messages of another host with the same host id."),
		repeats:       counter("repeats_total", "Messages that came again and were not stored again."),
		stale:         counter("stale_total", "Births and deaths of sessions that are over, or known already."),
		ignored:       counter("ignored_total", "Messages on topics of the namespace that are none of a node or a device, and commands."),
		tooMany:       counter("too_many_total", "Messages of nodes or devices beyond the maximum that is followed."),
		rowFailures:   counter("row_write_failures_total", "Failures to store what is known of nodes; it is tried again."),
		noBirth:       counter("no_birth_total", "Messages that became dead letters because no birth resolves them."),
		waits:         counter("queue_waits_total", "Messages that waited because those before them were not judged yet."),
		made:          counter("devices_made_total", "Devices made because of a birth."),
		held:          gauge("held_bytes", "Bytes of messages that wait for a birth."),
		duplicates:    gauge("duplicate_nodes", "Nodes whose id two nodes use."),
		denied:        gauge("state_denied", "Sources whose broker does not deliver the STATE that Weir publishes."),
		subscriptions: gauge("subscription_refused", "Sources whose broker refuses a subscription."),
		queued:        gauge("queued_messages", "Messages that wait to be judged."),
	}
	m.nodes = prometheus.NewGaugeVec(prometheus.GaugeOpts(opts("nodes", "Nodes, by state; owing: online, and their births are asked for.")), []string{"state"})
	for _, state := range []string{"online", "offline", "owing"} {
		m.nodes.WithLabelValues(state)
	}
	all = append(all, m.nodes)
	if reg != nil {
		reg.MustRegister(all...)
	}
	source := []string{"source"}
	m.connected = shared(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_source_connected", Help: "1 while the source is connected to its broker and subscribed, else 0."}, source))
	m.last = shared(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_source_last_message_timestamp_seconds", Help: "When the last message of the source came; 0: none since the start."}, source))
	m.received = shared(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_source_received_total", Help: "Messages that the broker has delivered."}, source))
	m.reconnects = shared(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_source_reconnects_total", Help: "Connections of the source after its first."}, source))
	return m
}

// shared registers a metric that the other sources have, too, each with labels of its own, or returns the one that is registered.
func shared[V prometheus.Collector](reg prometheus.Registerer, v V) V {
	if reg == nil {
		return v
	}
	err := reg.Register(v)
	if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if same, ok := there.ExistingCollector.(V); ok {
			return same
		}
	}
	if err != nil {
		panic(err) // a mistake in a description
	}
	return v
}

// take adds what a machine has counted.
func (m *metrics) take(c Counts) {
	for why, n := range c.Skipped {
		m.skipped.WithLabelValues(why).Add(float64(n))
	}
	for cause, n := range c.Rebirths {
		m.reasons.WithLabelValues(cause).Add(float64(n))
	}
	m.repeats.Add(float64(c.Repeats))
	m.stale.Add(float64(c.Stale))
	m.malformed.Add(float64(c.Errors))
	m.deferred.Add(float64(c.Deferred))
	m.tooMany.Add(float64(c.TooMany))
}

// figures are what a source shows in gauges, which are sums over all sources.
type figures struct {
	online, offline, owing, duplicates, held, queued, denied, refused int

	up                   bool
	received, reconnects int64
	last                 time.Time // zero: none since the start
}

// gauges keeps the figures of each source.
type gauges struct {
	mu  sync.Mutex
	all map[*host]figures
	m   *metrics
}

func (g *gauges) set(h *host, f figures) {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.all[h]
	g.all[h] = f
	g.m.received.WithLabelValues(h.id).Add(float64(f.received - was.received))
	g.m.reconnects.WithLabelValues(h.id).Add(float64(f.reconnects - was.reconnects))
	g.perSource(h.id)
	var sum figures
	for _, f := range g.all {
		sum.online += f.online
		sum.offline += f.offline
		sum.owing += f.owing
		sum.duplicates += f.duplicates
		sum.held += f.held
		sum.queued += f.queued
		sum.denied += f.denied
		sum.refused += f.refused
	}
	g.m.nodes.WithLabelValues("online").Set(float64(sum.online))
	g.m.nodes.WithLabelValues("offline").Set(float64(sum.offline))
	g.m.nodes.WithLabelValues("owing").Set(float64(sum.owing))
	g.m.duplicates.Set(float64(sum.duplicates))
	g.m.held.Set(float64(sum.held))
	g.m.queued.Set(float64(sum.queued))
	g.m.denied.Set(float64(sum.denied))
	g.m.subscriptions.Set(float64(sum.refused))
}

// perSource sets what is shown of a source. Several brokers may be one, which is connected when all are.
func (g *gauges) perSource(id string) {
	up, last := 1.0, time.Time{}
	for h, f := range g.all {
		if h.id != id {
			continue
		}
		if !f.up {
			up = 0
		}
		if f.last.After(last) {
			last = f.last
		}
	}
	g.m.connected.WithLabelValues(id).Set(up)
	at := 0.0
	if !last.IsZero() {
		at = float64(last.Unix())
	}
	g.m.last.WithLabelValues(id).Set(at)
}
