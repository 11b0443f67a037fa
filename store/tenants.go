package store

// TenantID returns the row id of a tenant, 0 when there is none. One that is deleted is none.
func TenantID(tx Tx, token string) (id int64, err error) {
	err = tx.QueryRow(`SELECT coalesce(max(id), 0) FROM tenants WHERE token = ? AND purge_epoch = 0`, token).Scan(&id)
	return id, err
}

// MembershipsIn counts the memberships in a tenant, disabled ones included.
func MembershipsIn(tx Tx, tenant int64) (n int64, err error) {
	err = tx.QueryRow(`SELECT count(*) FROM memberships WHERE tenant_id = ?`, tenant).Scan(&n)
	return n, err
}

// TenantTokens returns the tokens of all tenants by row id.
func TenantTokens(tx Tx) (map[int64]string, error) {
	rows, err := tx.Query(`SELECT id, token FROM tenants`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[int64]string{}
	for rows.Next() {
		var id int64
		var token string
		if err := rows.Scan(&id, &token); err != nil {
			return nil, err
		}
		out[id] = token
	}
	return out, rows.Err()
}

// TenantsByTier counts the tenants of each tier by its row id.
func TenantsByTier(tx Tx) (map[int64]int64, error) {
	counts := map[int64]int64{}
	return counts, scanPairs(tx, counts, `SELECT tier_id, count(*) FROM tenants GROUP BY tier_id`)
}

// LastTierOrder returns the largest display order of a tenant tier, 0 when there is none.
func LastTierOrder(tx Tx) (n int64, err error) {
	err = tx.QueryRow(`SELECT coalesce(max(display_order), 0) FROM tenant_tiers`).Scan(&n)
	return n, err
}
