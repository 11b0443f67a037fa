package app

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"weir/edge"
	"weir/ingest"
	"weir/internal/build"
	"weir/internal/edgewire"
	"weir/internal/setting"
	"weir/model"
	"weir/operate"
	"weir/rules"
	"weir/site"
	"weir/spool"
	"weir/store"
	"weir/store/firings"
)

// Readers of a platform's log that trim it.
const (
	applierTrims = iota
	uplinkTrims
	allTrims
)

// sharedLog is the log of a platform that has an uplink: what the applier is done with stays until the uplink is, too.
type sharedLog struct {
	logDriver
	trims *spool.Trims
}

// Trim implements spool.Log, for the applier.
func (l *sharedLog) Trim(to model.Offset) error { return l.trims.Trim(applierTrims, to) }

// uplink hands the messages of a platform to a broker above, beside the applier. Without edge.uplink.broker_url it is idle.
type uplink struct {
	*base
	store    *database
	spool    *logStore
	entities *entities
	repeats  *edge.Repeats
	edge     *edge.Edge // nil: there is no uplink
	end      context.CancelFunc
	running  sync.WaitGroup
}

// shareTrims divides the trims of the log where there is an uplink.
func (s *logStore) shareTrims() {
	if s.cfg.Edge.Uplink.BrokerURL == "" {
		return
	}
	s.trims = spool.NewTrims(s.log, allTrims)
	s.log = &sharedLog{s.log, s.trims}
}

// appliedOnly is the newest record that only the uplink still needs; nil without one.
func (s *logStore) appliedOnly() func() model.Offset {
	if s.trims == nil {
		return nil
	}
	return func() model.Offset { return s.trims.Done(applierTrims) }
}

// Start opens the uplink and lets it forward.
func (u *uplink) Start(_, _ context.Context) error {
	if u.spool.trims == nil {
		return nil
	}
	// The uplink forwards from the log of the platform, so the bound of that log is its bound.
	cfg := edge.Config{Settings: u.cfg.Edge, InstanceID: u.cfg.Instance.ID, Dir: operate.UplinkPath(u.cfg.DataDir)}
	cfg.SpoolMaxBytes = setting.Size(u.cfg.Ingest.Capacity.MaxBytes)
	if edge.Secure(cfg.Uplink.BrokerURL) {
		cfg.TLS = cfg.Uplink.TLS.Load // for each connection, so that renewed files are taken
	}
	var err error
	u.edge, err = edge.Open(cfg, edge.Deps{
		Open:       func(edge.OpenLog) (spool.Log, *edge.Began, error) { return u.spool.trims.Share(uplinkTrims), nil, nil },
		Dial:       dialOperators,
		Now:        u.readClock,
		Boot:       u.boot,
		Built:      build.Time(),
		Machine:    machineOf(),
		Version:    u.opt.Version,
		Logger:     u.log,
		Registerer: u.metrics,
		Beside: &edge.Beside{
			Platform: platform{u.entities},
			Done:     u.spool.appliedOnly(),
			Repeats:  u.repeats,
			Unseal: func(tenant string, sealed []byte) ([]byte, error) {
				return u.store.vault.Open(ingest.SealedAs(tenant), sealed)
			},
		},
	})
	if err != nil {
		return err
	}
	// A context of its own, which Stop ends: the applier has stopped by then, so what it applied last is forwarded.
	var life context.Context
	life, u.end = context.WithCancel(context.Background())
	for name, run := range map[string]func(context.Context) error{"uplink": u.edge.Run, "uplink's count": u.edge.RunTally, "uplink's position": u.edge.RunState} {
		u.running.Go(u.part(life, name, run))
	}
	return nil
}

// projections are what tells the uplink of applied records and of edges of rules.
func (u *uplink) projections() (all []ingest.Projection) {
	if u.edge != nil {
		all = append(all, &repeatProjection{uplink: u})
	}
	if tenant, ok := u.firingsOf(); ok {
		all = append(all, &firingProjection{tenant: tenant})
	}
	return all
}

// repeatProjection notes which messages are repeats: they do not go up. What it noted is on disk before the checkpoint that ends their replay.
type repeatProjection struct {
	ingest.ProjectionBase
	*uplink
}

// Load implements ingest.Projection.
func (p *repeatProjection) Load(_ store.Tx, at ingest.Checkpoint) error {
	p.repeats.Through(at.Offset)
	return nil
}

// Record implements ingest.Projection.
func (p *repeatProjection) Record(_ context.Context, e *ingest.Event, _ *ingest.Effects) error {
	// Only messages have an outcome.
	if e.Outcome != "" {
		p.repeats.Note(e.At.Offset, e.Outcome == store.OutcomeDuplicate)
	}
	return nil
}

// Advance implements ingest.Timed: what comes before a record is applied.
func (p *repeatProjection) Advance(at rules.Position, _ *ingest.Effects) {
	p.repeats.Through(at.Offset - 1)
}

// Due implements ingest.Timed.
func (p *repeatProjection) Due() rules.Listening { return 0 }

// Write implements ingest.Projection.
func (p *repeatProjection) Write(context.Context, ingest.WriteFunc) error { return p.edge.Keep() }

