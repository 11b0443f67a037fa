package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"weir/model"
	"weir/store"
)

// CredentialRow is a stored credential as its verifier needs it.
type CredentialRow struct {
	ID           int64
	DeviceID     int64
	Device       string // token
	Enabled      bool
	ExpiresAt    model.Micros // 0: never
	PasswordHash string       // PHC string, "" for types without a password
}

// FindCredentials returns the credentials of a tenant with this type and SHA-256 of their id: none or one.
func (r *Registry) FindCredentials(ctx context.Context, tenantID int64, credentialType string, idHash [sha256.Size]byte) ([]CredentialRow, error) {
	var found []CredentialRow
	err := r.parts.Store.Read(ctx, func(tx store.Tx) error {
		rows, err := tx.Query(`SELECT c.id, c.device_id, d.token, c.enabled, coalesce(c.expires_at, 0), coalesce(c.value_hash, '')
			FROM device_credentials c JOIN devices d ON d.id = c.device_id
			WHERE c.tenant_id = ? AND c.credential_type = ? AND c.id_hash = ?`,
			tenantID, credentialType, hex.EncodeToString(idHash[:]))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var row CredentialRow
			if err := rows.Scan(&row.ID, &row.DeviceID, &row.Device, &row.Enabled, &row.ExpiresAt, &row.PasswordHash); err != nil {
				return err
			}
			found = append(found, row)
		}
		return rows.Err()
	})
	result := "found"
	switch {
	case err != nil:
		result = "failed"
	case len(found) == 0:
		result = "none"
	}
	r.m.lookups.WithLabelValues(result).Inc()
	return found, err
}
