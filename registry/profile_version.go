package registry

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"weir/model"
	"weir/store"
)

const versionTable = "device_profile_versions"

// ProfileVersion is what is shown of a published version.
type ProfileVersion struct {
	ID          int64
	ProfileID   int64
	Version     int64        `gql:"version"`
	Label       *string      `gql:"label"`
	Description *string      `gql:"description"`
	PublishedAt model.Micros `gql:"publishedAt"`
	PublishedBy *string      `gql:"publishedBy"`
}

// Versions returns the published versions of a profile, newest first. A profile that does not exist has none.
func (r *Registry) Versions(ctx context.Context, by *model.Principal, token string) ([]*ProfileVersion, error) {
	if err := needTenant(by); err != nil {
		return nil, err
	}
	versions := []*ProfileVersion{}
	err := r.parts.Store.Read(ctx, func(tx store.Tx) error {
		rows, err := tx.Query(`SELECT v.id, v.profile_id, v.version, v.label, v.description, v.published_at, v.published_by
			FROM device_profile_versions v JOIN device_profiles p ON p.id = v.profile_id
			WHERE p.tenant_id = ? AND p.token = ? ORDER BY v.version DESC`, by.TenantID, token)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			v := new(ProfileVersion)
			if err := rows.Scan(&v.ID, &v.ProfileID, &v.Version, &v.Label, &v.Description, &v.PublishedAt, &v.PublishedBy); err != nil {
				return err
			}
			versions = append(versions, v)
		}
		return rows.Err()
	})
	return versions, err
}

// insertVersion freezes s as the next version of p. Its number, its instant and who published are set here.
func insertVersion(c *store.Change, p *DeviceProfile, s *Snapshot, label, description *string) (*ProfileVersion, error) {
	body, err := s.encode()
	if err != nil {
		return nil, err
	}
	v := &ProfileVersion{ProfileID: p.ID, Label: label, Description: description, PublishedAt: c.At, PublishedBy: new(c.Actor())}
	if v.Version, err = nextVersion(c, p.ID); err != nil {
		return nil, err
	}
	v.ID, err = c.Insert(`INSERT INTO device_profile_versions
		(tenant_id, profile_id, version, label, description, published_at, published_by, snapshot)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		p.TenantID, p.ID, v.Version, v.Label, v.Description, int64(v.PublishedAt), v.PublishedBy, body)
	if err != nil {
		return nil, err
	}
	return v, auditVersion(c, store.AuditCreate, p, v.ID, v.Version)
}

// nextVersion is the number that the next publish of a profile gets.
func nextVersion(tx store.Tx, profile int64) (n int64, err error) {
	err = tx.QueryRow(`SELECT coalesce(max(version), 0) + 1 FROM device_profile_versions WHERE profile_id = ?`, profile).Scan(&n)
	return n, err
}

func auditVersion(c *store.Change, operation string, p *DeviceProfile, id, version int64) error {
	return c.Audit(store.AuditEvent{TenantID: p.TenantID, Category: store.AuditMutation, Operation: operation,
		Table: versionTable, Key: idKey(id), Label: fmt.Sprintf("%s@%d", p.Token, version), Rows: 1})
}

// snapshotOf reads a version of a profile, nil when there is none.
func snapshotOf(tx store.Tx, profile, version int64) (*Snapshot, error) {
	var body string
	err := tx.QueryRow(`SELECT snapshot FROM device_profile_versions WHERE profile_id = ? AND version = ?`, profile, version).Scan(&body)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, err
	}
	s, err := decodeSnapshot(body)
	if err != nil {
		return nil, fmt.Errorf("%w: %s of profile %d, version %d: %w", store.ErrDamaged, versionTable, profile, version, err)
	}
	return s, nil
}

// activeSnapshots reads the active version of each profile of a tenant, by the profile's row id.
func activeSnapshots(tx store.Tx, tenant int64) (map[int64]*Snapshot, error) {
	rows, err := tx.Query(`SELECT p.id, v.version, v.snapshot FROM device_profiles p
		JOIN device_profile_versions v ON v.profile_id = p.id AND v.version = p.active_version WHERE p.tenant_id = ?`, tenant)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	active := map[int64]*Snapshot{}
	for rows.Next() {
		var profile, version int64
		var body string
		if err := rows.Scan(&profile, &version, &body); err != nil {
			return nil, err
		}
		if active[profile], err = decodeSnapshot(body); err != nil {
			return nil, fmt.Errorf("%w: %s of profile %d, version %d: %w", store.ErrDamaged, versionTable, profile, version, err)
		}
	}
	return active, rows.Err()
}

// removeVersions removes all versions of a profile that goes.
func removeVersions(c *store.Change, p *DeviceProfile) error {
	rows, err := c.Query(`DELETE FROM device_profile_versions WHERE profile_id = ? RETURNING id, version`, p.ID)
	if err != nil {
		return err
	}
	defer rows.Close()
	type gone struct{ id, version int64 }
	var all []gone
	for rows.Next() {
		var g gone
		if err := rows.Scan(&g.id, &g.version); err != nil {
			return err
		}
		all = append(all, g)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, g := range all {
		if err := auditVersion(c, store.AuditDelete, p, g.id, g.version); err != nil {
			return err
		}
	}
	return nil
}
