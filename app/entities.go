package app

import (
	"context"
	"log/slog"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/actions"
	"weir/artifact"
	"weir/auth"
	"weir/config"
	"weir/connectors"
	"weir/govern"
	"weir/gql"
	"weir/health"
	"weir/inference"
	"weir/ingest"
	"weir/internal/certs"
	"weir/internal/guard"
	"weir/model"
	"weir/notify"
	"weir/operate"
	"weir/provision"
	"weir/registry"
	"weir/rules"
	"weir/rules/vocabulary"
	"weir/site"
	"weir/store"
	"weir/store/entity"
	"weir/store/installs"
	lwm2mrows "weir/store/lwm2m"
)

// entities are the tenants, identities and devices of a running instance.
type entities struct {
	*base
	noStop
	store       *database
	spool       *logStore
	certificate *certificate
	control     *ingest.Controller
	guard       *guard.Guard
	metadata    atomic.Pointer[ingest.Applier] // which holds it; nil until there is one
	drain       atomic.Pointer[actions.Drain]  // nil until there is one
	states      activeDevices                  // set once the areas are built
	deleted     chan struct{}                  // a tenant was deleted
	entityParts
}

// knownStates returns what is known of some devices of a tenant.
type knownStates func(ctx context.Context, tenant int64, devices []int64) (map[int64]*store.DeviceState, error)

// activeDevices returns the row ids of the tenant's devices that are active now.
type activeDevices func(ctx context.Context, by *model.Principal) ([]int64, error)

// Start reads the entities: tenants, identities, devices.
func (e *entities) Start(ctx, life context.Context) (err error) {
	// Changes of a running instance are records of the log, so the writer of all entities is the controller.
	e.control = ingest.NewController(e.store.db.For(store.Applier), e.spool.log, e.spool.clock.Stamp, e.base.log)
	e.deleted = make(chan struct{}, 1)
	// The guard comes before the parts that open connections to addresses that users name.
	if e.guard, err = guard.New(guard.Config{Settings: e.cfg.Egress, Registerer: e.metrics}); err != nil {
		return err
	}
	if e.entityParts, err = newEntities(ctx, e.cfg, entityDeps{
		brought:    e.base.brought,
		store:      e.store.db,
		devices:    e.store.db.For(store.Devices),
		writer:     e.control,
		vault:      e.store.vault,
		logger:     e.base.log,
		registerer: e.metrics,
		certs:      e.certificate.pair,
		listeners:  e.listeners.list,
		disk:       e.checkDisk,
		metadata:   e.metadataMemory,
		known:      e.knownStates,
		deleted:    e.noteDeleted,
		gone:       e.countGone,
		look:       e.readClock,
		plausible:  func() bool { return e.spool.clock.Doubt() == "" },
		ordered:    e.wakeDrain,
		connect:    e.guard.Client,
		guard:      e.guard,
		limits:     ruleLimits(e.cfg, e.budget, e.opt.RuleKinds),
		active:     func(ctx context.Context, by *model.Principal) ([]int64, error) { return e.states(ctx, by) },
	}); err != nil {
		return err
	}
	e.runPart(life, "auth", e.Auth.Run)
	e.runPart(life, "connectors", e.Connectors.Run)
	e.runPart(life, "notify", e.Notify.Run)
	e.runPart(life, "spare", e.keepSpare)
	e.runPart(life, "artifacts", e.Artifacts.Run)
	return nil
}

// knownStates are the states of devices as the applier knows them, with what it has not stored yet.
func (e *entities) knownStates(ctx context.Context, tenant int64, devices []int64) (map[int64]*store.DeviceState, error) {
	if a := e.metadata.Load(); a != nil {
		return a.DeviceStatesOf(ctx, tenant, devices)
	}
	return nil, model.Errorf(model.CodeUnavailable, "unavailable: Weir is starting")
}

// orderKinds are what performs the orders of rules, a kind of them each.
func (e *entities) orderKinds() []actions.Kind {
	return []actions.Kind{
		actions.Commands(e.Commands),
		actions.Calls(e.Connectors),
		actions.Publishes(e.Connectors),
		actions.Notifications(e.Notify, e.cfg.Notify.Timeout),
	}
}

