package auth

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// identityRow is a person's row. Its system roles stand in identity_roles.
type identityRow struct {
	store.Row
	Email        string       `store:"email,unique,max=254" gql:"email"` // lower case
	PasswordHash string       `store:"password_hash,secret"`
	FirstName    *string      `store:"first_name,clear,emptyclears,max=128" gql:"firstName"`
	LastName     *string      `store:"last_name,clear,emptyclears,max=128" gql:"lastName"`
	Enabled      bool         `store:"enabled"`
	NotBefore    model.Micros `store:"not_before"`
}

var identities = store.NewTable[identityRow](store.Desc[identityRow]{
	Kind:     "identity",
	Name:     "identities",
	Instance: true,
	Order:    "created_at DESC, email",
	Label:    func(r *identityRow) string { return r.Email },
})

// Identity is a person as the directory shows it.
type Identity struct {
	ID          int64                `gql:"id"`
	CreatedAt   model.Micros         `gql:"createdAt"`
	UpdatedAt   model.Micros         `gql:"updatedAt"`
	Email       string               `gql:"email"`
	FirstName   *string              `gql:"firstName"`
	LastName    *string              `gql:"lastName"`
	Enabled     bool                 `gql:"enabled"`
	SystemRoles []string             `gql:"systemRoles"`
	Memberships []IdentityMembership `gql:"memberships"`
}

// IdentityMembership is a membership as the directory shows it.
type IdentityMembership struct {
	Tenant  string   `gql:"tenant"`
	Enabled bool     `gql:"enabled"`
	Roles   []string `gql:"roles"`
}

// tenantsOf returns the tokens of the tenants that people are members of, by row id.
func tenantsOf(tx store.Tx, people ...*person) (map[int64]string, error) {
	ids := map[int64]bool{}
	for _, p := range people {
		for tenant := range p.memberships {
			ids[tenant] = true
		}
	}
	return store.Tokens(tx, "tenants", slices.Collect(maps.Keys(ids)))
}

func (r *identityRow) shown(p *person, grants map[int64]grant, tenants map[int64]string) *Identity {
	id := &Identity{
		ID:          r.ID,
		CreatedAt:   r.CreatedAt,
		UpdatedAt:   r.UpdatedAt,
		Email:       r.Email,
		FirstName:   r.FirstName,
		LastName:    r.LastName,
		Enabled:     r.Enabled,
		Memberships: []IdentityMembership{},
	}
	id.SystemRoles, _ = union(grants, p.roles)
	for tenant, m := range p.memberships {
		tokens, _ := union(grants, m.roles)
		id.Memberships = append(id.Memberships, IdentityMembership{tenants[tenant], m.enabled, tokens})
	}
	slices.SortFunc(id.Memberships, func(x, y IdentityMembership) int { return strings.Compare(x.Tenant, y.Tenant) })
	return id
}

// Identities lists all identities, newest first.
func (a *Auth) Identities(ctx context.Context, by *model.Principal) ([]*Identity, error) {
	if err := entity.Demand(by, entity.Needs(model.UserRead)); err != nil {
		return nil, err
	}
	var all []*Identity
	err := store.Read(ctx, a.store, func(tx store.Tx) error {
		// All of it in one snapshot, so that roles and memberships fit.
		rows, err := identities.Select(tx, 0, "created_at DESC, email")
		if err != nil {
			return err
		}
		grants, err := loadGrants(tx)
		if err != nil {
			return err
		}
		persons, err := loadPersons(tx, "")
		if err != nil {
			return err
		}
		tenants, err := tenantsOf(tx, persons...)
		if err != nil {
			return err
		}
		byID := make(map[int64]*person, len(persons))
		for _, p := range persons {
			byID[p.id] = p
		}
		for _, r := range rows {
			all = append(all, r.shown(byID[r.ID], grants, tenants))
		}
		return nil
	})
	return all, err
}

// HasSuperuser reports whether an enabled identity holds the role superuser.
func (a *Auth) HasSuperuser() bool {
	a.dir.mu.RLock()
	defer a.dir.mu.RUnlock()
	for _, p := range a.dir.persons {
		if p.enabled && p.superuser(a.dir.grants) {
			return true
		}
	}
	return false
}

// HasIdentity reports whether an enabled identity exists.
func (a *Auth) HasIdentity() bool {
	a.dir.mu.RLock()
	defer a.dir.mu.RUnlock()
	for _, p := range a.dir.persons {
		if p.enabled {
			return true
		}
	}
	return false
}

// AnySuperuser is HasSuperuser for a store on which no instance runs.
func AnySuperuser(tx store.Tx) (bool, error) {
	return store.OthersHold(tx, ScopeSystem, RoleSuperuser, 0)
}

