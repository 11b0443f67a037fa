package store

import (
	"database/sql"

	"weir/model"
)

// AddEdge stores a detection and counts the fire. It returns false, and changes nothing, for an existing edge, which a
// replay adds again.
func AddEdge(tx Tx, e *model.Edge) (bool, error) {
	n, err := tx.Exec(`INSERT INTO edges (epoch, log_offset, idx, rule, key, n, tenant_id, tenant, profile, version, rule_token, kind,
		signal, series, device_id, occurred, received, severity, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT DO NOTHING`,
		int64(e.ID.Epoch), int64(e.ID.Offset), int64(e.ID.Index), e.ID.Rule, e.ID.Key, int64(e.ID.N), e.TenantID, e.Tenant, e.Profile,
		e.Version, e.Rule, e.Kind, int64(e.Signal), e.Series, e.Device, int64(e.Occurred), int64(e.Received.Micros()), e.Severity,
		sql.NullFloat64{Float64: e.Value, Valid: e.HasValue})
	if err != nil || n == 0 {
		return false, err
	}
	_, err = tx.Exec(`INSERT INTO rule_fires (tenant_id, rule, fires, last_fired, last_signal) VALUES (?, ?, 1, ?, ?)
		ON CONFLICT (tenant_id, rule) DO UPDATE SET fires = rule_fires.fires + 1,
		last_signal = CASE WHEN excluded.last_fired >= rule_fires.last_fired THEN excluded.last_signal ELSE rule_fires.last_signal END,
		last_fired = CASE WHEN excluded.last_fired >= rule_fires.last_fired THEN excluded.last_fired ELSE rule_fires.last_fired END`,
		e.TenantID, e.ID.Rule, int64(e.Occurred), int64(e.Signal))
	return err == nil, err
}

// RuleFires is the number of times that a rule fired.
type RuleFires struct {
	Rule       string // stable id
	Fires      int64
	LastFired  model.Micros
	LastSignal model.EdgeSignal
}

// Fires returns the fire counts of a tenant's rules with a stable id that begins with prefix.
func Fires(tx Tx, tenantID int64, prefix string) (map[string]RuleFires, error) {
	rows, err := tx.Query(`SELECT rule, fires, last_fired, last_signal FROM rule_fires WHERE tenant_id = ? AND rule >= ? AND rule < ?`,
		tenantID, prefix, prefix+"\U0010FFFF")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[string]RuleFires{}
	for rows.Next() {
		var r RuleFires
		var signal int64
		if err := rows.Scan(&r.Rule, &r.Fires, (*int64)(&r.LastFired), &signal); err != nil {
			return nil, err
		}
		r.LastSignal = model.EdgeSignal(signal)
		out[r.Rule] = r
	}
	return out, rows.Err()
}

// Edges calls f for each detection of a tenant, in the order of edge ids.
func Edges(tx Tx, tenantID int64, f func(*model.Edge) error) error {
	rows, err := tx.Query(`SELECT epoch, log_offset, idx, rule, key, n, tenant_id, tenant, profile, version, rule_token, kind, signal, series,
		device_id, occurred, received, severity, value FROM edges WHERE tenant_id = ? ORDER BY epoch, log_offset, idx, rule, key, n`, tenantID)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var e model.Edge
		var epoch, offset, idx, n, signal, received int64
		var value sql.NullFloat64
		if err := rows.Scan(&epoch, &offset, &idx, &e.ID.Rule, &e.ID.Key, &n, &e.TenantID, &e.Tenant, &e.Profile, &e.Version, &e.Rule,
			&e.Kind, &signal, &e.Series, &e.Device, (*int64)(&e.Occurred), &received, &e.Severity, &value); err != nil {
			return err
		}
		e.ID.Epoch, e.ID.Offset, e.ID.Index, e.ID.N = uint32(epoch), model.Offset(offset), uint32(idx), uint16(n)
		e.Signal, e.Received = model.EdgeSignal(signal), model.Micros(received).Nanos()
		e.Value, e.HasValue = value.Float64, value.Valid
		if err := f(&e); err != nil {
			return err
		}
	}
	return rows.Err()
}
