package auth

import (
	"context"
	"errors"
	"slices"

	"weir/model"
	"weir/store"
)

// membershipRow lets an identity into the tenant that the row belongs to. Its roles stand in membership_roles.
type membershipRow struct {
	store.Row
	IdentityID int64        `store:"identity_id"`
	Enabled    bool         `store:"enabled"`
	NotBefore  model.Micros `store:"not_before"`
}

var memberships = store.NewTable[membershipRow](store.Desc[membershipRow]{Kind: "membership", Name: "memberships", Uncounted: true})

// mayGive refuses a principal that gives or takes roles in a tenant which carry more than it holds itself there. A superuser may give
// all, and so may who makes tenants (tenant:write), whose first members are made like this, but not to itself.
func (e *edit) mayGive(by *model.Principal, tenant int64, roles []int64) error {
	switch {
	case unbound(by):
		return nil
	case by.Identity != 0 && by.Identity == e.row.ID:
		return model.Errorf(model.CodeForbidden, "forbidden: no account gives itself roles in a tenant: have another operator do it")
	case by.Has(model.TenantWrite):
		return nil
	}
	// What the caller holds in this tenant, as the transaction sees it.
	var own []int64
	p, _, err := loadPerson(e, by.Subject)
	if err != nil {
		return err
	}
	if p != nil && p.id == by.Identity && p.memberships[tenant].enabled {
		own = p.memberships[tenant].roles
	}
	_, have := union(e.grants, own)
	_, want := union(e.grants, roles)
	// The wildcard covers all but state:demote, which a role must name.
	for _, a := range want {
		if !slices.Contains(have, a) && !(a != model.StateDemote && slices.Contains(have, model.AllAuthorities)) {
			return model.Errorf(model.CodeForbidden, "forbidden: %s in the tenant is required, or tenant:write", a)
		}
	}
	return nil
}

// unbound reports whether a principal may give what it likes: the instance itself, the operator at the machine, a superuser.
func unbound(by *model.Principal) bool {
	return by == nil || by.Kind == model.LocalOperator || by.Sudo || by.System[model.AllAuthorities]
}

// AddMembership lets a person into a tenant with roles of scope tenant; see mayGive for who may.
func (a *Auth) AddMembership(ctx context.Context, by *model.Principal, email, tenant string, roleTokens []string) (*Identity, error) {
	return a.editIdentity(ctx, by, email, func(e *edit) error {
		id, err := store.TenantID(e, tenant)
		if err != nil {
			return err
		}
		if id == 0 {
			return model.Invalid("tenant", "%q does not exist", tenant)
		}
		held, err := a.Roles.resolve(e, ScopeTenant, roleTokens)
		if err != nil {
			return err
		}
		if err := e.mayGive(by, id, held); err != nil {
			return err
		}
		// Tokens of a former membership do not count.
		row := &membershipRow{Row: store.Row{TenantID: id}, IdentityID: e.row.ID, Enabled: true, NotBefore: a.stamp(0)}
		if err := memberships.Insert(e.Change, row); err != nil {
			if _, ok := errors.AsType[*store.UniqueError](err); ok || model.CodeOf(err) == model.CodeConflict {
				return model.NotUnique("membership", "tenant", e.row.Email+" in "+tenant)
			}
			return err
		}
		return store.SetMembershipRoles(e, row.ID, held)
	})
}

// editMembership runs fn on a membership of an identity.
func (a *Auth) editMembership(ctx context.Context, by *model.Principal, email, tenant string, fn func(*edit, *membershipRow) error) (*Identity, error) {
	return a.editIdentity(ctx, by, email, func(e *edit) error {
		id, err := store.TenantID(e, tenant)
		if err != nil {
			return err
		}
		m, ok := e.person.memberships[id]
		if !ok {
			return model.NotFound("membership", e.row.Email+" in "+tenant)
		}
		row, err := memberships.GetByID(e, id, m.id)
		if err != nil {
			return err
		}
		return fn(e, row)
	})
}

