package app

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/auth"
	"weir/config"
	"weir/govern"
	"weir/gql"
	"weir/ingest"
	"weir/internal/certs"
	"weir/model"
	"weir/operate"
	"weir/registry"
	"weir/rules"
	"weir/site"
	"weir/store"
)

// entities are the tenants, identities and devices of a running instance.
type entities struct {
	*base
	noStop
	store       *database
	spool       *logStore
	certificate *certificate
	control     *ingest.Controller
	entityParts
}

// Start reads the entities: tenants, identities, devices.
func (e *entities) Start(ctx, life context.Context) (err error) {
	e.control = ingest.NewController(e.store.db, e.spool.log, e.spool.clock.Stamp, e.base.log)
	if e.entityParts, err = newEntities(ctx, e.cfg, entityDeps{store: e.store.db, writer: e.control, vault: e.store.vault, logger: e.base.log, registerer: e.metrics,
		certs: e.certificate.pair, listeners: e.listeners.list, limits: ruleLimits(e.cfg, e.budget, e.opt.RuleKinds)}); err != nil {
		return err
	}
	e.goes(life, "auth", e.Auth.Run)
	return nil
}

// entityParts are what needs a store and no log; they serve on a directory in which nothing runs, too.
type entityParts struct {
	*operate.Entities
	verifier *auth.Verifier
	compiler *rules.Compiler
}

type entityDeps struct {
	store      store.Store
	writer     store.Writer
	vault      *store.Vault
	logger     *slog.Logger
	registerer prometheus.Registerer
	limits     rules.Limits
	listeners  func() operate.Listeners
	certs      *certs.Reloader
}

// newEntities builds the parts that know the entities.
func newEntities(ctx context.Context, cfg config.Config, d entityDeps) (p entityParts, err error) {
	p.Entities = &operate.Entities{Config: cfg, Listeners: d.listeners, Served: d.certs, Store: d.store}
	hasher := auth.NewHasher(auth.Params{}, d.registerer)
	if p.compiler, err = rules.NewCompiler(d.limits); err != nil {
		return p, err
	}
	if p.Govern, err = govern.New(ctx, governConfig(cfg), govern.Deps{Store: d.store, Writer: d.writer, Registerer: d.registerer,
		OnSwitch: func(tenant string, _ bool) { p.verifier.Invalidate(auth.Invalidation{Tenant: tenant}) }}); err != nil {
		return p, err
	}
	p.Registry = registry.New(registry.Config{DeviceSettings: cfg.Limits.DeviceSettings, RulesPerTenant: int64(cfg.Detection.MaxRules)}, registry.Deps{Store: d.store, Writer: d.writer,
		Sealer: d.vault, Hasher: hasher, Validator: validator{p.compiler}, Registerer: d.registerer,
		Removals: []registry.Removal{ingest.RemoveDeviceRows},
		Invalidate: func(device, credential int64) {
			p.verifier.Invalidate(auth.Invalidation{DeviceID: device, CredentialID: credential})
		}})
	p.verifier = auth.NewVerifier(auth.VerifierConfig{Credentials: finder{p.Registry}, Tenants: p.Govern, Hasher: hasher, Registerer: d.registerer})
	p.Auth, err = auth.New(ctx, authConfig(cfg), auth.Deps{Store: d.store, Writer: d.writer, Vault: d.vault, Tenants: p.Govern,
		Hasher: hasher, Logger: d.logger, Registerer: d.registerer})
	if err != nil {
		return p, err
	}
	p.Site = site.New(site.Parts{Store: d.store, Writer: d.writer, Govern: p.Govern, Auth: p.Auth, Registry: p.Registry, Hasher: hasher, Vault: d.vault,
		Progress: func(done, all int) {
			if all >= 2*passwordProgress && done%passwordProgress == 0 {
				d.logger.Info("comparing the passwords of the site", "done", done, "of", all)
			}
		}})
	return p, nil
}

// passwordProgress is after how many passwords of a site the progress is logged: each takes a good part of a second on a
// small machine.
const passwordProgress = 20

