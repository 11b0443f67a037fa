package store

import (
	"database/sql"
	"errors"
	"slices"
	"strings"

	"weir/model"
)

// CredentialRow holds the fields of a device credential that verification uses.
type CredentialRow struct {
	ID           int64
	DeviceID     int64
	Device       string // token
	Enabled      bool
	ExpiresAt    model.Micros // 0: never
	PasswordHash string       // PHC string, "" for types without a password
	Unused       bool         // provisioning has minted it, and it was not used yet
}

// FindCredentials returns the device credentials of a tenant with this type and SHA-256 of their id, in hex: none or one.
func FindCredentials(tx Tx, tenantID int64, credentialType, idHash string) ([]CredentialRow, error) {
	rows, err := tx.Query(`SELECT c.id, c.device_id, d.token, c.enabled, coalesce(c.expires_at, 0), coalesce(c.value_hash, ''), c.unused
		FROM device_credentials c JOIN devices d ON d.id = c.device_id
		WHERE c.tenant_id = ? AND c.credential_type = ? AND c.id_hash = ?`, tenantID, credentialType, idHash)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []CredentialRow
	for rows.Next() {
		var row CredentialRow
		if err := rows.Scan(&row.ID, &row.DeviceID, &row.Device, &row.Enabled, &row.ExpiresAt, &row.PasswordHash, &row.Unused); err != nil {
			return nil, err
		}
		found = append(found, row)
	}
	return found, rows.Err()
}

// KeyRow is a credential of type PSK, which no tenant is named for.
type KeyRow struct {
	CredentialRow
	TenantID int64
	Token    string // of the credential
}

// FindKey returns the pre-shared key with this SHA-256 of its identity, in hex; nil for none.
func FindKey(tx Tx, idHash, credentialType string) (*KeyRow, error) {
	var k KeyRow
	err := tx.QueryRow(`SELECT c.id, c.device_id, d.token, c.enabled, coalesce(c.expires_at, 0), coalesce(c.value_hash, ''), c.unused, c.tenant_id, c.token
		FROM device_credentials c JOIN devices d ON d.id = c.device_id
		WHERE c.id_hash = ? AND c.credential_type = ? AND c.credential_type IN ('PSK', 'BOOTSTRAP_PSK')`, idHash, credentialType).
		Scan(&k.ID, &k.DeviceID, &k.Device, &k.Enabled, &k.ExpiresAt, &k.PasswordHash, &k.Unused, &k.TenantID, &k.Token)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return &k, err
}

// FindCertificate returns the credential of type X509_CERTIFICATE with this SHA-256 of its id, in hex; nil for none. Of those of several tenants
// the oldest counts.
func FindCertificate(tx Tx, idHash string) (*KeyRow, error) {
	var k KeyRow
	err := tx.QueryRow(`SELECT c.id, c.device_id, d.token, c.enabled, coalesce(c.expires_at, 0), c.unused, c.tenant_id, c.token
		FROM device_credentials c JOIN devices d ON d.id = c.device_id
		WHERE c.id_hash = ? AND c.credential_type = 'X509_CERTIFICATE' ORDER BY c.id LIMIT 1`, idHash).
		Scan(&k.ID, &k.DeviceID, &k.Device, &k.Enabled, &k.ExpiresAt, &k.Unused, &k.TenantID, &k.Token)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return &k, err
}

// SharedCertificates counts the certificates that are credentials in several tenants.
func SharedCertificates(tx Tx) (n int64, err error) {
	err = tx.QueryRow(`SELECT count(*) FROM (SELECT 1 FROM device_credentials WHERE credential_type = 'X509_CERTIFICATE' GROUP BY id_hash HAVING count(*) > 1)`).Scan(&n)
	return n, err
}

// HasKeys reports whether there is a pre-shared key.
func HasKeys(tx Tx) (has bool, err error) {
	err = tx.QueryRow(`SELECT EXISTS (SELECT 1 FROM device_credentials WHERE credential_type IN ('PSK', 'BOOTSTRAP_PSK'))`).Scan(&has)
	return has, err
}

// DeviceNamed returns the row id of the device with a token, 0 when the tenant has none.
func DeviceNamed(tx Tx, tenantID int64, token string) (id int64, err error) {
	err = tx.QueryRow(`SELECT coalesce(max(id), 0) FROM devices WHERE tenant_id = ? AND token = ?`, tenantID, token).Scan(&id)
	return id, err
}

