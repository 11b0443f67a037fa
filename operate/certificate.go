package operate

import (
	"time"

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
	Problem string `json:"problem,omitempty"`
	// Doubts are why clients that check the certificate may refuse it.
	Doubts []string  `json:"doubts,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

// CertificateError names the key of the file that an error of the certificate is about.
func CertificateError(err error) string { return config.CertificateKey(err) + ": " + err.Error() }

// certificateStatus is nil when there is no certificate.
func (o *Operator) certificateStatus() *CertificateStatus {
	if o.deps.Served == nil {
		return nil
	}
	s := o.deps.Served.State()
	out := &CertificateStatus{File: o.deps.Config.TLS.Cert, Names: s.Pair.Names(), NotBefore: s.Pair.Begins().UTC(), NotAfter: s.Pair.Expires().UTC(),
		Listeners: o.deps.Listeners().Secure(), Doubts: s.Pair.Doubts()}
	if s.Failed != nil {
		out.Problem, out.Since = CertificateError(s.Failed), s.Since.UTC()
	}
	return out
}

// certificateChecks look at the certificate of a running instance: none when there is none.
func (o *Operator) certificateChecks(now func() time.Time) []health.Check {
	if o.deps.Served == nil {
		return nil
	}
	return []health.Check{health.Certificate(func() health.Pair {
		s := o.certificateStatus()
		return health.Pair{File: s.File, NotBefore: s.NotBefore, NotAfter: s.NotAfter, Problem: s.Problem, Doubts: s.Doubts}
	}, now)}
}

// restingCertificate looks at the certificate that an instance would serve.
func restingCertificate(cfg config.Config, now func() time.Time) []health.Check {
	if !cfg.TLS.Enabled() {
		return nil
	}
	return []health.Check{health.Certificate(func() health.Pair {
		k, err := certs.New(cfg.TLS)
		if err != nil {
			return health.Pair{File: cfg.TLS.Cert, Problem: CertificateError(err)}
		}
		p := k.State().Pair
		return health.Pair{File: cfg.TLS.Cert, NotBefore: p.Begins(), NotAfter: p.Expires(), Doubts: p.Doubts()}
	}, now)}
}
