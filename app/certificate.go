package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/certs"
	"weir/operate"
)

// certificate is that of the listeners that speak TLS.
type certificate struct {
	*base
	noStop
	pair *certs.Reloader // nil: there is none
}

// Start loads the certificate, when there is one.
func (c *certificate) Start(context.Context, context.Context) (err error) {
	if !c.cfg.TLS.Enabled() {
		return nil
	}
	if c.pair, err = certs.New(c.cfg.TLS); err != nil {
		return err
	}
	c.metrics.MustRegister(expiry{c})
	return nil
}

// checkFiles has the files read again, when they have changed or at once, and reports what came of it. The error is why
// they are not served.
func (c *certificate) checkFiles(now bool) error {
	if c.pair == nil {
		return nil
	}
	look := c.pair.Look
	if now {
		look = c.pair.Reload
	}
	// The state before tells a recovery from files that were right all along.
	failed := c.pair.State().Failed
	changed, err := look()
	switch {
	case err != nil:
		c.log.Error("the certificate was not replaced: the one before is served on", "file", c.cfg.TLS.Cert, "error", operate.CertificateError(err))
	case changed:
		c.log.Info("the certificate was replaced: connections from now on are given it", "file", c.cfg.TLS.Cert,
			"expires", c.pair.State().Pair.Expires().UTC().Format(time.RFC3339))
	case failed != nil && c.pair.State().Failed == nil:
		c.log.Info("the files of the certificate are good again: they are what is served", "file", c.cfg.TLS.Cert)
	}
	return err
}

// expiry shows in how many seconds the certificate of each listener expires.
type expiry struct{ c *certificate }

var expiryDesc = prometheus.NewDesc("weir_tls_certificate_expiry_seconds",
	"Seconds until the certificate of the listener expires; negative once it has.", []string{"listener"}, nil)

// Describe implements prometheus.Collector.
func (e expiry) Describe(ch chan<- *prometheus.Desc) { ch <- expiryDesc }

// Collect implements prometheus.Collector.
func (e expiry) Collect(ch chan<- prometheus.Metric) {
	if !e.c.ready.Load() { // the listeners are still being opened
		return
	}
	left := time.Until(e.c.pair.State().Pair.Expires()).Seconds()
	for _, name := range e.c.listeners.list().Secure() {
		ch <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, left, name)
	}
}
