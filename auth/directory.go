package auth

import (
	"encoding/json"
	"fmt"
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
	rows, err := tx.Query(`SELECT id, token, scope, not_before, authorities FROM roles`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	grants := map[int64]grant{}
	for rows.Next() {
		var g grant
		var authorities string
		if err := rows.Scan(&g.id, &g.token, &g.scope, &g.notBefore, &authorities); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(authorities), &g.authorities); err != nil {
			return nil, fmt.Errorf("%w: roles %d: %w", store.ErrDamaged, g.id, err)
		}
		grants[g.id] = g
	}
	return grants, rows.Err()
}

// loadPersons reads the identity with that email, or all of them for "", with memberships and roles.
func loadPersons(tx store.Tx, email string) ([]*person, error) {
	only, args := "", []any(nil)
	if email != "" {
		only, args = ` WHERE i.email = ?`, []any{email}
	}
	byID := map[int64]*person{}
	var persons []*person
	err := each(tx, `SELECT i.id, i.email, i.enabled, i.not_before FROM identities i`+only+` ORDER BY i.id`, args, func(scan scanFunc) error {
		p := &person{memberships: map[int64]member{}}
		if err := scan(&p.id, &p.email, &p.enabled, &p.notBefore); err != nil {
			return err
		}
		byID[p.id] = p
		persons = append(persons, p)
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = each(tx, `SELECT r.identity_id, r.role_id FROM identity_roles r JOIN identities i ON i.id = r.identity_id`+only+
		` ORDER BY r.role_id`, args, func(scan scanFunc) error {
		var identity, role int64
		if err := scan(&identity, &role); err != nil {
			return err
		}
		byID[identity].roles = append(byID[identity].roles, role)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return persons, loadMemberships(tx, only, args, byID)
}

func loadMemberships(tx store.Tx, only string, args []any, byID map[int64]*person) error {
	const from = ` FROM memberships m JOIN identities i ON i.id = m.identity_id`
	roles := map[int64][]int64{}
	err := each(tx, `SELECT r.membership_id, r.role_id`+from+` JOIN membership_roles r ON r.membership_id = m.id`+only+
		` ORDER BY r.role_id`, args, func(scan scanFunc) error {
		var membership, role int64
		if err := scan(&membership, &role); err != nil {
			return err
		}
		roles[membership] = append(roles[membership], role)
		return nil
	})
	if err != nil {
		return err
	}
	return each(tx, `SELECT m.identity_id, m.id, m.tenant_id, m.enabled, m.not_before`+from+only, args, func(scan scanFunc) error {
		var identity int64
		var m member
		if err := scan(&identity, &m.id, &m.tenant, &m.enabled, &m.notBefore); err != nil {
			return err
		}
		m.roles = roles[m.id]
		byID[identity].memberships[m.tenant] = m
		return nil
	})
}

type scanFunc = func(dst ...any) error

// each calls f for every row of a query.
func each(tx store.Tx, query string, args []any, f func(scanFunc) error) error {
	rows, err := tx.Query(query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
