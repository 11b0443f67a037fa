package notify

import (
	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/delivery"
	"weir/notify/channel"
)

type metrics struct {
	deliveries                 *prometheus.CounterVec
	throttled, muted, digested prometheus.Counter
}

// Outcomes besides those of package delivery.
const (
	outcomeLate delivery.Outcome = "late" // its alarm was cleared meanwhile: nothing was sent
	outcomeGone delivery.Outcome = "gone" // its channel was deleted: nothing was sent
)

func outcomes() []delivery.Outcome { return append(delivery.Outcomes(), outcomeLate, outcomeGone) }

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_notifications_deliveries_total",
			Help: "Attempts to deliver notifications to people, by type of the channel and outcome; late and gone ones were not sent."}, []string{"channel_type", "outcome"}),
		throttled: counter("weir_notifications_throttled_total", "Raised alarms that a policy did not tell of because it notified of them a short time before."),
		muted:     counter("weir_notifications_muted_total", "Notifications that a mute held back."),
		digested:  counter("weir_notifications_digested_total", "Notifications that were notified together with others in a digest."),
	}
	for _, k := range channel.Kinds() {
		for _, o := range outcomes() {
			m.deliveries.WithLabelValues(k.ID, string(o))
		}
	}
	m.deliveries.WithLabelValues(noType, string(outcomeGone))
	if reg != nil {
		reg.MustRegister(m.deliveries, m.throttled, m.muted, m.digested)
	}
	return m
}

// noType labels what is for a channel that is not there any more.
const noType = "none"
