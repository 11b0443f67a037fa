package ingest

import "github.com/prometheus/client_golang/prometheus"

type intakeMetrics struct {
	inbound, decoded, undecoded, limited, backpressured      prometheus.Counter
	failedAppends, rejectedLost, presenceRefused, strayBytes prometheus.Counter
	refused                                                  *prometheus.CounterVec
}

func newIntakeMetrics(reg prometheus.Registerer) *intakeMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &intakeMetrics{
		inbound:         counter("weir_eventsources_total_inbound_messages", "Messages received by a transport."),
		decoded:         counter("weir_eventsources_total_msg_decode_successful", "Messages decoded."),
		undecoded:       counter("weir_eventsources_total_msg_failed_decode", "Messages that could not be decoded."),
		limited:         counter("weir_eventsources_total_msg_rate_limited", "Messages refused because of an ingest ceiling."),
		backpressured:   counter("weir_eventsources_total_msg_backpressured", "Messages refused because the log is filling up."),
		failedAppends:   counter("weir_ingest_failed_appends_total", "Messages that could not be appended to the log."),
		rejectedLost:    counter("weir_ingest_refused_copies_dropped_total", "Copies of refused bodies dropped because the queue of the rejected-payload buffer was full."),
		presenceRefused: counter("weir_ingest_presence_refused_total", "Presence transitions refused; a later check repairs them."),
		strayBytes:      counter("weir_ingest_refused_packet_bytes_total", "Bytes of packets refused before they were decoded into messages."),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_ingest_refused_messages_total",
			Help: "Messages refused or dropped by a transport, by reason."}, []string{"reason"}),
	}
	for _, r := range []Reason{ReasonCeiling, ReasonBackpressure, ReasonUnauthenticated, ReasonTooManyReadings, ReasonTooLarge, ReasonUnavailable} {
		m.refused.WithLabelValues(string(r)) // what turns away at a bound is shown from the start
	}
	if reg != nil {
		reg.MustRegister(m.inbound, m.decoded, m.undecoded, m.limited, m.backpressured, m.failedAppends, m.rejectedLost, m.presenceRefused, m.strayBytes, m.refused)
	}
	return m
}

func (m *intakeMetrics) turnedAway(r Reason) { m.refused.WithLabelValues(string(r)).Inc() }
