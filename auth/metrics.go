package auth

import "github.com/prometheus/client_golang/prometheus"

// register adds the collectors when there is a registry to add them to.
func register(reg prometheus.Registerer, cs ...prometheus.Collector) {
	if reg != nil {
		reg.MustRegister(cs...)
	}
}

// create makes the series of the label values, so that a scrape shows them at 0 before they first count.
func create(c *prometheus.CounterVec, values ...string) {
	for _, v := range values {
		c.WithLabelValues(v)
	}
}

type hasherMetrics struct {
	seconds *prometheus.HistogramVec
	refused *prometheus.CounterVec
}

func newHasherMetrics(reg prometheus.Registerer, h *Hasher) hasherMetrics {
	m := hasherMetrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "weir_auth_password_hash_seconds",
			Help:    "Duration of a password hash, by lane (api, transport).",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5}}, []string{"lane"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_auth_password_hash_refused_total",
			Help: "Password checks refused because the maximum was waiting, by lane."}, []string{"lane"}),
	}
	for _, l := range []Lane{LaneAPI, LaneTransport} {
		m.seconds.WithLabelValues(l.String())
		m.refused.WithLabelValues(l.String())
	}
	waiting := func(l Lane) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_auth_password_hash_waiting",
			Help: "Callers waiting to compute a password hash, by lane.", ConstLabels: prometheus.Labels{"lane": l.String()}},
			func() float64 { return float64(h.waiting[l].Load()) })
	}
	register(reg, m.seconds, m.refused, waiting(LaneAPI), waiting(LaneTransport))
	return m
}

type authMetrics struct {
	signIns            *prometheus.CounterVec
	refreshes          *prometheus.CounterVec
	service            *prometheus.CounterVec
	refusedTokens      prometheus.Counter
	sessionsCrowdedOut prometheus.Counter
	endedForgotten     prometheus.Counter
	housekeepingFailed prometheus.Counter
}

func newAuthMetrics(reg prometheus.Registerer, a *Auth) authMetrics {
	m := authMetrics{
		signIns: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_auth_sign_ins_total",
			Help: "Sign-ins by outcome (ok, refused, throttled, busy, error)."}, []string{"outcome"}),
		refreshes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_auth_refreshes_total",
			Help: "Refreshes by outcome (ok, repeated, reused, refused, error)."}, []string{"outcome"}),
		service: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_auth_service_tokens_total",
			Help: "Requests for a service token by outcome: minted, or the text of the HTTP status."}, []string{"outcome"}),
		refusedTokens: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_auth_tokens_refused_total",
			Help: "Bearer tokens refused: invalid, of the wrong kind, expired or revoked."}),
		sessionsCrowdedOut: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_auth_sessions_evicted_total",
			Help: "Oldest sessions ended because the identity exceeded its maximum of sessions in a tenant."}),
		endedForgotten: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_auth_ended_sessions_forgotten_total",
			Help: "Sessions ended by a sign-out that were forgotten before their tokens expired, because too many ended at once."}),
		housekeepingFailed: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_auth_housekeeping_failures_total",
			Help: "Failures of rotating keys or removing ended sessions."}),
	}
	create(m.signIns, "ok", "refused", "throttled", "busy", "error")
	create(m.refreshes, "ok", "repeated", "reused", "refused", "error")
	create(m.service, "minted")
	entries := func(table string, b *backoff) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_auth_backoff_entries",
			Help: "Entries with recent failed attempts, by table.", ConstLabels: prometheus.Labels{"table": table}},
			func() float64 { return float64(b.size()) })
	}
	people := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_auth_identities",
		Help: "Identities in memory."}, func() float64 { return float64(a.dir.count()) })
	ended := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_auth_ended_sessions",
		Help: "Sessions ended before their tokens expire that are remembered."}, func() float64 { return float64(a.ended.count.Load()) })
	endedMax := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_auth_max_ended_sessions",
		Help: "Maximum of the sessions ended before their tokens expire that are remembered."}, func() float64 { return maxEnded })
	register(reg, ended, endedMax, m.endedForgotten, m.signIns, m.refreshes, m.service, m.refusedTokens, m.sessionsCrowdedOut, m.housekeepingFailed, people,
		entries("sign_in_source", a.attempts.bySource), entries("sign_in_email", a.attempts.byName))
	return m
}

type verifierMetrics struct {
	verified  *prometheus.CounterVec
	recalled  prometheus.Counter
	throttled prometheus.Counter
}

func newVerifierMetrics(reg prometheus.Registerer, v *Verifier) verifierMetrics {
	m := verifierMetrics{
		verified: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_auth_device_credentials_total",
			Help: "Device credentials verified, by outcome (ok, missing, refused, unsupported, throttled, busy, error)."}, []string{"outcome"}),
		recalled: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_auth_device_credentials_cache_hits_total",
			Help: "Device credentials verified from the cache."}),
		throttled: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_auth_device_passwords_throttled_total",
			Help: "Device passwords refused without a check, during the backoff after failed ones."}),
	}
	create(m.verified, "ok", "missing", "refused", "unsupported", "throttled", "busy", "error")
	known := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_auth_device_credentials_cached",
		Help: "Verified device credentials in the cache."}, func() float64 {
		v.mu.Lock()
		defer v.mu.Unlock()
		return float64(v.known.len())
	})
	names := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_auth_backoff_entries",
		Help: "Entries with recent failed attempts, by table.", ConstLabels: prometheus.Labels{"table": "device"}},
		func() float64 { return float64(v.backoff.byName.size()) })
	register(reg, m.verified, m.recalled, m.throttled, known, names)
	return m
}
