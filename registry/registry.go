// Package registry holds what a tenant declares about its devices: device types, device profiles with their metric
// and command definitions and detection rules, devices, what devices prove themselves by, assets, customers and areas, what all of these are known by
// (attributes), how they are related and grouped, and geofences. It keeps their rules; the life that all kinds share
// (create, three-state update, delete, reads, versions, audit) is written once in store/entity, and each kind is described in a file of its own and
// named in Registry.describe.
//
// What decides how a reading is judged changes at an offset of the log: descriptions name the view rows of such a change,
// which hold from the record on that carries them.
package registry

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/setting"
	"weir/model"
	"weir/store"
	"weir/store/entity"
	"weir/store/fenceset"
)

// Config holds the registry's limits. Zero values mean the defaults.
type Config struct {
	DeviceSettings
	CredentialsPerDevice int64
	MetricsPerProfile    int64
	CommandsPerProfile   int64
	RulesPerProfile      int64
	RulesPerTenant       int64 // detection.max_rules_per_tenant: of active versions
	VersionsPerProfile   int64 // kept: a publish beyond it removes the oldest that are not effective
	ValuesPerChange      int64 // of attributes, that come into the metadata view or leave it because a selector names their key
	FenceSetVersions     int64 // kept of a tenant's set of geofences, at least 2: a change beyond it removes the oldest
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		CredentialsPerDevice: 64,
		MetricsPerProfile:    1000,
		CommandsPerProfile:   500,
		RulesPerProfile:      500,
		RulesPerTenant:       500,
		VersionsPerProfile:   100,
		ValuesPerChange:      1000,
		FenceSetVersions:     1000,
	}
}

func (c Config) withDefaults() Config {
	d := DefaultConfig()
	set := func(v *int64, fallback int64) {
		if *v <= 0 {
			*v = fallback
		}
	}
	setting.FillDefaults(&c.DeviceSettings)
	set(&c.CredentialsPerDevice, d.CredentialsPerDevice)
	set(&c.MetricsPerProfile, d.MetricsPerProfile)
	set(&c.CommandsPerProfile, d.CommandsPerProfile)
	set(&c.RulesPerProfile, d.RulesPerProfile)
	set(&c.RulesPerTenant, d.RulesPerTenant)
	set(&c.VersionsPerProfile, d.VersionsPerProfile)
	set(&c.ValuesPerChange, d.ValuesPerChange)
	set(&c.FenceSetVersions, d.FenceSetVersions)
	return c
}

// Sealer keeps single values secret in a column; name is bound to the sealed value and needed to open it.
type Sealer interface {
	Seal(name string, plain []byte) ([]byte, error)
	Open(name string, sealed []byte) ([]byte, error)
}

var _ Sealer = (*store.Vault)(nil)

// Hasher hashes passwords that people chose. The result is a PHC string.
type Hasher interface {
	Hash(ctx context.Context, password string) (string, error)
}

// Candidate is a draft rule as it is submitted before a publish.
type Candidate struct {
	Token       string
	Definition  string
	GroupScoped bool
	AtSite      bool // placement EDGE
}

// Refusal is what the validator has against a candidate.
type Refusal struct {
	Token   string
	Message string
}

// Vocabulary are the names of what there is: metrics and commands of the profile, geofences of the tenant, and the metrics by their source
// names; and the ranges of those metrics that have one. A nil list is unknown.
type Vocabulary struct {
	Metrics, Commands, Fences []string
	SourceNames               map[string]string
	Ranges                    map[string]Range
}

// Range is the declared range of a metric: its bounds, nil for none, and what becomes of a value outside them (model.OutOfRange…, "": REFUSE).
type Range struct {
	Min, Max   *float64
	OutOfRange string
}

// Validator decides whether rules may be published. by is a service principal that holds device:read in the tenant. An
// error says that the validator could not be reached. Remarks are advisory, among them those on names that there does not have.
type Validator interface {
	Validate(ctx context.Context, by *model.Principal, rules []Candidate, there Vocabulary) ([]Refusal, []entity.Remark, error)
}

// Removal deletes, in the transaction that deletes a device, what another room keeps that is alive of it: its live state,
// its latest values.
type Removal func(tx store.Tx, tenantID, deviceID int64) error

// Invalidate drops cached credentials: all of a device (credential 0) or one credential (device 0). It is called after the
// commit, with one of the two.
type Invalidate func(deviceID, credentialID int64)

