package web

import (
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"weir/docs"
)

// routes builds the table. A pattern that is there twice is an error and not a panic.
func (s *Server) routes() (mux *http.ServeMux, err error) {
	defer func() {
		if x := recover(); x != nil { // net/http's way to refuse a pattern
			mux, err = nil, fmt.Errorf("web: routes: %v", x)
		}
	}()
	mux = http.NewServeMux()
	for _, a := range s.cfg.Areas {
		// The prefix is removed, so that an area's handler can be mounted alone at /graphql as well.
		mux.Handle(a.prefix()+"/graphql", http.StripPrefix(a.prefix(), a.Handler))
		mux.Handle("GET /schema/"+a.file()+".graphql", schemaFile("text/plain; charset=utf-8", a.SDL))
	}
	for file, text := range docs.Schemas() {
		mux.Handle("GET "+devicePath+file, schemaFile("application/schema+json", text))
	}
	if s.cfg.DevTools {
		explorer, err := explorers(s.cfg.Areas)
		if err != nil {
			return nil, err
		}
		for pattern, h := range explorer {
			mux.Handle(pattern, h)
		}
	}
	mux.Handle("GET /schema/index.json", s.schemaIndex())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", s.readyz)
	for pattern, h := range s.cfg.Handlers {
		mux.Handle(pattern, h)
	}
	return mux, nil
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	if !s.cfg.Ready() {
		plain(w, http.StatusServiceUnavailable, "not ready")
		return
	}
	if why := s.cfg.Closed(); why != "" {
		plain(w, http.StatusServiceUnavailable, "not ready: all transports are closed: "+why)
		return
	}
	plain(w, http.StatusOK, "ready")
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, text) // the caller has left
}

// Metrics returns the handler of the private listener: /metrics in the text exposition format, nothing else.
func Metrics(g prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	return mux
}

func stack() string { return string(debug.Stack()) }

type metrics struct {
	panics     prometheus.Counter
	handshakes prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{panics: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_http_panics_total", Help: "HTTP requests that ended in a panic."}),
		handshakes: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_http_failed_handshakes_total", Help: "TLS handshakes of the listener that failed."})}
	if reg != nil {
		reg.MustRegister(m.panics, m.handshakes)
	}
	return m
}
