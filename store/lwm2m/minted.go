package lwm2m

import (
	"weir/model"
	"weir/store"
)

// Minted is a key that bootstrap has made for a device. Its credential still exists.
type Minted struct {
	CredentialID int64
	Token        string // of the credential
	Used         model.Micros
}

// AddMinted notes a key that is made, and forgets those of the device whose credentials are gone.
func AddMinted(tx store.Tx, tenant, device, credential int64, at model.Micros) error {
	if _, err := tx.Exec(`DELETE FROM lwm2m_minted WHERE device_id = ? AND credential_id NOT IN (SELECT id FROM device_credentials WHERE device_id = ?)`, device, device); err != nil {
		return err
	}
	_, err := tx.Exec(`INSERT INTO lwm2m_minted (credential_id, tenant_id, device_id, made_at, used_at) VALUES (?, ?, ?, ?, 0)`, credential, tenant, device, int64(at))
	return err
}

// MintedOf returns the keys that bootstrap has made for a device, the oldest first.
func MintedOf(tx store.Tx, device int64) (found []Minted, err error) {
	rows, err := tx.Query(`SELECT m.credential_id, c.token, m.used_at FROM lwm2m_minted m JOIN device_credentials c ON c.id = m.credential_id WHERE m.device_id = ? ORDER BY m.credential_id`, device)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var m Minted
		if err := rows.Scan(&m.CredentialID, &m.Token, (*int64)(&m.Used)); err != nil {
			return nil, err
		}
		found = append(found, m)
	}
	return found, rows.Err()
}

// Unused reports whether a credential is a key that bootstrap has made and no device has registered with.
func Unused(tx store.Tx, credential int64) (unused bool, err error) {
	err = tx.QueryRow(`SELECT EXISTS (SELECT 1 FROM lwm2m_minted WHERE credential_id = ? AND used_at = 0)`, credential).Scan(&unused)
	return unused, err
}

// UseMinted notes that a device has registered with a key.
func UseMinted(tx store.Tx, credential int64, at model.Micros) error {
	_, err := tx.Exec(`UPDATE lwm2m_minted SET used_at = ? WHERE credential_id = ?`, int64(at), credential)
	return err
}