// NewIdentity is what CreateIdentity makes.
type NewIdentity struct {
	Email       string   `gql:"email"`
	Password    string   `gql:"password"`
	FirstName   *string  `gql:"firstName"`
	LastName    *string  `gql:"lastName"`
	Enabled     bool     `gql:"enabled"`
	SystemRoles []string `gql:"systemRoles"`

	Hashed string // hash of the password where it was prepared, as a part of a change needs it; no request names it
}

// hashed returns the hash of a password that is set: the one that was prepared, or "" and one is made now. That takes longer
// than the one writer may be held, and so no change of others waits for it.
func (a *Auth) hashed(ctx context.Context, password, prepared string) (string, error) {
	if prepared != "" {
		return prepared, nil
	}
	if store.InChange(ctx) {
		return "", errors.New("auth: a password is hashed before the change that it is part of")
	}
	hash, err := a.hasher.Hash(ctx, password)
	if err != nil {
		return "", unavailable(err)
	}
	return hash, nil
}

// CreateIdentity makes a person with a password.
func (a *Auth) CreateIdentity(ctx context.Context, by *model.Principal, n NewIdentity) (*Identity, error) {
	if err := entity.Demand(by, entity.Needs(model.UserWrite)); err != nil {
		return nil, err
	}
	email, err := newEmail("email", n.Email)
	if err != nil {
		return nil, err
	}
	if err := CheckPassword(n.Password); err != nil {
		return nil, err
	}
	// Check everything before the password is hashed, which is what costs.
	row := &identityRow{Email: email, Enabled: n.Enabled}
	if err := row.setNames(store.Patch{"firstName": optional(n.FirstName), "lastName": optional(n.LastName)}); err != nil {
		return nil, err
	}
	if row.PasswordHash, err = a.hashed(ctx, n.Password, n.Hashed); err != nil {
		return nil, err
	}
	var id *Identity
	err = a.writer.Mutate(ctx, by, func(ch *store.Change) error {
		id, err = a.insertIdentity(ch, by, row, n.SystemRoles)
		return err
	})
	return id, err
}

func (a *Auth) insertIdentity(ch *store.Change, by *model.Principal, row *identityRow, systemRoles []string) (*Identity, error) {
	// The roles must exist, and the caller gives no more than it has.
	held, err := a.Roles.resolve(ch, ScopeSystem, systemRoles)
	if err != nil {
		return nil, err
	}
	grants, err := loadGrants(ch)
	if err != nil {
		return nil, err
	}
	if _, as := union(grants, held); by != nil {
		if err := entity.Demand(by, as); err != nil {
			return nil, err
		}
	}
	// Tokens of a former identity with this email do not count.
	row.NotBefore = a.stamp(0)
	if err := identities.Insert(ch, row); err != nil {
		return nil, err
	}
	if err := store.SetIdentityRoles(ch, row.ID, held); err != nil {
		return nil, err
	}
	return a.publishPerson(ch, row)
}

// optional turns a pointer into a patch's value.
func optional(s *string) any {
	if s == nil {
		return nil
	}
	return *s
}

// setNames applies the fields of a patch that people change themselves.
func (r *identityRow) setNames(p store.Patch) error {
	for field, to := range map[string]**string{"firstName": &r.FirstName, "lastName": &r.LastName} {
		v, named := p[field]
		if !named {
			continue
		}
		s, _ := v.(string)
		switch {
		case s == "":
			*to = nil
		case len([]rune(s)) > maxNameRunes:
			return model.Invalid(field, "is longer than %d characters", maxNameRunes)
		default:
			*to = &s
		}
	}
	return nil
}

const maxNameRunes = 128

// namedColumns are the columns of the names that a patch holds.
func namedColumns(p store.Patch) []string {
	var columns []string
	for field, column := range map[string]string{"firstName": "first_name", "lastName": "last_name"} {
		if _, named := p[field]; named {
			columns = append(columns, column)
		}
	}
	return columns
}

// edit is a change of one identity under way.
type edit struct {
	*store.Change
	row    *identityRow
	person *person // as it was
	grants map[int64]grant
}