// Stop waits for the acknowledgements of what is on its way, and writes the position.
func (u *uplink) Stop(context.Context) error {
	if u.edge == nil {
		return nil
	}
	u.end()
	u.running.Wait()
	return u.edge.Close()
}

// firingsOf returns the tenant whose edges of rules are kept for a Weir above; not ok where there is none that they are for.
func (u *uplink) firingsOf() (tenant string, ok bool) {
	up := u.cfg.Edge.Uplink
	tenant, _, named := strings.Cut(up.Username, ":")
	return tenant, up.BrokerURL != "" && up.Firings && u.cfg.Edge.AgentID != "" && named
}

// firingProjection keeps edges of rules for the Weir above, in the transaction of the edges.
type firingProjection struct {
	ingest.ProjectionBase
	tenant string
}

// Edges implements ingest.EdgeFollower.
func (p *firingProjection) Edges(tx store.Tx, edges []model.Edge) error {
	return firings.Add(tx, p.tenant, edges)
}

// platform is what the uplink of a platform has of it.
type platform struct{ *entities }

// Follow implements edge.Platform.
func (p platform) Follow(ctx context.Context, tenant, device string, body []byte) error {
	d := &site.Document{}
	if err := json.Unmarshal(body, d); err != nil {
		return err
	}
	// Log only what changed: the document comes again with every connection.
	done, err := p.Site.Follow(ctx, tenant, device, d)
	if err != nil {
		return err
	}
	if changes := len(done.Plan.Changes); changes+done.Released > 0 {
		p.base.log.Info("what the Weir above says of the devices of this site is followed", "tenant", tenant, "changes", changes, "released", done.Released)
	}
	return nil
}

// Credentials implements edge.Platform.
func (p platform) Credentials(ctx context.Context, tenant, device string, all []edgewire.Device) error {
	id, _, known := p.Govern.Lookup(tenant)
	if !known {
		return fmt.Errorf("there is no tenant %s", tenant)
	}
	// Credentials that collide with ones of this tenant are left out, not overwritten: those are the site's own.
	left, err := p.Registry.Credentials.Follow(ctx, tenant, id, device, all)
	if left > 0 {
		p.base.log.Warn("credentials of the Weir above are left out: the tenant here has others with the same id; delete those for the devices to sign in with the ones of above", "tenant", tenant, "credentials", left)
	}
	return err
}

// Placed implements edge.Platform.
func (p platform) Placed(ctx context.Context, tenant string) (all []edge.PlacedProfile, err error) {
	id, _, known := p.Govern.Lookup(tenant)
	if !known {
		return nil, nil
	}
	tokens, versions, err := p.Registry.Profiles.Placed(ctx, id)
	for _, row := range slices.Sorted(maps.Keys(tokens)) {
		all = append(all, edge.PlacedProfile{Row: row, Profile: tokens[row], Version: int(versions[row])})
	}
	return all, err
}

// maxFirings bounds the edges of rules that wait for a Weir above: the oldest go beyond it.
const maxFirings = 100_000

// Firings implements edge.Platform.
func (p platform) Firings(ctx context.Context, tenant string, limit int) (oldest []edgewire.Firing, waiting, dropped int, err error) {
	id, _, known := p.Govern.Lookup(tenant)
	if !known {
		return nil, 0, 0, nil
	}
	var n int64
	var all []firings.Firing
	err = p.store.db.Read(ctx, func(tx store.Tx) (err error) {
		// Count first: usually nothing waits, and then nothing else is read.
		if n, err = firings.Count(tx); err == nil && n > 0 {
			all, err = firings.Next(tx, id, limit)
		}
		return err
	})
	if err != nil {
		return nil, 0, 0, err
	}
	// Drop the oldest when the site above has been away for too long. The loss is returned and logged.
	if n > maxFirings {
		if err := p.store.db.Write(ctx, store.Durable, func(tx store.Tx) error {
			gone, err := firings.Trim(tx, maxFirings)
			dropped = int(gone)
			return err
		}); err != nil {
			return nil, 0, 0, err
		}
		p.base.log.Error("edges of rules that wait for the Weir above are dropped: there are too many", "dropped", dropped, "maximum", maxFirings)
	}
	// Translate to the words of the wire.
	signals := map[model.EdgeSignal]string{model.Raised: edgewire.SignalRaised, model.Resolved: edgewire.SignalResolved}
	for _, f := range all {
		one := edgewire.Firing{
			ID:       f.Number,
			Device:   f.Device,
			Profile:  f.Profile,
			Rule:     f.Rule,
			Signal:   signals[f.Signal],
			Occurred: f.Occurred.Time().UTC(),
		}
		if f.HasValue {
			one.Value = &f.Value
		}
		oldest = append(oldest, one)
	}
	return oldest, int(n), dropped, nil
}

// Fired implements edge.Platform.
func (p platform) Fired(ctx context.Context, tenant string, number uint64) error {
	id, _, known := p.Govern.Lookup(tenant)
	if !known {
		return nil
	}
	return p.store.db.Write(ctx, store.Results, func(tx store.Tx) error { return firings.Drop(tx, id, number) })
}
