package broker

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"weir/command"
	"weir/ingest"
	"weir/model"
)

// metrics are the figures of the broker. None carries a tenant or a device.
type metrics struct {
	connections, handshakes, pendingAcks, kept, grace, open, provisioning, listeners, readers prometheus.Gauge
	connects, acceptErrors, panics, keptEvicted, presenceUnknown, setsTooLarge, setsUnread    prometheus.Counter
	refused, disconnects, presence, accepted, wills, sets                                     *prometheus.CounterVec
	byListener                                                                                *prometheus.GaugeVec
	packets                                                                                   [16]atomic.Int64 // received, by type
	largeWaits                                                                                prometheus.Counter
	uplinks, edgeListeners                                                                    prometheus.Gauge
	edgeDocuments, edgePresence, edgeFirings, edgeFrames                                      *prometheus.CounterVec
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
		provisioning:    gauge("provisioning_connections", "Connections of devices that get their credential; at most 100."),
		listeners:       gauge("command_listeners", "Connections that are subscribed to the commands of their device."),
		readers:         gauge("attribute_listeners", "Connections that are subscribed to the attributes of their device."),
		sets:            vec("attribute_sets_total", "Sets of attributes sent to devices, by what became of them.", "outcome"),
		setsTooLarge:    counter("attribute_sets_too_large_total", "Sets of attributes that were larger than a device is sent, or takes: it got their revision alone."),
		setsUnread:      counter("attribute_read_errors_total", "Failures to read the attributes of devices; they are read again."),
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
	m.uplinks = prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_uplink_connected", Help: "Edges that are connected and have sent a numbered message."})
	m.edgeListeners = prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_uplink_command_listeners", Help: "Devices at sites that take commands through an edge now."})
	m.edgeDocuments = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_uplink_documents_total",
		Help: "Documents that edges published about themselves, by outcome (taken, malformed, too-fast)."}, []string{"outcome"})
	for _, outcome := range []string{"taken", "malformed", "too-fast"} {
		m.edgeDocuments.WithLabelValues(outcome)
	}
	m.edgePresence = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_uplink_presence_total",
		Help: "Transitions of devices at sites that edges reported, by outcome (taken, not-authorized, delayed: each attempt that the ceiling or the log did not let in)."}, []string{"outcome"})
	for _, outcome := range []string{"taken", "not-authorized", "delayed"} {
		m.edgePresence.WithLabelValues(outcome)
	}
	m.edgeFirings = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_uplink_firings_received_total",
		Help: "Edges of rules that sites have judged as edges reported them, by outcome (taken, not-authorized, delayed: each attempt that the ceiling or the log did not let in)."}, []string{"outcome"})
	for _, outcome := range []string{"taken", "not-authorized", "delayed"} {
		m.edgeFirings.WithLabelValues(outcome)
	}
	m.edgeFrames = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_uplink_frames_total",
		Help: "Frames that edges published, by outcome (taken, malformed)."}, []string{"outcome"})
	for _, outcome := range []string{"taken", "malformed"} {
		m.edgeFrames.WithLabelValues(outcome)
	}
	all = append(all, m.largeWaits, m.uplinks, m.edgeListeners, m.edgeDocuments, m.edgePresence, m.edgeFirings, m.edgeFrames)
	for _, limit := range []string{"too-many", "handshakes", refuseBusy.why} { // what turns away at a bound is shown from the start
		m.refused.WithLabelValues(limit)
	}
	for _, c := range []*cause{causeKeepAlive, causeReceiveMaximum, causeTooLarge, causeSlowReader, causeStalled, causeStalledPacket, causeForbiddenFilter, causeUnacknowledged} {
		m.disconnects.WithLabelValues(c.word)
	}
	for _, outcome := range []ingest.Outcome{ingest.Stored, ingest.Refused, ingest.Dropped} {
		m.wills.WithLabelValues(outcomeWord(outcome))
		m.presence.WithLabelValues(model.Connected.String(), outcomeWord(outcome))
	}
	for _, how := range []command.End{command.Acknowledged, command.Unconfirmed, command.Lost, command.Unwritten} {
		m.sets.WithLabelValues(setOutcome(how))
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
