package httpingest

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Server serves the ingest listener with its limits: time for the headers, time for the whole request, number of
// connections.
type Server struct {
	http    http.Server
	handler *Handler
	places  chan struct{} // one per connection
	conns   sync.Map      // net.Conn → *visit
}

// visit is a connection's place in its requests.
type visit struct {
	waiting atomic.Bool // for a request that has not reached the handler
}

// NewServer returns the server of h. routes, when not nil, is served instead of h: a handler that sends other paths of the
// listener elsewhere and the rest to h.
func NewServer(h *Handler, routes http.Handler) *Server {
	if routes == nil {
		routes = h
	}
	s := &Server{handler: h, places: make(chan struct{}, h.cfg.MaxConnections)}
	s.http = http.Server{
		Handler:           routes,
		ReadHeaderTimeout: h.cfg.HeaderTimeout,
		ReadTimeout:       h.cfg.RequestTimeout,
		WriteTimeout:      h.cfg.RequestTimeout + h.cfg.HeaderTimeout, // counted from the end of the headers
		IdleTimeout:       h.cfg.RequestTimeout,
		MaxHeaderBytes:    16 << 10,
		ConnContext:       s.enter,
		ConnState:         s.track,
		ErrorLog:          slog.NewLogLogger(h.deps.Logger.Handler(), slog.LevelDebug),
	}
	return s
}

// Serve accepts connections on ln until Shutdown is called; it then returns nil.
func (s *Server) Serve(ln net.Listener) error { return s.serve(s.bounded(ln)) }

// ServeTLS is Serve over TLS. A handshake takes at most as long as the headers of a request may. Both share the places for
// connections.
func (s *Server) ServeTLS(ln net.Listener, c *tls.Config) error {
	return s.serve(tls.NewListener(s.bounded(ln), c))
}

func (s *Server) bounded(ln net.Listener) net.Listener {
	return &boundedListener{Listener: ln, places: s.places, waits: s.handler.metrics.waits, closed: make(chan struct{})}
}

func (s *Server) serve(ln net.Listener) error {
	err := s.http.Serve(ln)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown stops accepting and waits until the requests that have begun are answered. When ctx ends first the rest is cut
// off and ctx's error returned.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		return errors.Join(err, s.http.Close())
	}
	return nil
}

type visitKey struct{}

func (s *Server) enter(ctx context.Context, c net.Conn) context.Context {
	v := new(visit)
	v.waiting.Store(true)
	s.conns.Store(c, v)
	return context.WithValue(ctx, visitKey{}, v)
}

// began notes that a request has reached the handler.
func began(r *http.Request) {
	if v, ok := r.Context().Value(visitKey{}).(*visit); ok {
		v.waiting.Store(false)
	}
}

// track counts the connections that close before a request of theirs has reached the handler: nothing was sent, or the
// headers took too long. One that closes between two requests has done nothing wrong.
func (s *Server) track(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.handler.metrics.connections.Inc()
	case http.StateActive:
		if v, ok := s.conns.Load(c); ok {
			v.(*visit).waiting.Store(true)
		}
	case http.StateIdle:
		if v, ok := s.conns.Load(c); ok {
			v.(*visit).waiting.Store(false)
		}
	case http.StateClosed, http.StateHijacked:
		s.handler.metrics.connections.Dec()
		if v, ok := s.conns.LoadAndDelete(c); ok && v.(*visit).waiting.Load() {
			s.handler.metrics.closedBefore.Inc()
		}
	}
}

// boundedListener accepts a connection only when there is a place for it; until then it waits in the system's queue.
type boundedListener struct {
	net.Listener
	places chan struct{}
	waits  prometheus.Counter
	once   sync.Once
	closed chan struct{}
}

func (l *boundedListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	default:
		l.waits.Inc()
		select {
		case l.places <- struct{}{}:
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &boundedConn{Conn: c, places: l.places}, nil
}

func (l *boundedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type boundedConn struct {
	net.Conn
	once   sync.Once
	places chan struct{}
}

func (c *boundedConn) Close() error {
	defer c.once.Do(func() { <-c.places })
	return c.Conn.Close()
}
