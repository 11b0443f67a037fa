package store

import "weir/model"

// CredentialRow holds the fields of a device credential that verification uses.
type CredentialRow struct {
	ID           int64
	DeviceID     int64
	Device       string // token
	Enabled      bool
	ExpiresAt    model.Micros // 0: never
	PasswordHash string       // PHC string, "" for types without a password
}

// FindCredentials returns the device credentials of a tenant with this type and SHA-256 of their id, in hex: none or one.
func FindCredentials(tx Tx, tenantID int64, credentialType, idHash string) ([]CredentialRow, error) {
	rows, err := tx.Query(`SELECT c.id, c.device_id, d.token, c.enabled, coalesce(c.expires_at, 0), coalesce(c.value_hash, '')
		FROM device_credentials c JOIN devices d ON d.id = c.device_id
		WHERE c.tenant_id = ? AND c.credential_type = ? AND c.id_hash = ?`, tenantID, credentialType, idHash)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []CredentialRow
	for rows.Next() {
		var row CredentialRow
		if err := rows.Scan(&row.ID, &row.DeviceID, &row.Device, &row.Enabled, &row.ExpiresAt, &row.PasswordHash); err != nil {
			return nil, err
		}
		found = append(found, row)
	}
	return found, rows.Err()
}

// CountDevices adds to the stored number of a tenant's devices and returns it, so that a limit needs no count of all
// rows.
func CountDevices(tx Tx, tenantID, more int64) (have int64, err error) {
	err = tx.QueryRow(`INSERT INTO device_counts (tenant_id, devices) VALUES (?, ?)
		ON CONFLICT (tenant_id) DO UPDATE SET devices = device_counts.devices + excluded.devices RETURNING devices`,
		tenantID, more).Scan(&have)
	return have, err
}

// AddRows adds to the stored number of rows that a tenant has in a table and returns it, for kinds of which a tenant may have
// many.
func AddRows(tx Tx, tenantID int64, table string, more int64) (have int64, err error) {
	err = tx.QueryRow(`INSERT INTO row_counts (tenant_id, name, rows) VALUES (?, ?, ?)
		ON CONFLICT (tenant_id, name) DO UPDATE SET rows = row_counts.rows + excluded.rows RETURNING rows`,
		tenantID, table, more).Scan(&have)
	return have, err
}
