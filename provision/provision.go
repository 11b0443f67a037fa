// Package provision lets devices get their credential themselves, and customers take devices over.
//
//	profile.go  the provisioning profiles: what a tenant declares
//	request.go  what a device asks, and what it is answered
//	admit.go    who may ask: addresses, keys, secrets
//	enroll.go   the device and its credential, in one change
//	claim.go    the claims of devices
//
// The transports call Throttled, Admit and Enroll, or Provision for all of it. Both kinds are in the registry's catalog or, like the
// claims, beside it: they refer to its rows, and its device types are kept while a profile names them.
package provision

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/auth"
	"weir/internal/setting"
	"weir/model"
	"weir/registry"
	"weir/store"
	"weir/store/entity"
)

// Hasher hashes secrets. See auth.Hasher.
type Hasher interface {
	Hash(ctx context.Context, secret string) (string, error)
	Verify(ctx context.Context, l auth.Lane, encoded, secret string) (ok, renew bool, err error)
}

// Secrets checks the secrets that devices present. See auth.SharedSecrets.
type Secrets interface {
	Verify(ctx context.Context, encoded, secret string, spend func() error) (bool, error)
}

// Tenants knows which tenants there are.
type Tenants interface {
	TokenOf(tenantID int64) string
	Lookup(token string) (tenantID int64, enabled, known bool)
}

// Deps are the collaborators. Devices, Now and Registerer may be left out.
type Deps struct {
	Registry   *registry.Registry
	Store      store.Store
	Devices    store.Store // reads what a device waits for; nil: Store
	Writer     store.Writer
	Hasher     Hasher
	Secrets    Secrets
	Tenants    Tenants
	Now        func() time.Time      // nil: time.Now
	Registerer prometheus.Registerer // nil: metrics are not registered
}

// Provision is the provisioning of one instance. It is safe for concurrent use.
type Provision struct {
	Profiles *entity.Kind[Profile]

	parts  Deps
	limits atomic.Pointer[ProfileSettings]
	claims *store.Table[Claim]
	m      *metrics

	addresses *rates // of all attempts
	keys      *rates // of attempts with the right secret
	hashes    *rates // of password hashes, in one bucket
}

const area = "device-management"

var (
	mayRead  = entity.Needs(model.DeviceRead)
	mayWrite = entity.Needs(model.DeviceWrite)
)

// New makes the provisioning and adds its kinds to the catalog of the registry.
func New(s ProfileSettings, d Deps) *Provision {
	setting.FillDefaults(&s)
	if d.Devices == nil {
		d.Devices = d.Store
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	p := &Provision{parts: d, m: newMetrics(d.Registerer), claims: newClaims(),
		addresses: newRates(perMinute, perMinute, maxAddresses, d.Now), keys: newRates(perMinute, perMinute, maxKeys, d.Now),
		hashes: newRates(hashesPerMinute, hashBurst, 1, d.Now)}
	p.limits.Store(&s)
	p.Profiles = p.profiles()
	d.Registry.Kinds.Join(p.Profiles)
	return p
}

// Describe returns a registry without a store, whose catalog has every kind of a tenant, and its provisioning. They are asked for
// descriptions only.
func Describe() (*registry.Registry, *Provision) {
	r := registry.New(registry.Config{}, registry.Deps{})
	return r, New(ProfileSettings{}, Deps{Registry: r})
}

// SetLimits changes how many rows a tenant may have. Those that are there stay.
func (p *Provision) SetLimits(s ProfileSettings) {
	setting.FillDefaults(&s)
	p.limits.Store(&s)
}

// RemoveDeviceRows implements registry.Removal.
func RemoveDeviceRows(tx store.Tx, tenantID, deviceID int64) error {
	return store.RemoveClaim(tx, tenantID, deviceID)
}
