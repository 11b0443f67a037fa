package site

import (
	"slices"

	"weir/auth"
	"weir/model"
	"weir/store"
)

// kindMembership is the kind whose members are named by two: the person and the tenant.
const kindMembership = "membership"

func (w *work) identities() (map[string]*auth.Identity, error) {
	all, err := w.parts.Auth.Identities(w.ctx, w.by)
	have := make(map[string]*auth.Identity, len(all))
	for _, p := range all {
		have[p.Email] = p
	}
	return have, err
}

func (w *work) putIdentities() error {
	declared := w.doc.Lists["identities"]
	if len(declared) == 0 {
		return nil
	}
	have, err := w.identities()
	if err != nil {
		return err
	}
	for _, e := range declared {
		p := have[e.Name]
		if p == nil {
			p, err = w.newIdentity(e)
		} else {
			err = w.updateIdentity(e, p)
		}
		if err != nil {
			if err := w.refuse(e, err); err != nil {
				return err
			}
			continue
		}
		for _, m := range e.Lists["memberships"] {
			if w.isLost("", w.format.tenant.list, m.Name) {
				continue
			}
			if err := w.putMembership(e, m, p); err != nil {
				if err := w.refuse(m, err); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (w *work) newIdentity(e *Entity) (*auth.Identity, error) {
	password, ok := e.Secrets["password"]
	if !ok {
		return nil, model.Invalid("password", "is required")
	}
	n := auth.NewIdentity{Email: e.Name, Password: password, Enabled: true, SystemRoles: texts(e.Fields["systemRoles"])}
	if enabled, ok := e.Fields["enabled"]; ok {
		if n.Enabled, ok = enabled.(bool); !ok {
			return nil, model.Invalid("enabled", "null is refused")
		}
	}
	n.FirstName, n.LastName = optional(e.Fields["firstName"]), optional(e.Fields["lastName"])
	var err error
	if n.Hashed, err = w.pw.Hash(w.ctx, password); err != nil {
		return nil, err
	}
	p, err := w.parts.Auth.CreateIdentity(w.ctx, w.by, n)
	if err != nil {
		return nil, err
	}
	w.plan.add(Change{Op: Create, Kind: w.format.identity.name, Name: e.Name})
	return p, nil
}

func optional(v any) *string {
	if s, ok := v.(string); ok {
		return &s
	}
	return nil
}

// updateIdentity changes what differs; each field has a verb of its own.
func (w *work) updateIdentity(e *Entity, p *auth.Identity) error {
	patch, fields := w.format.identity.diff(identityValues(p), e.Fields)
	if err := w.setNames(e, patch); err != nil {
		return err
	}
	if password, ok := e.Secrets["password"]; ok {
		changed, err := w.setPassword(e, password)
		if err != nil {
			return err
		}
		if changed {
			fields = append(fields, FieldChange{Name: "password", Secret: true})
		}
	}
	if v, ok := patch["systemRoles"]; ok {
		if _, err := w.parts.Auth.SetSystemRoles(w.ctx, w.by, e.Name, texts(v)); err != nil {
			return err
		}
	}
	if v, ok := patch["enabled"]; ok {
		enabled, ok := v.(bool)
		if !ok {
			return model.Invalid("enabled", "null is refused")
		}
		if _, err := w.parts.Auth.SetIdentityEnabled(w.ctx, w.by, e.Name, enabled); err != nil {
			return err
		}
	}
	if len(fields) > 0 {
		w.plan.add(Change{Op: Update, Kind: w.format.identity.name, Name: e.Name, Fields: fields})
	}
	return nil
}

func (w *work) setNames(e *Entity, patch store.Patch) error {
	names := store.Patch{}
	for _, f := range []string{"firstName", "lastName"} {
		if v, ok := patch[f]; ok {
			names[f] = v
		}
	}
	if len(names) == 0 {
		return nil
	}
	_, err := w.parts.Auth.SetIdentityNames(w.ctx, w.by, e.Name, names)
	return err
}

func (w *work) setPassword(e *Entity, password string) (changed bool, err error) {
	stored, err := w.parts.Auth.PasswordHash(w.ctx, w.by, e.Name)
	if err != nil {
		return false, err
	}
	same, err := w.pw.same(identityHolder(e.Name), stored)
	if err != nil || same {
		return false, err
	}
	hash, err := w.pw.Hash(w.ctx, password)
	if err != nil {
		return false, err
	}
	_, err = w.parts.Auth.SetPassword(w.ctx, w.by, e.Name, password, hash)
	return err == nil, err
}

func identityValues(p *auth.Identity) store.Patch {
	v := store.Patch{"firstName": nil, "lastName": nil, "enabled": p.Enabled, "systemRoles": p.SystemRoles}
	if p.FirstName != nil {
		v["firstName"] = *p.FirstName
	}
	if p.LastName != nil {
		v["lastName"] = *p.LastName
	}
	return v
}

// putMembership lets a person into a tenant, or changes what they may do there.
func (w *work) putMembership(e, m *Entity, p *auth.Identity) error {
	i := slices.IndexFunc(p.Memberships, func(have auth.IdentityMembership) bool { return have.Tenant == m.Name })
	enabled, isBool := m.Fields["enabled"].(bool)
	if _, named := m.Fields["enabled"]; named && !isBool {
		return model.Invalid("enabled", "null is refused")
	}
	change := Change{Op: Update, Kind: kindMembership, Tenant: m.Name, Name: e.Name}
	if i < 0 {
		if _, err := w.parts.Auth.AddMembership(w.ctx, w.by, e.Name, m.Name, texts(m.Fields["roles"])); err != nil {
			return err
		}
		if isBool && !enabled {
			if _, err := w.parts.Auth.SetMembershipEnabled(w.ctx, w.by, e.Name, m.Name, false); err != nil {
				return err
			}
		}
		change.Op = Create
		w.plan.add(change)
		return nil
	}
	have := p.Memberships[i]
	patch, fields := w.format.membership.diff(store.Patch{"enabled": have.Enabled, "roles": have.Roles}, m.Fields)
	if v, ok := patch["roles"]; ok {
		if _, err := w.parts.Auth.SetMembershipRoles(w.ctx, w.by, e.Name, m.Name, texts(v)); err != nil {
			return err
		}
	}
	if _, ok := patch["enabled"]; ok {
		if _, err := w.parts.Auth.SetMembershipEnabled(w.ctx, w.by, e.Name, m.Name, enabled); err != nil {
			return err
		}
	}
	if change.Fields = fields; len(fields) > 0 {
		w.plan.add(change)
	}
	return nil
}
