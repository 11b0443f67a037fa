// Package registry holds what a tenant declares about its devices: device types, device profiles with their metric
// and command definitions and detection rules, devices, what devices prove themselves by, assets, customers and areas, what all of these are known by
// (attributes), how they are related and grouped, geofences, and the dashboards that show them. It keeps their rules; the life that all kinds share
// (create, three-state update, delete, reads, versions, audit) is written once in store/entity, and each kind is described in a file of its own and
// named in Registry.kinds.
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
	VersionsPerProfile   int64 // kept, of a dashboard too: a publish beyond it removes the oldest that are not effective
	ValuesPerChange      int64 // of attributes, that come into the metadata view or leave it because a selector names their key
	AnswerBytes          int64 // that an answer of the API has room for; 0: as many as any definition takes
	FenceSetVersions     int64 // kept of a tenant's set of geofences, at least 2: a change beyond it removes the oldest
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{CredentialsPerDevice: 64, MetricsPerProfile: 1000, CommandsPerProfile: 500, RulesPerProfile: 500, RulesPerTenant: 500, VersionsPerProfile: 100, ValuesPerChange: 1000, FenceSetVersions: 1000}
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
	config    Config
	perTenant atomic.Pointer[DeviceSettings] // applies in place of those of config
	parts     Deps
	m         *metrics
	synced    edgeChanges
	verified  *verified

	adoptions *adoptions
}

// What the kinds have in common.
const area = "device-management"

var (
	mayRead  = entity.Needs(model.DeviceRead)
	mayWrite = entity.Needs(model.DeviceWrite)
)

