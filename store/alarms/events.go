package alarms

import (
	"weir/model"
	"weir/store"
)

// AddEvent stores an event of an alarm.
func AddEvent(tx store.Tx, e *model.AlarmEvent) error {
	_, err := tx.Exec(`INSERT INTO alarm_events (tenant_id, token, number, at, occurred, move, severity, severity_before, state, acknowledged,
		acknowledged_by, last_value, raised_at, device_id, device, alarm_key, metric_key) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		e.TenantID, e.Token, e.Number, int64(e.At), int64(e.Occurred), string(e.Move), e.Severity, e.Before, string(e.State), e.AcknowledgedAt != nil,
		e.AcknowledgedBy, e.LastValue, int64(e.RaisedAt), e.DeviceID, e.Device, e.Key, e.Metric)
	return err
}

// TrimEvents removes the events of an alarm up to a number, and returns how many there were.
func TrimEvents(tx store.Tx, tenant int64, token string, upto int64) (int64, error) {
	return tx.Exec(`DELETE FROM alarm_events WHERE tenant_id = ? AND token = ? AND number <= ?`, tenant, token, upto)
}

// Events returns a page of the events of an alarm, newest first, and the number of all. The alarm itself may be gone.
func Events(tx store.Tx, tenant int64, token string, page store.Page) (found []model.AlarmEvent, total int64, err error) {
	page = page.Norm()
	if err := tx.QueryRow(`SELECT COUNT(*) FROM alarm_events WHERE tenant_id = ? AND token = ?`, tenant, token).Scan(&total); err != nil {
		return nil, 0, err
	}
	rows, err := tx.Query(`SELECT number, at, occurred, move, severity, severity_before, state, acknowledged, acknowledged_by, last_value, raised_at, device_id,
		device, alarm_key, metric_key FROM alarm_events WHERE tenant_id = ? AND token = ? ORDER BY number DESC LIMIT ? OFFSET ?`,
		tenant, token, page.Size, page.Offset())
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		e := model.AlarmEvent{Alarm: model.Alarm{TenantID: tenant, Token: token}}
		var move, state string
		var acknowledged bool
		if err := rows.Scan(&e.Number, (*int64)(&e.At), (*int64)(&e.Occurred), &move, &e.Severity, &e.Before, &state, &acknowledged, &e.AcknowledgedBy,
			&e.LastValue, (*int64)(&e.RaisedAt), &e.DeviceID, &e.Device, &e.Key, &e.Metric); err != nil {
			return nil, 0, err
		}
		e.Move, e.State = model.AlarmMove(move), model.AlarmState(state)
		if acknowledged {
			e.AcknowledgedAt = &e.At
		}
		found = append(found, e)
	}
	return found, total, rows.Err()
}
