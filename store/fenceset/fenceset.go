// Package fenceset keeps the versions of the set of geofences of a tenant. Each change of a geometry makes the next
// version, without a copy of the others: a row says from which version on a geometry is in the set, and from which on it is
// not. Rows that only removed versions need are deleted, so that a set that changes for years stays bounded.
package fenceset

import (
	"cmp"
	"database/sql"
	"errors"

	"weir/store"
)

// Fence is the geometry of a fence in a set.
type Fence struct {
	Token    string `gql:"token"`
	Geometry string `gql:"geometry"`
}

// Current returns the newest version of a tenant's set, 0 when it never had a fence. The newest change always has its row.
func Current(tx store.Tx, tenant int64) (version int64, err error) {
	err = tx.QueryRow(`SELECT coalesce(max(version), 0) FROM (SELECT max(from_version) AS version FROM geofence_sets WHERE tenant_id = ?
		UNION ALL SELECT max(to_version) FROM geofence_sets WHERE tenant_id = ?) AS newest`, tenant, tenant).Scan(&version)
	return version, err
}

// Size is how many fences and positions the newest set has.
type Size struct{ Fences, Positions int64 }

// SizeOf returns the size of the newest set.
func SizeOf(tx store.Tx, tenant int64) (s Size, err error) {
	err = tx.QueryRow(`SELECT count(*), coalesce(sum(positions), 0) FROM geofence_sets WHERE tenant_id = ? AND to_version IS NULL`,
		tenant).Scan(&s.Fences, &s.Positions)
	return s, err
}

// Page returns a page of a version's fences, in the order of tokens, and the number of all of them.
func Page(tx store.Tx, tenant, version int64, page store.Page) (fences []Fence, total int64, err error) {
	const within = ` FROM geofence_sets WHERE tenant_id = ? AND from_version <= ? AND (to_version IS NULL OR to_version > ?)`
	if err := tx.QueryRow(`SELECT count(*)`+within, tenant, version, version).Scan(&total); err != nil {
		return nil, 0, err
	}
	page = page.Norm()
	rows, err := tx.Query(`SELECT token, geometry`+within+` ORDER BY token LIMIT ? OFFSET ?`,
		tenant, version, version, page.Size, page.Offset())
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var f Fence
		if err := rows.Scan(&f.Token, &f.Geometry); err != nil {
			return nil, 0, err
		}
		fences = append(fences, f)
	}
	return fences, total, rows.Err()
}

// Tokens returns those of the fences of the newest set, sorted.
func Tokens(tx store.Tx, tenant int64) (tokens []string, err error) {
	return store.Column[string](tx, `SELECT token FROM geofence_sets WHERE tenant_id = ? AND to_version IS NULL ORDER BY token`, tenant)
}

// Step is a change of a set: a fence gets a geometry, or with "" leaves.
type Step struct {
	Fence
	Positions int64
}

// Next makes the next version of a tenant's set, and removes those older than the newest kept ones. It returns the version,
// how many positions the fence had before, and how many rows were removed. kept is at least 2.
func Next(c *store.Change, tenant int64, s Step, kept int64) (version, before, removed int64, err error) {
	if version, err = Current(c, tenant); err != nil {
		return 0, 0, 0, err
	}
	version++
	err = c.QueryRow(`UPDATE geofence_sets SET to_version = ? WHERE tenant_id = ? AND token = ? AND to_version IS NULL RETURNING positions`,
		version, tenant, s.Token).Scan(&before)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, 0, 0, err
	}
	if s.Geometry != "" {
		if err := insert(c, tenant, version, s); err != nil {
			return 0, 0, 0, err
		}
	}
	removed, err = prune(c, tenant, version-kept+1)
	return version, before, removed, err
}

func insert(c *store.Change, tenant, version int64, s Step) error {
	size := store.SizeOf(s.Token, s.Geometry)
	if err := cmp.Or(c.Admit(tenant, size), c.Wrote(size)); err != nil {
		return err
	}
	if _, err := c.Exec(`INSERT INTO geofence_sets (tenant_id, from_version, token, positions, geometry) VALUES (?, ?, ?, ?, ?)`,
		tenant, version, s.Token, s.Positions, s.Geometry); err != nil {
		return err
	}
	return c.Grown(tenant, size)
}

// prune deletes the rows that are in no version from oldest on.
func prune(c *store.Change, tenant, oldest int64) (removed int64, err error) {
	var bytes int64
	const old = ` FROM geofence_sets WHERE tenant_id = ? AND to_version <= ?`
	if err := c.QueryRow(`SELECT coalesce(sum(`+store.RowSize("token", "geometry")+`), 0)`+old, tenant, oldest).Scan(&bytes); err != nil || bytes == 0 {
		return 0, err
	}
	if removed, err = c.Exec(`DELETE`+old, tenant, oldest); err != nil {
		return 0, err
	}
	return removed, c.Grown(tenant, -bytes)
}

// CountBytes adds what the rows take to the sum of each tenant, see store.Counter.
func CountBytes(tx store.Tx, sums map[int64]int64) error {
	return store.CountRows(tx, sums, "geofence_sets", "token", "geometry")
}
