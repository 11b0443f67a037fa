package auth

import (
	"context"
	"slices"

	"weir/model"
	"weir/store"
)

// Role is a named set of authorities of one tier. The token is unique over both scopes.
type Role struct {
	store.Row
	Scope       string       `store:"scope,immutable,required,oneof=system|tenant" gql:"scope"`
	Token       string       `store:"token,token" gql:"token"`
	Name        *string      `store:"name,clear,max=128" gql:"name"`
	Description *string      `store:"description,clear,max=1024" gql:"description"`
	Authorities []string     `store:"authorities,clear,list,max=64" gql:"authorities"` // sorted
	NotBefore   model.Micros `store:"not_before"`
}

var roles = store.NewTable[Role](store.Desc[Role]{Kind: "role", Name: "roles", Instance: true,
	Check: func(_ store.Tx, r *Role, _ store.Changed) error { return r.check() },
	Referrers: []store.Referrer{{Kind: "identity", Table: "identity_roles", Column: "role_id"},
		{Kind: "membership", Table: "membership_roles", Column: "role_id"}}})

// maxRolesHeld bounds the roles of an identity or a membership, and so the length of a token.
const maxRolesHeld = 32

func (r *Role) check() error {
	tier := model.TierTenant
	if r.Scope == ScopeSystem {
		tier = model.TierSystem
	}
	for _, a := range r.Authorities {
		switch t := model.TierOf(model.Authority(a)); {
		case t == 0:
			return model.Invalid("authorities", "%q is no authority", a)
		case t&tier == 0:
			return model.Invalid("authorities", "%s is no authority of scope %s", a, r.Scope)
		}
	}
	slices.Sort(r.Authorities)
	r.Authorities = slices.Compact(r.Authorities)
	return nil
}

// RoleFields describes the fields of a role.
func RoleFields() []store.Field { return roles.Fields() }

// Values returns the role as the patch of its create would give it.
func (r *Role) Values() store.Patch { return roles.Values(r) }

func (r *Role) grant() grant {
	g := grant{id: r.ID, token: r.Token, scope: r.Scope, notBefore: r.NotBefore}
	for _, a := range r.Authorities {
		g.authorities = append(g.authorities, model.Authority(a))
	}
	return g
}