// countGone counts orders that were removed with their device.
func (e *entities) countGone(kind string, n int64) {
	if d := e.drain.Load(); d != nil {
		d.Gone(kind, n)
	}
}

// wakeDrain says that there are new orders.
func (e *entities) wakeDrain() {
	if d := e.drain.Load(); d != nil {
		d.Wake()
	}
}

// noteDeleted asks for the erase of a tenant that was deleted.
func (e *entities) noteDeleted() {
	select {
	case e.deleted <- struct{}{}:
	default: // asked already
	}
}

// keysRetry is how long after an error the attributes that no selector names any more are tried again.
const keysRetry = time.Minute

// emptyKeys takes attributes that no selector in use names any more out of the metadata.
func (e *entities) emptyKeys(ctx context.Context) error {
	// Find once at the start what a process that ended early left; later ones are announced by Left.
	err := e.Registry.AttributeKeys.Find(ctx)
	for {
		retry := make(<-chan time.Time)
		if err == nil {
			err = e.Registry.AttributeKeys.Empty(ctx)
		}
		if err != nil && ctx.Err() == nil {
			e.base.log.Warn("attributes that no selector names any more are still in the metadata; it is tried again", "error", err, "retry", keysRetry.String())
			retry = time.After(keysRetry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-retry:
		case <-e.Registry.AttributeKeys.Left():
		}
		err = nil
	}
}

// What is kept of the disk for deletes on a full one: as much as the database grows by when its write-ahead log is written back, which
// begins that log again, and the log of some hundred deletes; never so much that the disk would have more than its reserve once
// that is given up.
const (
	spareBytes    = 6 << 20
	spareShare    = 2           // of the reserve
	spareInterval = time.Minute // between two attempts to keep it
)

// keepSpare keeps space of the disk for deletes on a disk that is full.
func (e *entities) keepSpare(ctx context.Context) error {
	t := time.NewTicker(spareInterval)
	defer t.Stop()
	for {
		// Reserve space only while there is plenty: on a nearly full disk the reserve itself would do harm.
		if free, reserve, err := e.disk(); err == nil && free >= 2*reserve {
			if err := e.store.spare(min(spareBytes, reserve/spareShare)); err != nil {
				e.base.log.Warn("no space can be kept for deletes on a full disk", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// metadataMemory is what the metadata takes of the memory, and what it may.
func (e *entities) metadataMemory() (held, limit int64) {
	if a := e.metadata.Load(); a != nil {
		held = a.MetadataBytes()
	}
	return held, e.budget.of(metadataShare)
}

// checkDisk refuses what makes or grows rows while less is free than the disk reserve: the API must not fill a disk to its last
// byte. What removes is taken.
func (e *entities) checkDisk() error {
	free, reserve, err := e.freeDisk()
	if err != nil || free >= reserve {
		return nil // a disk that fails is reported by the database, when it cannot write
	}
	return model.Errorf(model.CodeUnavailable, "unavailable: the disk is nearly full, %s are free and spool.disk_reserve keeps %s: nothing is made or enlarged, deletes work; free some space",
		health.Bytes(free), health.Bytes(reserve))
}

// freeDisk is what is free for rows, the free pages of the database included, and what of it must stay free.
func (e *entities) freeDisk() (free, reserve int64, err error) {
	free, reserve, err = e.disk()
	return free + e.store.db.Stats().FreeBytes, reserve, err
}

// disk is what is free on the disk of the data directory, and what of it must stay free.
func (e *entities) disk() (free, reserve int64, err error) {
	fs, err := health.ThisMachine().FileSystem(e.cfg.DataDir)
	return int64(fs.FreeBytes), min(int64(e.cfg.Spool.DiskReserve), int64(fs.Bytes)/20), err
}

// entityParts are what needs a store and no log; they serve on a directory in which nothing runs, too.
type entityParts struct {
	*operate.Entities
	Catalog   *entity.Catalog // of all kinds of the instance
	brought   []Capability
	Inference *inference.Inference
	verifier  *auth.Verifier
	compiler  *rules.Compiler
	writer    store.Writer // of what entities are

	registered *registeredDevices // of LwM2M
}

type entityDeps struct {
	brought    []Capability
	store      store.Store
	devices    store.Store // for what a device waits for; nil: store
	writer     store.Writer
	vault      *store.Vault
	logger     *slog.Logger
	registerer prometheus.Registerer
	limits     rules.Limits
	listeners  func() operate.Listeners
	certs      *certs.Reloader
	active     activeDevices
	known      knownStates
	disk       func() error // refuses what makes rows while the disk is nearly full; nil: never
	metadata   func() (held, limit int64)
	connect    func(tenant string) *http.Client // to destinations that users name; nil where nothing runs
	guard      *guard.Guard                     // of connections to other systems; nil where nothing runs
	deleted    func()                           // is called when a tenant was deleted; nil: nothing is
	look       func() (wall time.Time, mono time.Duration)
	plausible  func() bool                // whether the wall clock can be believed; nil: it can
	ordered    func()                     // is called when orders were written; nil: nobody waits
	gone       func(kind string, n int64) // counts orders that were removed with their device; nil: nobody does
}

// newEntities builds the parts that know the entities.
func newEntities(ctx context.Context, cfg config.Config, d entityDeps) (p entityParts, err error) {
	// All parts write through this one writer, which refuses growth beyond the limits. Its closures read p.Govern, which
	// is set below, before the first change.
	bounded := boundWriter(&d, func(tenant int64) int64 { return p.Govern.RegistryBytes(tenant) })
	bounded.Gone = func(tenant int64) bool { return p.Govern.Deleted(tenant) }
	p.writer = bounded
	p.brought = d.brought
	// The LwM2M server sets itself in here when it runs.
	p.registered = &registeredDevices{}
	p.Entities = &operate.Entities{Config: cfg, Listeners: d.listeners, Served: d.certs, Store: d.store}
	hasher := auth.NewHasher(auth.Params{}, d.registerer)
	if p.compiler, err = rules.NewCompiler(d.limits); err != nil {
		return p, err
	}
	// Tenants first: everything else belongs to one.
	if p.Govern, err = govern.New(ctx, governConfig(cfg), govern.Deps{
		Store:      d.store,
		Writer:     bounded,
		Registerer: d.registerer,
		OnDelete:   d.deleted,
		OnSwitch:   func(tenant string, _ bool) { p.verifier.Invalidate(auth.Invalidation{Tenant: tenant}) },
	}); err != nil {
		return p, err
	}
	// Before the capabilities: alarms hand their moves to notify.
	p.Notify = notify.New(cfg.Notify, cfg.Limits.LimitSettings, notify.Deps{
		Store:      d.store,
		Writer:     bounded,
		Vault:      d.vault,
		Tenants:    p.Govern,
		Guard:      d.guard,
		Now:        d.look,
		Plausible:  d.plausible,
		Wake:       d.ordered,
		Instance:   cfg.Instance.ID,
		BaseURL:    cfg.BaseURL,
		Logger:     d.logger,
		Registerer: d.registerer,
	})
	if err = p.Notify.Load(ctx); err != nil {
		return p, err
	}
	answerBytes := NewBudget(MemoryLimit(cfg)).answerBytes()
	// Before the registry: it gets from each capability what to remove with a device.
	brought := made(p.brought, Handed{
		Base:        entity.Base{Store: d.store, Writer: bounded, Vault: d.vault},
		Config:      cfg,
		Tenants:     p.Govern,
		Alarmed:     p.Notify.Moved,
		AnswerBytes: answerBytes,
		Log:         d.logger,
		Metrics:     d.registerer,
	})
	// Before the registry, for the same reason. It asks the registry only later, through p.
	p.Commands = newCommands(cfg.Commands, &p, d, bounded)
	p.Artifacts = artifact.New(artifact.Deps{
		Store:      d.store,
		Writer:     bounded,
		Limits:     func() (int64, int64) { return int64(cfg.LwM2M.MaxArtifact), int64(cfg.LwM2M.MaxArtifacts) },
		Logger:     d.logger,
		Registerer: d.registerer,
	})
	p.Registry = registry.New(registry.Config{DeviceSettings: cfg.Limits.DeviceSettings, RulesPerTenant: int64(cfg.Detection.MaxRules)}, registry.Deps{
		Store:      d.store,
		Devices:    d.devices,
		Writer:     bounded,
		Sealer:     d.vault,
		Vault:      d.vault,
		Hasher:     hasher,
		Validator:  validator{p.compiler, func(ctx context.Context, tenant int64) ([]string, error) { return p.Connectors.Tokens(ctx, tenant) }},
		Registerer: d.registerer,
		Removals:   append([]registry.Removal{ingest.RemoveDeviceRows, provision.RemoveDeviceRows, p.Commands.RemoveDevice, lwm2mrows.Remove, installs.RemoveDevice, actions.RemoveDevice(d.gone)}, removals(p.brought)...),
		Active:     d.active,
		FenceLimits: func(tenant string) registry.FenceLimits {
			v := p.Govern.Limits(tenant)
			return registry.FenceLimits{Fences: *v.GeoFenceCeiling, Positions: *v.GeoFencePositionCeiling, Budget: *v.GeoFencePositionBudget}
		},
		Managed: func() bool { return cfg.Edge.Uplink.BrokerURL != "" && cfg.Edge.Uplink.Sync },
		Invalidate: func(device, credential int64) {
			p.verifier.Invalidate(auth.Invalidation{DeviceID: device, CredentialID: credential})
		},
	})
	// Before the verifier, which tells provision that a credential was used.
	p.Provision = provision.New(cfg.Limits.ProfileSettings, provision.Deps{
		Registry:   p.Registry,
		Store:      d.store,
		Devices:    d.devices,
		Writer:     bounded,
		Hasher:     hasher,
		Secrets:    auth.NewSharedSecrets(hasher),
		Tenants:    p.Govern,
		Registerer: d.registerer,
	})
	p.verifier = auth.NewVerifier(auth.VerifierConfig{
		Credentials:  finder{p.Registry.Credentials},
		Keys:         finder{p.Registry.Credentials},
		Certificates: finder{p.Registry.Credentials},
		Tenants:      p.Govern,
		Hasher:       hasher,
		Used:         p.Provision.Used,
		Registerer:   d.registerer,
	})
	// People and services.
	p.Auth, err = auth.New(ctx, authConfig(cfg), auth.Deps{
		Store:      d.store,
		Writer:     bounded,
		Vault:      d.vault,
		Tenants:    p.Govern,
		Hasher:     hasher,
		Logger:     d.logger,
		Registerer: d.registerer,
	})
	if err != nil {
		return p, err
	}
	p.Inference = inference.New(cfg.AI, inference.Deps{
		Store:      d.store,
		Writer:     bounded,
		Vault:      d.vault,
		Tenants:    p.Govern,
		Client:     d.connect,
		Logger:     d.logger,
		Registerer: d.registerer,
	})
	p.Connectors = connectors.New(cfg.Limits.ConnectorSettings, connectors.Deps{
		Store:      d.store,
		Writer:     bounded,
		Vault:      d.vault,
		Tenants:    p.Govern,
		Guard:      d.guard,
		AtOnce:     cfg.Connectors.PerDestination,
		Logger:     d.logger,
		Registerer: d.registerer,
	})
	// Every kind is known now. The order matters: fields refer only to kinds of earlier catalogs.
	p.Catalog = entity.Union(p.Govern.Kinds, p.Auth.Kinds, p.Registry.Kinds, p.Registry.Keyed, p.Connectors.Kinds, p.Notify.Kinds, p.Inference.Kinds, brought)
	// Count once in the life of a database what the rows of each tenant take; changes keep the sums from then on.
	if err = store.CountUsage(ctx, d.store, p.Catalog, p.Registry.Besides(), p.Govern.Besides()); err != nil {
		return p, err
	}
	p.Site = site.New(site.Parts{
		Store:      d.store,
		Writer:     bounded,
		Govern:     p.Govern,
		Auth:       p.Auth,
		Registry:   p.Registry,
		Hasher:     hasher,
		Vault:      d.vault,
		Catalog:    p.Catalog,
		Connectors: p.Connectors.Tokens,
		Progress: func(done, all int) {
			if all >= 2*passwordProgress && done%passwordProgress == 0 {
				d.logger.Info("comparing the passwords of the site", "done", done, "of", all)
			}
		},
	})
	return p, nil
}

// known is what the operations of a capability may ask.
func (p *entityParts) known() Known { return Known{Catalog: p.Catalog, Registry: p.Registry} }

// boundWriter is the writer of all that changes entities: it alone lets their rows grow no further than they may.
func boundWriter(d *entityDeps, limit func(tenant int64) int64) *store.Bounded {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_registry_refused_changes_total",
		Help: "Changes that were refused because of what they would have written, by cause (bytes of the tenant, disk, size of the change, rate of the tenant, memory for metadata)."}, []string{"cause"})
	// Create every series at once, so that a rate over it begins at zero.
	for _, cause := range store.GrowthCauses() {
		refused.WithLabelValues(string(cause))
	}
	if d.registerer != nil {
		d.registerer.MustRegister(refused)
	}
	return &store.Bounded{Writer: d.writer, Growth: store.Growth{
		Limit:    limit,
		Disk:     d.disk,
		Metadata: d.metadata,
		Refused: func(cause store.GrowthCause) {
			refused.WithLabelValues(string(cause)).Inc()
		},
	}}
}

// passwordProgress is after how many passwords of a site the progress is logged: each takes a good part of a second on a
// small machine.
const passwordProgress = 20

// restingEntities are the entities of a directory in which nothing runs, with the GraphQL areas that are about them.
func restingEntities(ctx context.Context, cfg config.Config, st store.Store, getenv func(string) string, log *slog.Logger) (*operate.Entities, error) {
	// The root key as of a running instance: secrets are read and written here too.
	vault, err := openVault(ctx, st, operate.RootKeyPath(cfg), getenv("WEIR_ROOT_KEY"), func(w string) { log.Warn(w) })
	if err != nil {
		return nil, err
	}
	r := &restingAPI{}
	// Changes go directly to the database: no applier runs that could lag behind a log. The next start appends them to the log.
	if r.entityParts, err = newEntities(ctx, cfg, entityDeps{
		brought:   capabilities(),
		store:     st,
		writer:    store.Direct{Store: st},
		vault:     vault,
		logger:    log,
		active:    func(ctx context.Context, by *model.Principal) ([]int64, error) { return r.state.ActiveDevices(ctx, by) },
		limits:    ruleLimits(cfg, NewBudget(MemoryLimit(cfg)), nil),
		listeners: func() operate.Listeners { return nil },
	}); err != nil {
		return nil, err
	}
	states := storedStates{st}
	r.state = gql.StateDeps{
		States:    states,
		Latest:    states,
		Devices:   r.Registry.Devices.Rows,
		Tokens:    r.Registry.Devices.Tokens,
		External:  r.Registry.Devices,
		Listening: func() int64 { return math.MaxInt64 }, // a device is not active where nothing listens
		Silence:   func() time.Duration { return cfg.Presence.InactivityTimeout },
	}
	// Only areas that need no running part are opened.
	r.Areas = gql.New(gql.Config{Log: log})
	for _, s := range areasOf(cfg, r.brought) {
		if s.rest != nil {
			s.rest(r, s.open(r.Areas))
		}
	}
	r.Areas.Open()
	return r.Entities, nil
}

// restingAPI is what the areas are made of on a directory in which nothing runs.
type restingAPI struct {
	entityParts
	state gql.StateDeps
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

func (s storedStates) DeviceStatesOf(ctx context.Context, _ int64, devices []int64) (out map[int64]*store.DeviceState, err error) {
	err = s.store.Read(ctx, func(tx store.Tx) (err error) {
		out, err = store.DeviceStatesOf(tx, devices)
		return err
	})
	return out, err
}

func (s storedStates) LatestMeasurementsOf(ctx context.Context, devices []int64) (out map[int64][]store.LatestMeasurement, err error) {
	err = s.store.Read(ctx, func(tx store.Tx) (err error) {
		out, err = store.LatestMeasurements(tx, devices...)
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
	return auth.Config{InstanceID: cfg.Instance.ID, Settings: cfg.Auth.Settings, ClientSettings: cfg.Limits.ClientSettings}
}

func governConfig(cfg config.Config) govern.Config {
	g := govern.DefaultConfig()
	g.Settings = cfg.Governance
	return g
}

// finder lets auth look up the credential rows that registry holds.
type finder struct{ credentials *registry.Credentials }

func (f finder) FindCredentials(ctx context.Context, tenantID int64, kind string, idHash [32]byte) ([]auth.CredentialRow, error) {
	rows, err := f.credentials.Find(ctx, tenantID, kind, idHash)
	out := make([]auth.CredentialRow, len(rows))
	for i, r := range rows {
		out[i] = auth.CredentialRow(r)
	}
	return out, err
}

// FindKey implements auth.KeyFinder.
func (f finder) FindKey(ctx context.Context, identity string) (auth.KeyRow, error) {
	return keyRow(f.credentials.FindKey(ctx, identity))
}

// FindBootstrapKey implements auth.KeyFinder.
func (f finder) FindBootstrapKey(ctx context.Context, identity string) (auth.KeyRow, error) {
	return keyRow(f.credentials.FindBootstrapKey(ctx, identity))
}

func keyRow(row *store.KeyRow, key []byte, err error) (auth.KeyRow, error) {
	if err != nil || row == nil {
		return auth.KeyRow{}, err
	}
	return auth.KeyRow{CredentialRow: auth.CredentialRow(row.CredentialRow), TenantID: row.TenantID, Key: key}, nil
}

// FindCertificate implements auth.CertificateFinder.
func (f finder) FindCertificate(ctx context.Context, fingerprint string) (auth.KeyRow, error) {
	row, err := f.credentials.FindCertificate(ctx, fingerprint)
	if err != nil || row == nil {
		return auth.KeyRow{}, err
	}
	return auth.KeyRow{CredentialRow: auth.CredentialRow(row.CredentialRow), TenantID: row.TenantID}, nil
}

// validator lets registry ask the rule compiler at publish.
type validator struct {
	c          *rules.Compiler
	connectors func(ctx context.Context, tenant int64) ([]string, error)
}

func (v validator) Validate(ctx context.Context, by *model.Principal, candidates []registry.Candidate, there registry.Vocabulary) ([]registry.Refusal, []entity.Remark, error) {
	in := make([]rules.Candidate, len(candidates))
	for i, c := range candidates {
		in[i] = rules.Candidate(c)
	}
	var refused []registry.Refusal
	var remarks []entity.Remark
	// Rules may name connectors; which ones exist is not in the candidates.
	known, err := v.connectors(ctx, by.TenantID)
	if err != nil {
		return nil, nil, err
	}
	// Convert between the packages: registry and rules are of layers that do not import each other.
	names := rules.Vocabulary{
		Metrics:     there.Metrics,
		Commands:    there.Commands,
		Fences:      there.Fences,
		Connectors:  known,
		SourceNames: there.SourceNames,
	}
	names.Ranges = make(map[string]vocabulary.Range, len(there.Ranges))
	for metric, r := range there.Ranges {
		names.Ranges[metric] = vocabulary.Range(r)
	}
	errs, warnings := v.c.ValidateAgainst(names, in)
	for _, e := range errs {
		refused = append(refused, registry.Refusal{Token: e.Token, Message: e.Message})
	}
	for _, w := range warnings {
		remarks = append(remarks, entity.Remark{Token: w.Token, Code: w.Code, Params: w.Params, Message: w.Message})
	}
	return refused, remarks, nil
}

// ruleLimits are the limits of the rules, those of the memory among them.
func ruleLimits(cfg config.Config, b Budget, kinds []rules.Kind) rules.Limits {
	return rules.Limits{
		Settings:        cfg.Detection,
		MaxKeysInAll:    b.keysInAll(),
		MaxSamplesInAll: b.samplesInAll(),
		Kinds:           kinds,
		Actions:         rules.Performed(),
	}
}
