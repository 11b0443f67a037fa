package site

import (
	"context"
	"slices"
	"strings"

	"weir/auth"
	"weir/model"
	"weir/registry"
	"weir/store"
)

// Export returns what is there as a document, of one tenant, or of the whole instance for "": every field that is set, in
// an order that depends on nothing else, and no secret. Its plan is empty.
func (s *Site) Export(ctx context.Context, by *model.Principal, tenant string) (*Document, error) {
	d := &Document{Files: []File{}, Lists: map[string][]*Entity{}}
	err := s.parts.Store.Read(ctx, func(tx store.Tx) error {
		// A change that nothing is written in: all reads see one snapshot.
		w := s.work(&store.Change{Tx: tx, By: by}, by, d, Options{}, &passwords{})
		if err := w.loadTenants(); err != nil {
			return err
		}
		if tenant != "" {
			if w.tenants[tenant] == nil {
				return model.NotFound("tenant", tenant)
			}
			return w.exportTenants(d, tenant)
		}
		return w.exportAll(d)
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (w *work) exportAll(d *Document) error {
	tiers, err := w.govern.Tiers(w.ctx, w.by)
	if err != nil {
		return err
	}
	for _, t := range tiers {
		put(d.Lists, w.kinds.tier, t.Token, t.Values())
	}
	roles, err := w.auth.Roles(w.ctx, w.by, "")
	if err != nil {
		return err
	}
	for _, r := range roles {
		put(d.Lists, w.kinds.role, r.Token, r.Values())
	}
	sortByName(d.Lists["roles"])
	all := make([]string, 0, len(w.tenants))
	for token := range w.tenants {
		all = append(all, token)
	}
	if err := w.exportTenants(d, all...); err != nil {
		return err
	}
	return w.exportPeople(d)
}

// put adds an entity with the fields that are set.
func put(lists map[string][]*Entity, k *kind, name string, values store.Patch) *Entity {
	e := &Entity{Name: name, Fields: store.Patch{}}
	for i := range k.fields {
		f := &k.fields[i]
		if v := f.shown(values[f.name]); v != nil && !f.secret {
			e.Fields[f.name] = v
		}
	}
	lists[k.list] = append(lists[k.list], e)
	return e
}

func sortByName(list []*Entity) {
	slices.SortFunc(list, func(a, b *Entity) int { return strings.Compare(a.Name, b.Name) })
}

func (w *work) exportPeople(d *Document) error {
	people, err := w.auth.Identities(w.ctx, w.by)
	if err != nil {
		return err
	}
	for _, p := range people {
		e := put(d.Lists, w.kinds.identity, p.Email, identityValues(p))
		e.Lists = map[string][]*Entity{}
		for _, m := range p.Memberships {
			put(e.Lists, w.kinds.membership, m.Tenant, membershipValues(m))
		}
	}
	sortByName(d.Lists["identities"])
	return nil
}

func membershipValues(m auth.IdentityMembership) store.Patch {
	return store.Patch{"enabled": m.Enabled, "roles": m.Roles}
}

func (w *work) exportTenants(d *Document, tokens ...string) error {
	tiers, err := w.tiers()
	if err != nil {
		return err
	}
	names := make(map[int64]string, len(tiers))
	for token, t := range tiers {
		names[t.ID] = token
	}
	slices.Sort(tokens)
	for _, token := range tokens {
		e := put(d.Lists, w.kinds.tenant, token, tenantValues(w.tenants[token], names))
		e.Lists = map[string][]*Entity{}
		if err := w.enter(e).export(); err != nil {
			return err
		}
	}
	return nil
}

// export fills the lists of the tenant.
func (t *inTenant) export() error {
	lists, r := t.e.Lists, t.registry
	profiles := map[int64]*Entity{}
	if err := each(t, r.Profiles, func(p *registry.DeviceProfile) {
		t.profiles[p.ID] = p.Token
		e := put(lists, t.kinds.profile, p.Token, r.Profiles.Values(p))
		e.Lists = map[string][]*Entity{}
		profiles[p.ID] = e
	}); err != nil {
		return err
	}
	for _, e := range lists["deviceProfiles"] {
		differs, _, err := r.Profiles.Unpublished(t.ctx, t.by, e.Name)
		if err != nil {
			return err
		}
		if differs {
			e.Fields[keyPublish] = false
		}
	}
	if err := each(t, r.Metrics, func(m *registry.MetricDefinition) {
		put(profiles[m.ProfileID].Lists, t.kinds.metric, m.Token, r.Metrics.Values(m))
	}); err != nil {
		return err
	}
	if err := each(t, r.Rules, func(d *registry.DetectionRule) {
		put(profiles[d.ProfileID].Lists, t.kinds.rule, d.Token, r.Rules.Values(d))
	}); err != nil {
		return err
	}
	if err := each(t, r.Types, func(d *registry.DeviceType) {
		t.types[d.ID] = d.Token
		v := r.Types.Values(d)
		token(v, "profileToken", t.profiles)
		put(lists, t.kinds.deviceType, d.Token, v)
	}); err != nil {
		return err
	}
	if err := t.exportDevices(); err != nil {
		return err
	}
	for _, list := range lists {
		sortByName(list)
		for _, e := range list {
			for _, inner := range e.Lists {
				sortByName(inner)
			}
		}
	}
	return nil
}

func (t *inTenant) exportDevices() error {
	r := t.registry
	devices := map[int64]*Entity{}
	if err := each(t, r.Devices, func(d *registry.Device) {
		v := r.Devices.Values(d)
		token(v, "deviceTypeToken", t.types)
		e := put(t.e.Lists, t.kinds.device, d.Token, v)
		e.Lists = map[string][]*Entity{}
		devices[d.ID] = e
	}); err != nil {
		return err
	}
	var failed error
	err := each(t, r.Credentials, func(c *registry.DeviceCredential) {
		e := put(devices[c.DeviceID].Lists, t.kinds.credential, c.Token, r.Credentials.Values(c))
		if c.Type == registry.AccessToken {
			return // the id is the secret
		}
		id, err := r.CredentialID(c)
		if err != nil {
			failed = err
			return
		}
		e.keep("credentialId", id)
	})
	if err != nil {
		return err
	}
	return failed
}
