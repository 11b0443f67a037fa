package store

// CountDevices adds to the stored number of a tenant's devices and returns it, so that a limit needs no count of all
// rows.
func CountDevices(tx Tx, tenantID, more int64) (have int64, err error) {
	err = tx.QueryRow(`INSERT INTO device_counts (tenant_id, devices) VALUES (?, ?)
		ON CONFLICT (tenant_id) DO UPDATE SET devices = device_counts.devices + excluded.devices RETURNING devices`,
		tenantID, more).Scan(&have)
	return have, err
}