// Deps are the registry's collaborators.
type Deps struct {
	Store     store.Store
	Devices   store.Store // reads what a device waits for; nil: Store
	Writer    store.Writer
	Sealer    Sealer
	Vault     *store.Vault // keeps the carry key; nil: there is none
	Hasher    Hasher
	Validator Validator
	Removals  []Removal
	// Active returns the row ids of the tenant's devices that are active now; nil: none is.
	Active     func(ctx context.Context, by *model.Principal) ([]int64, error)
	Invalidate Invalidate // nil: no credential is cached
	// Managed reports whether a Weir above is followed: rows that it manages are read-only then; nil: none is.
	Managed func() bool
	// FenceLimits are the ceilings of a tenant's geofences; nil: the defaults.
	FenceLimits func(tenant string) FenceLimits
	Registerer  prometheus.Registerer // nil: metrics are not registered
	Random      io.Reader             // nil: crypto/rand
}

// Registry is the registry of one instance. It is safe for concurrent use.
type Registry struct {
	Types       *entity.Kind[DeviceType]
	Profiles    *Profiles
	Metrics     *entity.Kind[MetricDefinition]
	Commands    *entity.Kind[CommandDefinition]
	Rules       *entity.Kind[DetectionRule]
	Devices     *Devices
	Credentials *Credentials
	FacetKeys   *FacetKeys
	Groups      *Groups
	// Journal is what was changed in the instance and its tenants.
	Journal entity.Journal

	RelationshipTypes *entity.Kind[RelationshipType]
	Relationships     *Relations
	GeoFences         *Fences
	Attributes        *Attributes
	AttributeKeys     *AttributeKeys
	Edges             *Edges
	Vocabularies      *Vocabularies
	Adoptions         *Adoptions
	// Kinds are these and those that nothing here needs by name, except those of Keyed.
	Kinds *entity.Catalog
	// Keyed are the kinds whose rows no token names.
	Keyed *entity.Catalog

	access
	perTenant atomic.Pointer[DeviceSettings] // applies in place of those of Config
}

// What the kinds have in common.
const area = "device-management"

var (
	mayRead  = entity.Needs(model.DeviceRead)
	mayWrite = entity.Needs(model.DeviceWrite)
)

// New makes the registry.
func New(c Config, p Deps) *Registry {
	// Default the collaborators first: the parts below copy them.
	if p.Random == nil {
		p.Random = rand.Reader
	}
	if p.Invalidate == nil {
		p.Invalidate = func(int64, int64) {}
	}
	if p.FenceLimits == nil {
		p.FenceLimits = defaultFenceLimits
	}
	c = c.withDefaults()
	r := &Registry{
		Journal: entity.Journal{Store: p.Store},
		access:  access{store: p.Store, waiting: cmp.Or(p.Devices, p.Store), writer: p.Writer},
	}
	r.perTenant.Store(&c.DeviceSettings)
	// The cache before the metrics, which read its size.
	adopted := newAdoptionCache()
	m := newMetrics(p.Registerer, func() float64 { return float64(adopted.len()) })
	// The parts first, then their kinds: descriptions name functions of the parts.
	r.makeParts(c, p, m)
	r.makeDevices(c, p, m, adopted)
	r.Kinds = entity.NewCatalog(r.describe(p)...)
	r.Keyed = entity.NewCatalog(r.FacetKeys)
	return r
}

// makeParts makes what devices are tied to.
func (r *Registry) makeParts(c Config, p Deps, m *metrics) {
	r.Attributes = newAttributes(r.access, r.perTenant.Load)
	r.AttributeKeys = &AttributeKeys{
		store:     p.Store,
		writer:    p.Writer,
		perChange: c.ValuesPerChange,
		work:      newKeyWork(),
	}
	r.Relationships = &Relations{
		access: r.access,
		limits: r.perTenant.Load,
	}
	r.Groups = &Groups{
		kept:       c.VersionsPerProfile,
		pruned:     m.pruned,
		store:      p.Store,
		limits:     r.perTenant.Load,
		keys:       r.AttributeKeys,
		attributes: r.Attributes,
		relations:  r.Relationships,
	}
	r.AttributeKeys.used = r.Groups.usedKeys
	r.GeoFences = &Fences{
		store:    p.Store,
		limits:   p.FenceLimits,
		versions: c.FenceSetVersions,
		removed:  m.fences,
	}
	r.Profiles = &Profiles{
		store: p.Store,
		bounds: profileBounds{
			metrics:       c.MetricsPerProfile,
			commands:      c.CommandsPerProfile,
			rules:         c.RulesPerProfile,
			versions:      c.VersionsPerProfile,
			rulesOfTenant: c.RulesPerTenant,
		},
		limits:    r.perTenant.Load,
		validator: p.Validator,
		publishes: m.publishes,
		pruned:    m.pruned,
		groups:    r.Groups,
		fences:    r.GeoFences,
		keys:      r.AttributeKeys,
	}
}

