// Package alarms is the SQL of alarms: their rows, what contributes to them, and their history. Package alarm has the rules.
package alarms

import (
	"database/sql"
	"strings"

	"weir/model"
	"weir/store"
)

// Contributor is a rule that is raised and contributes to an alarm.
type Contributor struct {
	Rule     string // stable id
	Severity string
	Edge     model.EdgeID // epoch, offset and index of the edge
}

const columns = `id, tenant_id, created_at, updated_at, token, device_id, device, alarm_key, metric_key, state, severity, raised_at, cleared_at,
	acknowledged_at, acknowledged_by, last_value, moves, log_offset`

func scan(rows *sql.Rows) (*model.Alarm, error) {
	var a model.Alarm
	var state string
	var offset int64
	if err := rows.Scan(&a.ID, &a.TenantID, (*int64)(&a.CreatedAt), (*int64)(&a.UpdatedAt), &a.Token, &a.DeviceID, &a.Device, &a.Key, &a.Metric,
		&state, &a.Severity, (*int64)(&a.RaisedAt), &a.ClearedAt, &a.AcknowledgedAt, &a.AcknowledgedBy, &a.LastValue, &a.Moves, &offset); err != nil {
		return nil, err
	}
	a.State, a.Offset = model.AlarmState(state), model.Offset(offset)
	return &a, nil
}

func read(tx store.Tx, clauses string, args ...any) (found []*model.Alarm, err error) {
	rows, err := tx.Query(`SELECT `+columns+` FROM alarms`+clauses, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		a, err := scan(rows)
		if err != nil {
			return nil, err
		}
		found = append(found, a)
	}
	return found, rows.Err()
}

// OfDevice returns the alarms of a device, oldest first.
func OfDevice(tx store.Tx, device int64) ([]*model.Alarm, error) {
	return read(tx, ` WHERE device_id = ? ORDER BY id`, device)
}

// Contributors returns what contributes to the alarms of a device, by row id of the alarm.
func Contributors(tx store.Tx, device int64) (map[int64][]Contributor, error) {
	rows, err := tx.Query(`SELECT c.alarm_id, c.rule, c.severity, c.epoch, c.log_offset, c.idx FROM alarms AS a, alarm_contributors AS c
		WHERE a.device_id = ? AND c.alarm_id = a.id ORDER BY c.alarm_id, c.rule`, device)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := map[int64][]Contributor{}
	for rows.Next() {
		var alarm, epoch, offset, idx int64
		var c Contributor
		if err := rows.Scan(&alarm, &c.Rule, &c.Severity, &epoch, &offset, &idx); err != nil {
			return nil, err
		}
		c.Edge = model.EdgeID{Epoch: uint32(epoch), Offset: model.Offset(offset), Index: uint32(idx)}
		found[alarm] = append(found[alarm], c)
	}
	return found, rows.Err()
}

