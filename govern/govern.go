// Package govern holds the tenants of the instance and how much of it each may use: tenants, their tiers, and the ceilings
// that follow from them.
//
// A governance value cascades: the tenant's own, else its tier's, else the platform's. The ingest ceiling is a token bucket per
// tenant, counted in readings and shared by all transports; messages without a valid credential draw on allowances of their
// own. All of it is in memory and follows the store as changes commit.
package govern

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// Deps are govern's collaborators.
type Deps struct {
	Store  store.Store
	Writer store.Writer
	// OnSwitch is called after the commit that enabled or disabled a tenant, so that transports and sockets close its connections. It
	// must be quick. May be nil.
	OnSwitch func(tenant string, enabled bool)
	// OnDelete is called after the commit that deleted a tenant: its erase may begin. It must be quick. May be nil.
	OnDelete func()
	// Clock is time.Now when nil. Its monotonic reading counts.
	Clock      func() time.Time
	Registerer prometheus.Registerer
}

// Govern keeps tenants and their ceilings. All methods are safe for concurrent use.
type Govern struct {
	Tiers   *entity.Kind[Tier]
	Tenants *entity.Kind[Tenant]
	Kinds   *entity.Catalog // these

	settings        *entity.Kind[settingRow]
	cfg             Config
	store           store.Store
	writer          store.Writer
	onSwitch        func(string, bool)
	onDelete        func()
	now             func() time.Time
	index           *index
	unknown         *allowance
	unauthenticated *unauthenticated
	m               metrics
}

// What the kinds have in common.
const area = "user-management"

var (
	mayRead  = entity.Needs(model.TenantRead)
	mayWrite = entity.Needs(model.TenantWrite)
)

// metaSeeded marks that the first start has made its tiers; those deleted later do not come back.
const metaSeeded = "govern_seeded"

// New loads tenants and tiers and makes the tiers of a first start.
func New(ctx context.Context, cfg Config, d Deps) (*Govern, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	// The clock first: the buckets begin full at its time.
	if d.Clock == nil {
		d.Clock = time.Now
	}
	g := &Govern{
		cfg:             cfg,
		store:           d.Store,
		writer:          d.Writer,
		onSwitch:        d.OnSwitch,
		onDelete:        d.OnDelete,
		now:             d.Clock,
		index:           newIndex(cfg, d.Clock),
		unknown:         newAllowance(cfg, d.Clock),
		unauthenticated: newUnauthenticated(d.Clock),
	}
	base := entity.Base{Store: d.Store, Writer: d.Writer}
	g.Kinds = g.describe(base)
	g.m = newMetrics(d.Registerer, g)
	// Make the tiers of a first start, then load: loading finds those too.
	if err := g.seed(ctx); err != nil {
		return nil, fmt.Errorf("govern: first start: %w", err)
	}
	if err := g.load(ctx); err != nil {
		return nil, fmt.Errorf("govern: loading: %w", err)
	}
	return g, nil
}

// Describe returns the kinds without an instance, for those that ask for their descriptions only.
func Describe() *entity.Catalog { return (&Govern{}).describe(entity.Base{}) }

// describe makes the kinds; what is referred to comes first.
func (g *Govern) describe(b entity.Base) *entity.Catalog {
	g.settings, g.Tiers, g.Tenants = describeSettings(b), g.tierKind(b), g.tenantKind(b)
	return entity.NewCatalog(g.settings, g.Tiers, g.Tenants)
}

// Besides counts what is kept of tenants that is no kind.
func (g *Govern) Besides() store.Counter {
	return looks
}

func (g *Govern) seed(ctx context.Context) error {
	// The mark, not the tiers, says that this is no first start: tiers may have been deleted since.
	var done bool
	err := g.store.Read(ctx, func(tx store.Tx) (err error) {
		_, done, err = store.MetaInt(tx, metaSeeded)
		return err
	})
	if err != nil || done {
		return err
	}
	return g.writer.Mutate(ctx, nil, func(ch *store.Change) error {
		// With the mark in one transaction: all or none.
		for _, t := range seededTiers() {
			if err := g.Tiers.Table.Insert(ch, &t); err != nil {
				return err
			}
		}
		return store.SetMetaInt(ch, metaSeeded, 1)
	})
}

func (g *Govern) load(ctx context.Context) error {
	return g.store.Read(ctx, func(tx store.Tx) error {
		ts, err := g.Tiers.Table.Select(tx, 0, "id")
		if err != nil {
			return err
		}
		// Tiers first: tenants refer to them.
		byID := make(map[int64]*Tier, len(ts))
		for _, t := range ts {
			byID[t.ID] = t
		}
		all, err := g.Tenants.Table.Select(tx, 0, "id")
		if err != nil {
			return err
		}
		for _, t := range all {
			// A tenant that is being erased is known as deleted, and nothing more.
			if t.PurgeEpoch != 0 {
				g.index.remove(t.ID)
				continue
			}
			tier := byID[t.TierID]
			if tier == nil {
				return fmt.Errorf("%w: tenants %d: no tier %d", store.ErrDamaged, t.ID, t.TierID)
			}
			g.index.put(t.entry(), tier.Token, tier.values())
		}
		return nil
	})
}

// Lookup finds a tenant in memory; id is 0 for one that does not exist.
func (g *Govern) Lookup(tenant string) (id int64, enabled, known bool) {
	e, ok := g.index.get(tenant)
	return e.id, e.enabled, ok
}

// Known reports whether the tenant exists.
func (g *Govern) Known(tenant string) bool {
	_, _, known := g.Lookup(tenant)
	return known
}

// TokenOf is the inverse of Lookup, "" for an id of no tenant.
func (g *Govern) TokenOf(id int64) string { return g.index.tokenOf(id) }