// JudgedDevice is a device with the version of the profile that judges it.
type JudgedDevice struct {
	Token   string
	ID      int64
	TypeID  int64
	Profile int64  // row id, 0 for none
	Version *int64 // that is active, nil for none
}

// JudgedDevices returns the devices of a tenant that have one of some tokens, in no order.
func JudgedDevices(tx Tx, tenantID int64, tokens []string) (found []JudgedDevice, err error) {
	for some := range slices.Chunk(tokens, maxIn) {
		args := append([]any{tenantID}, Padded(len(some), func(i int) any { return some[i] })...)
		if found, err = judgedDevices(tx, found, args); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func judgedDevices(tx Tx, found []JudgedDevice, args []any) ([]JudgedDevice, error) {
	rows, err := tx.Query(`SELECT d.token, d.id, d.type_id, coalesce(p.id, 0), p.active_version FROM devices AS d LEFT JOIN device_types AS t ON t.id = d.type_id
		LEFT JOIN device_profiles AS p ON p.id = t.profile_id WHERE d.tenant_id = ? AND d.token IN (?`+strings.Repeat(", ?", len(args)-2)+`)`, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var d JudgedDevice
		if err := rows.Scan(&d.Token, &d.ID, &d.TypeID, &d.Profile, &d.Version); err != nil {
			return nil, err
		}
		found = append(found, d)
	}
	return found, rows.Err()
}

// UseCredential notes that a credential was used: provisioning does not return it again.
func UseCredential(tx Tx, id int64) error {
	_, err := tx.Exec(`UPDATE device_credentials SET unused = 0 WHERE id = ?`, id)
	return err
}

// ProvisioningProfile returns the tenant and the row id of the provisioning profile with a key, 0 for none. A key is unique in the
// instance.
func ProvisioningProfile(tx Tx, key string) (tenantID, id int64, err error) {
	err = tx.QueryRow(`SELECT tenant_id, id FROM provisioning_profiles WHERE provision_key = ?`, key).Scan(&tenantID, &id)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return tenantID, id, err
}

// RemoveClaim removes the claim of a device that is removed.
func RemoveClaim(tx Tx, tenantID, deviceID int64) error {
	_, err := tx.Exec(`DELETE FROM device_claims WHERE tenant_id = ? AND device_id = ?`, tenantID, deviceID)
	return err
}

// CountDevices adds to the stored number of a tenant's devices and returns it, so that a limit needs no count of all
// rows.
func CountDevices(tx Tx, tenantID, more int64) (have int64, err error) {
	err = tx.QueryRow(`INSERT INTO device_counts (tenant_id, devices) VALUES (?, ?)
		ON CONFLICT (tenant_id) DO UPDATE SET devices = device_counts.devices + excluded.devices RETURNING devices`,
		tenantID, more).Scan(&have)
	return have, err
}

// StoredDevices returns the stored number of a tenant's devices.
func StoredDevices(tx Tx, tenantID int64) (n int64, err error) {
	return storedRows(tx, `SELECT devices FROM device_counts WHERE tenant_id = ?`, tenantID)
}

// AddRows adds to the stored number of rows that a tenant has in a table and returns it, for kinds of which a tenant may have
// many.
func AddRows(tx Tx, tenantID int64, table string, more int64) (have int64, err error) {
	err = tx.QueryRow(`INSERT INTO row_counts (tenant_id, name, rows) VALUES (?, ?, ?)
		ON CONFLICT (tenant_id, name) DO UPDATE SET rows = row_counts.rows + excluded.rows RETURNING rows`,
		tenantID, table, more).Scan(&have)
	return have, err
}

// StoredRows returns a function for the stored number of rows that a tenant has in a table, see AddRows.
func StoredRows(table string) func(tx Tx, tenantID int64) (int64, error) {
	return func(tx Tx, tenantID int64) (int64, error) {
		return storedRows(tx, `SELECT rows FROM row_counts WHERE tenant_id = ? AND name = ?`, tenantID, table)
	}
}

func storedRows(tx Tx, query string, args ...any) (n int64, err error) {
	err = tx.QueryRow(query, args...).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) { // it never had one
		err = nil
	}
	return n, err
}
