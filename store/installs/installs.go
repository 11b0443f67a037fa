// Package installs is the SQL of what is known of the installations of edges. Package registry has the rules.
package installs

import (
	"weir/model"
	"weir/store"
)

// Install is the row of an installation.
type Install struct {
	DeviceID int64
	TenantID int64
	ID       string
	Machine  string
	Hello    string // JSON
	Gaps     string // JSON
	Carried  string // JSON: ranges of the numbers that were carried by hand, by epoch
	Copied   model.Micros
	Replaced model.Micros
	Gap      model.Micros
	First    model.Micros
	Heard    model.Micros
}

// Of returns the installations of a device, the one that was heard last in front.
func Of(tx store.Tx, device int64) (all []*Install, err error) {
	rows, err := tx.Query(`SELECT device_id, tenant_id, install, machine, hello, gaps, carried, copied_at, replaced_at, gap_at, first_at, heard_at FROM edge_installs
		WHERE device_id = ? ORDER BY heard_at DESC, install`, device)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		i := &Install{}
		if err := rows.Scan(&i.DeviceID, &i.TenantID, &i.ID, &i.Machine, &i.Hello, &i.Gaps, &i.Carried, &i.Copied, &i.Replaced, &i.Gap, &i.First, &i.Heard); err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, rows.Err()
}

// Put writes a row, unless its device is gone.
func Put(tx store.Tx, i *Install) error {
	_, err := tx.Exec(`INSERT INTO edge_installs (device_id, install, tenant_id, machine, hello, gaps, carried, copied_at, replaced_at, gap_at, first_at, heard_at)
		SELECT id, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM devices WHERE id = ?
		ON CONFLICT (device_id, install) DO UPDATE SET machine = excluded.machine, hello = excluded.hello, gaps = excluded.gaps, carried = excluded.carried, copied_at = excluded.copied_at,
		replaced_at = excluded.replaced_at, gap_at = excluded.gap_at, heard_at = excluded.heard_at`,
		i.ID, i.TenantID, i.Machine, i.Hello, i.Gaps, i.Carried, int64(i.Copied), int64(i.Replaced), int64(i.Gap), int64(i.First), int64(i.Heard), i.DeviceID)
	return err
}

// Remove removes the row of an installation.
func Remove(tx store.Tx, device int64, install string) error {
	_, err := tx.Exec(`DELETE FROM edge_installs WHERE device_id = ? AND install = ?`, device, install)
	return err
}

// RemoveDevice removes the rows of a device.
func RemoveDevice(tx store.Tx, _, device int64) error {
	_, err := tx.Exec(`DELETE FROM edge_installs WHERE device_id = ?`, device)
	return err
}

// Named is an installation with the tokens of its tenant and its device.
type Named struct {
	Install
	Tenant string
	Device string
}

// maxNamed bounds what All returns: those that were heard last.
const maxNamed = 10_000

// All returns the installations of all tenants, by tenant, device and when they were heard.
func All(tx store.Tx) (all []*Named, err error) {
	rows, err := tx.Query(`SELECT i.device_id, i.tenant_id, i.install, i.machine, i.hello, i.gaps, i.carried, i.copied_at, i.replaced_at, i.gap_at, i.first_at, i.heard_at, t.token, d.token
		FROM edge_installs i JOIN devices d ON d.id = i.device_id JOIN tenants t ON t.id = i.tenant_id ORDER BY t.token, d.token, i.heard_at DESC, i.install LIMIT ?`, maxNamed)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		i := &Named{}
		if err := rows.Scan(&i.DeviceID, &i.TenantID, &i.ID, &i.Machine, &i.Hello, &i.Gaps, &i.Carried, &i.Copied, &i.Replaced, &i.Gap, &i.First, &i.Heard, &i.Tenant, &i.Device); err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, rows.Err()
}
