package app

import (
	"context"
	"errors"
	"net/http"
	"time"

	"weir/config"
	"weir/gql"
	"weir/gql/admin"
	"weir/ingest"
	"weir/ingest/replay"
	"weir/model"
	"weir/operate"
	"weir/presence"
	"weir/store"
	"weir/web"
)

// maxRetryAfter bounds, in seconds, when a query that waits for a start should be repeated.
const maxRetryAfter = 30

// api puts what people and programs ask through the front.
type api struct {
	*base
	front    *front
	entities *entities
	applier  *applier
	spool    *logStore
	intake   *intake
	operator *operator
	setup    *web.Setup
}

// Start implements component.
func (a *api) Start(context.Context, context.Context) error {
	e, f := a.entities, a.front
	// Groups can ask from here on which devices are active.
	e.states = a.activeDevices
	server := gql.New(gql.Config{
		Limits:     a.budget.graphQL(gql.LimitsFromEnv(a.opt.Getenv)),
		DevTools:   gql.DevTools(a.opt.Getenv),
		BaseURL:    func() string { return a.effective().BaseURL },
		Log:        a.log,
		Registerer: a.metrics,
	})
	// Register the operations of every area; the first request to an area builds it.
	served := areasOf(a.cfg, a.brought)
	for _, s := range served {
		area := s.open(server)
		if s.FromLog {
			area.WaitFor(a.starting)
		}
		s.live(a, area)
	}
	server.Open()
	e.Areas = server
	for _, s := range served {
		f.late[s.Name()].set(server.Handler(s.Name(), gql.ByToken(e.Auth)))
	}
	// Now the routes that answered 503 get their handlers.
	f.late[jwksPath].set(e.Auth.JWKS())
	f.late[serviceTokenPath].set(e.Auth.ServiceToken())
	f.late[logoPath].set(server.Logo(e.Govern, gql.ByToken(e.Auth)))
	f.late[artifactPath].set(server.Artifacts(e.Artifacts, gql.ByToken(e.Auth)))
	f.late[downloadPath].set(http.HandlerFunc(a.operator.asked.ServeDownload))
	// The page of the first run, which needs the applier and the intake for its first reading.
	var calls http.Handler
	a.setup, calls = web.NewSetup(web.SetupConfig{
		BaseURL:  a.cfg.BaseURL,
		DataDir:  a.cfg.DataDir,
		Program:  a.opt.Program,
		Log:      a.log,
		Metrics:  a.metrics,
		Listener: func() (string, string) { return apiListener(a.listeners.list()) },
		Accounts: web.Accounts{Auth: f.signIn},
	}, setupSteps{e, a.applier, a.intake})
	f.late[web.SetupCalls].set(calls)
	// Last: with these two the front opens its pages and the setup to browsers.
	f.accounts.Store(e.Entities)
	f.closed.Store(new(e.Auth.HasSuperuser))
	return nil
}

// starting is what the areas that show what is applied wait for, nil once it is applied.
func (a *api) starting() *gql.Starting {
	r := a.applier.ingest.Replay()
	if r == nil {
		return nil
	}
	return &gql.Starting{Applied: r.Applied, Records: r.Records, RetryAfter: min(max(int(a.applier.replayTimeLeft(r).Seconds()), 1), maxRetryAfter)}
}

// asOf is the receive time up to which what was received is applied.
func (a *api) asOf() model.Micros {
	return a.applier.ingest.AsOf(a.spool.clock.Stamp().Wall).Micros()
}

// state is what the states of devices are read from.
func (a *api) state() gql.StateDeps {
	e, ap := a.entities, a.applier
	return gql.StateDeps{
		AsOf:      a.asOf,
		States:    ap.ingest,
		Latest:    ap.series,
		Devices:   e.Registry.Devices.Rows,
		Tokens:    e.Registry.Devices.Tokens,
		External:  e.Registry.Devices,
		Listening: a.spool.links.Now,
		Silence:   func() time.Duration { return a.effective().Presence.InactivityTimeout },
		Demoter:   demoter{a},
	}
}

// demoter returns devices to inferred presence.
type demoter struct{ *api }

// demotionWait is how long a demotion waits to be applied before it returns with what is in the log.
const demotionWait = time.Second

// Now implements gql.Demoter.
func (d demoter) Now() model.Micros { return d.spool.clock.Stamp().Wall.Micros() }