// New makes the registry.
func New(c Config, p Deps) *Registry {
	if p.Random == nil {
		p.Random = rand.Reader
	}
	if p.Invalidate == nil {
		p.Invalidate = func(int64, int64) {}
	}
	if p.FenceLimits == nil {
		p.FenceLimits = defaultFenceLimits
	}
	r := &Registry{config: c.withDefaults(), parts: p, adoptions: newAdoptions(), Journal: entity.Journal{Store: p.Store}}
	r.m = newMetrics(p.Registerer, func() float64 { return float64(r.adoptions.len()) })
	r.perTenant.Store(&r.config.DeviceSettings)
	r.access = access{store: p.Store, waiting: cmp.Or(p.Devices, p.Store), writer: p.Writer}
	r.Attributes = newAttributes(r.access, r.perTenant.Load)
	r.AttributeKeys = &AttributeKeys{
		store:     p.Store,
		writer:    p.Writer,
		perChange: r.config.ValuesPerChange,
		work:      newKeyWork(),
	}
	r.Relationships = &Relations{
		access: r.access,
		limits: r.perTenant.Load,
	}
	r.Groups = &Groups{
		kept:       r.config.VersionsPerProfile,
		pruned:     r.m.pruned,
		store:      p.Store,
		limits:     r.perTenant.Load,
		keys:       r.AttributeKeys,
		attributes: r.Attributes,
		relations:  r.Relationships,
	}
	r.GeoFences = &Fences{
		store:    p.Store,
		limits:   p.FenceLimits,
		versions: r.config.FenceSetVersions,
		removed:  r.m.fences,
	}
	r.Profiles = &Profiles{
		store: p.Store,
		bounds: profileBounds{
			metrics:       r.config.MetricsPerProfile,
			commands:      r.config.CommandsPerProfile,
			rules:         r.config.RulesPerProfile,
			versions:      r.config.VersionsPerProfile,
			rulesOfTenant: r.config.RulesPerTenant,
		},
		limits:    r.perTenant.Load,
		validator: p.Validator,
		publishes: r.m.publishes,
		pruned:    r.m.pruned,
		groups:    r.Groups,
		fences:    r.GeoFences,
		keys:      r.AttributeKeys,
	}
	r.Profiles.describe(r.base())
	r.Metrics = r.Profiles.metrics
	r.Commands = r.Profiles.commands
	r.Rules = r.Profiles.rules
	r.Groups.rules = r.Profiles.rules
	r.Groups.profiles = r.Profiles.versions
	r.AttributeKeys.used = r.Groups.usedKeys
	r.Groups.describe(r.base())
	r.Relationships.groups = r.Groups.Kind
	r.Relationships.describe(r.base())
	r.RelationshipTypes = r.Relationships.Types
	r.verified = &verified{forgotten: r.m.forgotten, invalidate: p.Invalidate}
	r.Types = r.deviceTypes()
	r.Profiles.types = r.Types
	r.Credentials = &Credentials{
		access:    r.access,
		sealer:    p.Sealer,
		hasher:    p.Hasher,
		random:    p.Random,
		perDevice: r.config.CredentialsPerDevice,
		lookups:   r.m.lookups,
		verified:  r.verified,
		synced:    &r.synced,
	}
	r.Devices = &Devices{
		access:      r.access,
		limits:      r.perTenant.Load,
		random:      p.Random,
		activeNow:   p.Active,
		types:       r.Types,
		profiles:    r.Profiles,
		credentials: r.Credentials,
		groups:      r.Groups,
		attributes:  r.Attributes,
		relations:   r.Relationships,
		removals:    p.Removals,
		adopted:     r.adoptions,
		verified:    r.verified,
		synced:      &r.synced,
	}
	r.Devices.describe(r.base())
	r.Credentials.devices = r.Devices.Kind
	r.Credentials.describe(r.base())
	r.FacetKeys = &FacetKeys{
		access:   r.access,
		limits:   r.perTenant.Load,
		types:    r.Types,
		profiles: r.Profiles.Kind,
	}
	r.FacetKeys.describe(r.base())
	r.Adoptions = &Adoptions{
		access:  r.access,
		devices: r.Devices.Kind,
		known:   r.adoptions,
	}
	r.Vocabularies = &Vocabularies{
		store:    p.Store,
		devices:  r.Devices.Kind,
		profiles: r.Profiles,
	}
	r.GeoFences.describe(r.base())
	r.Edges = &Edges{
		access:    r.access,
		vault:     p.Vault,
		found:     r.m.edges,
		scopes:    newScopes(),
		synced:    &r.synced,
		devices:   r.Devices.Kind,
		adoptions: r.Adoptions,
		types:     r.Types,
		groups:    r.Groups,
		profiles:  r.Profiles,
	}
	r.Edges.describe(r.base())
	r.Kinds, r.Keyed = entity.NewCatalog(r.kinds()...), entity.NewCatalog(r.FacetKeys)
	return r
}

// kinds lists the kinds; what is referred to comes first. Rules are scoped to groups, and relationships are between what comes
// before them.
func (r *Registry) kinds() []entity.Entry {
	return slices.Concat([]entity.Entry{
		r.Groups,
		r.Profiles, r.Metrics, r.Commands, r.Rules, r.Types, r.Devices, r.Credentials,
	}, r.things(), []entity.Entry{
		r.RelationshipTypes, r.Relationships,
		r.GeoFences,
		r.Edges,
		r.dashboards(),
	})
}

func (r *Registry) base() entity.Base {
	return entity.Base{Store: r.store, Writer: r.writer, Managed: r.parts.Managed}
}

// CountBytes implements store.Counter for all that the registry keeps.
func (r *Registry) CountBytes(tx store.Tx, sums map[int64]int64) error {
	return cmp.Or(r.Kinds.CountBytes(tx, sums), r.Keyed.CountBytes(tx, sums), r.Attributes.rows.CountBytes(tx, sums), fenceset.CountBytes(tx, sums))
}

// SetLimits changes how many rows of the kinds a tenant may have. Those that are there stay.
func (r *Registry) SetLimits(s DeviceSettings) { r.perTenant.Store(&s) }
