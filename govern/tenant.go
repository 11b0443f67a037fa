package govern

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"weir/model"
	"weir/store"
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
}

var tenants = store.NewTable[Tenant](store.Desc[Tenant]{Kind: "tenant", Name: "tenants", Instance: true,
	Check: func(_ store.Tx, t *Tenant, changed store.Changed) error { return t.check(changed) }})

func (t *Tenant) check(changed store.Changed) error {
	if changed.New {
		t.Enabled, t.NotBefore = true, t.CreatedAt
	}
	return t.Overrides().check()
}

// TenantFields describes the fields of a tenant.
func TenantFields() []store.Field { return tenants.Fields() }

// Values returns the tenant as the patch of its create would give it; the tier is its row id.
func (t *Tenant) Values() store.Patch { return tenants.Values(t) }

// Overrides are the tenant's own governance values.
func (t *Tenant) Overrides() Values {
	return Values{t.IngestMessagesPerSecond, t.IngestBurst, t.OutboundMessagesPerSecond, t.OutboundBurst,
		t.AIInferenceRequestsPerMinute, t.AIInferenceBurst, t.ShedPriority, t.HeldCommandCeiling, t.GeoFenceCeiling,
		t.GeoFencePositionCeiling, t.GeoFencePositionBudget}
}

// Tenants lists all tenants, newest first.
func (g *Govern) Tenants(ctx context.Context, by *model.Principal) ([]*Tenant, error) {
	if err := demand(by, model.TenantRead); err != nil {
		return nil, err
	}
	var all []*Tenant
	err := g.store.Read(ctx, func(tx store.Tx) (err error) {
		all, err = tenants.Select(tx, 0, "created_at DESC, token")
		return err
	})
	return all, err
}

// Tenant returns a tenant by its token, nil when there is none. Whoever is resolved to a tenant may read it.
func (g *Govern) Tenant(ctx context.Context, token string) (t *Tenant, err error) {
	err = g.store.Read(ctx, func(tx store.Tx) error {
		t, err = tenants.Get(tx, 0, token)
		return err
	})
	return t, err
}

// TenantTokens returns the tokens of all tenants, sorted.
func (g *Govern) TenantTokens() []string { return g.index.tokens() }

// CreateTenant makes an enabled tenant of a patch with token, name, tierToken (silver when absent), config and governance
// values.
func (g *Govern) CreateTenant(ctx context.Context, by *model.Principal, p store.Patch) (t *Tenant, err error) {
	if err := demand(by, model.TenantWrite); err != nil {
		return nil, err
	}
	if _, named := p["tierToken"]; !named {
		p = with(p, "tierToken", DefaultTier)
	}
	err = g.writer.Mutate(ctx, by, func(ch *store.Change) error {
		if t, err = tenants.Create(ch, 0, p); err != nil {
			return err
		}
		if err := view(ch, t); err != nil {
			return err
		}
		return g.publish(ch, t)
	})
	return t, err
}

// UpdateTenant changes name, tierToken, config and governance values.
func (g *Govern) UpdateTenant(ctx context.Context, by *model.Principal, token string, p store.Patch) (t *Tenant, err error) {
	if err := demand(by, model.TenantWrite); err != nil {
		return nil, err
	}
	err = g.writer.Mutate(ctx, by, func(ch *store.Change) error {
		if t, err = tenants.Update(ch, 0, token, p); err != nil {
			return err
		}
		return g.publish(ch, t)
	})
	return t, err
}

// SetTenantEnabled opens or closes a tenant. Closing ends its access tokens at once and has its devices refused; the data
// stays.
func (g *Govern) SetTenantEnabled(ctx context.Context, by *model.Principal, token string, enabled bool) (t *Tenant, err error) {
	if err := demand(by, model.TenantWrite); err != nil {
		return nil, err
	}
	err = g.writer.Mutate(ctx, by, func(ch *store.Change) error {
		if t, err = tenants.Get(ch, 0, token); err != nil {
			return err
		}
		if t == nil {
			return model.NotFound("tenant", token)
		}
		if t.Enabled == enabled {
			return nil
		}
		t.Enabled, t.NotBefore = enabled, max(ch.At, t.NotBefore)+1
		if err := tenants.Save(ch, t, "enabled", "not_before"); err != nil {
			return err
		}
		if err := view(ch, t); err != nil {
			return err
		}
		if err := g.publish(ch, t); err != nil {
			return err
		}
		if g.onSwitch != nil {
			ch.OnCommit(func() { g.onSwitch(token, enabled) }) // after publish: what is told is in force
		}
		return nil
	})
	return t, err
}

// view puts the tenant into what resolution reads.
func view(ch *store.Change, t *Tenant) error {
	body, err := json.Marshal(model.TenantView{V: 1, ID: t.ID, Enabled: t.Enabled})
	if err != nil {
		return fmt.Errorf("govern: tenant view: %w", err)
	}
	ch.View(model.ViewChange{Kind: model.ViewTenant, Key: t.Token, Body: body})
	return nil
}

// publish has what the change made of the tenant in force with the commit.
func (g *Govern) publish(ch *store.Change, t *Tenant) error {
	tier, err := tiers.GetByID(ch, 0, t.TierID)
	if err != nil {
		return err
	}
	e, tv := t.entry(), tier.values()
	ch.OnCommit(func() { g.index.put(e, tier.Token, tv) })
	return nil
}

func (t *Tenant) entry() entry {
	return entry{id: t.ID, token: t.Token, enabled: t.Enabled, notBefore: t.NotBefore, tier: t.TierID,
		overrides: t.Overrides().usable(), aiExternal: t.AIExternalEnabled != nil && *t.AIExternalEnabled}
}

// demand refuses a caller who lacks an authority.
func demand(by *model.Principal, a model.Authority) error {
	if by == nil || by.Kind == model.Anonymous {
		return model.Unauthenticated("a token is required")
	}
	if !by.Has(a) {
		return model.Forbidden(a)
	}
	return nil
}

func with(p store.Patch, name string, value any) store.Patch {
	q := make(store.Patch, len(p)+1)
	maps.Copy(q, p)
	q[name] = value
	return q
}