// makeDevices makes the devices, and what is about devices alone.
func (r *Registry) makeDevices(c Config, p Deps, m *metrics, adopted *adoptionCache) {
	synced := &edgeChanges{}
	verified := &verified{forgotten: m.forgotten, invalidate: p.Invalidate}
	r.Credentials = &Credentials{
		access:    r.access,
		sealer:    p.Sealer,
		hasher:    p.Hasher,
		random:    p.Random,
		perDevice: c.CredentialsPerDevice,
		lookups:   m.lookups,
		verified:  verified,
		synced:    synced,
	}
	r.Devices = &Devices{
		access:      r.access,
		limits:      r.perTenant.Load,
		random:      p.Random,
		activeNow:   p.Active,
		profiles:    r.Profiles,
		credentials: r.Credentials,
		groups:      r.Groups,
		attributes:  r.Attributes,
		relations:   r.Relationships,
		removals:    p.Removals,
		adopted:     adopted,
		verified:    verified,
		synced:      synced,
	}
	r.Adoptions = &Adoptions{
		access: r.access,
		known:  adopted,
	}
	r.Vocabularies = &Vocabularies{
		store:    p.Store,
		profiles: r.Profiles,
	}
	r.Edges = &Edges{
		access:    r.access,
		vault:     p.Vault,
		found:     m.edges,
		scopes:    newScopes(),
		synced:    synced,
		adoptions: r.Adoptions,
		groups:    r.Groups,
		profiles:  r.Profiles,
	}
	r.FacetKeys = &FacetKeys{
		access: r.access,
		limits: r.perTenant.Load,
	}
}

// describe makes the kinds, hands them to those who use those of others, and lists them; what is referred to comes first. Rules are
// scoped to groups, and relationships are between what comes before them.
func (r *Registry) describe(p Deps) []entity.Entry {
	b := entity.Base{Store: p.Store, Writer: p.Writer, Managed: p.Managed, Untie: r.untie}
	// Groups first: devices and rules refer to them.
	r.Groups.describe(b)
	r.Profiles.describe(b)
	r.Types = deviceTypes(b, r.perTenant.Load)
	r.Devices.describe(b)
	r.Credentials.describe(b)
	r.Relationships.describe(b)
	r.GeoFences.describe(b)
	r.Edges.describe(b)
	r.FacetKeys.describe(b)

	// Every kind exists now: give each part those of the others that it asks.
	r.Metrics = r.Profiles.metrics
	r.Commands = r.Profiles.commands
	r.Rules = r.Profiles.rules
	r.RelationshipTypes = r.Relationships.Types
	r.Groups.rules = r.Rules
	r.Groups.profiles = r.Profiles.versions
	r.Relationships.groups = r.Groups.Kind
	r.Profiles.types = r.Types
	r.Devices.types = r.Types
	r.Edges.types = r.Types
	r.FacetKeys.types = r.Types
	r.FacetKeys.profiles = r.Profiles.Kind
	r.Credentials.devices = r.Devices.Kind
	r.Adoptions.devices = r.Devices.Kind
	r.Vocabularies.devices = r.Devices.Kind
	r.Edges.devices = r.Devices.Kind

	return slices.Concat([]entity.Entry{
		r.Groups,
		r.Profiles, r.Metrics, r.Commands, r.Rules, r.Types, r.Devices, r.Credentials,
	}, describeThings(b, r.perTenant.Load), []entity.Entry{
		r.RelationshipTypes, r.Relationships,
		r.GeoFences,
		r.Edges,
	})
}

// untie removes the attributes and relationships of an entity that is removed.
func (r *Registry) untie(c *store.Change, entityType string, row store.Row, token string) error {
	if err := r.Attributes.takeAll(c, entityType, row, token); err != nil {
		return err
	}
	return r.Relationships.removeAll(c, row.TenantID, entityType, row.ID, token)
}

// CountBytes implements store.Counter for all that the registry keeps.
func (r *Registry) CountBytes(tx store.Tx, sums map[int64]int64) error {
	return cmp.Or(r.Kinds.CountBytes(tx, sums), r.Keyed.CountBytes(tx, sums), r.Besides().CountBytes(tx, sums))
}

// Besides counts what the registry keeps that is no kind.
func (r *Registry) Besides() store.Counter {
	return store.CounterFunc(func(tx store.Tx, sums map[int64]int64) error {
		return cmp.Or(r.Attributes.rows.CountBytes(tx, sums), fenceset.CountBytes(tx, sums))
	})
}

// SetLimits changes how many rows of the kinds a tenant may have. Those that are there stay.
func (r *Registry) SetLimits(s DeviceSettings) { r.perTenant.Store(&s) }
