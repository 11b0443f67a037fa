package store

import (
	"database/sql"
	"errors"

	"weir/model"
)

// RefreshSession is a chain of refresh tokens: one row per sign-in to a tenant, however often it is refreshed.
type RefreshSession struct {
	ID       int64
	Family   string // names the chain; unique
	Turn     int64  // number of the only refresh token that is valid
	TurnedAt model.Micros
	Expires  model.Micros
	Identity int64
	Tenant   int64
	Pair     []byte // claims of the turn, unsigned
}

// RefreshSessionOf returns the session of a family, nil when there is none.
func RefreshSessionOf(tx Tx, family string) (*RefreshSession, error) {
	s := &RefreshSession{Family: family}
	err := tx.QueryRow(`SELECT id, turn, turned_at, expires_at, identity_id, entered, pair FROM refresh_sessions WHERE family = ?`,
		family).Scan(&s.ID, &s.Turn, &s.TurnedAt, &s.Expires, &s.Identity, &s.Tenant, &s.Pair)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return s, err
}

// SaveRefreshTurn stores turn, times and claims of a session.
func SaveRefreshTurn(tx Tx, s *RefreshSession) error {
	_, err := tx.Exec(`UPDATE refresh_sessions SET turn = ?, turned_at = ?, expires_at = ?, pair = ? WHERE id = ?`,
		s.Turn, int64(s.TurnedAt), int64(s.Expires), s.Pair, s.ID)
	return err
}

// AddRefreshSession inserts a session after removing those of the same identity and tenant that were refreshed longest
// ago, so that at most maximum remain. It returns how many were removed.
func AddRefreshSession(tx Tx, s *RefreshSession, maximum int) (removed int64, err error) {
	removed, err = tx.Exec(`DELETE FROM refresh_sessions WHERE id IN (SELECT id FROM refresh_sessions
		WHERE identity_id = ? AND entered = ? ORDER BY turned_at DESC, id DESC LIMIT 1000 OFFSET ?)`,
		s.Identity, s.Tenant, maximum-1)
	if err != nil {
		return 0, err
	}
	_, err = tx.Exec(`INSERT INTO refresh_sessions (family, turn, turned_at, expires_at, identity_id, entered, pair)
		VALUES (?, ?, ?, ?, ?, ?, ?)`, s.Family, s.Turn, int64(s.TurnedAt), int64(s.Expires), s.Identity, s.Tenant, s.Pair)
	return removed, err
}

// EndRefreshSession removes one session.
func EndRefreshSession(tx Tx, id int64) error {
	_, err := tx.Exec(`DELETE FROM refresh_sessions WHERE id = ?`, id)
	return err
}

// EndRefreshSessions removes the sessions of an identity, in one tenant or, for tenant 0, in all.
func EndRefreshSessions(tx Tx, identity, tenant int64) error {
	query, args := `DELETE FROM refresh_sessions WHERE identity_id = ?`, []any{identity}
	if tenant != 0 {
		query, args = query+` AND entered = ?`, append(args, tenant)
	}
	_, err := tx.Exec(query, args...)
	return err
}

// SweepRefreshSessions removes at most limit sessions that expired by now, and returns how many it removed.
func SweepRefreshSessions(tx Tx, now model.Micros, limit int) (int64, error) {
	return tx.Exec(`DELETE FROM refresh_sessions WHERE id IN
		(SELECT id FROM refresh_sessions WHERE expires_at <= ? LIMIT ?)`, int64(now), limit)
}

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
