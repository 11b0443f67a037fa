package auth

import (
	"maps"
	"slices"
	"sync"

	"weir/model"
	"weir/store"
)

// The tokens of the roles made at first start.
const (
	RoleSuperuser   = "superuser"
	RoleOperator    = "operator"
	RoleTenantAdmin = "tenant-admin"
)

// Scopes of roles.
const (
	ScopeSystem = "system"
	ScopeTenant = "tenant"
)

// viewerBaseline is what every enabled member holds. It leaves out positions, dashboards and credentials on purpose.
var viewerBaseline = []model.Authority{model.DeviceRead, model.EventRead, model.StateRead, model.CommandRead, model.AlarmRead}

// person, member and grant are what revocation and minting need of an identity, a membership and a role. They are
// never changed once made: a change makes a new one.
type person struct {
	id          int64
	email       string
	enabled     bool
	notBefore   model.Micros
	roles       []int64 // system roles
	memberships map[int64]member
}

type member struct {
	id        int64
	tenant    int64
	enabled   bool
	notBefore model.Micros
	roles     []int64
}

type grant struct {
	id          int64
	token       string
	scope       string
	notBefore   model.Micros // a change of its authorities ends what was issued before
	authorities []model.Authority
}

func (p *person) superuser(grants map[int64]grant) bool {
	return slices.ContainsFunc(p.roles, func(id int64) bool { return grants[id].token == RoleSuperuser })
}

// directory is the index by which a token is judged without reading the store: every identity with its memberships and
// every role, some hundred bytes each. It is loaded at the start and changed as transactions commit, in their order.
type directory struct {
	mu      sync.RWMutex
	persons map[string]*person // by email
	grants  map[int64]grant
}

func (d *directory) identity(email string) (*person, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	p, ok := d.persons[email]
	return p, ok
}

// since is the later of an instant and those of the roles.
func (d *directory) since(t model.Micros, roles []int64) model.Micros {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return sinceOf(t, roles, d.grants)
}

func sinceOf(t model.Micros, roles []int64, grants map[int64]grant) model.Micros {
	for _, id := range roles {
		t = max(t, grants[id].notBefore)
	}
	return t
}

// allGrants returns a copy of the roles.
func (d *directory) allGrants() map[int64]grant {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return maps.Clone(d.grants)
}

func (d *directory) setPerson(p *person) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.persons[p.email] = p
}

func (d *directory) removePerson(email string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.persons, email)
}

func (d *directory) setGrant(g grant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.grants[g.id] = g
}

func (d *directory) removeGrant(id int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.grants, id)
}

// newest is the latest not-before instant: no token is stamped before it, whatever the clock says after a restart.
func (d *directory) newest() model.Micros {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var t model.Micros
	for _, p := range d.persons {
		t = max(t, p.notBefore)
		for _, m := range p.memberships {
			t = max(t, m.notBefore)
		}
	}
	for _, g := range d.grants {
		t = max(t, g.notBefore)
	}
	return t
}

func (d *directory) count() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.persons)
}

// union returns the sorted role tokens and the sorted union of their authorities and those given. A wildcard stands for
// all others of its tier but state:demote, which a role must name.
func union(grants map[int64]grant, roles []int64, more ...model.Authority) (tokens []string, as []model.Authority) {
	tokens = []string{}
	set := map[model.Authority]bool{}
	for _, a := range more {
		set[a] = true
	}
	for _, id := range roles {
		g := grants[id]
		tokens = append(tokens, g.token)
		for _, a := range g.authorities {
			set[a] = true
		}
	}
	slices.Sort(tokens)
	return tokens, sortedAuthorities(set)
}

func sortedAuthorities(set map[model.Authority]bool) []model.Authority {
	as := []model.Authority{}
	for a := range set {
		if !set[model.AllAuthorities] || a == model.AllAuthorities || a == model.StateDemote {
			as = append(as, a)
		}
	}
	slices.Sort(as)
	return as
}

// loadGrants reads every role.
func loadGrants(tx store.Tx) (map[int64]grant, error) {
	rows, err := store.RoleGrants(tx)
	if err != nil {
		return nil, err
	}
	grants := make(map[int64]grant, len(rows))
	for _, r := range rows {
		grants[r.ID] = grant{id: r.ID, token: r.Token, scope: r.Scope, notBefore: r.NotBefore, authorities: r.Authorities}
	}
	return grants, nil
}

// loadPersons reads the identity with that email, or all of them for "", with memberships and roles.
func loadPersons(tx store.Tx, email string) ([]*person, error) {
	// Rows of all people, their memberships and roles together: one query for each person would take long.
	rows, err := store.Persons(tx, email)
	if err != nil {
		return nil, err
	}
	persons := make([]*person, len(rows))
	for i, r := range rows {
		p := &person{
			id:          r.ID,
			email:       r.Email,
			enabled:     r.Enabled,
			notBefore:   r.NotBefore,
			roles:       r.Roles,
			memberships: map[int64]member{},
		}
		for _, m := range r.Memberships {
			p.memberships[m.Tenant] = member{id: m.ID, tenant: m.Tenant, enabled: m.Enabled, notBefore: m.NotBefore, roles: m.Roles}
		}
		persons[i] = p
	}
	return persons, nil
}
