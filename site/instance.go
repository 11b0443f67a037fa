package site

import (
	"maps"
	"slices"

	"weir/auth"
	"weir/govern"
	"weir/model"
	"weir/store"
)

// tenants are those that the transaction sees, by token. It implements auth.Tenants.
type tenants map[string]*govern.Tenant

var _ auth.Tenants = tenants(nil)

// Lookup implements auth.Tenants.
func (t tenants) Lookup(token string) (id int64, enabled, known bool) {
	if row := t[token]; row != nil {
		return row.ID, row.Enabled, true
	}
	return 0, false, false
}

// TokenOf implements auth.Tenants.
func (t tenants) TokenOf(id int64) string {
	for token, row := range t {
		if row.ID == id {
			return token
		}
	}
	return ""
}

// NotBefore implements auth.Tenants.
func (t tenants) NotBefore(token string) model.Micros {
	if row := t[token]; row != nil {
		return row.NotBefore
	}
	return 0
}

func (w *work) loadTenants() error {
	all, err := w.govern.Tenants(w.ctx, w.by)
	for _, t := range all {
		w.tenants[t.Token] = t
	}
	return err
}

func (w *work) tiers() (map[string]*govern.Tier, error) {
	all, err := w.govern.Tiers(w.ctx, w.by)
	tiers := make(map[string]*govern.Tier, len(all))
	for _, t := range all {
		tiers[t.Token] = t.Tier
	}
	return tiers, err
}

func (w *work) putTiers() error {
	declared := w.doc.Lists["tiers"]
	if len(declared) == 0 {
		return nil
	}
	have, err := w.tiers()
	if err != nil {
		return err
	}
	for _, e := range declared {
		if have[e.Name] == nil {
			if _, err := w.govern.CreateTier(w.ctx, w.by, named(e)); err != nil {
				return at(e, err)
			}
			w.plan.add(Change{Op: Create, Kind: w.kinds.tier.name, Name: e.Name})
			continue
		}
		patch, fields := w.kinds.tier.diff(have[e.Name].Values(), e.Fields)
		if config, ok := patch["config"].(string); ok && have[e.Name].Config == nil && sameJSON(config, "{}") {
			delete(patch, "config") // of a tier it means none
			fields = slices.DeleteFunc(fields, func(f FieldChange) bool { return f.Name == "config" })
		}
		if len(patch) == 0 {
			continue
		}
		if _, err := w.govern.UpdateTier(w.ctx, w.by, e.Name, patch); err != nil {
			return at(e, err)
		}
		w.plan.add(Change{Op: Update, Kind: w.kinds.tier.name, Name: e.Name, Fields: fields})
	}
	return nil
}

// named is the patch that creates an entity.
func named(e *Entity) store.Patch {
	p := maps.Clone(e.Fields)
	if p == nil {
		p = store.Patch{}
	}
	p["token"] = e.Name
	return p
}

func (w *work) putRoles() error {
	declared := w.doc.Lists["roles"]
	if len(declared) == 0 {
		return nil
	}
	all, err := w.auth.Roles(w.ctx, w.by, "")
	if err != nil {
		return err
	}
	have := make(map[string]*auth.Role, len(all))
	for _, r := range all {
		have[r.Token] = r
	}
	for _, e := range declared {
		if have[e.Name] == nil {
			if _, err := w.auth.CreateRole(w.ctx, w.by, named(e)); err != nil {
				return at(e, err)
			}
			w.plan.add(Change{Op: Create, Kind: w.kinds.role.name, Name: e.Name})
			continue
		}
		patch, fields := w.kinds.role.diff(have[e.Name].Values(), e.Fields)
		if len(patch) == 0 {
			continue
		}
		if _, err := w.auth.UpdateRole(w.ctx, w.by, "", e.Name, patch); err != nil {
			return at(e, err)
		}
		w.plan.add(Change{Op: Update, Kind: w.kinds.role.name, Name: e.Name, Fields: fields})
	}
	return nil
}

func (w *work) putTenants() error {
	if len(w.doc.Lists["tenants"]) == 0 {
		return nil
	}
	tiers, err := w.tiers()
	if err != nil {
		return err
	}
	tokens := make(map[int64]string, len(tiers))
	for token, t := range tiers {
		tokens[t.ID] = token
	}
	for _, e := range w.doc.Lists["tenants"] {
		if err := w.putTenant(e, tokens); err != nil {
			return at(e, err)
		}
	}
	return nil
}

// putTenant makes or changes a tenant. Whether it is open is no field but a verb of its own.
func (w *work) putTenant(e *Entity, tiers map[int64]string) (err error) {
	k, t := w.kinds.tenant, w.tenants[e.Name]
	change := Change{Op: Update, Kind: k.name, Name: e.Name}
	if t == nil {
		change.Op = Create
		patch := named(e)
		delete(patch, "enabled")
		if t, err = w.govern.CreateTenant(w.ctx, w.by, patch); err != nil {
			return err
		}
	} else {
		patch, fields := k.diff(tenantValues(t, tiers), e.Fields)
		change.Fields = fields
		delete(patch, "enabled")
		if len(patch) > 0 {
			if t, err = w.govern.UpdateTenant(w.ctx, w.by, e.Name, patch); err != nil {
				return err
			}
		}
	}
	if enabled, ok := e.Fields["enabled"]; ok {
		if enabled == nil {
			return model.Invalid("enabled", "null is refused")
		}
		if enabled != t.Enabled {
			if t, err = w.govern.SetTenantEnabled(w.ctx, w.by, e.Name, enabled.(bool)); err != nil {
				return err
			}
		}
	}
	w.tenants[e.Name] = t
	if change.Op == Create || len(change.Fields) > 0 {
		w.plan.add(change)
	}
	return nil
}

func tenantValues(t *govern.Tenant, tiers map[int64]string) store.Patch {
	have := t.Values()
	have["enabled"], have["tierToken"] = t.Enabled, tiers[t.TierID]
	return have
}
