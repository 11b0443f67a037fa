package auth

import (
	"context"
	"slices"
	"strings"

	"weir/internal/similar"
	"weir/model"
	"weir/store"
	"weir/store/entity"
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

// Roles are the roles of an instance.
type Roles struct {
	*entity.Kind[Role]
	auth *Auth
}

// describe makes the kinds.
func (a *Auth) describe(b entity.Base) *entity.Catalog {
	a.Roles = &Roles{auth: a}
	a.Roles.Kind = entity.New(b, entity.Desc[Role]{
		Kind:     "role",
		Type:     "Role",
		Plural:   "roles",
		Area:     "user-management",
		Table:    "roles",
		Instance: true,
		Read:     entity.Needs(model.RoleRead),
		Write:    entity.Needs(model.RoleWrite),
		Referrers: []store.Referrer{{Kind: "identity", Table: "identity_roles", Column: "role_id"},
			{Kind: "membership", Table: "membership_roles", Column: "role_id"}},
		Prepare: func(_ context.Context, _ *model.Principal, token string, _ store.Patch, create bool) error {
			if token == RoleSuperuser && !create {
				return model.Invalid("token", "the role %s cannot be changed", RoleSuperuser)
			}
			return nil
		},
		Valid: (*Role).check,
		Removing: func(_ *store.Change, r *Role) error {
			if r.Token == RoleSuperuser {
				return errSuperuserStays()
			}
			return nil
		},
		Changed: a.Roles.changed,
	})
	a.Clients = a.describeClients(b)
	return entity.NewCatalog(a.Roles, a.Clients)
}

// Describe returns the kinds without an instance, for those that ask for their descriptions only.
func Describe() *entity.Catalog { return (&Auth{}).describe(entity.Base{}) }

func errSuperuserStays() error {
	return model.Invalid("token", "the role %s cannot be deleted", RoleSuperuser)
}

// maxRolesHeld bounds the roles of an identity or a membership, and so the length of a token.
const maxRolesHeld = 32

func (r *Role) check() error {
	// A role has authorities of its own tier only.
	tier := model.TierTenant
	if r.Scope == ScopeSystem {
		tier = model.TierSystem
	}
	for _, a := range r.Authorities {
		switch t := model.TierOf(model.Authority(a)); {
		case t == 0:
			return model.Invalid("authorities", "%q is no authority%s", a, nearAuthority(a, tier))
		case t&tier == 0:
			return model.Invalid("authorities", "%s is no authority of scope %s", a, r.Scope)
		}
	}
	slices.Sort(r.Authorities)
	r.Authorities = slices.Compact(r.Authorities)
	return nil
}

// nearAuthority names the authority of a tier that was probably meant, or all of them.
func nearAuthority(name string, tier model.Tier) string {
	var known []string
	for _, a := range model.Authorities(tier) {
		known = append(known, string(a))
	}
	slices.Sort(known)
	if near := similar.Nearest(name, known); near != "" {
		return " (did you mean " + near + "?)"
	}
	return "; those of its scope are " + strings.Join(known, ", ") + ", and * for all"
}

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

// In returns the roles of a scope, or of both for "", newest first.
func (r *Roles) In(ctx context.Context, by *model.Principal, scope string) (all []*Role, err error) {
	if err := r.MayRead(by); err != nil {
		return nil, err
	}
	if _, err := tierOf(scope); err != nil {
		return nil, err
	}
	var of []store.Filter
	if scope != "" {
		of = append(of, store.Eq("scope", scope))
	}
	err = store.Read(ctx, r.auth.store, func(tx store.Tx) (err error) {
		all, err = r.Table.Select(tx, 0, "created_at DESC, token", of...)
		return err
	})
	return all, err
}

// Authorities returns the sorted vocabulary with the wildcard, of a scope or of both for "".
func (r *Roles) Authorities(by *model.Principal, scope string) ([]string, error) {
	if err := r.MayRead(by); err != nil {
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

// changed demands what a change of a system role gives or takes: no principal enlarges its own set, and only a principal
// that holds the wildcard gives it. Tokens that carry a role's old authorities no longer count once these have changed.
func (r *Roles) changed(c *store.Change, old, role *Role) error {
	if role == nil {
		c.OnCommit(func() { r.auth.dir.removeGrant(old.ID) })
		return nil
	}
	// Old and new: taking away needs the same as giving.
	if err := r.mayGrant(c.By, old, role); err != nil {
		return err
	}
	if old != nil {
		if slices.Equal(old.Authorities, role.Authorities) {
			return nil
		}
		if err := r.mayEnlarge(c, old, role); err != nil {
			return err
		}
		// Tokens carry authorities: those with the old ones end.
		role.NotBefore = r.auth.stamp(0)
		if err := store.SetRoleNotBefore(c, role.ID, role.NotBefore); err != nil {
			return err
		}
	}
	r.publish(c, role)
	return nil
}

// mayGrant refuses a principal that lacks an authority of one of the roles, where these are system roles.
func (r *Roles) mayGrant(by *model.Principal, roles ...*Role) error {
	for _, role := range roles {
		if role == nil || role.Scope != ScopeSystem {
			continue
		}
		if err := entity.Demand(by, role.grant().authorities); err != nil {
			return err
		}
	}
	return nil
}

// mayEnlarge refuses a principal that gives a role of tenants more authorities: one that holds the role itself, and one that makes no
// tenants and so gives nothing in those whose members hold it. A superuser may.
func (r *Roles) mayEnlarge(c *store.Change, old, role *Role) error {
	// Fewer authorities are no danger.
	more := func(a string) bool { return !slices.Contains(old.Authorities, a) }
	if role.Scope != ScopeTenant || unbound(c.By) || !slices.ContainsFunc(role.Authorities, more) {
		return nil
	}
	if !c.By.Has(model.TenantWrite) {
		return model.Forbidden(model.TenantWrite)
	}
	// Does the caller hold this role somewhere?
	p, _, err := loadPerson(c, c.By.Subject)
	if err != nil || p == nil {
		return err
	}
	for _, m := range p.memberships {
		if slices.Contains(m.roles, role.ID) {
			return model.Errorf(model.CodeForbidden, "forbidden: no account enlarges a role that it holds: have another operator do it")
		}
	}
	return nil
}

// publish puts a role into the directory with the commit.
func (r *Roles) publish(c *store.Change, role *Role) {
	g := role.grant()
	c.OnCommit(func() { r.auth.dir.setGrant(g) })
}

// UpdateIn updates a role of a scope, "" for either; another one than the role's is NOT_FOUND.
func (r *Roles) UpdateIn(ctx context.Context, by *model.Principal, scope, token string, p store.Patch) (role *Role, err error) {
	if err := r.MayWrite(by); err != nil {
		return nil, err
	}
	err = r.auth.writer.Mutate(ctx, by, func(c *store.Change) error {
		// A role of another scope is answered like one that does not exist.
		old, err := r.Must(c, 0, token)
		switch {
		case err != nil:
			return err
		case scope != "" && scope != old.Scope:
			return model.NotFound("role", token)
		}
		if role, err = r.Update(c.Context(), by, token, p); err != nil {
			return err
		}
		return r.mayGrant(by, old)
	})
	return role, err
}

// DeleteIn deletes a role of a scope that no identity and no membership holds; false says that there is none.
func (r *Roles) DeleteIn(ctx context.Context, by *model.Principal, scope, token string) (removed bool, err error) {
	if err := r.MayWrite(by); err != nil {
		return false, err
	}
	err = r.auth.writer.Mutate(ctx, by, func(c *store.Change) error {
		role, err := r.Table.Get(c, 0, token)
		switch {
		case err != nil || role == nil || role.Scope != scope:
			return err
		case token == RoleSuperuser: // before its holders are named
			return errSuperuserStays()
		}
		removed, err = r.Remove(c, token)
		return err
	})
	return removed, err
}

// resolve turns tokens into the sorted row ids of roles of a scope; an unknown one refuses all.
func (r *Roles) resolve(tx store.Tx, scope string, tokens []string) ([]int64, error) {
	ids := []int64{}
	for _, token := range tokens {
		var role *Role
		if model.ValidToken(token) {
			var err error
			if role, err = r.Table.Get(tx, 0, token); err != nil {
				return nil, err
			}
		}
		if role == nil || role.Scope != scope {
			return nil, model.Invalid("roleTokens", "%q is no role of scope %s", token, scope)
		}
		ids = append(ids, role.ID)
	}
	slices.Sort(ids)
	// Sorted without doubles: equal sets of roles compare as equal.
	ids = slices.Compact(ids)
	if len(ids) > maxRolesHeld {
		return nil, model.Invalid("roleTokens", "at most %d roles can be held at once", maxRolesHeld)
	}
	return ids, nil
}