// editIdentity runs fn on an identity and publishes what became of it.
func (a *Auth) editIdentity(ctx context.Context, by *model.Principal, email string, fn func(*edit) error) (id *Identity, err error) {
	if err := entity.Demand(by, entity.Needs(model.UserWrite)); err != nil {
		return nil, err
	}
	email = strings.ToLower(strings.TrimSpace(email))
	err = a.writer.Mutate(ctx, by, func(ch *store.Change) error {
		// Read the person as it is in this transaction: other changes may have been made meanwhile.
		e := &edit{Change: ch}
		if e.row, err = identities.First(ch, 0, store.Eq("email", email)); err != nil {
			return err
		}
		if e.row == nil {
			return model.NotFound("identity", email)
		}
		if e.person, e.grants, err = loadPerson(ch, email); err != nil {
			return err
		}
		if err := fn(e); err != nil {
			return err
		}
		id, err = a.publishPerson(ch, e.row)
		return err
	})
	return id, err
}

// publishPerson reads what a change made of an identity and puts it into the directory with the commit.
func (a *Auth) publishPerson(ch *store.Change, row *identityRow) (*Identity, error) {
	// Read what the change has made: it is what others see after the commit.
	p, grants, err := loadPerson(ch, row.Email)
	if err != nil || p == nil {
		return nil, err
	}
	tenants, err := tenantsOf(ch, p)
	if err != nil {
		return nil, err
	}
	ch.OnCommit(func() { a.dir.setPerson(p) })
	return row.shown(p, grants, tenants), nil
}

// mayActOn refuses a principal that lacks a system authority of the identity, or one that the identity has in a tenant: whoever sets
// its password could sign in as it.
func (e *edit) mayActOn(by *model.Principal) error {
	if _, as := union(e.grants, e.person.roles); len(as) > 0 {
		if err := entity.Demand(by, as); err != nil {
			return err
		}
	}
	if by != nil && by.Identity == e.row.ID {
		return nil
	}
	// What it has in tenants counts, too.
	for tenant, m := range e.person.memberships {
		if err := e.mayGive(by, tenant, m.roles); err != nil {
			return err
		}
	}
	return nil
}

// keepsSuperuser refuses to take away the last enabled superuser.
func (e *edit) keepsSuperuser() error {
	if !e.person.enabled || !e.person.superuser(e.grants) {
		return nil
	}
	// Asked in the transaction: two changes at once must not remove the last two.
	others, err := store.OthersHold(e, ScopeSystem, RoleSuperuser, e.row.ID)
	if err == nil && !others {
		return model.Invalid("email", "%q is the last enabled superuser", e.row.Email)
	}
	return err
}

// SetPassword gives a person another password, ends all sessions, and ends the wait after wrong passwords. hashed is its hash where it was prepared.
func (a *Auth) SetPassword(ctx context.Context, by *model.Principal, email, password string, hashed ...string) (*Identity, error) {
	if err := entity.Demand(by, entity.Needs(model.UserWrite)); err != nil {
		return nil, err
	}
	if err := CheckPassword(password); err != nil {
		return nil, err
	}
	// Hash before the change, which holds the only writer.
	hash, err := a.hashed(ctx, password, strings.Join(hashed, ""))
	if err != nil {
		return nil, err
	}
	return a.editIdentity(ctx, by, email, func(e *edit) error {
		if err := e.mayActOn(by); err != nil {
			return err
		}
		// Sessions that began with the old password end.
		e.row.PasswordHash = hash
		e.row.NotBefore = a.stamp(0)
		if err := store.EndRefreshSessions(e, e.row.ID, 0); err != nil {
			return err
		}
		e.OnCommit(func() { a.attempts.forget(backoffKeyOf(e.row.Email)) })
		return identities.Save(e.Change, e.row, "password_hash", "not_before")
	})
}

// SetIdentityNames changes firstName and lastName of a person; null and "" both clear.
func (a *Auth) SetIdentityNames(ctx context.Context, by *model.Principal, email string, patch store.Patch) (*Identity, error) {
	return a.editIdentity(ctx, by, email, func(e *edit) error {
		if err := e.mayActOn(by); err != nil {
			return err
		}
		if err := e.row.setNames(patch); err != nil {
			return err
		}
		return identities.Save(e.Change, e.row, namedColumns(patch)...)
	})
}

// PasswordHash returns the PHC string of a person's password, "" for an unknown email: a declared password is compared with
// it. It never leaves the process.
func (a *Auth) PasswordHash(ctx context.Context, by *model.Principal, email string) (hash string, err error) {
	if err := entity.Demand(by, entity.Needs(model.UserWrite)); err != nil {
		return "", err
	}
	err = store.Read(ctx, a.store, func(tx store.Tx) error {
		row, err := identities.First(tx, 0, store.Eq("email", strings.ToLower(strings.TrimSpace(email))))
		if err == nil && row != nil {
			hash = row.PasswordHash
		}
		return err
	})
	return hash, err
}

