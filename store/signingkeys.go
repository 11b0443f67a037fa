package store

import (
	"database/sql"

	"weir/model"
)

// SigningKey is a key that signs tokens. The private key is sealed.
type SigningKey struct {
	ID      string // RFC 7638 thumbprint
	Sealed  []byte
	Created model.Micros
	Retired model.Micros // 0 while the key signs
}

// SigningKeys returns all keys, oldest first.
func SigningKeys(tx Tx) ([]SigningKey, error) {
	var keys []SigningKey
	err := each(tx, `SELECT kid, private_key, created_at, retired_at FROM signing_keys ORDER BY created_at, id`, nil, func(scan scanFunc) error {
		var k SigningKey
		var retired sql.NullInt64
		if err := scan(&k.ID, &k.Sealed, &k.Created, &retired); err != nil {
			return err
		}
		k.Retired = model.Micros(retired.Int64)
		keys = append(keys, k)
		return nil
	})
	return keys, err
}

// AddSigningKey inserts a key that signs from now on.
func AddSigningKey(tx Tx, k SigningKey) error {
	_, err := tx.Exec(`INSERT INTO signing_keys (kid, private_key, created_at) VALUES (?, ?, ?)`, k.ID, k.Sealed, k.Created)
	return err
}

// RetireSigningKey marks a key as one that verifies only.
func RetireSigningKey(tx Tx, id string, at model.Micros) error {
	_, err := tx.Exec(`UPDATE signing_keys SET retired_at = ? WHERE kid = ?`, at, id)
	return err
}

// RemoveSigningKey removes a key.
func RemoveSigningKey(tx Tx, id string) error {
	_, err := tx.Exec(`DELETE FROM signing_keys WHERE kid = ?`, id)
	return err
}
