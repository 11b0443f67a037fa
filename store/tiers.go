package store

// LastTierOrder returns the largest display order of a tenant tier, 0 when there is none.
func LastTierOrder(tx Tx) (n int64, err error) {
	err = tx.QueryRow(`SELECT coalesce(max(display_order), 0) FROM tenant_tiers`).Scan(&n)
	return n, err
}
