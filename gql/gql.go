// Package gql serves the GraphQL areas over HTTP and WebSocket. The schema files under schema are the source of truth: each
// is parsed into types, every field must find a resolver or a Go field with its name, every resolver a field, or the area is not
// built. Package engine executes the requests; this one knows the callers, what each operation demands of them, and the
// resolvers of the areas.
//
// An area is made of
//
//	area := server.Area("device-management", gql.TenantPlane)
//	area.Type("Device", Device{})                        // Go fields with a tag gql:"name"
//	area.Field("Device", "deviceType", engine.On(...))      // nested fields that need work
//	area.Query("devices", gql.Requires(model.DeviceRead), engine.Do(...))
//	area.Mutation("createDevice", gql.Requires(model.DeviceWrite), engine.Do(...))
//	area.Subscription("deviceStream", gql.Requires(model.DeviceRead), ...)
//
// and after Build or Open, Handler serves it over HTTP and, for subscriptions, over graphql-transport-ws.
package gql

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"weir/gql/engine"
)

//go:embed schema/*.graphql
var schemaFiles embed.FS

// Config configures a Server.
type Config struct {
	Limits   Limits // zero fields take their defaults
	DevTools bool   // introspection is answered
	// BaseURL returns the public URL of the instance; nil or "": there is none. A page of its host is no other host's.
	BaseURL func() string
	Log     *slog.Logger
	// Registerer receives the metrics; nil: they are not registered.
	Registerer prometheus.Registerer
}

// Server holds the areas and their common limits, document cache, metrics and connections.
type Server struct {
	cfg       Config
	log       *slog.Logger
	runtime   *engine.Runtime
	metrics   *metrics
	admission *admission
	sockets   *socketLimits
	inflight  *inflight
	areas     []*Area
	open      bool // Build or Open has been called
}

// New returns a server without areas.
func New(cfg Config) *Server {
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	m := newMetrics(cfg.Registerer)
	s := &Server{cfg: cfg, log: cfg.Log, metrics: m, admission: newAdmission(cfg.Limits, m), sockets: newSocketLimits(cfg.Limits, m),
		inflight: newInflight(), runtime: engine.New(engine.Config{Limits: cfg.Limits.Limits, DevTools: cfg.DevTools, Log: cfg.Log, Registerer: cfg.Registerer,
			RequestID: func(ctx context.Context) string { return CallFrom(ctx).RequestID }})}
	if cfg.Registerer != nil {
		s.registerBounds(cfg.Registerer)
	}
	return s
}

// Area adds the area whose schema is schema/<name>.graphql. The other planes of an area have names of their own:
// user-management-admin, user-management-settings, ai-inference-admin.
func (s *Server) Area(name string, plane Plane) *Area {
	sdl, err := SDL(name)
	a := s.AreaOf(name, plane, sdl)
	a.schema.Fail(err)
	return a
}

// AreaOf adds an area with the given schema text.
func (s *Server) AreaOf(name string, plane Plane, sdl string) *Area {
	a := &Area{schema: s.runtime.Schema(name, sdl), name: name, plane: plane}
	s.areas = append(s.areas, a)
	return a
}

// SDL returns the text of schema/<name>.graphql, exactly as it is published.
func SDL(name string) (string, error) {
	b, err := schemaFiles.ReadFile("schema/" + name + ".graphql")
	if err != nil {
		return "", fmt.Errorf("gql: area %s has no schema file", name)
	}
	return string(b), nil
}

// Build prepares the areas for requests. Its error lists everything that does not fit, see engine.Schema.
func (s *Server) Build() error {
	var errs []error
	for _, a := range s.areas {
		if _, err := a.built(); err != nil {
			errs = append(errs, err)
		}
	}
	s.open = len(errs) == 0
	return errors.Join(errs...)
}

// Open is Build for a server each of whose areas is prepared by the first request to it: together they take as much memory as the rest of
// an idle instance. What does not fit is known from the tests, which build them all, and answered as an internal error.
func (s *Server) Open() { s.open = true }

// Operations lists every root field of every area with the access that it demands, sorted by area, kind and name. The verbs of the kinds are
// known once an area is built.
func (s *Server) Operations() []Operation {
	var ops []Operation
	for _, a := range s.areas {
		_, _ = a.built() // Build says what is wrong
		ops = append(ops, a.operations...)
	}
	slices.SortFunc(ops, compareOperations)
	return ops
}

// Engine returns the area of that name for calls within the process, nil when there is none or it cannot be built.
func (s *Server) Engine(area string) *engine.Engine {
	for _, a := range s.areas {
		if a.name == area {
			e, _ := a.built() // Build says what is wrong
			return e
		}
	}
	return nil
}

// Areas are the names of the areas, in the order in which they were added.
func (s *Server) Areas() []string {
	names := make([]string, len(s.areas))
	for i, a := range s.areas {
		names[i] = a.name
	}
	return names
}

// Plane returns the plane of the area of that name.
func (s *Server) Plane(area string) Plane {
	for _, a := range s.areas {
		if a.name == area {
			return a.plane
		}
	}
	return TenantPlane
}

// Handler serves the area over HTTP and WebSocket; auth authenticates the caller. An area may be served several times
// with different authentication, as on the unix socket. It panics before Build or Open, and when the area is unknown.
func (s *Server) Handler(area string, auth Authenticate) http.Handler {
	i := slices.IndexFunc(s.areas, func(a *Area) bool { return a.name == area })
	if i < 0 || !s.open {
		panic("gql: Handler before Build or Open, or of an unknown area: " + area)
	}
	return &handler{server: s, area: s.areas[i], auth: auth}
}

// Drain refuses new requests with 503, closes the WebSocket connections with 1001 and waits until running requests
// have ended or ctx ends.
func (s *Server) Drain(ctx context.Context) error { return s.inflight.drain(ctx) }
