package installs

import "weir/store"

// Device is a device that an edge may be told of.
type Device struct {
	ID    int64
	Token string
}

// Devices returns the devices of a tenant behind a token, in the order of their tokens, at most limit.
func Devices(tx store.Tx, tenant int64, after string, limit int) (all []Device, err error) {
	rows, err := tx.Query(`SELECT id, token FROM devices WHERE tenant_id = ? AND token > ? ORDER BY token LIMIT ?`, tenant, after, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var d Device
		if err := rows.Scan(&d.ID, &d.Token); err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, rows.Err()
}

// Credential is an enabled credential of a device, as it is stored.
type Credential struct {
	ID       int64
	Type     string
	IDHash   string // hexadecimal
	Password string // PHC string, "" for types without a password
	Expires  int64  // microseconds; 0: never
}

// Credentials returns the enabled credentials of a device with which it signs in over MQTT or HTTP, at most limit.
func Credentials(tx store.Tx, device int64, limit int) (all []Credential, err error) {
	rows, err := tx.Query(`SELECT id, credential_type, id_hash, coalesce(value_hash, ''), coalesce(expires_at, 0) FROM device_credentials
		WHERE device_id = ? AND enabled = 1 AND credential_type IN ('ACCESS_TOKEN', 'MQTT_BASIC', 'X509_CERTIFICATE') ORDER BY id LIMIT ?`, device, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var c Credential
		if err := rows.Scan(&c.ID, &c.Type, &c.IDHash, &c.Password, &c.Expires); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, rows.Err()
}