// Demote implements gql.Demoter. The journal says who asked for how many.
func (d demoter) Demote(ctx context.Context, by *model.Principal, source, reason string, devices []presence.Asserted) error {
	// The journal entry first: it must not be missing when the demotion takes effect.
	if err := d.entities.writer.Mutate(ctx, by, func(c *store.Change) error {
		return c.Audit(store.AuditEvent{
			TenantID:  by.TenantID,
			Category:  store.AuditMutation,
			Operation: store.AuditUpdate,
			Table:     "device_states",
			Label:     source,
			Rows:      int64(len(devices)),
		})
	}); err != nil {
		return err
	}
	last, refused := d.intake.into.Demote(ctx, source, devices, reason)
	// Wait a moment so that a query after this call sees the demotion; the log holds it in any case.
	for until := time.Now().Add(demotionWait); d.applier.ingest.Applied() < last && time.Now().Before(until) && ctx.Err() == nil; {
		time.Sleep(2 * time.Millisecond)
	}
	switch {
	case refused == nil:
		return nil
	case refused.Reason == ingest.ReasonCeiling:
		return &model.Error{Code: model.CodeThrottled, Message: "throttled: the tenant is over its ingest ceiling, the first of these devices are demoted; try again",
			Ext: map[string]any{"retryAfterSeconds": max(refused.RetryAfter, 1)}}
	}
	return model.Errorf(model.CodeUnavailable, "unavailable: the log takes no record, the first of these devices may be demoted; try again")
}

// activeDevices are those of a tenant that are active now. They are not known before the log is applied.
func (a *api) activeDevices(ctx context.Context, by *model.Principal) ([]int64, error) {
	// An answer from results that are still being replayed would be wrong.
	if a.starting() != nil {
		return nil, model.Errorf(model.CodeUnavailable, "unavailable: Weir is starting, which devices are active is known once what was acknowledged before the start is applied")
	}
	return a.state().ActiveDevices(ctx, by)
}

// previews run drafts of rules over what is stored.
func (a *api) previews() *replay.Previews {
	ap := a.applier
	settings := func() replay.Settings { return a.effective().Detection.PreviewSettings }
	return replay.NewPreviews(replay.PreviewDeps{
		Replay: replay.Deps{
			Series:   ap.series,
			Applied:  ap.ingest.Applied,
			Heard:    ap.ingest.ListeningTime,
			Compiler: a.entities.compiler.ForPreviews(),
			Grace:    a.effective().Presence.Grace,
		},
		Settings:  settings,
		ProfileOf: ap.ingest.ProfileOf,
		Now:       time.Now,
		Kept:      func() time.Duration { return time.Duration(a.effective().History.EventRetentionDays) * 24 * time.Hour },
		Registry:  a.metrics,
	})
}

func adminDeps(p entityParts) admin.Deps {
	return admin.Deps{
		Auth:    p.Auth,
		Govern:  p.Govern,
		Journal: p.Registry.Journal,
		Areas:   functionalAreas(p.Config, p.brought),
		Store:   p.Store,
		Writer:  p.writer,
	}
}

func letterDeps(p entityParts) gql.LetterDeps {
	return gql.LetterDeps{Store: p.Store, Writer: p.writer, Tenant: p.Govern.Lookup}
}

// Stop lets what runs end: requests are answered, and WebSocket connections are closed as going away before their streams
// end, so that clients come back instead of taking the stream for finished.
func (a *api) Stop(ctx context.Context) error {
	// Requests and connections first, then the streams that feed them.
	err := a.entities.Areas.Drain(ctx)
	a.applier.edges.Close()
	for _, c := range a.brought {
		if c.Close != nil {
			c.Close()
		}
	}
	a.entities.Commands.Events.Close()
	a.applier.readings.Close()
	return err
}

func (a *api) setupLink() (*operate.SetupLink, error) { return a.setup.Link() }

// maxScrapers is how many connections the metrics listener has at most.
const maxScrapers = 64

// scrape is the listener of the metrics.
type scrape struct {
	*base
	server *http.Server // nil: it is closed
}

// Start implements component.
func (s *scrape) Start(_, life context.Context) error {
	sockets, err := s.open(nil, []operate.Listener{metricsListener(s.cfg)})
	if err != nil || len(sockets) == 0 {
		return err
	}
	// Bounded in time and number: the listener asks for no credential.
	mux := http.NewServeMux()
	mux.Handle("/metrics", web.Metrics(s.metrics))
	s.server = &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		MaxHeaderBytes:    16 << 10,
	}
	bounded := web.Bounded(s.server, sockets[0], maxScrapers, "metrics", s.metrics)
	s.runPart(life, "metrics", func(context.Context) error {
		if err := s.server.Serve(bounded); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return nil
}

func metricsListener(c config.Config) operate.Listener {
	l := operate.Listener{Name: operate.MetricsListener, Key: "listeners.metrics", Protocol: "metrics", Access: "anyone who can reach it"}
	if c.Metrics.Enabled {
		l.Configured = c.Listeners.Metrics
	}
	return l
}

// Stop implements component.
func (s *scrape) Stop(ctx context.Context) error {
	if s.server == nil {
		return nil
	}
	return s.server.Shutdown(ctx)
}