// SetIdentityEnabled enables or disables a person; the latter ends all sessions.
func (a *Auth) SetIdentityEnabled(ctx context.Context, by *model.Principal, email string, enabled bool) (*Identity, error) {
	return a.editIdentity(ctx, by, email, func(e *edit) error {
		if err := e.mayActOn(by); err != nil || e.row.Enabled == enabled {
			return err
		}
		// A superuser must be left who can enable it again.
		if !enabled {
			if err := e.keepsSuperuser(); err != nil {
				return err
			}
			if err := store.EndRefreshSessions(e, e.row.ID, 0); err != nil {
				return err
			}
		}
		e.row.Enabled = enabled
		e.row.NotBefore = a.stamp(0)
		return identities.Save(e.Change, e.row, "enabled", "not_before")
	})
}

// SetSystemRoles replaces the system roles of a person.
func (a *Auth) SetSystemRoles(ctx context.Context, by *model.Principal, email string, roleTokens []string) (*Identity, error) {
	return a.editIdentity(ctx, by, email, func(e *edit) error {
		held, err := a.Roles.resolve(e, ScopeSystem, roleTokens)
		if err != nil {
			return err
		}
		// Both what is taken and what is given must be held by the caller.
		if err := e.mayActOn(by); err != nil {
			return err
		}
		if _, as := union(e.grants, held); len(as) > 0 {
			if err := entity.Demand(by, as); err != nil {
				return err
			}
		}
		if slices.Equal(held, e.person.roles) {
			return nil
		}
		// Taking the role away is like disabling the last superuser.
		if !(&person{roles: held}).superuser(e.grants) {
			if err := e.keepsSuperuser(); err != nil {
				return err
			}
		}
		if err := store.SetIdentityRoles(e, e.row.ID, held); err != nil {
			return err
		}
		// Tokens carry authorities: those with the old ones end.
		e.row.NotBefore = a.stamp(0)
		return identities.Save(e.Change, e.row, "not_before")
	})
}

// DeleteIdentity removes a person with all memberships; false says that there is none.
func (a *Auth) DeleteIdentity(ctx context.Context, by *model.Principal, email string) (bool, error) {
	_, err := a.editIdentity(ctx, by, email, func(e *edit) error {
		if err := e.mayActOn(by); err != nil {
			return err
		}
		if err := e.keepsSuperuser(); err != nil {
			return err
		}
		if err := e.remove(); err != nil {
			return err
		}
		e.OnCommit(func() { a.dir.removePerson(e.row.Email) })
		return nil
	})
	if model.CodeOf(err) == model.CodeNotFound {
		return false, nil
	}
	return err == nil, err
}

func (e *edit) remove() error {
	if err := store.EndRefreshSessions(e, e.row.ID, 0); err != nil {
		return err
	}
	// Rows that refer to the identity go before its own.
	for tenant := range e.person.memberships {
		if err := e.dropMembership(tenant); err != nil {
			return err
		}
	}
	if err := store.SetIdentityRoles(e, e.row.ID, nil); err != nil {
		return err
	}
	return identities.Remove(e.Change, e.row)
}

// Profile is a person's own record.
type Profile struct {
	Email     string  `gql:"email"`
	FirstName *string `gql:"firstName"`
	LastName  *string `gql:"lastName"`
}

// Me returns the caller's own record. A caller that is not a person has none: UNAUTHENTICATED.
func (a *Auth) Me(ctx context.Context, by *model.Principal) (*Profile, error) {
	var p *Profile
	err := store.Read(ctx, a.store, func(tx store.Tx) error {
		row, err := ownRow(tx, by)
		if err == nil {
			p = row.profile()
		}
		return err
	})
	return p, err
}

// UpdateProfile changes firstName and lastName of the caller; null and "" both clear.
func (a *Auth) UpdateProfile(ctx context.Context, by *model.Principal, patch store.Patch) (*Profile, error) {
	var p *Profile
	err := a.writer.Mutate(ctx, by, func(ch *store.Change) error {
		row, err := ownRow(ch, by)
		if err != nil {
			return err
		}
		if err := row.setNames(patch); err != nil {
			return err
		}
		p = row.profile()
		return identities.Save(ch, row, namedColumns(patch)...)
	})
	return p, err
}

func ownRow(tx store.Tx, by *model.Principal) (*identityRow, error) {
	if by == nil || by.Identity == 0 {
		return nil, model.Unauthenticated("this caller is no person")
	}
	row, err := identities.GetByID(tx, 0, by.Identity)
	if err == nil && row == nil {
		return nil, model.Unauthenticated("the identity does not exist")
	}
	return row, err
}

func (r *identityRow) profile() *Profile {
	return &Profile{Email: r.Email, FirstName: r.FirstName, LastName: r.LastName}
}
