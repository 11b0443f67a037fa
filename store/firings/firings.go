// Package firings is the SQL of edges of rules that a site judges for a Weir above: they wait here until that has them.
package firings

import (
	"database/sql"

	"weir/model"
	"weir/store"
)

// Firing is an edge that waits. Number makes it known above: it follows from the record that caused it, so that a replay of the log gives the same one.
type Firing struct {
	Number uint64
	Device string
	model.Firing
}

// perRecord is how many edges of a record have numbers of their own.
const perRecord = 1 << 16

// Add adds the edges of a tenant (token) that a site judges, in their order. What is there stays as it is.
func Add(tx store.Tx, tenant string, edges []model.Edge) error {
	n, before := 0, model.Offset(0)
	for i := range edges {
		e := &edges[i]
		if e.ID.Offset != before {
			n, before = 0, e.ID.Offset
		}
		if !e.AtSite || e.Tenant != tenant {
			continue
		}
		if _, err := tx.Exec(`INSERT INTO site_firings (log_offset, n, tenant_id, device, profile, rule, signal, occurred, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			int64(e.ID.Offset), n, e.TenantID, e.Series, e.Profile, e.Rule, int64(e.Signal), int64(e.Occurred), sql.NullFloat64{Float64: e.Value, Valid: e.HasValue}); err != nil {
			return err
		}
		n++
	}
	return nil
}

// Next returns the oldest edges of a tenant, at most limit.
func Next(tx store.Tx, tenant int64, limit int) (all []Firing, err error) {
	rows, err := tx.Query(`SELECT log_offset, n, device, profile, rule, signal, occurred, value FROM site_firings WHERE tenant_id = ? ORDER BY log_offset, n LIMIT ?`, tenant, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var f Firing
		var offset, n, signal int64
		var value sql.NullFloat64
		if err := rows.Scan(&offset, &n, &f.Device, &f.Profile, &f.Rule, &signal, (*int64)(&f.Occurred), &value); err != nil {
			return nil, err
		}
		f.Number = uint64(offset)*perRecord + uint64(n)
		f.Signal, f.Value, f.HasValue = model.EdgeSignal(signal), value.Float64, value.Valid
		all = append(all, f)
	}
	return all, rows.Err()
}

// Drop removes the edges of a tenant up to a number.
func Drop(tx store.Tx, tenant int64, number uint64) error {
	_, err := tx.Exec(`DELETE FROM site_firings WHERE tenant_id = ? AND (log_offset, n) <= (?, ?)`, tenant, int64(number/perRecord), int64(number%perRecord))
	return err
}

// Trim removes the oldest edges beyond a bound, and returns how many.
func Trim(tx store.Tx, most int) (dropped int64, err error) {
	return tx.Exec(`DELETE FROM site_firings WHERE (log_offset, n) IN (SELECT log_offset, n FROM site_firings ORDER BY log_offset DESC, n DESC LIMIT -1 OFFSET ?)`, most)
}

// Count is how many wait.
func Count(tx store.Tx) (n int64, err error) {
	err = tx.QueryRow(`SELECT count(*) FROM site_firings`).Scan(&n)
	return n, err
}