// Insert stores a new alarm and sets its row id.
func Insert(tx store.Tx, a *model.Alarm) (err error) {
	a.ID, err = tx.Insert(`INSERT INTO alarms (tenant_id, created_at, updated_at, token, device_id, device, alarm_key, metric_key, state, severity,
		raised_at, cleared_at, acknowledged_at, acknowledged_by, last_value, moves, log_offset) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		a.TenantID, int64(a.CreatedAt), int64(a.UpdatedAt), a.Token, a.DeviceID, a.Device, a.Key, a.Metric, string(a.State), a.Severity,
		int64(a.RaisedAt), a.ClearedAt, a.AcknowledgedAt, a.AcknowledgedBy, a.LastValue, a.Moves, int64(a.Offset))
	return err
}

// Save stores what an alarm has become.
func Save(tx store.Tx, a *model.Alarm) error {
	_, err := tx.Exec(`UPDATE alarms SET updated_at = ?, device = ?, metric_key = ?, state = ?, severity = ?, raised_at = ?, cleared_at = ?, acknowledged_at = ?,
		acknowledged_by = ?, last_value = ?, moves = ?, log_offset = ? WHERE id = ?`,
		int64(a.UpdatedAt), a.Device, a.Metric, string(a.State), a.Severity, int64(a.RaisedAt), a.ClearedAt, a.AcknowledgedAt, a.AcknowledgedBy, a.LastValue,
		a.Moves, int64(a.Offset), a.ID)
	return err
}

// Remove removes an alarm and what contributes to it. Its history stays.
func Remove(tx store.Tx, id int64) error {
	if _, err := tx.Exec(`DELETE FROM alarm_contributors WHERE alarm_id = ?`, id); err != nil {
		return err
	}
	_, err := tx.Exec(`DELETE FROM alarms WHERE id = ?`, id)
	return err
}

// PutContributor stores a contributor of an alarm.
func PutContributor(tx store.Tx, tenant, alarm int64, c *Contributor) error {
	_, err := tx.Exec(`INSERT INTO alarm_contributors (alarm_id, rule, tenant_id, severity, epoch, log_offset, idx) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (alarm_id, rule) DO UPDATE SET severity = excluded.severity, epoch = excluded.epoch, log_offset = excluded.log_offset, idx = excluded.idx`,
		alarm, c.Rule, tenant, c.Severity, int64(c.Edge.Epoch), int64(c.Edge.Offset), int64(c.Edge.Index))
	return err
}

// RemoveContributor removes a contributor of an alarm.
func RemoveContributor(tx store.Tx, alarm int64, rule string) error {
	_, err := tx.Exec(`DELETE FROM alarm_contributors WHERE alarm_id = ? AND rule = ?`, alarm, rule)
	return err
}

// OldestCleared returns the row id and the device of the alarm of a tenant that has been cleared for the longest time, 0 for none.
func OldestCleared(tx store.Tx, tenant int64) (id, device int64, err error) {
	found, err := read(tx, ` WHERE tenant_id = ? AND state = ? ORDER BY log_offset, id LIMIT 1`, tenant, string(model.AlarmCleared))
	if err != nil || len(found) == 0 {
		return 0, 0, err
	}
	return found[0].ID, found[0].DeviceID, nil
}

// Filter selects alarms of a tenant; a zero field restricts nothing.
type Filter struct {
	IDs          []int64
	Tokens       []string
	Device       string // token
	State        string
	Severity     string
	Acknowledged *bool
	Key          string
}

// where is the condition of a tenant's alarms. A column with a plus is not looked up: the alarms are found by device or id, which are
// few.
func (f *Filter) where(tenant int64) (text string, args []any) {
	plus := ""
	if f.Device != "" || f.IDs != nil {
		plus = "+"
	}
	conditions, args := []string{plus + "tenant_id = ?"}, []any{tenant}
	add := func(condition string, given bool, vs ...any) {
		if given {
			conditions, args = append(conditions, condition), append(args, vs...)
		}
	}
	if f.IDs != nil {
		add("id IN (0"+strings.Repeat(", ?", len(f.IDs))+")", true, anys(f.IDs)...)
	}
	if f.Tokens != nil {
		add("token IN (''"+strings.Repeat(", ?", len(f.Tokens))+")", true, anys(f.Tokens)...)
	}
	add("device_id IN (SELECT id FROM devices WHERE tenant_id = ? AND token = ?)", f.Device != "", tenant, f.Device)
	add(plus+"state = ?", f.State != "", f.State)
	add("severity = ?", f.Severity != "", f.Severity)
	add("alarm_key = ?", f.Key != "", f.Key)
	if f.Acknowledged != nil && *f.Acknowledged {
		add("acknowledged_at IS NOT NULL", true)
	} else {
		add("acknowledged_at IS NULL", f.Acknowledged != nil)
	}
	return " WHERE " + strings.Join(conditions, " AND "), args
}

func anys[T any](vs []T) []any {
	out := make([]any, len(vs))
	for i, v := range vs {
		out[i] = v
	}
	return out
}

// order is that of the list: newest first, then by token. What is found by a device, an id or a token is few rows, which are
// sorted then: the database, which knows nothing of the values, would walk all alarms of the tenant in the order of the list.
func (f *Filter) order() string {
	if f.Device != "" || f.IDs != nil || f.Tokens != nil {
		return ` ORDER BY +created_at DESC, token`
	}
	return ` ORDER BY created_at DESC, token`
}

// Find returns the alarms of a tenant that a filter selects, in the order of the list.
func Find(tx store.Tx, tenant int64, f *Filter) ([]*model.Alarm, error) {
	where, args := f.where(tenant)
	return read(tx, where+f.order(), args...)
}

// List returns a page of the alarms of a tenant, newest first, then by token, and the number of all that the filter selects.
func List(tx store.Tx, tenant int64, f *Filter, page store.Page) (found []*model.Alarm, total int64, err error) {
	page = page.Norm()
	where, args := f.where(tenant)
	if err := tx.QueryRow(`SELECT COUNT(*) FROM alarms`+where, args...).Scan(&total); err != nil {
		return nil, 0, err
	}
	found, err = read(tx, where+f.order()+` LIMIT ? OFFSET ?`, append(args, page.Size, page.Offset())...)
	return found, total, err
}
