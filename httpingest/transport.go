package httpingest

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"weir/command"
	"weir/ingest"
	"weir/internal/connlimit"
	"weir/internal/handshake"
	"weir/internal/setting"
	"weir/model"
)

// Listener is an open socket; TLS is nil for plain HTTP.
type Listener struct {
	net.Listener
	Name string // of the configuration
	TLS  *tls.Config
}

// Transport serves the listeners with their limits: a timeout for the headers, a timeout for the whole request, and a
// maximum number of connections.
type Transport struct {
	http      http.Server
	handler   *handler
	opened    []Listener
	strangers *handshake.Reporter
	limit     *connlimit.Limit
	conns     sync.Map // net.Conn → *visit

	mu     sync.Mutex
	state  ingest.SourceState
	since  time.Time
	failed string // the error that ended Run
}

var _ ingest.Transport = (*Transport)(nil)

// visit is the state of a connection between requests.
type visit struct {
	waiting atomic.Bool // for a request that has not reached the handler
}

// New returns the transport of the listeners. Run serves them.
func New(cfg Config, deps Deps) (*Transport, error) {
	h, err := newHandler(cfg, deps)
	if err != nil {
		return nil, err
	}
	return newTransport(h, h), nil
}

// newTransport returns a transport that serves routes: h itself or, in tests, a handler that calls it.
func newTransport(h *handler, routes http.Handler) *Transport {
	m := h.metrics
	t := &Transport{handler: h, opened: h.deps.Listeners,
		limit: connlimit.New(h.cfg.MaxConnections, connlimit.Metrics{Connections: m.connections, Waits: m.waits, Closed: m.closed})}
	t.enter(ingest.SourceDown, nil)
	t.http = http.Server{
		Handler:           routes,
		ReadHeaderTimeout: h.cfg.HeaderTimeout,
		ReadTimeout:       h.cfg.RequestTimeout,
		WriteTimeout:      h.cfg.RequestTimeout + h.cfg.HeaderTimeout, // counted from the end of the headers
		IdleTimeout:       h.cfg.RequestTimeout,
		MaxHeaderBytes:    maxHeader - connlimit.HeaderSlack,
		ConnContext:       t.connected,
		ConnState:         t.track,
		ErrorLog:          slog.NewLogLogger(h.deps.Logger.Handler(), slog.LevelDebug),
	}
	t.strangers = &handshake.Reporter{Log: h.deps.Logger, Message: "a connection ended before a request", Show: h.deps.Refused}
	t.limit.Guard(&t.http)
	return t
}

// maxHeader is the size of the headers of a request, its first line included.
const maxHeader = 16 << 10

// Name implements ingest.Transport.
func (t *Transport) Name() string { return ingest.TransportHTTP }

// Commands returns the transport as a carrier of commands; nil when none can be fetched.
func (t *Transport) Commands() command.Carrier {
	if t.handler.polls == nil {
		return nil
	}
	return t.handler.polls
}

// SetMaxBody changes the maximum size of a body in bytes, for later requests.
func (t *Transport) SetMaxBody(n setting.Size) { t.handler.maxBody.Store(int64(n)) }

// Run implements ingest.Transport: it serves the listeners until Close is called or ctx ends. The end of ctx closes
// open connections.
func (t *Transport) Run(ctx context.Context) error {
	t.enter(ingest.SourceUp, nil)
	defer context.AfterFunc(ctx, func() { _ = t.http.Close() })() // the listeners are gone either way
	ended := make(chan error, len(t.opened))
	for _, l := range t.opened {
		go func() { ended <- t.serve(l) }()
	}
	var err error
	for range t.opened {
		if e := <-ended; e != nil && err == nil {
			err = e
			_ = t.http.Close() // a failing listener ends the others
		}
	}
	if len(t.opened) == 0 {
		<-ctx.Done()
	}
	t.enter(ingest.SourceShut, err)
	return err
}

// serve accepts connections on l until the transport is closed; it then returns nil. A TLS handshake has the timeout of
// the headers. All listeners share the connection limit.
func (t *Transport) serve(l Listener) error {
	ln := t.limit.Listen(l.Listener)
	if l.TLS != nil {
		ln = handshake.HTTPS(ln, l.TLS, t.handler.cfg.HeaderTimeout, func(from netip.Addr, err error) {
			t.handler.metrics.handshakes.Inc()
			t.strangers.Report(l.Name, from, handshake.Reason, handshake.Text(err))
		})
	}
	err := t.http.Serve(ln)
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Close implements ingest.Transport: it stops accepting and waits until the requests that have begun are answered.
func (t *Transport) Close(ctx context.Context) error {
	t.enter(ingest.SourceShut, nil)
	if p := t.handler.polls; p != nil {
		p.shut()
	}
	err := t.http.Shutdown(ctx)
	if err != nil {
		return errors.Join(err, t.http.Close())
	}
	return nil
}

// Drop implements ingest.Transport. It does nothing: no connection belongs to a device, each request has its credential.
func (t *Transport) Drop(func(model.Binding) bool) {}

// Sources implements ingest.Transport.
func (t *Transport) Sources() []ingest.SourceStatus {
	h := t.handler
	t.mu.Lock()
	defer t.mu.Unlock()
	s := ingest.SourceStatus{ID: h.cfg.Source, Kind: t.Name(), State: t.state, Since: t.since, LastError: t.failed,
		Counts: ingest.SourceCounts{Connected: int64(t.limit.Len()), Received: h.received.Load(), Refused: h.refused.Load()}}
	if at := h.last.Load(); at != 0 {
		s.LastMessage = time.Unix(0, at)
	}
	return []ingest.SourceStatus{s}
}

// enter records a change of a connection's state.
func (t *Transport) enter(state ingest.SourceState, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.failed = err.Error()
	}
	if t.state != state {
		t.state, t.since = state, time.Now()
	}
}

type visitKey struct{}

func (t *Transport) connected(ctx context.Context, c net.Conn) context.Context {
	v := new(visit)
	v.waiting.Store(true)
	t.conns.Store(c, v)
	return context.WithValue(ctx, visitKey{}, v)
}

// began records that a request has reached the handler.
func began(r *http.Request) {
	if v, ok := r.Context().Value(visitKey{}).(*visit); ok {
		v.waiting.Store(false)
	}
}

// track counts the connections that close before a request has reached the handler: nothing was sent, or the headers took
// too long. A connection that closes between two requests is not counted.
func (t *Transport) track(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateActive:
		if v, ok := t.conns.Load(c); ok {
			v.(*visit).waiting.Store(true)
		}
	case http.StateIdle:
		if v, ok := t.conns.Load(c); ok {
			v.(*visit).waiting.Store(false)
		}
	case http.StateClosed, http.StateHijacked:
		if v, ok := t.conns.LoadAndDelete(c); ok && v.(*visit).waiting.Load() {
			t.handler.metrics.closedBefore.Inc()
		}
	}
}