// NotBefore is the instant before which nothing issued in the tenant counts.
func (g *Govern) NotBefore(tenant string) model.Micros {
	e, _ := g.index.get(tenant)
	return e.notBefore
}

// Take admits n readings of a tenant, all or none. A message without readings is asked for as one.
func (g *Govern) Take(tenant string, n int) (ok bool) {
	ok = g.bucketOf(tenant).take(max(n, 1), g.now())
	if !ok {
		g.m.overCeiling.Inc()
	}
	return ok
}

// Empty reports whether the tenant's bucket would refuse even one reading: a transport may answer before it reads the rest.
func (g *Govern) Empty(tenant string) bool {
	empty := g.bucketOf(tenant).empty(g.now())
	if empty {
		g.m.overCeiling.Inc()
	}
	return empty
}

// Wait admits n readings of a tenant as soon as its ceiling allows. It waits for at most timeout and then reports false, as it
// does when ctx ends.
func (g *Govern) Wait(ctx context.Context, tenant string, n int, timeout time.Duration) bool {
	ok := g.bucketOf(tenant).wait(ctx, max(n, 1), timeout, g.now)
	if !ok {
		g.m.overCeiling.Inc()
	}
	return ok
}

// TakeOutbound admits one message out of Weir for a tenant, such as the call of a rule's action, and returns 0; over the tenant's ceiling it
// returns how long the message has to wait for its turn. A tenant that does not exist has no ceiling: nothing leaves for it.
func (g *Govern) TakeOutbound(tenant string) time.Duration {
	b := g.index.outboundOf(tenant)
	if b == nil {
		return 0
	}
	// Nothing is reserved for a message that has to wait: it may never come back.
	wait := b.try(1, g.now(), false)
	if wait > 0 {
		g.m.outboundWaits.Inc()
	}
	return min(wait, maxOutboundWait)
}

// maxOutboundWait is after how long, at most, it is asked again: the ceiling may have been raised.
const maxOutboundWait = time.Minute

func (g *Govern) bucketOf(tenant string) *bucket {
	if b := g.index.bucketOf(tenant); b != nil {
		return b
	}
	return g.unknown.bucket(tenant)
}

// TakeHash admits a password hash for a sender that has proven nothing yet: 5 a second, and 20 at once after a quiet time, for all of
// them together. ReturnHash gives it back once it has proven its sender.
func (g *Govern) TakeHash() bool {
	ok := g.unauthenticated.takeHash()
	if !ok {
		g.m.unauthenticatedRefused.Inc()
	}
	return ok
}

// ReturnHash gives back what TakeHash admitted.
func (g *Govern) ReturnHash() { g.unauthenticated.returnHash() }

// AdmitUnauthenticated admits a message of that many bytes without a valid credential.
func (g *Govern) AdmitUnauthenticated(bytes int) bool { return g.TakeUnauthenticated(1, bytes) }

// TakeUnauthenticated admits messages of that many bytes together without a valid credential, all or none. All
// unauthenticated senders of the instance share 100 messages and 1 MiB a second.
func (g *Govern) TakeUnauthenticated(messages, bytes int) bool {
	ok := g.unauthenticated.take(messages, bytes)
	if !ok {
		g.m.unauthenticatedRefused.Inc()
	}
	return ok
}

// SetManualFloor sets the shedding level, 0 to 3; see shedFactors.
func (g *Govern) SetManualFloor(level int) error {
	if level < 0 || level >= len(shedFactors) {
		return model.Invalid("manual_floor", "must be 0 to %d", len(shedFactors)-1)
	}
	g.index.setLevel(level)
	return nil
}

// SetPlatform changes the platform's defaults and the shedding level. Used tokens of the tenants' ceilings stay used.
func (g *Govern) SetPlatform(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	g.index.setPlatform(cfg.values(), cfg.ManualFloor)
	// Unknown tenants have the platform's ceiling, so that they cannot be distinguished from known ones.
	g.unknown.set(ceiling(cfg.values(), cfg.ManualFloor))
	return nil
}

// Governance are the values in effect for a tenant. A nil limit stands for the platform's default.
type Governance struct {
	Values
	AIExternalEnabled bool   `gql:"aiExternalEnabled"`
	Tier              string `gql:"tierToken"`
}

// Governance returns what the tenant's own values and its tier's make together; ok is false for an unknown tenant.
func (g *Govern) Governance(tenant string) (v Governance, ok bool) {
	x := g.index
	x.mu.RLock()
	defer x.mu.RUnlock()
	e, ok := x.byToken[tenant]
	if !ok {
		return v, false
	}
	return Governance{Values: e.overrides.or(x.tiers[e.tier]), AIExternalEnabled: e.aiExternal, Tier: x.tierTokens[e.tier]}, true
}

// Inference returns how many requests to AI providers a tenant may make, and whether it has agreed that prompts leave the instance.
func (g *Govern) Inference(tenant string) (perMinute float64, burst int64, external bool) {
	v := g.Limits(tenant)
	e, _ := g.index.get(tenant)
	return *v.AIInferenceRequestsPerMinute, *v.AIInferenceBurst, e.aiExternal
}

// RegistryBytes is how many bytes the rows of a tenant may take.
func (g *Govern) RegistryBytes(tenant int64) int64 { return *g.Limits(g.TokenOf(tenant)).RegistryBytes }

// Limits returns the values in effect for a tenant with the platform's defaults filled in: none is nil. An unknown
// tenant has the platform's.
func (g *Govern) Limits(tenant string) Values {
	x := g.index
	x.mu.RLock()
	defer x.mu.RUnlock()
	if e, ok := x.byToken[tenant]; ok {
		return x.effective(e)
	}
	return x.platform
}
