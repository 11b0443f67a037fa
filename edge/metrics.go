package edge

import (
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of an edge.
type metrics struct {
	frames, presenceLost, firingsDropped, received, forwarded, errors, dropped, dead, malformed, mismatched, full, lost, renewed, carried prometheus.Counter
	refused, commands                                                                                                                     *prometheus.CounterVec
	connected, turnedAway, inFlight, gap, listeners, synced, firings                                                                      prometheus.Gauge
}

func newMetrics(e *Edge, reg prometheus.Registerer) (*metrics, error) {
	var all []prometheus.Collector
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_edge_" + name, Help: help})
		all = append(all, c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_edge_" + name, Help: help})
		all = append(all, g)
		return g
	}
	look := func(name, help string, f func() float64) {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_edge_" + name, Help: help}, f))
	}
	m := &metrics{
		frames:         counter("frames_total", "Frames that were sent to a Weir above (edge.uplink.frames)."),
		firingsDropped: counter("firings_dropped_total", "Edges of rules with placement EDGE that were dropped, the oldest, because 100,000 waited for the Weir above."),
		presenceLost:   counter("presence_dropped_total", "Transitions of devices at the site that a later one of the same device replaced while 10,000 waited."),
		received:       counter("received_total", "Messages that arrived at the edge."),
		forwarded:      counter("forwarded_total", "Messages that the broker above acknowledged."),
		errors:         counter("forward_errors_total", "Failed attempts to connect, lost connections, refused messages, and frames of which it was not said what was refused."),
		dropped:        counter("dropped_total", "Oldest messages that were dropped because the log was full (edge.when_full: drop_oldest)."),
		dead:           counter("dead_letters_total", "Messages that the broker above refused permanently, kept as dead letters."),
		malformed:      counter("malformed_total", "Messages that were refused because they could not be decoded, and topics that are none of a device."),
		mismatched:     counter("instance_mismatched_total", "Messages whose topic names another instance id."),
		full:           counter("full_total", "Messages that arrived while the log was full."),
		lost:           counter("lost_total", "Messages of the log that could not be read after damage to the disk."),
		renewed:        counter("renewed_total", "Times that a Weir above had the edge begin as another installation, because another one has a copy of it."),
		carried:        counter("carried_total", "Messages that left the log because they had been carried to the Weir above by hand."),
		gap:            gauge("gap_messages", "Messages that a Weir above has acknowledged, that are not there, and that the log has no more, as of the last sign-in."),
		listeners:      gauge("command_listeners", "Devices at the site that take commands now."),
		firings:        gauge("firings_waiting", "Edges of rules with placement EDGE that wait for the Weir above."),
		synced:         gauge("sync_devices", "Devices of the Weir above whose credentials the edge knows (edge.auth: synced)."),
		connected:      gauge("uplink_connected", "1 while the uplink is connected."),
		turnedAway:     gauge("uplink_refused", "1 while the broker above refuses the edge's credential or client id."),
		inFlight:       gauge("uplink_inflight", "Messages sent and not yet acknowledged by the broker above."),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_edge_refused_total",
			Help: "Messages that the broker above refused, by reason code."}, []string{"code"}),
	}
	m.commands = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_edge_commands_total",
		Help: "Commands of a Weir above, by how they ended at the site (acknowledged, unconfirmed, absent, unwritten, undeliverable)."}, []string{"end"})
	for _, end := range []string{"acknowledged", "unconfirmed", "absent", "unwritten", "undeliverable"} {
		m.commands.WithLabelValues(end)
	}
	for _, lane := range []string{"backlog", laneLive} {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_edge_lane_records", ConstLabels: prometheus.Labels{"lane": lane},
			Help: "Messages that wait for the broker above, by lane: backlog, and live with edge.uplink.order: live_first."}, func() float64 { return float64(e.waitingIn(lane)) }))
	}
	all = append(all, m.refused, m.commands)
	for _, code := range []string{"0x80", "0x83", "0x87", "0x95", "0x97", "0x99"} {
		m.refused.WithLabelValues(code)
	}
	look("spool_used_bytes", "Bytes of the log that wait for the broker above.", func() float64 { return float64(e.spool.Stats().Bytes) })
	look("spool_limit_bytes", "Maximum bytes that may wait (edge.spool_max_bytes).", func() float64 { return float64(e.cfg.SpoolMaxBytes) })
	look("spool_used_messages", "Messages that wait for the broker above.", func() float64 { return float64(e.waiting()) })
	look("uplink_rate_bytes", "Bytes a second that went to the broker above lately.", func() float64 {
		f := e.forward
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.bytesPer.perSecond(e.deps.elapsed())
	})
	look("backlog_seconds", "Time until what waits is handed over, at the rate of the last seconds; the age of the oldest message while none goes up, 0 when none waits.", func() float64 { return e.backlog().Seconds() })
	look("spool_oldest_age_seconds", "Age of the oldest message that waits, 0 when none does.", func() float64 { return e.oldestAge().Seconds() })
	look("presence_waiting", "Transitions of devices at the site that wait for the Weir above.", func() float64 { return float64(e.presence.count()) })
	look("sync_age_seconds", "Time since the devices of the Weir above were last taken over (edge.auth: synced), or a platform has last followed it (edge.uplink.sync); 0 while it is away or neither is wanted.", func() float64 { return e.syncAge().Seconds() })
	if e.deps.Beside != nil { // the transports of a platform have their own
		all = slices.DeleteFunc(all, func(c prometheus.Collector) bool { return c == m.malformed || c == m.mismatched || c == m.full })
	} else {
		e.lookAtAccess(look)
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range all {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

// lookAtAccess makes the metric of who may send.
func (e *Edge) lookAtAccess(look func(name, help string, f func() float64)) {
	look("local_auth_enabled", "1 when the site's devices need credentials, 0 when access is open.", func() float64 {
		if e.cfg.Username != "" || e.cfg.Synced() {
			return 1
		}
		return 0
	})
}

// waiting is how many messages wait for the broker above.
func (e *Edge) waiting() int64 {
	if e.deps.Beside != nil {
		f := e.forward
		f.mu.Lock()
		defer f.mu.Unlock()
		return max(0, int64(e.book.numbered())-int64(f.number))
	}
	_, last := e.spool.Bounds()
	return max(0, int64(last)-int64(e.forward.at()))
}

// backlog is when what waits is handed over at the present rate, and how old the oldest message is while none goes up.
func (e *Edge) backlog() time.Duration {
	n := e.waiting()
	f := e.forward
	f.mu.Lock()
	perSecond := f.pace.perSecond(e.deps.elapsed())
	f.mu.Unlock()
	switch {
	case n == 0:
		return 0
	case perSecond <= 0:
		return e.oldestAge()
	}
	return time.Duration(float64(n) / perSecond * float64(time.Second))
}

// oldestAge is how old the oldest message is that waits.
func (e *Edge) oldestAge() time.Duration {
	f := e.forward
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.ring {
		if x.at > f.position && x.stage != ended && !x.doubtful {
			wall, _ := e.deps.Now()
			return max(0, wall.Sub(x.wall.Time()))
		}
	}
	return 0
}
