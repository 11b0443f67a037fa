package ingest

import "github.com/prometheus/client_golang/prometheus"

type intakeMetrics struct {
	inbound, decoded, undecoded, limited, backpressured      prometheus.Counter
	failedAppends, rejectedLost, presenceRefused, strayBytes prometheus.Counter
	refused                                                  *prometheus.CounterVec
}

func newIntakeMetrics(reg prometheus.Registerer) *intakeMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_eventsources_" + name, Help: help})
	}
	m := &intakeMetrics{
		inbound:         counter("total_inbound_messages", "Messages that reached a door."),
		decoded:         counter("total_msg_decode_successful", "Messages that decoded."),
		undecoded:       counter("total_msg_failed_decode", "Messages that did not decode."),
		limited:         counter("total_msg_rate_limited", "Messages over an ingest ceiling."),
		backpressured:   counter("total_msg_backpressured", "Messages refused because the log is filling up."),
		failedAppends:   counter("total_log_appends_failed", "Messages that the log did not take."),
		rejectedLost:    counter("total_refused_copies_lost", "Copies of refused bodies that found no room on their way to the strangers' ring."),
		presenceRefused: counter("total_presence_refused", "Presence transitions that were refused; a later check repairs them."),
		strayBytes:      counter("total_stray_bytes", "Bytes of packets that were refused before they became messages."),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_eventsources_total_msg_turned_away",
			Help: "Messages refused or dropped at a door, by reason."}, []string{"reason"}),
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
