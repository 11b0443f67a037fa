package inference

import (
	"context"
	"slices"

	"weir/model"
	"weir/store"
	"weir/store/aigrants"
)

// TierGrant is a provider that the tenants of a tier may use.
type TierGrant struct {
	Tier     string    `gql:"tier"`
	Provider *Provider `gql:"provider"`
	Default  bool      `gql:"isDefault"`
}

// TenantGrant is a provider that a tenant may use.
type TenantGrant struct {
	Tenant   string    `gql:"tenant"`
	Provider *Provider `gql:"provider"`
}

// Assignment is the provider that a function of a tenant takes, where it is granted.
type Assignment struct {
	Function string    `gql:"function"`
	Provider *Provider `gql:"provider"`
}

// TierGrants returns the grants of all tiers.
func (i *Inference) TierGrants(ctx context.Context, by *model.Principal) (all []TierGrant, err error) {
	all = []TierGrant{}
	err = i.look(ctx, by, func(tx store.Tx) error {
		grants, err := aigrants.OfTiers(tx)
		if err != nil {
			return err
		}
		return i.named(tx, len(grants), func(n int) int64 { return grants[n].Provider }, func(n int, p *Provider) {
			all = append(all, TierGrant{grants[n].Tier, p, grants[n].Default})
		})
	})
	return all, err
}

// TenantGrants returns the providers that are granted to a tenant itself.
func (i *Inference) TenantGrants(ctx context.Context, by *model.Principal, tenant string) (all []TenantGrant, err error) {
	all = []TenantGrant{}
	err = i.lookAtTenant(ctx, by, tenant, func(tx store.Tx, id int64) error {
		providers, err := aigrants.OfTenant(tx, id)
		if err != nil {
			return err
		}
		return i.named(tx, len(providers), func(n int) int64 { return providers[n] }, func(_ int, p *Provider) {
			all = append(all, TenantGrant{tenant, p})
		})
	})
	return all, err
}

// Assignments returns the providers that are assigned to functions of a tenant, granted or not.
func (i *Inference) Assignments(ctx context.Context, by *model.Principal, tenant string) (all []Assignment, err error) {
	all = []Assignment{}
	err = i.lookAtTenant(ctx, by, tenant, func(tx store.Tx, id int64) error {
		assigned, err := aigrants.Assigned(tx, id)
		if err != nil {
			return err
		}
		return i.named(tx, len(assigned), func(n int) int64 { return assigned[n].Provider }, func(n int, p *Provider) {
			all = append(all, Assignment{assigned[n].Function, p})
		})
	})
	return all, err
}

// named calls add with the provider of each of n rows, in their order.
func (i *Inference) named(tx store.Tx, n int, id func(int) int64, add func(int, *Provider)) error {
	for row := range n {
		p, err := i.Providers.Table.GetByID(tx, 0, id(row))
		if err != nil {
			return err
		}
		add(row, p)
	}
	return nil
}

func (i *Inference) look(ctx context.Context, by *model.Principal, fn func(store.Tx) error) error {
	if err := i.Providers.MayRead(by); err != nil {
		return err
	}
	return store.Read(ctx, i.deps.Store, fn)
}

func (i *Inference) lookAtTenant(ctx context.Context, by *model.Principal, tenant string, fn func(tx store.Tx, id int64) error) error {
	return i.look(ctx, by, func(tx store.Tx) error {
		id, err := found(store.TenantID, tx, "tenant", tenant)
		if err != nil {
			return err
		}
		return fn(tx, id)
	})
}

// found returns the row id of what has a token, NOT_FOUND for none.
func found(find func(store.Tx, string) (int64, error), tx store.Tx, kind, token string) (int64, error) {
	id, err := find(tx, token)
	if err == nil && id == 0 {
		err = model.NotFound(kind, token)
	}
	return id, err
}

// The verbs below return whether something changed. What they name has to exist.

// GrantToTier lets the tenants of a tier use a provider.
func (i *Inference) GrantToTier(ctx context.Context, by *model.Principal, tier, provider string) (bool, error) {
	return i.ofTier(ctx, by, tier, provider, store.AuditCreate, aigrants.GrantTier)
}

// RevokeFromTier takes that back, and with it that the provider is the tier's default.
func (i *Inference) RevokeFromTier(ctx context.Context, by *model.Principal, tier, provider string) (bool, error) {
	return i.ofTier(ctx, by, tier, provider, store.AuditDelete, aigrants.RevokeTier)
}

