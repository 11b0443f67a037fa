// Package registry holds what a tenant declares about its devices: device types, device profiles with their metric
// definitions and detection rules, devices, and what devices prove themselves by. It keeps their rules; the life that all
// kinds share (create, three-state update, delete, reads, audit) is written once in kind.go over store.Table, and each
// kind is described in a file of its own.
//
// What decides how a reading is judged changes at a place in the log: the verbs here put the view rows of such a change on
// the transaction (view.go), and they hold from the record on that carries them.
package registry

import (
	"context"
	"crypto/rand"
	"io"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
	"weir/store"
)

// Config holds the registry's limits. Zero values mean the defaults.
type Config struct {
	DevicesPerTenant     int64 // limits.devices_per_tenant
	CredentialsPerDevice int64
	MetricsPerProfile    int64
	RulesPerProfile      int64
	RulesPerTenant       int64 // detection.max_rules_per_tenant: of active versions
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{DevicesPerTenant: 100_000, CredentialsPerDevice: 64, MetricsPerProfile: 1000, RulesPerProfile: 500, RulesPerTenant: 500}
}

func (c Config) withDefaults() Config {
	d := DefaultConfig()
	set := func(v *int64, fallback int64) {
		if *v <= 0 {
			*v = fallback
		}
	}
	set(&c.DevicesPerTenant, d.DevicesPerTenant)
	set(&c.CredentialsPerDevice, d.CredentialsPerDevice)
	set(&c.MetricsPerProfile, d.MetricsPerProfile)
	set(&c.RulesPerProfile, d.RulesPerProfile)
	set(&c.RulesPerTenant, d.RulesPerTenant)
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
}

// Refusal is what the validator has against a candidate.
type Refusal struct {
	Token   string
	Message string
}

// Validator decides whether rules may be published. by is a service principal that holds device:read in the tenant. An
// error says that the validator could not be reached.
type Validator interface {
	Validate(ctx context.Context, by *model.Principal, rules []Candidate) ([]Refusal, error)
}

// Removal deletes, in the transaction that deletes a device, what another room keeps that is alive of it: its live state,
// its latest values.
type Removal func(tx store.Tx, tenantID, deviceID int64) error

// Forget tells whoever remembers verified credentials that those of a device (credential 0) or one credential (device 0)
// are no longer what they were. It is called after the commit, with one of the two.
type Invalidate func(deviceID, credentialID int64)

// Parts are the registry's collaborators. Removals, Forget, Registerer and Random may be left out.
type Deps struct {
	Store      store.Store
	Writer     store.Writer
	Sealer     Sealer
	Hasher     Hasher
	Validator  Validator
	Removals   []Removal
	Invalidate Invalidate
	Registerer prometheus.Registerer // nil: metrics are not registered
	Random     io.Reader             // nil: crypto/rand
}

// Registry is the registry of one instance. It is safe for concurrent use.
type Registry struct {
	Types       *Kind[DeviceType]
	Profiles    *Kind[DeviceProfile]
	Metrics     *Kind[MetricDefinition]
	Rules       *Kind[DetectionRule]
	Devices     *Kind[Device]
	Credentials *Kind[DeviceCredential]

	config           Config
	devicesPerTenant *atomic.Int64 // what counts in place of config.DevicesPerTenant
	parts            Deps
	m                *metrics
	within           *store.Change // nil but for what In returns
}

// New makes the registry.
func New(c Config, p Deps) *Registry {
	if p.Random == nil {
		p.Random = rand.Reader
	}
	if p.Invalidate == nil {
		p.Invalidate = func(int64, int64) {}
	}
	r := &Registry{config: c.withDefaults(), devicesPerTenant: new(atomic.Int64), parts: p, m: newMetrics(p.Registerer)}
	r.devicesPerTenant.Store(r.config.DevicesPerTenant)
	return r.withKinds()
}

// In returns the registry as a part of a change under way: its verbs read and write within it, and what they have to tell
// others is told when it is committed. Passwords are hashed by h, for a hash takes longer than the one writer may be held:
// whoever opens the change prepares them.
func (r *Registry) In(c *store.Change, h Hasher) *Registry {
	p := r.parts
	joined := store.Within(c)
	p.Store, p.Writer, p.Hasher = joined, joined, h
	return (&Registry{config: r.config, devicesPerTenant: r.devicesPerTenant, parts: p, m: r.m, within: c}).withKinds()
}

func (r *Registry) withKinds() *Registry {
	r.Types = r.deviceTypes()
	r.Profiles = r.deviceProfiles()
	r.Metrics = r.metricDefinitions()
	r.Rules = r.detectionRules()
	r.Devices = r.devices()
	r.Credentials = r.deviceCredentials()
	return r
}

// SetDevicesPerTenant changes how many devices a tenant may have. Those that are there stay.
func (r *Registry) SetDevicesPerTenant(n int64) { r.devicesPerTenant.Store(n) }

// mutate runs fn as one change of the caller's tenant.
func (r *Registry) mutate(ctx context.Context, by *model.Principal, fn func(*store.Change) error) error {
	if err := needTenant(by); err != nil {
		return err
	}
	return r.parts.Writer.Mutate(ctx, by, fn)
}

// needTenant refuses callers for whom no tenant is resolved.
func needTenant(by *model.Principal) error {
	if by == nil || by.TenantID == 0 || by.Tenant == "" {
		return model.Unauthenticated("no tenant is resolved")
	}
	return nil
}

// forgetDevice has the verified credentials of a device forgotten once the change is committed.
func (r *Registry) forgetDevice(c *store.Change, id int64) { r.forget(c, id, 0) }

// forgetCredential does the same for one credential.
func (r *Registry) forgetCredential(c *store.Change, id int64) { r.forget(c, 0, id) }

func (r *Registry) forget(c *store.Change, device, credential int64) {
	c.OnCommit(func() {
		r.m.forgotten.Inc()
		r.parts.Invalidate(device, credential)
	})
}
