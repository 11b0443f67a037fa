package store

import (
	"database/sql"
	"errors"
	"fmt"
)

// Keys of the meta table that belong to this package. Other packages name theirs in the same form.
const (
	metaPairID          = "pair_id"
	metaRootKeyID       = "root_key_id"
	metaControlSequence = "control_sequence"
	metaControlDurable  = "control_durable"
)

// Meta returns the bytes under key, nil when there are none.
func Meta(tx Tx, key string) ([]byte, error) {
	var value []byte
	err := tx.QueryRow(`SELECT value FROM meta WHERE key = ?`, key).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return value, err
}

// SetMeta stores value under key; nil removes the key.
func SetMeta(tx Tx, key string, value []byte) error {
	if value == nil {
		_, err := tx.Exec(`DELETE FROM meta WHERE key = ?`, key)
		return err
	}
	_, err := tx.Exec(`INSERT INTO meta (key, value) VALUES (?, ?)
		ON CONFLICT (key) DO UPDATE SET value = excluded.value, number = NULL`, key, value)
	return err
}

// MetaInt returns the number under key; ok is false when there is none.
func MetaInt(tx Tx, key string) (n int64, ok bool, err error) {
	var number sql.NullInt64
	err = tx.QueryRow(`SELECT number FROM meta WHERE key = ?`, key).Scan(&number)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return number.Int64, number.Valid, err
}

// SetMetaInt stores n under key.
func SetMetaInt(tx Tx, key string, n int64) error {
	_, err := tx.Exec(`INSERT INTO meta (key, number) VALUES (?, ?)
		ON CONFLICT (key) DO UPDATE SET value = NULL, number = excluded.number`, key, n)
	return err
}

// PairID returns the id that this store shares with its log; ok is false before SetPairID.
func PairID(tx Tx) (id [16]byte, ok bool, err error) {
	value, err := Meta(tx, metaPairID)
	if err != nil || value == nil {
		return id, false, err
	}
	if len(value) != len(id) {
		return id, false, fmt.Errorf("%w: meta %s", ErrDamaged, metaPairID)
	}
	return [16]byte(value), true, nil
}

// SetPairID pairs the store with a log.
func SetPairID(tx Tx, id [16]byte) error { return SetMeta(tx, metaPairID, id[:]) }

// RootKeyID returns the id of the root key that this store's ciphertexts were sealed under, "" while there are none.
func RootKeyID(tx Tx) (string, error) {
	value, err := Meta(tx, metaRootKeyID)
	return string(value), err
}

// SetRootKeyID records under which root key this store seals from now on.
func SetRootKeyID(tx Tx, id string) error { return SetMeta(tx, metaRootKeyID, []byte(id)) }

// ControlSequence returns the sequence of the last change of the registry.
func ControlSequence(tx Tx) (uint64, error) {
	n, _, err := MetaInt(tx, metaControlSequence)
	return uint64(n), err
}

// NoteControlDurable notes that the control rows up to a sequence are about to be appended to the log. In a durable transaction
// it makes durable what committed them.
func NoteControlDurable(tx Tx, sequence uint64) error {
	return SetMetaInt(tx, metaControlDurable, int64(sequence))
}