// restingEntities are the entities of a directory in which nothing runs, with the GraphQL areas that are about them.
func restingEntities(ctx context.Context, cfg config.Config, st store.Store, getenv func(string) string, log *slog.Logger) (*operate.Entities, error) {
	vault, err := openVault(ctx, st, operate.RootKeyPath(cfg), getenv("WEIR_ROOT_KEY"), func(w string) { log.Warn(w) })
	if err != nil {
		return nil, err
	}
	p, err := newEntities(ctx, cfg, entityDeps{store: st, writer: store.Direct{Store: st}, vault: vault, logger: log,
		limits: ruleLimits(cfg, NewBudget(MemoryLimit(cfg)), nil), listeners: func() operate.Listeners { return nil }})
	if err != nil {
		return nil, err
	}
	p.Areas = gql.New(gql.Config{Log: log})
	gql.RegisterRegistry(p.Areas.Area("device-management", gql.TenantPlane), p.Registry)
	states := storedStates{st}
	gql.RegisterState(p.Areas.Area("device-state", gql.TenantPlane), gql.StateDeps{States: states, Latest: states, Devices: p.Registry.Devices.Rows, External: p.Registry,
		Listening: func() int64 { return math.MaxInt64 }, // a device is not active where nothing listens
		Silence:   func() time.Duration { return cfg.Presence.InactivityTimeout }})
	return p.Entities, p.Areas.Build()
}

// storedStates are the states of devices as the store has them: where nothing runs, as of the last stop.
type storedStates struct{ store store.Store }

func (s storedStates) DeviceStates(ctx context.Context, tenantID int64) (out []*store.DeviceState, err error) {
	err = s.store.Read(ctx, func(tx store.Tx) (err error) {
		out, err = store.DeviceStates(tx, tenantID)
		return err
	})
	return out, err
}

func (s storedStates) DeviceState(ctx context.Context, _, deviceID int64) (d *store.DeviceState, err error) {
	err = s.store.Read(ctx, func(tx store.Tx) (err error) {
		d, err = store.GetDeviceState(tx, deviceID)
		return err
	})
	return d, err
}

func (s storedStates) LatestMeasurements(ctx context.Context, deviceID int64) (out []store.LatestMeasurement, err error) {
	err = s.store.Read(ctx, func(tx store.Tx) (err error) {
		out, err = store.LatestMeasurements(tx, deviceID)
		return err
	})
	return out, err
}

func (s storedStates) LatestLocations(ctx context.Context, devices []int64) (out []store.LatestLocation, err error) {
	err = s.store.Read(ctx, func(tx store.Tx) (err error) {
		out, err = store.LatestLocations(tx, devices)
		return err
	})
	return out, err
}

// Silence implements gql.StateReader.
func (storedStates) Silence(_, _ string, standard time.Duration) time.Duration { return standard }

func authConfig(cfg config.Config) auth.Config {
	return auth.Config{InstanceID: cfg.Instance.ID, Settings: cfg.Auth.Settings}
}

func governConfig(cfg config.Config) govern.Config {
	g := govern.DefaultConfig()
	g.Settings = cfg.Governance
	return g
}

// finder lets auth look up the credential rows that registry holds.
type finder struct{ r *registry.Registry }

func (f finder) FindCredentials(ctx context.Context, tenantID int64, kind string, idHash [32]byte) ([]auth.CredentialRow, error) {
	rows, err := f.r.FindCredentials(ctx, tenantID, kind, idHash)
	out := make([]auth.CredentialRow, len(rows))
	for i, r := range rows {
		out[i] = auth.CredentialRow(r)
	}
	return out, err
}

// validator lets registry ask the rule compiler at publish.
type validator struct{ c *rules.Compiler }

func (v validator) Validate(_ context.Context, _ *model.Principal, candidates []registry.Candidate) ([]registry.Refusal, error) {
	in := make([]rules.Candidate, len(candidates))
	for i, c := range candidates {
		in[i] = rules.Candidate(c)
	}
	var out []registry.Refusal
	errs, _ := v.c.Validate(in)
	for _, e := range errs {
		out = append(out, registry.Refusal{Token: e.Token, Message: e.Message})
	}
	return out, nil
}

// ruleLimits are the limits of the rules, those of the memory among them.
func ruleLimits(cfg config.Config, b Budget, kinds []rules.Kind) rules.Limits {
	return rules.Limits{Settings: cfg.Detection, MaxKeysInAll: b.keysInAll(), Kinds: kinds}
}
