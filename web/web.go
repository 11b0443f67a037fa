// Package web is the HTTP front: it routes the GraphQL areas, publishes their schemas, answers health checks and stops
// gracefully. It knows the areas only as handlers and texts that are handed in.
//
//	/api/<area>/graphql, /api/<area>/<plane>/graphql   the areas
//	/api/<area>/graphiql, …                            the explorer, with developer tools on
//	/api/user-management/branding/logo                 the logo of the caller's tenant, handed in as a Handler, as are JWKS and service tokens
//	/schema/index.json, /schema/<file>.graphql         what there is
//	/healthz, /readyz                                  for monitoring
//	/, /assets/, /console.json                         the console, handed in as Handlers (Front)
//	/plain, /api, /docs/                               pages for people without a script, likewise
//	/setup                                             the page of the first run, likewise (SetupPages)
//
// Metrics are on a handler of their own, for the private listener.
package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/connlimit"
	"weir/internal/handshake"
	"weir/internal/requestid"
)

// Config says how the front behaves.
type Config struct {
	URLs
	DevTools bool // serves the explorer
	Areas    []Area
	// Absent lists what the schema index names as having no GraphQL.
	Absent []Absent
	// Handlers are further routes, by pattern of net/http.ServeMux: JWKS, service tokens, device message schemas.
	Handlers map[string]http.Handler
	// Ready reports whether the stores and signing keys are loaded, what was acknowledged before the start is applied, and the
	// server is not stopping.
	Ready func() bool
	// Closed is why all transports are closed, "" while they are open: /readyz shows it; nil: they are open.
	Closed func() string

	Log        *slog.Logger
	Registerer prometheus.Registerer // nil registers nothing

	// MaxConnections bounds open connections, 0 = 2048.
	MaxConnections int
}

// Area is one GraphQL endpoint.
type Area struct {
	Name    string // device-management
	Variant string // "", or admin or settings for the identity plane
	Plane   string // tenant, identity or service: how the schema index lists it
	Token   string // access, identity or service
	Note    string
	SDL     string
	Example string       // the document that the explorer begins with
	Handler http.Handler // serves at the route, the prefix removed
}

// Absent is an area without GraphQL, or one with a placeholder only.
type Absent struct{ Area, Note string }

// file is the name of the area's schema file, without its ending.
func (a Area) file() string {
	if a.Variant == "" {
		return a.Name
	}
	return a.Name + "-" + a.Variant
}

// prefix is what stands before /graphql.
func (a Area) prefix() string {
	if a.Variant == "" {
		return "/api/" + a.Name
	}
	return "/api/" + a.Name + "/" + a.Variant
}

// Endpoint is the path of the area, as / and /schema/index.json name it.
func (a Area) Endpoint() string { return a.prefix() + "/graphql" }

// SchemaPath and ExplorerPath are the ways to the area's schema and explorer from /.
func (a Area) SchemaPath() string   { return "schema/" + a.file() + ".graphql" }
func (a Area) ExplorerPath() string { return strings.TrimPrefix(a.prefix(), "/") + "/graphiql" }

// Server is the front.
type Server struct {
	cfg       Config
	urls      atomic.Pointer[URLs] // effective in place of cfg.URLs
	log       *slog.Logger
	handler   http.Handler
	http      *http.Server
	metrics   *metrics
	limit     *connlimit.Limit // of all listeners together
	strangers *handshake.Reporter
	listen    connlimit.Metrics
}

// New makes the front. It fails when two routes are the same.
func New(cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Closed == nil {
		cfg.Closed = func() string { return "" }
	}
	if cfg.Ready == nil {
		cfg.Ready = func() bool { return true }
	}
	if cfg.MaxConnections <= 0 {
		cfg.MaxConnections = 2048
	}
	s := &Server{cfg: cfg, log: cfg.Log, metrics: newMetrics(cfg.Registerer), listen: newListenerMetrics("http", cfg.MaxConnections, cfg.Registerer)}
	s.strangers = &handshake.Reporter{Log: s.log, Message: "a connection ended before a request"}
	s.limit = connlimit.New(cfg.MaxConnections, s.listen)
	s.SetURLs(cfg.URLs)
	mux, err := s.routes()
	if err != nil {
		return nil, err
	}
	s.handler = s.recovered(requestid.Handler(mux))
	s.http = newHTTPServer(s.handler, s.log)
	s.limit.Guard(s.http)
	return s, nil
}

// Handler returns all routes, for tests and for listeners of other kinds.
func (s *Server) Handler() http.Handler { return s.handler }

// newHTTPServer sets the bounds that keep a slow or hostile peer from holding a connection.
func newHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       60 * time.Second, // of a whole request: 4 MiB over a slow line
		// WriteTimeout counts from the end of the header and so bounds handlers too: above the longest time limit of a
		// GraphQL request (drafting and inference included) plus the time to send a large answer.
		WriteTimeout:   5 * time.Minute,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: maxHeader - connlimit.HeaderSlack,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug), // malformed requests of unauthenticated clients
	}
}

// maxHeader is the size of the headers of a request, its first line included.
const maxHeader = 32 << 10

// Serve answers on l until Shutdown. Beyond MaxConnections a new connection evicts an idle one.
func (s *Server) Serve(l net.Listener) error { return s.serve(s.limit.Listen(l)) }

// ServeTLS is Serve over TLS, of the listener of a name. A handshake takes at most as long as the headers of a request may; one that fails is
// counted and reported. HTTP/2 is not offered: one connection could carry more requests at once than its slot stands for.
func (s *Server) ServeTLS(l net.Listener, name string, c *tls.Config) error {
	return s.serve(handshake.HTTPS(s.limit.Listen(l), c, s.http.ReadHeaderTimeout, func(from netip.Addr, err error) {
		s.metrics.handshakes.Inc()
		s.strangers.Report(name, from, handshake.Reason, handshake.Text(err))
	}))
}

func (s *Server) serve(l net.Listener) error {
	err := s.http.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("web: %w", err)
}

// Shutdown stops accepting, waits until running requests have been answered and closes what is left when ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("web: %w", err), s.http.Close())
	}
	return nil
}

// recovered answers a panic of a handler with 500, logs it and keeps the process.
func (s *Server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			x := recover()
			if x == nil {
				return
			}
			if x == http.ErrAbortHandler { //nolint:errorlint // the server compares it so
				panic(x)
			}
			s.metrics.panics.Inc()
			s.log.Error("web: panic", "path", r.URL.Path, "panic", fmt.Sprint(x), "request", w.Header().Get(requestid.Header), "stack", stack())
			http.Error(w, "internal error", http.StatusInternalServerError)
		}()
		next.ServeHTTP(w, r)
	})
}