// seededRoles are made at first start.
func seededRoles() []Role {
	var operator []string
	for _, a := range []model.Authority{model.UserRead, model.UserWrite, model.RoleRead, model.RoleWrite, model.TenantRead,
		model.TenantWrite, model.SettingsRead, model.SettingsWrite, model.ClientRead, model.ClientWrite, model.AIAdmin,
		model.AuditRead} {
		operator = append(operator, string(a))
	}
	all := []string{string(model.AllAuthorities)}
	return []Role{
		{Scope: ScopeSystem, Token: RoleSuperuser, Name: new("Superuser"), Authorities: all},
		{Scope: ScopeSystem, Token: RoleOperator, Name: new("Operator"), Authorities: operator},
		{Scope: ScopeTenant, Token: RoleTenantAdmin, Name: new("Tenant administrator"), Authorities: all},
	}
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

// demandAll refuses a caller who lacks one of the authorities that he is about to give, change or act on: nobody makes
// his own set larger. A wildcard is only held by who holds the wildcard.
func demandAll(by *model.Principal, as []model.Authority) error {
	for _, a := range as {
		if !by.Has(a) {
			return model.Forbidden(a)
		}
	}
	return nil
}

// Roles lists the roles of a scope, or of both for "", newest first.
func (a *Auth) Roles(ctx context.Context, by *model.Principal, scope string) ([]*Role, error) {
	if err := demand(by, model.RoleRead); err != nil {
		return nil, err
	}
	var filters []store.Filter
	if scope != "" {
		filters = append(filters, store.Eq("scope", scope))
	}
	var all []*Role
	err := a.store.Read(ctx, func(tx store.Tx) (err error) {
		all, err = roles.Select(tx, 0, "created_at DESC, token", filters...)
		return err
	})
	return all, err
}

// Authorities returns the sorted vocabulary with the wildcard, of a scope or of both for "".
func (a *Auth) Authorities(by *model.Principal, scope string) ([]string, error) {
	if err := demand(by, model.RoleRead); err != nil {
		return nil, err
	}
	tier, err := tierOf(scope)
	if err != nil {
		return nil, err
	}
	names := []string{string(model.AllAuthorities)}
	for _, au := range model.Authorities(tier) {
		names = append(names, string(au))
	}
	slices.Sort(names)
	return names, nil
}

func tierOf(scope string) (model.Tier, error) {
	switch scope {
	case "":
		return model.TierSystem | model.TierTenant, nil
	case ScopeSystem:
		return model.TierSystem, nil
	case ScopeTenant:
		return model.TierTenant, nil
	}
	return 0, model.Invalid("scope", "%q is neither system nor tenant", scope)
}

// CreateRole makes a role of a patch with scope, token, name, description, authorities.
func (a *Auth) CreateRole(ctx context.Context, by *model.Principal, p store.Patch) (r *Role, err error) {
	if err := demand(by, model.RoleWrite); err != nil {
		return nil, err
	}
	err = a.writer.Mutate(ctx, by, func(ch *store.Change) error {
		if r, err = roles.Create(ch, 0, p); err != nil {
			return err
		}
		if r.Scope == ScopeSystem {
			if err := demandAll(by, r.grant().authorities); err != nil {
				return err
			}
		}
		a.publishRole(ch, r)
		return nil
	})
	return r, err
}

// UpdateRole changes name, description, authorities. scope may be ""; another one than the role's is NOT_FOUND. Tokens
// that carry the role's old authorities no longer count once they have changed.
func (a *Auth) UpdateRole(ctx context.Context, by *model.Principal, scope, token string, p store.Patch) (r *Role, err error) {
	if err := demand(by, model.RoleWrite); err != nil {
		return nil, err
	}
	err = a.writer.Mutate(ctx, by, func(ch *store.Change) error {
		old, err := roles.Get(ch, 0, token)
		switch {
		case err != nil:
			return err
		case old == nil || scope != "" && scope != old.Scope:
			return model.NotFound("role", token)
		case token == RoleSuperuser:
			return model.Invalid("token", "the role %s cannot be changed", RoleSuperuser)
		}
		if r, err = roles.Update(ch, 0, token, p); err != nil {
			return err
		}
		if r.Scope == ScopeSystem {
			if err := demandAll(by, append(old.grant().authorities, r.grant().authorities...)); err != nil {
				return err
			}
		}
		if slices.Equal(old.Authorities, r.Authorities) {
			return nil
		}
		r.NotBefore = a.stamp(0)
		if err := store.SetRoleNotBefore(ch, r.ID, r.NotBefore); err != nil {
			return err
		}
		a.publishRole(ch, r)
		return nil
	})
	return r, err
}

// DeleteRole removes a role that nobody holds; false says that there is none of that scope.
func (a *Auth) DeleteRole(ctx context.Context, by *model.Principal, scope, token string) (removed bool, err error) {
	if err := demand(by, model.RoleWrite); err != nil {
		return false, err
	}
	err = a.writer.Mutate(ctx, by, func(ch *store.Change) error {
		r, err := roles.Get(ch, 0, token)
		switch {
		case err != nil || r == nil || r.Scope != scope:
			return err
		case token == RoleSuperuser:
			return model.Invalid("token", "the role %s cannot be deleted", RoleSuperuser)
		}
		if removed, err = roles.Delete(ch, 0, token); err != nil {
			return err
		}
		ch.OnCommit(func() { a.dir.removeGrant(r.ID) })
		return nil
	})
	return removed, err
}

func (a *Auth) publishRole(ch *store.Change, r *Role) {
	g := r.grant()
	ch.OnCommit(func() { a.dir.setGrant(g) })
}

// resolveRoles turns tokens into the sorted row ids of roles of a scope; an unknown one refuses all.
func resolveRoles(tx store.Tx, scope string, tokens []string) ([]int64, error) {
	ids := []int64{}
	for _, token := range tokens {
		var r *Role
		if model.ValidToken(token) {
			var err error
			if r, err = roles.Get(tx, 0, token); err != nil {
				return nil, err
			}
		}
		if r == nil || r.Scope != scope {
			return nil, model.Invalid("roleTokens", "%q is no role of scope %s", token, scope)
		}
		ids = append(ids, r.ID)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) > maxRolesHeld {
		return nil, model.Invalid("roleTokens", "at most %d roles can be held at once", maxRolesHeld)
	}
	return ids, nil
}
