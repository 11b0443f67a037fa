package app

import (
	"context"
	"sync/atomic"

	"weir/config"
	"weir/httpingest"
	"weir/internal/memory"
)

// connectionHTTP is what a connection takes; maxIngest bounds their number.
const (
	connectionHTTP = 20 << 10
	maxIngest      = 4096
)

var ingestShare = share{Share: memory.Share{Name: "HTTP connections", PerMille: 50, Least: 1 << 20, Most: maxIngest * connectionHTTP}}

func (b Budget) ingestConnections() int {
	return int(max(b.of(ingestShare)/connectionHTTP, minConnections))
}

// httpTransport is HTTP ingest.
type httpTransport struct {
	transportDeps
	server  *httpingest.Server // nil: it is closed
	maxBody atomic.Pointer[func(int)]
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
	c := t.cfg.Ingest
	h, err := httpingest.New(httpingest.Config{InstanceID: t.cfg.Instance.ID, Source: t.source, MaxBody: int(c.MaxBody), HeaderTimeout: c.HTTPHeaderTimeout,
		RequestTimeout: c.HTTPRequestTimeout, MaxConnections: t.lock.ingestConnections(), MaxLargeBodies: t.budget.largeBodies()},
		httpingest.Deps{Gate: t.intake.gate, Logger: t.log, Registerer: t.metrics})
	if err != nil {
		return err
	}
	s := httpingest.NewServer(h, nil)
	t.server = s
	t.maxBody.Store(new(h.SetMaxBody))
	if plain != "" {
		l, err := t.listenOn("listeners.ingest", plain, &t.addrs.Ingest)
		if err != nil {
			return err
		}
		t.goes(life, "http ingest", func(context.Context) error { return ignoreClosed(s.Serve(l)) })
	}
	if secure != "" {
		l, err := t.listenOn("listeners.ingest_tls", secure, &t.addrs.IngestTLS)
		if err != nil {
			return err
		}
		t.goes(life, "http ingest over TLS", func(context.Context) error { return ignoreClosed(s.ServeTLS(l, pair.Server(false))) })
	}
	return nil
}

func (t *httpTransport) stop(ctx context.Context) error {
	if t.server == nil {
		return nil
	}
	return t.server.Shutdown(ctx)
}

func (t *httpTransport) apply(c *config.Config) {
	if set := t.maxBody.Load(); set != nil {
		(*set)(int(c.Ingest.MaxBody))
	}
}

func (*httpTransport) connections() (open, maximum int) { return 0, 0 }

func (t *httpTransport) opened() []listener {
	how := "HTTP ingest; " + protection(t.cfg.Auth.DeviceAuthMode)
	return []listener{{"ingest", t.addrs.Ingest, how + "; no TLS"}, {"ingest_tls", t.addrs.IngestTLS, how + "; TLS"}}
}

func protection(mode string) string {
	switch mode {
	case "optional":
		return "a credential in the body is checked when there is one"
	case "disabled":
		return "NO credential is asked for"
	}
	return "a credential in each body"
}
