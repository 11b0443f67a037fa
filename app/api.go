package app

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"weir/gql"
	"weir/web"
)

// area is one GraphQL area of the binary.
type area struct {
	name     string
	register func(*gql.Area)
}

// areas are what this Weir serves, in the order of the schema index.
func (in *Instance) areas() []area {
	return []area{
		{"user-management", func(a *gql.Area) {
			gql.RegisterUser(a, gql.UserDeps{SignIn: in.auth, Profiles: in.auth, Tenants: in.govern, Areas: in.areaNames()})
		}},
		{"device-management", func(a *gql.Area) { gql.RegisterRegistry(a, in.registry) }},
		{"event-management", func(a *gql.Area) {
			gql.RegisterEvents(a, gql.EventDeps{Events: in.series, Devices: in.registry.Devices.Rows, Ledger: in.applier.Ledger(), Readings: in.readings})
		}},
		{"device-state", func(a *gql.Area) {
			gql.RegisterState(a, gql.StateDeps{States: in.applier, Latest: in.series, Devices: in.registry.Devices.Rows, External: in.registry,
				Listening: in.listen.Now, Silence: func() time.Duration { return in.obeyed().Presence.InactivityTimeout }})
		}},
		{"event-processing", func(a *gql.Area) {
			gql.RegisterProcessing(a, gql.ProcessingDeps{Rules: in.compiler, Health: in.applier, Edges: in.edges})
		}},
		{"event-sources", gql.RegisterPlaceholder},
	}
}

func (in *Instance) areaNames() []string {
	var names []string
	for _, a := range in.areas() {
		names = append(names, a.name)
	}
	slices.Sort(names)
	return names
}

// later is a handler that is known once its parts stand; until then it answers 503, and so does /readyz.
type later struct{ h atomic.Pointer[http.Handler] }

func (l *later) set(h http.Handler) { l.h.Store(&h) }

func (l *later) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := l.h.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	w.Header().Set("Retry-After", "1")
	http.Error(w, "starting", http.StatusServiceUnavailable)
}

// startFront opens the API port with everything behind it still closed: health is answered from the first moment on.
func (in *Instance) startFront(_, life context.Context) error {
	in.late = map[string]*later{jwksPath: {}, serviceTokenPath: {}, setupCalls: {}}
	cfg := web.Config{MaxConnections: in.apiConnections(), BaseURL: in.cfg.BaseURL, DocsURL: in.cfg.DocsURL, DevTools: gql.DevTools(in.opt.Getenv), Ready: in.ready.Load, Log: in.log,
		Registerer: in.metrics, Handlers: map[string]http.Handler{jwksPath: in.late[jwksPath], serviceTokenPath: in.late[serviceTokenPath], setupCalls: in.late[setupCalls]},
		Absent: []web.Absent{{Area: "event-sources", Note: "answers with a placeholder schema; devices send to the ingest listener and the broker"},
			{Area: "sparkplug-ingest", Note: "serves no GraphQL"}, {Area: "lwm2m-ingest", Note: "serves no GraphQL"}}}
	maps.Copy(cfg.Handlers, web.SetupPages(in.setupState))
	for _, d := range in.areas() {
		sdl, err := gql.SDL(d.name)
		if err != nil {
			return err
		}
		in.late[d.name] = &later{}
		cfg.Areas = append(cfg.Areas, web.Area{Name: d.name, Plane: "tenant", Token: "access", SDL: sdl, Handler: in.late[d.name]})
	}
	var err error
	if in.api, err = web.New(cfg); err != nil {
		return err
	}
	if err := in.startCertificate(); err != nil {
		return err
	}
	return in.openFront(life)
}

// openFront opens the listeners of the front.
func (in *Instance) openFront(life context.Context) error {
	if addr := in.cfg.Listeners.API; addr != "" {
		l, err := in.listenOn("listeners.api", addr, &in.addrs.API)
		if err != nil {
			return err
		}
		in.front.Go(in.part(life, "api", func(context.Context) error { return ignoreClosed(in.api.Serve(l)) }))
	}
	if addr := in.cfg.Listeners.APITLS; addr != "" && in.certs != nil {
		l, err := in.listenOn("listeners.api_tls", addr, &in.addrs.APITLS)
		if err != nil {
			return err
		}
		in.front.Go(in.part(life, "api over TLS", func(context.Context) error { return ignoreClosed(in.api.ServeTLS(l, in.certs.Server(false))) }))
	}
	return nil
}

const (
	jwksPath         = "/api/user-management/auth/jwks"
	serviceTokenPath = "/api/user-management/auth/service-token"
)

// startAPI puts the areas behind the front.
func (in *Instance) startAPI(context.Context, context.Context) error {
	in.gql = gql.New(gql.Config{Limits: in.budget.graphQL(gql.LimitsFromEnv(in.opt.Getenv)), DevTools: gql.DevTools(in.opt.Getenv), Log: in.log, Registerer: in.metrics})
	for _, d := range in.areas() {
		d.register(in.gql.Area(d.name, gql.TenantPlane))
	}
	if err := in.gql.Build(); err != nil {
		return err
	}
	for _, d := range in.areas() {
		in.late[d.name].set(in.gql.Handler(d.name, gql.ByToken(in.auth)))
	}
	in.late[jwksPath].set(in.auth.JWKS())
	in.late[serviceTokenPath].set(in.auth.ServiceToken())
	var calls http.Handler
	in.setup, calls = in.newSetup()
	in.late[setupCalls].set(calls)
	return nil
}

func (in *Instance) stopFront(ctx context.Context) error {
	defer in.front.Wait()
	return in.api.Shutdown(ctx)
}

// stopAPI lets what runs end: requests are answered, and sockets are closed as going away before their streams end, so
// that clients come back instead of taking the stream for finished.
func (in *Instance) stopAPI(ctx context.Context) error {
	err := in.gql.Drain(ctx)
	in.edges.Close()
	in.readings.Close()
	return err
}

// mostScrapers is how many connections the metrics listener has at most.
const mostScrapers = 64

func (in *Instance) startMetrics(_, life context.Context) error {
	if !in.cfg.Metrics.Enabled || in.cfg.Listeners.Metrics == "" {
		return nil
	}
	l, err := in.listenOn("listeners.metrics", in.cfg.Listeners.Metrics, &in.addrs.Metrics)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", web.Metrics(in.metrics))
	in.private = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		MaxHeaderBytes: 16 << 10}
	in.goes(life, "metrics", func(context.Context) error {
		if err := in.private.Serve(web.Bounded(l, mostScrapers, "metrics", in.metrics)); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return nil
}

func (in *Instance) stopMetrics(ctx context.Context) error {
	if in.private == nil {
		return nil
	}
	return in.private.Shutdown(ctx)
}
