package store

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"weir/model"
)

// RoleGrant holds the fields of a role that the directory uses.
type RoleGrant struct {
	ID           int64
	Token, Scope string
	NotBefore    model.Micros
	Authorities  []model.Authority
}

// RoleGrants returns every role.
func RoleGrants(tx Tx) ([]RoleGrant, error) {
	var grants []RoleGrant
	err := each(tx, `SELECT id, token, scope, not_before, authorities FROM roles`, nil, func(scan scanFunc) error {
		var g RoleGrant
		var authorities string
		if err := scan(&g.ID, &g.Token, &g.Scope, &g.NotBefore, &authorities); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(authorities), &g.Authorities); err != nil {
			return fmt.Errorf("%w: roles %d: %w", ErrDamaged, g.ID, err)
		}
		grants = append(grants, g)
		return nil
	})
	return grants, err
}

// SetRoleNotBefore sets the instant before which no issued token carries the role.
func SetRoleNotBefore(tx Tx, role int64, at model.Micros) error {
	_, err := tx.Exec(`UPDATE roles SET not_before = ? WHERE id = ?`, int64(at), role)
	return err
}

// PersonRow is an identity with the row ids of its system roles and its memberships.
type PersonRow struct {
	ID          int64
	Email       string
	Enabled     bool
	NotBefore   model.Micros
	Roles       []int64 // sorted
	Memberships []MembershipRow
}

// MembershipRow is the membership of an identity in a tenant, with the row ids of its roles there.
type MembershipRow struct {
	ID, Tenant int64
	Enabled    bool
	NotBefore  model.Micros
	Roles      []int64 // sorted
}

// Persons returns the identity with that email, or all of them for "", ordered by row id.
func Persons(tx Tx, email string) ([]*PersonRow, error) {
	only, args := "", []any(nil)
	if email != "" {
		only, args = ` WHERE i.email = ?`, []any{email}
	}
	byID := map[int64]*PersonRow{}
	var persons []*PersonRow
	err := each(tx, `SELECT i.id, i.email, i.enabled, i.not_before FROM identities i`+only+` ORDER BY i.id`, args, func(scan scanFunc) error {
		p := &PersonRow{}
		if err := scan(&p.ID, &p.Email, &p.Enabled, &p.NotBefore); err != nil {
			return err
		}
		byID[p.ID] = p
		persons = append(persons, p)
		return nil
	})
	if err != nil {
		return nil, err
	}
	roles, err := holdings(tx, `SELECT r.identity_id, r.role_id FROM identity_roles r JOIN identities i ON i.id = r.identity_id`+only, args)
	if err != nil {
		return nil, err
	}
	for identity, held := range roles {
		byID[identity].Roles = held
	}
	return persons, addMemberships(tx, only, args, byID)
}

func addMemberships(tx Tx, only string, args []any, byID map[int64]*PersonRow) error {
	const from = ` FROM memberships m JOIN identities i ON i.id = m.identity_id`
	roles, err := holdings(tx, `SELECT r.membership_id, r.role_id`+from+` JOIN membership_roles r ON r.membership_id = m.id`+only, args)
	if err != nil {
		return err
	}
	return each(tx, `SELECT m.identity_id, m.id, m.tenant_id, m.enabled, m.not_before`+from+only, args, func(scan scanFunc) error {
		var identity int64
		var m MembershipRow
		if err := scan(&identity, &m.ID, &m.Tenant, &m.Enabled, &m.NotBefore); err != nil {
			return err
		}
		m.Roles = roles[m.ID]
		byID[identity].Memberships = append(byID[identity].Memberships, m)
		return nil
	})
}

// holdings returns the roles of each holder.
func holdings(tx Tx, query string, args []any) (map[int64][]int64, error) {
	roles := map[int64][]int64{}
	err := each(tx, query+` ORDER BY r.role_id`, args, func(scan scanFunc) error {
		var holder, role int64
		if err := scan(&holder, &role); err != nil {
			return err
		}
		roles[holder] = append(roles[holder], role)
		return nil
	})
	return roles, err
}

// SetIdentityRoles replaces the system roles of an identity.
func SetIdentityRoles(tx Tx, identity int64, roles []int64) error {
	return setRoles(tx, "identity_roles", "identity_id", identity, roles)
}

// SetMembershipRoles replaces the tenant roles of a membership.
func SetMembershipRoles(tx Tx, membership int64, roles []int64) error {
	return setRoles(tx, "membership_roles", "membership_id", membership, roles)
}

func setRoles(tx Tx, table, column string, holder int64, roles []int64) error {
	if _, err := tx.Exec(`DELETE FROM `+table+` WHERE `+column+` = ?`, holder); err != nil {
		return err
	}
	for _, role := range roles {
		if _, err := tx.Exec(`INSERT INTO `+table+` (`+column+`, role_id) VALUES (?, ?)`, holder, role); err != nil {
			return err
		}
	}
	return nil
}

// OthersHold reports whether an enabled identity other than except holds the role with that scope and token; except 0
// includes all identities.
func OthersHold(tx Tx, scope, token string, except int64) (found bool, err error) {
	err = tx.QueryRow(`SELECT EXISTS (SELECT 1 FROM identities i JOIN identity_roles h ON h.identity_id = i.id
		JOIN roles r ON r.id = h.role_id WHERE r.scope = ? AND r.token = ? AND i.enabled AND i.id <> ?)`, scope, token, except).Scan(&found)
	return found, err
}

// AnyIdentity reports whether an enabled identity exists.
func AnyIdentity(tx Tx) (found bool, err error) {
	err = tx.QueryRow(`SELECT EXISTS (SELECT 1 FROM identities WHERE enabled)`).Scan(&found)
	return found, err
}

// PasswordOf returns the password hash of the identity with that email and whether it is enabled; "" when there is none.
func PasswordOf(tx Tx, email string) (hash string, enabled bool, err error) {
	err = tx.QueryRow(`SELECT password_hash, enabled FROM identities WHERE email = ?`, email).Scan(&hash, &enabled)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	return hash, enabled, err
}

// RenewPasswordHash replaces the hash of a password that stays the same: no journal row, no new NotBefore.
func RenewPasswordHash(tx Tx, identity int64, hash string) error {
	_, err := tx.Exec(`UPDATE identities SET password_hash = ? WHERE id = ?`, hash, identity)
	return err
}

type scanFunc = func(dst ...any) error

// each calls f for every row of a query. f makes no other query: the rows are still open.
func each(tx Tx, query string, args []any, f func(scanFunc) error) error {
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
