package inference

import (
	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/guard"
)

// Outcomes of requests, besides those of connections.
const (
	outcomeAnswered   = "answered"
	outcomeNoProvider = "no_provider"
	outcomeNoConsent  = "no_consent"
	outcomeThrottled  = "throttled"
	outcomeBusy       = "busy"
	outcomeStatus     = "status"
	outcomeTooLarge   = "too_large"
	outcomeMalformed  = "malformed"
	outcomeEmpty      = "empty"
	outcomeCanceled   = "canceled"
	outcomeFailed     = "failed" // the store
)

// outcomes are all of them. Nothing was sent for those of the first line.
func outcomes() []string {
	return []string{outcomeNoProvider, outcomeNoConsent, outcomeThrottled, outcomeBusy, outcomeFailed,
		outcomeAnswered, outcomeStatus, outcomeTooLarge, outcomeMalformed, outcomeEmpty, outcomeCanceled,
		guard.OutcomeBlocked, guard.OutcomeRefused, guard.OutcomeTimeout, guard.OutcomeTLS, guard.OutcomeReset, guard.OutcomeUnreachable}
}

type metrics struct {
	calls    *prometheus.CounterVec // by outcome
	tokens   *prometheus.CounterVec // by direction
	inFlight prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_ai_inference_calls_total",
			Help: "Requests for a text of an AI provider by outcome; nothing was sent for no_provider, no_consent, throttled, busy, failed and blocked."}, []string{"outcome"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_ai_inference_tokens_total",
			Help: "Tokens of prompts and replies, as the AI providers count them."}, []string{"direction"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_ai_inference_calls_in_flight", Help: "Requests to AI providers that are under way."}),
	}
	for _, outcome := range outcomes() {
		m.calls.WithLabelValues(outcome)
	}
	for _, direction := range []string{"input", "output"} {
		m.tokens.WithLabelValues(direction)
	}
	if reg != nil {
		reg.MustRegister(m.calls, m.tokens, m.inFlight)
	}
	return m
}
