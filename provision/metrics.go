package provision

import "github.com/prometheus/client_golang/prometheus"

// Outcomes of a request, as they are counted. Clients are shown the status only.
const (
	outcomeCreated    = "created"     // the device and its credential were made
	outcomeMinted     = "minted"      // the device existed and got a credential
	outcomeRepeated   = "repeated"    // it got the credential again that it had not used
	outcomeMalformed  = "malformed"   // 400
	outcomeKey        = "key"         // 403: no profile has it, or has it no more
	outcomeSecret     = "secret"      // 403, and so on
	outcomeTenant     = "tenant"      // which is disabled
	outcomeDisabled   = "disabled"    // the profile
	outcomeExpired    = "expired"     // the profile
	outcomeStrategy   = "strategy"    // the device has to exist and does not
	outcomeUsed       = "used"        // the device has a credential already
	outcomeCeiling    = "ceiling"     // of the tenant's devices or rows
	outcomeType       = "type"        // 409: the device exists and has another type
	outcomeAddress    = "address"     // 429: requests of the source address
	outcomeKeyRate    = "key-rate"    // 429: requests with the key
	outcomeHashes     = "hashes"      // 429: password hashes
	outcomeTenantRate = "tenant-rate" // 429: changes of the tenant
	outcomeFailed     = "failed"      // 503
)

func outcomes() []string {
	return []string{outcomeCreated, outcomeMinted, outcomeRepeated, outcomeMalformed, outcomeKey, outcomeSecret, outcomeTenant, outcomeDisabled, outcomeExpired,
		outcomeStrategy, outcomeUsed, outcomeCeiling, outcomeType, outcomeAddress, outcomeKeyRate, outcomeHashes, outcomeTenantRate, outcomeFailed}
}

type metrics struct {
	requests *prometheus.CounterVec // by outcome
	claims   *prometheus.CounterVec // by outcome
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_provisioning_requests_total",
			Help: "Requests of devices for a credential, over HTTP and MQTT, by outcome."}, []string{"outcome"}),
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_device_claims_total",
			Help: "Attempts to claim a device by outcome (claimed, refused, closed: the refusal that closed the claim)."}, []string{"outcome"}),
	}
	for _, outcome := range outcomes() {
		m.requests.WithLabelValues(outcome)
	}
	for _, outcome := range []string{claimed, claimRefused, claimClosed} {
		m.claims.WithLabelValues(outcome)
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.claims)
	}
	return m
}

func (m *metrics) count(outcome string) { m.requests.WithLabelValues(outcome).Inc() }