// SetMembershipRoles replaces the roles of a membership.
func (a *Auth) SetMembershipRoles(ctx context.Context, by *model.Principal, email, tenant string, roleTokens []string) (*Identity, error) {
	return a.editMembership(ctx, by, email, tenant, func(e *edit, row *membershipRow) error {
		held, err := a.Roles.resolve(e, ScopeTenant, roleTokens)
		if err != nil || slices.Equal(held, e.person.memberships[row.TenantID].roles) {
			return err
		}
		// What is taken counts like what is given.
		if err := e.mayGive(by, row.TenantID, slices.Concat(held, e.person.memberships[row.TenantID].roles)); err != nil {
			return err
		}
		if err := store.SetMembershipRoles(e, row.ID, held); err != nil {
			return err
		}
		row.NotBefore = a.stamp(0)
		return memberships.Save(e.Change, row, "not_before")
	})
}

// SetMembershipEnabled lets a member in or shuts them out; the latter ends their sessions there.
func (a *Auth) SetMembershipEnabled(ctx context.Context, by *model.Principal, email, tenant string, enabled bool) (*Identity, error) {
	return a.editMembership(ctx, by, email, tenant, func(e *edit, row *membershipRow) error {
		if row.Enabled == enabled {
			return nil
		}
		if enabled || by == nil || by.Identity != e.row.ID { // anyone may leave
			if err := e.mayGive(by, row.TenantID, e.person.memberships[row.TenantID].roles); err != nil {
				return err
			}
		}
		if !enabled {
			if err := store.EndRefreshSessions(e, e.row.ID, row.TenantID); err != nil {
				return err
			}
		}
		row.Enabled, row.NotBefore = enabled, a.stamp(0)
		return memberships.Save(e.Change, row, "enabled", "not_before")
	})
}

// RemoveMembership ends a membership and the sessions that came of it.
func (a *Auth) RemoveMembership(ctx context.Context, by *model.Principal, email, tenant string) (*Identity, error) {
	return a.editMembership(ctx, by, email, tenant, func(e *edit, row *membershipRow) error {
		if by == nil || by.Identity != e.row.ID { // anyone may leave
			if err := e.mayGive(by, row.TenantID, e.person.memberships[row.TenantID].roles); err != nil {
				return err
			}
		}
		if err := store.EndRefreshSessions(e, e.row.ID, row.TenantID); err != nil {
			return err
		}
		return e.dropMembership(row.TenantID)
	})
}

func (e *edit) dropMembership(tenant int64) error {
	m := e.person.memberships[tenant]
	row, err := memberships.GetByID(e, tenant, m.id)
	if err != nil {
		return err
	}
	// Rows that refer to the membership go before its own.
	if err := store.SetMembershipRoles(e, m.id, nil); err != nil {
		return err
	}
	return memberships.Remove(e.Change, row)
}

// seed makes what a first start must make. Roles that were deleted later do not come back: superuser always stays.
func (a *Auth) seed(ctx context.Context) error {
	err := a.writer.Mutate(ctx, nil, func(ch *store.Change) error {
		// The role superuser says that this is no first start: it cannot be deleted.
		super, err := a.Roles.Table.Get(ch, 0, RoleSuperuser)
		if err != nil || super != nil {
			return err
		}
		// All or none, in one transaction.
		for _, r := range seededRoles() {
			if err := a.Roles.Table.Insert(ch, &r); err != nil {
				return err
			}
			a.Roles.publish(ch, &r)
		}
		return nil
	})
	if err != nil || a.cfg.SuperuserEmail == "" || !a.cfg.SuperuserPassword.Set() || a.dir.count() > 0 {
		return err
	}
	return a.seedSuperuser(ctx)
}

// seedSuperuser makes the configured identity, of which there is none yet.
func (a *Auth) seedSuperuser(ctx context.Context) error {
	email, err := newEmail("auth.superuser_email", a.cfg.SuperuserEmail)
	if err != nil {
		return err
	}
	// Hash before the change, which holds the only writer.
	hash, err := a.hasher.Hash(ctx, a.cfg.SuperuserPassword.Reveal())
	if err != nil {
		return err
	}
	return a.writer.Mutate(ctx, nil, func(ch *store.Change) error {
		_, err := a.insertIdentity(ch, nil, &identityRow{Email: email, PasswordHash: hash, Enabled: true}, []string{RoleSuperuser})
		return err
	})
}
