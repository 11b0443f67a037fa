package store

import (
	"database/sql"
	"errors"

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

// Detection is a stored edge with its row id, which a replay does not change.
type Detection struct {
	Row int64
	model.Edge
}

// DetectionFilter selects detections; a zero field restricts nothing.
type DetectionFilter struct {
	TenantID int64
	Device   int64  // row id
	Series   string // token of the device or anchor
	Profile  string // token
	Rule     string // token
	Severity string
	Signal   model.EdgeSignal
	From, To model.Micros // event time, inclusive; To 0: no bound
	// Before is a position in the list: only what comes after it, which is strictly older.
	Before *DetectionPosition
}

// DetectionPosition is a position in the list of detections: newest event time first, then newest row.
type DetectionPosition struct {
	Occurred model.Micros
	Row      int64
}

func (f *DetectionFilter) where() (w where) {
	equal := func(column string, v any, given bool) {
		if given {
			w.add(column+" = ?", v)
		}
	}
	equal("tenant_id", f.TenantID, f.TenantID != 0)
	equal("device_id", f.Device, f.Device != 0)
	equal("series", f.Series, f.Series != "")
	equal("profile", f.Profile, f.Profile != "")
	equal("rule_token", f.Rule, f.Rule != "")
	equal("severity", f.Severity, f.Severity != "")
	equal("signal", int64(f.Signal), f.Signal != 0)
	if f.From != 0 {
		w.add("occurred >= ?", int64(f.From))
	}
	if f.To != 0 {
		w.add("occurred <= ?", int64(f.To))
	}
	if b := f.Before; b != nil {
		w.add("occurred <= ? AND (occurred < ? OR id < ?)", int64(b.Occurred), int64(b.Occurred), b.Row)
	}
	return w
}

// Detections returns a page of detections, newest first.
func Detections(tx Tx, f DetectionFilter, page Page) ([]Detection, error) {
	w := f.where()
	limit, offset := page.bounds()
	var out []Detection
	err := edges(tx, w.text()+" ORDER BY occurred DESC, id DESC LIMIT ? OFFSET ?", append(w.args, limit, offset), func(d *Detection) error {
		out = append(out, *d)
		return nil
	})
	return out, err
}

// CountDetections returns how many detections there are.
func CountDetections(tx Tx, f DetectionFilter) (n int64, err error) {
	w := f.where()
	err = tx.QueryRow(`SELECT COUNT(*) FROM edges`+w.text(), w.args...).Scan(&n)
	return n, err
}

// DetectionAt returns the position in the list of a tenant's detection, nil when it has none in this row.
func DetectionAt(tx Tx, tenantID, row int64) (*DetectionPosition, error) {
	at := &DetectionPosition{Row: row}
	err := tx.QueryRow(`SELECT occurred FROM edges WHERE id = ? AND tenant_id = ?`, row, tenantID).Scan((*int64)(&at.Occurred))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return at, err
}

// Edges calls f for each detection of a tenant, in the order of edge ids.
func Edges(tx Tx, tenantID int64, f func(*model.Edge) error) error {
	return edges(tx, " WHERE tenant_id = ? ORDER BY epoch, log_offset, idx, rule, key, n", []any{tenantID},
		func(d *Detection) error { return f(&d.Edge) })
}

func edges(tx Tx, clauses string, args []any, f func(*Detection) error) error {
	rows, err := tx.Query(`SELECT id, epoch, log_offset, idx, rule, key, n, tenant_id, tenant, profile, version, rule_token, kind, signal, series,
		device_id, occurred, received, severity, value FROM edges`+clauses, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var d Detection
		var epoch, offset, idx, n, signal, received int64
		var value sql.NullFloat64
		if err := rows.Scan(&d.Row, &epoch, &offset, &idx, &d.ID.Rule, &d.ID.Key, &n, &d.TenantID, &d.Tenant, &d.Profile, &d.Version, &d.Rule,
			&d.Kind, &signal, &d.Series, &d.Device, (*int64)(&d.Occurred), &received, &d.Severity, &value); err != nil {
			return err
		}
		d.ID.Epoch, d.ID.Offset, d.ID.Index, d.ID.N = uint32(epoch), model.Offset(offset), uint32(idx), uint16(n)
		d.Signal, d.Received = model.EdgeSignal(signal), model.Micros(received).Nanos()
		d.Value, d.HasValue = value.Float64, value.Valid
		if err := f(&d); err != nil {
			return err
		}
	}
	return rows.Err()
}