// SetTierDefault makes a provider that is granted to a tier what its tenants use where no other is assigned.
func (i *Inference) SetTierDefault(ctx context.Context, by *model.Principal, tier, provider string) (bool, error) {
	return i.ofTier(ctx, by, tier, provider, store.AuditUpdate, func(tx store.Tx, t, p int64) (bool, error) {
		granted, err := aigrants.TierGranted(tx, t, p)
		if err == nil && !granted {
			err = model.Invalid("provider", "%q is not granted to the tier %q: grant it first", provider, tier)
		}
		if err != nil {
			return false, err
		}
		return aigrants.SetDefault(tx, t, p)
	})
}

// ClearTierDefault leaves a tier without a default.
func (i *Inference) ClearTierDefault(ctx context.Context, by *model.Principal, tier string) (bool, error) {
	return i.change(ctx, by, store.AuditEvent{Operation: store.AuditUpdate, Table: "ai_tier_grants", Label: tier}, func(c *store.Change) (bool, error) {
		t, err := found(aigrants.TierID, c, "tenant tier", tier)
		if err != nil {
			return false, err
		}
		return aigrants.ClearDefault(c, t)
	})
}

// GrantToTenant lets a tenant use a provider.
func (i *Inference) GrantToTenant(ctx context.Context, by *model.Principal, tenant, provider string) (bool, error) {
	return i.ofTenant(ctx, by, tenant, provider, "ai_tenant_grants", store.AuditCreate, aigrants.GrantTenant)
}

// RevokeFromTenant takes that back.
func (i *Inference) RevokeFromTenant(ctx context.Context, by *model.Principal, tenant, provider string) (bool, error) {
	return i.ofTenant(ctx, by, tenant, provider, "ai_tenant_grants", store.AuditDelete, aigrants.RevokeTenant)
}

// Assign lets a function of a tenant take a provider. It counts while the provider is granted to the tenant or its tier.
func (i *Inference) Assign(ctx context.Context, by *model.Principal, tenant, function, provider string) (bool, error) {
	if err := checkFunction(function); err != nil {
		return false, err
	}
	return i.ofTenant(ctx, by, tenant, provider, "ai_function_models", store.AuditUpdate, func(tx store.Tx, t, p int64) (bool, error) {
		return aigrants.Assign(tx, t, function, p)
	})
}

// Unassign leaves a function of a tenant to the default of its tier.
func (i *Inference) Unassign(ctx context.Context, by *model.Principal, tenant, function string) (bool, error) {
	if err := checkFunction(function); err != nil {
		return false, err
	}
	return i.change(ctx, by, store.AuditEvent{Operation: store.AuditDelete, Table: "ai_function_models", Label: tenant + "/" + function}, func(c *store.Change) (bool, error) {
		t, err := found(store.TenantID, c, "tenant", tenant)
		if err != nil {
			return false, err
		}
		return aigrants.Unassign(c, t, function)
	})
}

func checkFunction(token string) error {
	if !slices.ContainsFunc(Functions(), func(f Function) bool { return f.Token == token }) {
		return model.Invalid("function", "must be %s", RuleDrafting)
	}
	return nil
}

func (i *Inference) ofTier(ctx context.Context, by *model.Principal, tier, provider, operation string, verb func(tx store.Tx, tier, provider int64) (bool, error)) (bool, error) {
	return i.change(ctx, by, store.AuditEvent{Operation: operation, Table: "ai_tier_grants", Label: tier + "/" + provider}, func(c *store.Change) (bool, error) {
		t, err := found(aigrants.TierID, c, "tenant tier", tier)
		if err != nil {
			return false, err
		}
		p, err := i.Providers.Must(c, 0, provider)
		if err != nil {
			return false, err
		}
		return verb(c, t, p.ID)
	})
}

func (i *Inference) ofTenant(ctx context.Context, by *model.Principal, tenant, provider, table, operation string, verb func(tx store.Tx, tenant, provider int64) (bool, error)) (bool, error) {
	return i.change(ctx, by, store.AuditEvent{Operation: operation, Table: table, Label: tenant + "/" + provider}, func(c *store.Change) (bool, error) {
		t, err := found(store.TenantID, c, "tenant", tenant)
		if err != nil {
			return false, err
		}
		p, err := i.Providers.Must(c, 0, provider)
		if err != nil {
			return false, err
		}
		return verb(c, t, p.ID)
	})
}

// change runs a verb and notes it in the journal where it changed something.
func (i *Inference) change(ctx context.Context, by *model.Principal, e store.AuditEvent, verb func(*store.Change) (bool, error)) (changed bool, err error) {
	if err := i.Providers.MayWrite(by); err != nil {
		return false, err
	}
	err = i.deps.Writer.Mutate(ctx, by, func(c *store.Change) error {
		if changed, err = verb(c); err != nil || !changed {
			return err
		}
		e.Category, e.Rows = store.AuditMutation, 1
		return c.Audit(e)
	})
	return changed && err == nil, err
}
