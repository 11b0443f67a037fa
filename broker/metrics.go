package broker

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"weir/ingest"
	"weir/model"
)

// metrics are the figures of the broker. None carries a tenant or a device.
type metrics struct {
	connections, handshakes, pendingAcks, kept, grace, open      prometheus.Gauge
	connects, acceptErrors, panics, keptEvicted, presenceUnknown prometheus.Counter
	refused, disconnects, presence, accepted, wills              *prometheus.CounterVec
	byListener                                                   *prometheus.GaugeVec
	packets                                                      [16]atomic.Int64 // received, by type
	largeWaits                                                   prometheus.Counter
}

// packetNames are the control packets, MQTT 5.0 section 2.1.2.
var packetNames = [16]string{"reserved", "connect", "connack", "publish", "puback", "pubrec", "pubrel", "pubcomp",
	"subscribe", "suback", "unsubscribe", "unsuback", "pingreq", "pingresp", "disconnect", "auth"}

// newMetrics makes the metrics and registers them when reg is not nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	var all []prometheus.Collector
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "weir", Subsystem: "broker", Name: name, Help: help})
		all = append(all, g)
		return g
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "weir", Subsystem: "broker", Name: name, Help: help}, labels)
		all = append(all, v)
		return v
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "weir", Subsystem: "broker", Name: name, Help: help})
		all = append(all, c)
		return c
	}
	m := &metrics{
		connections:     gauge("connections", "Open MQTT connections."),
		handshakes:      gauge("handshakes", "Connections that have not sent their CONNECT yet."),
		pendingAcks:     gauge("pending_acks", "QoS 1 publishes not yet acknowledged."),
		kept:            gauge("kept_sessions", "Sessions kept for disconnected clients."),
		grace:           gauge("grace_devices", "Devices in the grace period after Weir closed their connections."),
		open:            gauge("open_topics", "1 when a listener serves open topics (broker.open_topics), else 0."),
		connects:        counter("connects_total", "MQTT connections established."),
		acceptErrors:    counter("accept_errors_total", "Failures of accept, such as no free file descriptor."),
		panics:          counter("panics_total", "Panics, each of which ended one connection."),
		keptEvicted:     counter("kept_sessions_evicted_total", "Kept sessions evicted because there were too many."),
		presenceUnknown: counter("presence_read_errors_total", "Failures to read stored presence."),
		refused:         vec("refused_connects_total", "Connections refused, by reason.", "reason"),
		disconnects:     vec("disconnects_total", "Connections ended, by cause; slow-reader means the write timeout.", "cause"),
		wills:           vec("wills_total", "Wills of ended connections, by outcome.", "outcome"),
		presence:        vec("presence_transitions_total", "Presence transitions submitted to the intake, by state and outcome.", "state", "outcome"),
	}
	m.largeWaits = prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_broker_large_packet_waits_total",
		Help: "Packets over 64 KiB that waited because the maximum was being read."})
	m.accepted = vec("listener_accepted_total", "Connections accepted, before their first packet.", "listener")
	m.byListener = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "weir", Subsystem: "broker", Name: "listener_connections",
		Help: "Open MQTT connections, by listener."}, []string{"listener"})
	all = append(all, m.byListener)
	for i, name := range packetNames {
		all = append(all, prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "weir", Subsystem: "broker", Name: "packets_received_total",
			Help: "Control packets received after the CONNECT.", ConstLabels: prometheus.Labels{"type": name}},
			func() float64 { return float64(m.packets[i].Load()) }))
	}
	all = append(all, m.largeWaits)
	for _, limit := range []string{"too-many", "handshakes", refuseBusy.why} { // what turns away at a bound is shown from the start
		m.refused.WithLabelValues(limit)
	}
	for _, c := range []*cause{causeReceiveMaximum, causeTooLarge, causeSlowReader, causeStalled, causeStalledPacket} {
		m.disconnects.WithLabelValues(c.word)
	}
	for _, outcome := range []ingest.Outcome{ingest.Stored, ingest.Refused, ingest.Dropped} {
		m.wills.WithLabelValues(outcomeWord(outcome))
		m.presence.WithLabelValues(model.Connected.String(), outcomeWord(outcome))
	}
	if reg != nil {
		reg.MustRegister(all...)
	}
	return m
}

// registerBounds shows how much of what is bounded may be used, and is.
func (b *Broker) registerBounds(reg prometheus.Registerer) {
	gauge := func(name, help string, value func() int) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "weir", Subsystem: "broker", Name: name, Help: help},
			func() float64 { return float64(value()) }))
	}
	gauge("max_connections", "Maximum number of MQTT connections: as configured, or less where memory is small.", func() int { return b.Settings().MaxConnections })
	gauge("large_packets", "Packets over 64 KiB being read.", func() int { return b.large.Len() })
	gauge("max_large_packets", "Maximum number of packets over 64 KiB being read.", func() int { return b.large.Max() })
}
