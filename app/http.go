package app

import (
	"context"
	"errors"
	"sync/atomic"

	"weir/config"
	"weir/httpingest"
	"weir/ingest"
	"weir/internal/memory"
)

// connectionHTTP is what a connection takes; maxIngest bounds their number.
const (
	connectionHTTP = 20 << 10
	maxIngest      = 4096
)

var ingestShare = share{Share: memory.Share{Name: "HTTP connections", PerMille: 50, Min: 1 << 20, Max: maxIngest * connectionHTTP}}

func (b Budget) ingestConnections() int {
	return int(max(b.of(ingestShare)/connectionHTTP, minConnections))
}

// httpTransport is HTTP ingest.
type httpTransport struct {
	transportDeps
	http atomic.Pointer[httpingest.Transport] // nil: it does not listen
}

func newHTTP(d transportDeps) transport { return &httpTransport{transportDeps: d} }

func (t *httpTransport) start(life context.Context) error {
	plain, secure, pair := t.cfg.Listeners.Ingest, t.cfg.Listeners.IngestTLS, t.certificate.pair
	if pair == nil {
		secure = ""
	}
	if plain == "" && secure == "" {
		return nil
	}
	var open []httpingest.Listener
	if plain != "" {
		l, err := t.listenOn("listeners.ingest", plain, &t.addrs.Ingest)
		if err != nil {
			return err
		}
		open = append(open, httpingest.Listener{Listener: l})
	}
	if secure != "" {
		l, err := t.listenOn("listeners.ingest_tls", secure, &t.addrs.IngestTLS)
		if err != nil {
			return errors.Join(err, closeAll(open))
		}
		open = append(open, httpingest.Listener{Listener: l, TLS: pair.Server(false)})
	}
	h, err := httpingest.New(httpingest.Config{InstanceID: t.cfg.Instance.ID, Source: t.source, Settings: t.cfg.Ingest.Settings,
		MaxConnections: t.lock.ingestConnections(), MaxLargeBodies: t.budget.largeBodies()},
		httpingest.Deps{Intake: t.intake.into, Listeners: open, Logger: t.log, Registerer: t.metrics})
	if err != nil {
		return errors.Join(err, closeAll(open))
	}
	t.http.Store(h)
	t.goes(life, h.Name(), h.Run)
	return nil
}

// closeAll closes sockets at which no client was accepted.
func closeAll(open []httpingest.Listener) (err error) {
	for _, l := range open {
		err = errors.Join(err, l.Close())
	}
	return err
}
func (t *httpTransport) stop(ctx context.Context) error {
	if h := t.http.Load(); h != nil {
		return h.Close(ctx)
	}
	return nil
}

func (t *httpTransport) apply(c *config.Config) {
	if h := t.http.Load(); h != nil {
		h.SetMaxBody(c.Ingest.MaxBody)
	}
}

func (*httpTransport) connections() (open, maximum int) { return 0, 0 }

func (t *httpTransport) opened() []listener {
	how := "HTTP ingest; " + protection(t.cfg.Auth.DeviceAuth)
	return []listener{{"ingest", t.addrs.Ingest, how + "; no TLS"}, {"ingest_tls", t.addrs.IngestTLS, how + "; TLS"}}
}

func protection(mode ingest.DeviceAuthMode) string {
	switch mode {
	case ingest.AuthOptional:
		return "a credential in the body is checked when there is one"
	case ingest.AuthDisabled:
		return "NO credential is asked for"
	}
	return "a credential in each body"
}
