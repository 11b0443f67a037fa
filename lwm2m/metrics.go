package lwm2m

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/lwm2m/content"
)

// metrics are the transport's metrics. None has a tenant label.
type metrics struct {
	handshakes     *prometheus.CounterVec
	notifications  *prometheus.CounterVec
	decodeErrors   *prometheus.CounterVec
	droppedTotal   *prometheus.CounterVec
	attempted      *prometheus.CounterVec
	failed         *prometheus.CounterVec
	messages       *prometheus.CounterVec
	emitted        prometheus.Counter
	registrations  prometheus.Counter
	retransmitted  prometheus.Counter
	observeRefused prometheus.Counter
	rowsBehind     prometheus.Counter
	wakes          prometheus.Counter
	recent         recent
}

// recent counts handshakes of the last five minutes.
type recent struct {
	now func() time.Time
	mu  sync.Mutex
	all [recentMinutes]struct{ minute, ok, failed int64 }
}

// Bounds of what recent says.
const (
	recentMinutes = 5
	recentAtLeast = 10
)

func (r *recent) add(ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	minute := r.now().Unix() / 60
	c := &r.all[uint64(minute)%recentMinutes]
	if c.minute != minute {
		c.minute, c.ok, c.failed = minute, 0, 0
	}
	if ok {
		c.ok++
	} else {
		c.failed++
	}
}

// failing is the part of the handshakes that failed.
func (r *recent) failing() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest := r.now().Unix()/60 - recentMinutes
	var ok, failed int64
	for _, c := range r.all {
		if c.minute > oldest {
			ok, failed = ok+c.ok, failed+c.failed
		}
	}
	if ok+failed < recentAtLeast {
		return 0
	}
	return float64(failed) / float64(ok+failed)
}

// newMetrics makes the metrics and registers them when reg is not nil.
func newMetrics(reg prometheus.Registerer, s *Server) *metrics {
	vec := func(name, help, label string, values ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_lwm2m_" + name, Help: help}, []string{label})
		for _, value := range values {
			v.WithLabelValues(value)
		}
		return v
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_lwm2m_" + name, Help: help})
	}
	m := &metrics{recent: recent{now: s.now},
		handshakes: vec("handshakes_total", "DTLS handshakes, by outcome (ok, wrong_key, unknown_identity, unknown_certificate, abandoned, failed, error, evicted, refused).", "outcome",
			"ok", "wrong_key", "unknown_identity", "unknown_certificate", "abandoned", "failed", "error", "evicted", "refused"),
		notifications: vec("notifications_total", "Notifications and Sends of devices, by outcome (stored, dropped, withheld, undecodable, stale, empty, incomplete, ended).", "outcome",
			"stored", "dropped", "withheld", "undecodable", "stale", "empty", "incomplete", "ended"),
		decodeErrors: vec("decode_errors_total", "Payloads of devices that could not be decoded, by content format.", "format", content.Names()...),
		droppedTotal: vec("dropped_total", "What was dropped, by reason.", "reason", "datagram", "forged", "sessions", "ceiling", "backpressure", "observations", "credential", "answer"),
		attempted:    vec("commands_attempted_total", "Commands that were performed, by operation.", "op"),
		failed:       vec("commands_failed_total", "Commands that failed, by operation.", "op"),
		messages: vec("messages_total", "Messages of sessions that were not handled as they came, by what they were (malformed, repeated, rate, busy, stray, unknown_token, unwritten).", "kind",
			"malformed", "repeated", "rate", "busy", "stray", "unknown_token", "unwritten"),
		emitted:        counter("measurements_emitted_total", "Readings that notifications and Sends were decoded to."),
		registrations:  counter("registrations_total", "Registrations that were accepted."),
		retransmitted:  counter("retransmissions_total", "Requests that were sent again because a device did not answer."),
		observeRefused: counter("observe_refused_total", "Observations that a device refused or did not answer."),
		rowsBehind:     counter("rows_behind_total", "Times that registrations could not be stored and were stored again."),
		wakes:          counter("session_wakes_total", "Parked sessions that were woken."),
	}
	for name := range operations {
		m.attempted.WithLabelValues(opOf(name))
		m.failed.WithLabelValues(opOf(name))
	}
	if reg == nil {
		return m
	}
	reg.MustRegister(m.handshakes, m.notifications, m.decodeErrors, m.droppedTotal, m.attempted, m.failed, m.messages, m.emitted, m.registrations, m.retransmitted, m.observeRefused, m.rowsBehind, m.wakes)
	gauge := func(name, help string, value func() int) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_lwm2m_" + name, Help: help}, func() float64 { return float64(value()) }))
	}
	locked := func(f func() int) func() int {
		return func() int {
			s.mu.Lock()
			defer s.mu.Unlock()
			return f()
		}
	}
	gauge("active_sessions", "DTLS sessions.", s.sessionCount)
	gauge("parked_sessions", "DTLS sessions of which next to nothing is left in memory until their devices send something.", locked(func() int { return len(s.parked) }))
	gauge("max_sessions", "Maximum number of DTLS sessions.", func() int { return s.settings.Load().MaxSessions })
	gauge("active_registrations", "Registered devices.", locked(func() int { return len(s.byLocation) }))
	gauge("active_observations", "Observations of registered devices.", locked(func() (n int) {
		for _, r := range s.byLocation {
			n += len(r.observed)
		}
		return n
	}))
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_lwm2m_handshakes_failing",
		Help: "Part of the DTLS handshakes of the last five minutes that failed; 0 while there were fewer than 10."}, func() float64 { return m.recent.failing() }))
	gauge("open_handshakes", "DTLS handshakes that are under way.", func() int { return s.gate.len() })
	gauge("unstored_registrations", "Registrations with changes that are not stored yet.", locked(func() int { return len(s.dirty) }))
	return m
}

func (m *metrics) handshake(outcome string) {
	m.handshakes.WithLabelValues(outcome).Inc()
	m.recent.add(outcome == "ok")
}
func (m *metrics) notification(outcome string) { m.notifications.WithLabelValues(outcome).Inc() }
func (m *metrics) dropped(reason string)       { m.droppedTotal.WithLabelValues(reason).Inc() }

// count counts what a session reports.
func (m *metrics) count(what string) {
	if what == "retransmission" {
		m.retransmitted.Inc()
		return
	}
	m.messages.WithLabelValues(what).Inc()
}
