package store

// EdgeDevices returns the row ids of the devices of all tenants that are enabled edges.
func EdgeDevices(tx Tx) (map[int64]bool, error) {
	rows, err := tx.Query(`SELECT DISTINCT device_id FROM edges_of_sites WHERE enabled = 1`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[int64]bool{}
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		all[id] = true
	}
	return all, rows.Err()
}
