package app

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/config"
	"weir/health"
	"weir/internal/certs"
)

// CertificateStatus is how the certificate is that listeners serve.
type CertificateStatus struct {
	File      string    `json:"file"`
	Names     []string  `json:"names"` // that it is for
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"` // of what expires first of the file
	Listeners []string  `json:"listeners"`
	// Problem is why the files as they are now are not served, "" when they are; Since is when that was found.
	Problem string    `json:"problem,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// startCertificate loads the certificate, when there is one.
func (in *Instance) startCertificate() (err error) {
	if !in.cfg.TLS.Enabled() {
		return nil
	}
	if in.certs, err = certs.New(in.cfg.TLS.Files()); err != nil {
		return err
	}
	in.metrics.MustRegister(expiry{in})
	return nil
}

// lookAtCertificate has the files read again, when they have changed or at once, and says what came of it. The error is why
// they are not served.
func (in *Instance) lookAtCertificate(now bool) error {
	if in.certs == nil {
		return nil
	}
	look := in.certs.Look
	if now {
		look = in.certs.Reload
	}
	failed := in.certs.State().Failed
	changed, err := look()
	switch {
	case err != nil:
		in.log.Error("the certificate was not replaced: the one before is served on", "file", in.cfg.TLS.CertFile, "error", fileError(err))
	case changed:
		in.log.Info("the certificate was replaced: connections from now on are given it", "file", in.cfg.TLS.CertFile,
			"expires", in.certs.State().Pair.Expires().UTC().Format(time.RFC3339))
	case failed != nil && in.certs.State().Failed == nil:
		in.log.Info("the files of the certificate are good again: they are what is served", "file", in.cfg.TLS.CertFile)
	}
	return err
}

// fileError names the key of the file that an error of the certificate is about.
func fileError(err error) string { return config.CertificateKey(err) + ": " + err.Error() }

// certificateStatus is nil when there is no certificate.
func (in *Instance) certificateStatus() *CertificateStatus {
	if in.certs == nil {
		return nil
	}
	s := in.certs.State()
	out := &CertificateStatus{File: in.cfg.TLS.CertFile, Names: s.Pair.Names(), NotBefore: s.Pair.Begins().UTC(), NotAfter: s.Pair.Expires().UTC(),
		Listeners: in.addrs.secure()}
	if s.Failed != nil {
		out.Problem, out.Since = fileError(s.Failed), s.Since.UTC()
	}
	return out
}

// secure are the listeners that speak TLS, by name.
func (a Addresses) secure() []string {
	out := []string{}
	for _, l := range a.listeners() {
		if l.TLS && l.Address != "" {
			out = append(out, l.Name())
		}
	}
	return out
}

// expiry tells in how many seconds the certificate of each listener expires.
type expiry struct{ in *Instance }

var expiryDesc = prometheus.NewDesc("weir_tls_certificate_expiry_seconds",
	"Seconds until the certificate of the listener expires; negative once it has.", []string{"listener"}, nil)

// Describe implements prometheus.Collector.
func (e expiry) Describe(ch chan<- *prometheus.Desc) { ch <- expiryDesc }

// Collect implements prometheus.Collector.
func (e expiry) Collect(ch chan<- prometheus.Metric) {
	if !e.in.ready.Load() { // the listeners are still being opened
		return
	}
	left := time.Until(e.in.certs.State().Pair.Expires()).Seconds()
	for _, name := range e.in.addrs.secure() {
		ch <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, left, name)
	}
}

// certificateChecks look at the certificate of a running instance: none when there is none.
func (in *Instance) certificateChecks(now func() time.Time) []health.Check {
	if in.certs == nil {
		return nil
	}
	return []health.Check{health.Certificate(func() health.Pair {
		s := in.certificateStatus()
		return health.Pair{File: s.File, NotBefore: s.NotBefore, NotAfter: s.NotAfter, Problem: s.Problem}
	}, now)}
}

// restingCertificate looks at the certificate that an instance would serve.
func restingCertificate(cfg config.Config, now func() time.Time) []health.Check {
	if !cfg.TLS.Enabled() {
		return nil
	}
	return []health.Check{health.Certificate(func() health.Pair {
		k, err := certs.New(cfg.TLS.Files())
		if err != nil {
			return health.Pair{File: cfg.TLS.CertFile, Problem: fileError(err)}
		}
		p := k.State().Pair
		return health.Pair{File: cfg.TLS.CertFile, NotBefore: p.Begins(), NotAfter: p.Expires()}
	}, now)}
}
