package govern

import (
	"context"

	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// DefaultTier is the tier of a tenant that names none.
const DefaultTier = "silver"

// Tenant is one of those who share the instance. Its own governance values, where set, win over its tier's.
type Tenant struct {
	store.Row
	Token     string       `store:"token,token" gql:"token"`
	Name      *string      `store:"name,clear,max=128" gql:"name"`
	Enabled   bool         `store:"enabled" gql:"enabled"`
	NotBefore model.Micros `store:"not_before"` // nothing issued in the tenant before it counts
	TierID    int64        `store:"tier_id,required,ref=tenant_tiers,shared" gql:"tierToken"`
	Config    *string      `store:"config,clear,emptyclears,json,max=65536" gql:"config"`

	AIExternalEnabled            *bool    `store:"ai_external_enabled,clear" gql:"aiExternalEnabled"`
	IngestMessagesPerSecond      *float64 `store:"ingest_messages_per_second,clear" gql:"ingestMessagesPerSecond"`
	IngestBurst                  *int64   `store:"ingest_burst,clear" gql:"ingestBurst"`
	OutboundMessagesPerSecond    *float64 `store:"outbound_messages_per_second,clear" gql:"outboundMessagesPerSecond"`
	OutboundBurst                *int64   `store:"outbound_burst,clear" gql:"outboundBurst"`
	AIInferenceRequestsPerMinute *float64 `store:"ai_inference_requests_per_minute,clear" gql:"aiInferenceRequestsPerMinute"`
	AIInferenceBurst             *int64   `store:"ai_inference_burst,clear" gql:"aiInferenceBurst"`
	ShedPriority                 *int64   `store:"shed_priority,clear" gql:"shedPriority"`
	HeldCommandCeiling           *int64   `store:"held_command_ceiling,clear" gql:"heldCommandCeiling"`
	GeoFenceCeiling              *int64   `store:"geofence_ceiling,clear" gql:"geoFenceCeiling"`
	GeoFencePositionCeiling      *int64   `store:"geofence_position_ceiling,clear" gql:"geoFencePositionCeiling"`
	GeoFencePositionBudget       *int64   `store:"geofence_position_budget,clear" gql:"geoFencePositionBudget"`
	RegistryBytes                *int64   `store:"registry_bytes,clear" gql:"registryBytes"`

	PurgeEpoch model.Micros `store:"purge_epoch"` // when it was deleted, 0: it is not
}

// tenantKind describes the tenants. Whether one is enabled is no field of a patch, see SetTenantEnabled.
func (g *Govern) tenantKind(b entity.Base) *entity.Kind[Tenant] {
	return entity.New(b, entity.Desc[Tenant]{
		Kind:     "tenant",
		Type:     "Tenant",
		Plural:   "tenants",
		Area:     area,
		Table:    "tenants",
		Instance: true,
		Read:     mayRead,
		Write:    mayWrite,
		Prepare: func(_ context.Context, _ *model.Principal, _ string, p store.Patch, create bool) error {
			if _, named := p["tierToken"]; create && !named {
				p["tierToken"] = DefaultTier
			}
			return nil
		},
		Valid: func(t *Tenant) error { return t.Overrides().check() },
		Check: func(tx store.Tx, t *Tenant, changed store.Changed) error {
			if !changed.New {
				return nil
			}
			t.Enabled, t.NotBefore = true, t.CreatedAt
			return checkReserved(tx, t.Token)
		},
		Changed: func(c *store.Change, _, t *Tenant) error {
			if err := refuseDeleted(t); err != nil {
				return err
			}
			return g.publish(c, t)
		},
		Removing: func(*store.Change, *Tenant) error {
			return model.Invalid("token", "a tenant cannot be deleted, disable it")
		},
		Views: tenantViews,
	})
}

// tenantViews: a reading of a tenant that is disabled is refused.
func tenantViews(_ *store.Change, old, t *Tenant) []entity.View {
	if old != nil && old.Enabled == t.Enabled {
		return nil
	}
	return []entity.View{{Kind: model.ViewTenant, Key: t.Token, Body: model.TenantView{V: 1, ID: t.ID, Enabled: t.Enabled}}}
}

func setTenantViews(c *store.Change, old, t *Tenant) error {
	return entity.SetViews(c, tenantViews(c, old, t)...)
}

// Overrides are the tenant's own governance values.
func (t *Tenant) Overrides() Values {
	return Values{t.IngestMessagesPerSecond, t.IngestBurst, t.OutboundMessagesPerSecond, t.OutboundBurst,
		t.AIInferenceRequestsPerMinute, t.AIInferenceBurst, t.ShedPriority, t.HeldCommandCeiling, t.GeoFenceCeiling,
		t.GeoFencePositionCeiling, t.GeoFencePositionBudget, t.RegistryBytes}
}

// Tenant returns a tenant by its token, nil when there is none. Every principal that is resolved to a tenant may read it.
func (g *Govern) Tenant(ctx context.Context, token string) (t *Tenant, err error) {
	rows, err := g.Tenants.Rows.ByToken(ctx, nil, []string{token})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}

// TenantTokens returns the tokens of all tenants, sorted.
func (g *Govern) TenantTokens() []string { return g.index.tokens() }

// SetTenantEnabled enables or disables a tenant. Disabling ends its access tokens at once and has its devices refused; the
// data stays.
func (g *Govern) SetTenantEnabled(ctx context.Context, by *model.Principal, token string, enabled bool) (t *Tenant, err error) {
	if err := g.Tenants.MayWrite(by); err != nil {
		return nil, err
	}
	err = g.writer.Mutate(ctx, by, func(c *store.Change) error {
		if t, err = g.Tenants.Must(c, 0, token); err != nil || t.Enabled == enabled {
			return err
		}
		// A tenant that is being erased must not come back.
		if err := refuseDeleted(t); err != nil {
			return err
		}
		// What was issued before counts no more, whichever way it is switched.
		old := *t
		t.Enabled, t.NotBefore = enabled, max(c.At, t.NotBefore)+1
		if err := g.Tenants.Table.Save(c, t, "enabled", "not_before"); err != nil {
			return err
		}
		// Resolution, then admission: both follow the row in this change.
		if err := setTenantViews(c, &old, t); err != nil {
			return err
		}
		if err := g.publish(c, t); err != nil {
			return err
		}
		if g.onSwitch != nil {
			c.OnCommit(func() { g.onSwitch(token, enabled) }) // after publish: the change is effective when it is reported
		}
		return nil
	})
	return t, err
}

// publish makes what the change made of the tenant effective with the commit.
func (g *Govern) publish(c *store.Change, t *Tenant) error {
	tier, err := g.Tiers.Table.GetByID(c, 0, t.TierID)
	if err != nil {
		return err
	}
	// Made now, from the row as the change leaves it.
	e := t.entry()
	tv := tier.values()
	c.OnCommit(func() { g.index.put(e, tier.Token, tv) })
	return nil
}

func (t *Tenant) entry() entry {
	return entry{
		id:         t.ID,
		token:      t.Token,
		enabled:    t.Enabled,
		notBefore:  t.NotBefore,
		tier:       t.TierID,
		overrides:  t.Overrides().usable(),
		aiExternal: t.AIExternalEnabled != nil && *t.AIExternalEnabled,
	}
}
