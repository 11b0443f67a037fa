// Package artifacts is the SQL of artifacts. Package artifact has the rules.
package artifacts

import (
	"strings"

	"weir/model"
	"weir/store"
)

const columns = `id, tenant_id, created_at, updated_at, token, name, version, sha256, bytes, body`

func read(tx store.Tx, clauses string, args ...any) (found []*model.Artifact, err error) {
	rows, err := tx.Query(`SELECT `+columns+` FROM artifacts`+clauses, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var a model.Artifact
		if err := rows.Scan(&a.ID, &a.TenantID, (*int64)(&a.CreatedAt), (*int64)(&a.UpdatedAt), &a.Token, &a.Name, &a.Version, &a.SHA256, &a.Bytes, &a.Body); err != nil {
			return nil, err
		}
		found = append(found, &a)
	}
	return found, rows.Err()
}

// Get returns the artifact of a tenant with a token, nil when there is none.
func Get(tx store.Tx, tenant int64, token string) (*model.Artifact, error) {
	found, err := read(tx, ` WHERE tenant_id = ? AND token = ?`, tenant, token)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

// List returns the artifacts of a tenant, or with tokens those of them that there are, by token.
func List(tx store.Tx, tenant int64, tokens []string) ([]*model.Artifact, error) {
	where, args := ` WHERE tenant_id = ?`, []any{tenant}
	if tokens != nil {
		where += ` AND token IN (''` + strings.Repeat(", ?", len(tokens)) + `)`
		for _, t := range tokens {
			args = append(args, t)
		}
	}
	return read(tx, where+` ORDER BY token`, args...)
}

// Insert stores a new artifact and sets its row id.
func Insert(tx store.Tx, a *model.Artifact) (err error) {
	a.ID, err = tx.Insert(`INSERT INTO artifacts (tenant_id, created_at, updated_at, token, name, version, sha256, bytes, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		a.TenantID, int64(a.CreatedAt), int64(a.UpdatedAt), a.Token, a.Name, a.Version, a.SHA256, a.Bytes, a.Body)
	return err
}

// Describe stores the name and the version of an artifact.
func Describe(tx store.Tx, a *model.Artifact) error {
	_, err := tx.Exec(`UPDATE artifacts SET updated_at = ?, name = ?, version = ? WHERE id = ?`, int64(a.UpdatedAt), a.Name, a.Version, a.ID)
	return err
}

// Delete removes an artifact. Its parts stay.
func Delete(tx store.Tx, id int64) error {
	_, err := tx.Exec(`DELETE FROM artifacts WHERE id = ?`, id)
	return err
}

// Total returns how many artifacts there are, and how many bytes they have together.
func Total(tx store.Tx) (n, bytes int64, err error) {
	err = tx.QueryRow(`SELECT COUNT(*), coalesce(SUM(bytes), 0) FROM artifacts`).Scan(&n, &bytes)
	return n, bytes, err
}

// Used reports whether a device is being given the body of an artifact.
func Used(tx store.Tx, body int64) (used bool, err error) {
	err = tx.QueryRow(`SELECT EXISTS (SELECT 1 FROM lwm2m_firmware WHERE body = ?)`, body).Scan(&used)
	return used, err
}

// Write stores a part of a body.
func Write(tx store.Tx, tenant, body, n int64, data []byte) error {
	_, err := tx.Exec(`INSERT INTO artifact_parts (body, n, tenant_id, data) VALUES (?, ?, ?, ?)`, body, n, tenant, data)
	return err
}

// Part returns a part of a body, nil when there is none.
func Part(tx store.Tx, body, n int64) (data []byte, err error) {
	rows, err := tx.Query(`SELECT data FROM artifact_parts WHERE body = ? AND n = ?`, body, n)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	if rows.Next() {
		err = rows.Scan(&data)
	}
	if err == nil {
		err = rows.Err()
	}
	return data, err
}

// Drop removes parts of a body, at most limit, and returns how many these were.
func Drop(tx store.Tx, body int64, limit int) (int64, error) {
	return tx.Exec(`DELETE FROM artifact_parts WHERE body = ? AND n IN (SELECT n FROM artifact_parts WHERE body = ? ORDER BY n LIMIT ?)`, body, body, limit)
}

// NextBody returns the least body above after, whether it is that of an artifact, and false when there is none.
func NextBody(tx store.Tx, after int64) (body int64, owned, ok bool, err error) {
	var least *int64
	if err := tx.QueryRow(`SELECT MIN(body) FROM artifact_parts WHERE body > ?`, after).Scan(&least); err != nil || least == nil {
		return 0, false, false, err
	}
	err = tx.QueryRow(`SELECT EXISTS (SELECT 1 FROM artifacts WHERE body = ?)`, *least).Scan(&owned)
	return *least, owned, true, err
}
