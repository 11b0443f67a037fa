package mqttsource

import (
	"github.com/prometheus/client_golang/prometheus"

	"weir/ingest"
)

// metrics are the figures of the sources. None carries a tenant or a device.
type metrics struct {
	owner, connected, unacked, last, inDecode, publishing                               *prometheus.GaugeVec
	notOwner, failed, reconnects, received, made, refused, presence, presenceUnreadable *prometheus.CounterVec
	ignored, dropped, commands                                                          *prometheus.CounterVec
	waiting, places                                                                     prometheus.Gauge
}

// newMetrics makes the metrics and registers them when reg is not nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	var all []prometheus.Collector
	gauge := func(name, help string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"source"})
		all = append(all, v)
		return v
	}
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"source"}, more...))
		all = append(all, v)
		return v
	}
	m := &metrics{
		owner:      gauge("weir_eventsources_external_mqtt_owner", "1 on the node that reads the source, else 0."),
		connected:  gauge("weir_source_connected", "1 while the source is connected to its broker and subscribed, else 0."),
		unacked:    gauge("weir_source_unacked", "Messages of the source that the broker has no acknowledgement for yet."),
		last:       gauge("weir_source_last_message_timestamp_seconds", "When the last message of the source came; 0: none since the start."),
		inDecode:   gauge("weir_source_decode_queue", "Messages of the source that wait for a decoder or are decoded; at most 105."),
		publishing: gauge("weir_source_publish_window_used", "Messages of the source that wait for the log; at most external_mqtt.publish_window."),

		notOwner:           counter("weir_eventsources_total_msg_not_owner", "Messages of the source that came after another node had taken it over: dropped."),
		failed:             counter("weir_eventsources_total_msg_publish_failed", "Messages of the source that could not be handed to the log."),
		reconnects:         counter("weir_source_reconnects_total", "Connections of the source after its first."),
		received:           counter("weir_source_received_total", "Messages that the broker has delivered."),
		ignored:            counter("weir_source_ignored_total", "Messages that were not meant for the source, by reason.", "reason"),
		dropped:            counter("weir_source_dropped_total", "Messages that were dropped, by reason.", "reason"),
		made:               counter("weir_source_devices_made_total", "Devices that were made from messages of the source."),
		refused:            counter("weir_source_subscriptions_refused_total", "Subscriptions that the broker has refused."),
		presence:           counter("weir_source_presence_total", "Transitions of presence that the source has asserted."),
		presenceUnreadable: counter("weir_source_presence_read_errors_total", "Failures to read the stored presence of devices of the source."),
	}
	m.commands = counter("weir_source_commands_total", "Commands for devices of the source, by how their publish ended: published, refused, lost.", "outcome")
	m.waiting = prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_source_commands_waiting", Help: "Commands that wait for a value on a topic of a source; at most 10,000."})
	m.places = prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_source_command_devices", Help: "Devices behind sources that commands can reach since they were heard; at most 100,000."})
	all = append(all, m.waiting, m.places)
	if reg != nil {
		reg.MustRegister(all...)
	}
	return m
}

// Reasons of messages that are ignored.
const (
	ignoredTopic    = "topic"    // no mapping takes the topic
	ignoredRetained = "retained" // it was published before the subscription
	ignoredNoValue  = "no-value" // nothing of the payload is kept
)

// droppedNotOwner is why a message is dropped that came after another node had taken the source over.
const droppedNotOwner = "not-owner"

// shownFromStart are the reasons whose counters exist from the start.
func (m *metrics) begin(source string) {
	for _, v := range []*prometheus.GaugeVec{m.owner, m.connected, m.unacked, m.last, m.inDecode, m.publishing} {
		v.WithLabelValues(source).Set(0)
	}
	for _, v := range []*prometheus.CounterVec{m.notOwner, m.failed, m.reconnects, m.received, m.made, m.refused, m.presence, m.presenceUnreadable} {
		v.WithLabelValues(source)
	}
	for _, outcome := range []string{outcomePublished, outcomeRefused, outcomeLost} {
		m.commands.WithLabelValues(source, outcome)
	}
	for _, reason := range []string{ignoredTopic, ignoredRetained, ignoredNoValue} {
		m.ignored.WithLabelValues(source, reason)
	}
	for _, reason := range []ingest.Reason{ingest.ReasonCeiling, ingest.ReasonUnknownDevice} {
		m.dropped.WithLabelValues(source, string(reason))
	}
}
