package app

import (
	"context"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"weir/config"
	"weir/gql"
	"weir/operate"
	"weir/web"
)

// front is the API port: what it serves is known later.
type front struct {
	*base
	lock        *lock
	certificate *certificate
	web         *web.Server
	late        map[string]*later // by area or path
	// closed reports whether an administrator exists.
	closed atomic.Pointer[func() bool]
	// accounts are what the pages sign people in with, nil until they are known.
	accounts atomic.Pointer[operate.Entities]
	serving  sync.WaitGroup // answers until the store has closed
}

const (
	jwksPath         = "/api/user-management/auth/jwks"
	serviceTokenPath = "/api/user-management/auth/service-token"
	logoPath         = "/api/user-management/branding/logo"
	artifactPath     = "/api/device-management/artifacts/{token}"
	downloadPath     = operate.DownloadPath
)

// later is a handler that is known once its parts run; until then it answers 503, and so does /readyz.
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

// Start opens the API port with every route still closed: health is answered from the first moment on.
func (f *front) Start(_, life context.Context) error {
	// Every route exists from the start; its handler is set once its parts run.
	f.late = map[string]*later{jwksPath: {}, serviceTokenPath: {}, logoPath: {}, artifactPath: {}, downloadPath: {}, web.SetupCalls: {}}
	cfg := web.Config{
		MaxConnections: f.lock.apiConnections(),
		URLs:           f.cfg.URLs,
		DevTools:       gql.DevTools(f.opt.Getenv),
		Ready:          f.ready.Load,
		Closed:         f.base.closed,
		Log:            f.log,
		Registerer:     f.metrics,
		Handlers:       map[string]http.Handler{},
		Absent: []web.Absent{{Area: placeholderArea, Note: "answers with a placeholder schema; devices send to the ingest listener and the broker"},
			{Area: "sparkplug-ingest", Note: "serves no GraphQL"}, {Area: "lwm2m-ingest", Note: "serves no GraphQL"}},
	}
	for path, h := range f.late {
		cfg.Handlers[path] = h
	}
	// The setup page is served while everything else starts: it shows how far the start is.
	maps.Copy(cfg.Handlers, web.SetupPages(f.setupState, f.opt.Version))
	// The schemas of the areas are served at once; their operations come later.
	for _, s := range areasOf(f.cfg, f.brought) {
		name := s.Name()
		sdl, err := s.Schema()
		if err != nil {
			return err
		}
		f.late[name] = &later{}
		area := web.Area{
			Name:    s.Area,
			Variant: s.Variant,
			Plane:   s.Plane().String(),
			Token:   s.Token(),
			Note:    s.Callers(),
			SDL:     sdl,
			Example: s.Example,
			Handler: f.late[name],
		}
		if s.Service {
			area.Plane = "service"
		}
		cfg.Areas = append(cfg.Areas, area)
	}
	if cfg.DevTools {
		f.log.Info("developer tools are on: introspection and the explorer of the API are open to every client", "variable", gql.DevToolsVariable)
	}
	// After the areas: the pages list them.
	pages := f.pages(cfg)
	var err error
	if pages.Console, err = web.NewConsole(f.cfg.Console.ConsoleSettings, f.aboutConsole); err != nil {
		return err
	}
	maps.Copy(cfg.Handlers, pages.Pages())
	if f.web, err = web.New(cfg); err != nil {
		return err
	}
	return f.listen(life)
}

// pages are those of / and below.
func (f *front) pages(cfg web.Config) web.Front {
	return web.Front{
		Instance:  f.cfg.Instance.ID,
		Version:   f.opt.Version,
		BaseURL:   func() string { return f.effective().BaseURL },
		Setup:     f.setupState,
		Ready:     f.ready.Load,
		Listeners: f.shown,
		Areas:     cfg.Areas,
		DevTools:  cfg.DevTools,
		Log:       f.log,
		Firings:   f.fired,
		Accounts:  web.Accounts{Auth: f.signIn},
	}
}

// signIn is what the pages sign people in with, nil until it is known.
func (f *front) signIn() web.SignIn {
	if e := f.accounts.Load(); e != nil {
		return e.Auth
	}
	return nil
}

// shown are the listeners that are open, without the operator's socket: its path says nothing to a browser.
func (f *front) shown() (out []web.FrontListener) {
	for _, l := range f.listeners.list().Open() {
		if l.Name != operate.SocketListener {
			out = append(out, web.FrontListener{Name: l.Name, Address: l.Address, Description: l.Description()})
		}
	}
	return out
}

// fired is what fired last, in one tenant or in all.
func (f *front) fired(ctx context.Context, tenant string, limit int) ([]web.Firing, error) {
	return firingsOf(ctx, f.accounts.Load(), operate.FiringQuery{Tenant: tenant, Limit: limit})
}

func firingsOf(ctx context.Context, e *operate.Entities, q operate.FiringQuery) ([]web.Firing, error) {
	found, err := e.Firings(ctx, q)
	if err != nil {
		return nil, err
	}
	out := make([]web.Firing, len(found.Firings))
	for i := range found.Firings {
		out[i] = firing(&found.Firings[i])
	}
	return out, nil
}

func firing(f *operate.Firing) web.Firing {
	w := web.Firing{
		Time:     f.Occurred.UTC().Format("2006-01-02 15:04:05 UTC"),
		Tenant:   f.Tenant,
		Device:   f.Device,
		Rule:     f.Rule,
		Edge:     f.Edge,
		Severity: f.Severity,
	}
	if f.Value != nil {
		w.Value = strconv.FormatFloat(*f.Value, 'g', -1, 64)
	}
	return w
}

// listen opens the listeners.
func (f *front) listen(life context.Context) error {
	sockets, err := f.open(f.certificate.pair, apiListeners(f.cfg))
	for _, s := range sockets {
		f.serving.Go(f.part(life, s.About.Name, func(context.Context) error {
			if s.TLS != nil {
				return ignoreClosed(f.web.ServeTLS(s, s.About.Name, s.TLS))
			}
			return ignoreClosed(f.web.Serve(s))
		}))
	}
	return err
}

func apiListeners(c config.Config) operate.Listeners {
	const protocol, access = "GraphQL", "GraphQL; signed tokens"
	return operate.Listeners{
		{Name: operate.APIListener, Key: "listeners.api", Configured: c.Listeners.API, Protocol: protocol, Access: access},
		{Name: operate.APITLSListener, Key: "listeners.api_tls", Configured: c.Listeners.APITLS, Protocol: protocol, Access: access, TLS: true},
	}
}

// Stop implements component.
func (f *front) Stop(ctx context.Context) error {
	defer f.serving.Wait()
	return f.web.Shutdown(ctx)
}

// setupState is how far the first run is, for a browser that opens its page.
func (f *front) setupState() web.SetupState {
	switch closed := f.closed.Load(); {
	case !f.ready.Load() || closed == nil:
		return web.SetupStarting
	case (*closed)():
		return web.SetupClosed
	}
	return web.SetupOpen
}

// apiListener is where the setup page is reached: over TLS only where nothing else is open, since the names of the
// certificate may be none of those that its link can have.
func apiListener(ls operate.Listeners) (scheme, address string) {
	if plain := ls.At(operate.APIListener); plain != "" {
		return "http", plain
	}
	return "https", ls.At(operate.APITLSListener)
}
