// Package notices is the SQL of what was notified of alarms: one state for each alarm. Package notify has the rules.
package notices

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"weir/model"
	"weir/store"
)

// State is what was notified of an alarm.
type State struct {
	ID              int64
	TenantID        int64
	AlarmToken      string
	AlarmKey        string
	DeviceID        int64
	Severity        string
	FirstNotifiedAt *model.Micros
	LastNotifiedAt  *model.Micros
	// Notified is LastNotifiedAt in the time of package notify, which no step of the clock changes. nil: nothing was notified.
	Notified        *int64
	NotifyCount     int64
	AcknowledgedAt  *model.Micros
	ClearedAt       *model.Micros
	Level           int64 // of escalation
	LastEscalatedAt *model.Micros
	Alarm           []byte // JSON: as the newest move left it
	HeldBy          int64  // row id of the mute that holds back what is to be notified, 0 for none
}

const columns = `id, tenant_id, alarm_token, alarm_key, device_id, severity, first_notified_at, last_notified_at, notified, notify_count, acknowledged_at, cleared_at,
	level, last_escalated_at, alarm, coalesce(held_by, 0)`

func (s *State) fields() []any {
	return []any{&s.ID, &s.TenantID, &s.AlarmToken, &s.AlarmKey, &s.DeviceID, &s.Severity, &s.FirstNotifiedAt, &s.LastNotifiedAt, &s.Notified, &s.NotifyCount, &s.AcknowledgedAt,
		&s.ClearedAt, &s.Level, &s.LastEscalatedAt, &s.Alarm, &s.HeldBy}
}

func read(tx store.Tx, clauses string, args ...any) (found []*State, err error) {
	rows, err := tx.Query(`SELECT `+columns+` FROM notification_states `+clauses, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		s := new(State)
		if err := rows.Scan(s.fields()...); err != nil {
			return nil, err
		}
		found = append(found, s)
	}
	return found, rows.Err()
}

// Get returns the state of an alarm, nil when there is none.
func Get(tx store.Tx, tenant int64, alarm string) (*State, error) {
	s := new(State)
	err := tx.QueryRow(`SELECT `+columns+` FROM notification_states WHERE tenant_id = ? AND alarm_token = ?`, tenant, alarm).Scan(s.fields()...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return s, err
}

// Put stores a state; one without ID is new and gets it.
func Put(tx store.Tx, s *State) (err error) {
	var held any
	if s.HeldBy != 0 {
		held = s.HeldBy
	}
	values := []any{s.Severity, s.FirstNotifiedAt, s.LastNotifiedAt, s.Notified, s.NotifyCount, s.AcknowledgedAt, s.ClearedAt, s.Level, s.LastEscalatedAt, string(s.Alarm), held}
	if s.ID != 0 {
		_, err = tx.Exec(`UPDATE notification_states SET severity = ?, first_notified_at = ?, last_notified_at = ?, notified = ?, notify_count = ?, acknowledged_at = ?, cleared_at = ?,
			level = ?, last_escalated_at = ?, alarm = ?, held_by = ? WHERE id = ?`, append(values, s.ID)...)
		return err
	}
	s.ID, err = tx.Insert(`INSERT INTO notification_states (severity, first_notified_at, last_notified_at, notified, notify_count, acknowledged_at, cleared_at,
		level, last_escalated_at, alarm, held_by, tenant_id, alarm_token, alarm_key, device_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		append(values, s.TenantID, s.AlarmToken, s.AlarmKey, s.DeviceID)...)
	return err
}

// Any reports whether a tenant has states.
func Any(tx store.Tx, tenant int64) (there bool, err error) {
	err = tx.QueryRow(`SELECT EXISTS (SELECT 1 FROM notification_states WHERE tenant_id = ?)`, tenant).Scan(&there)
	return there, err
}

// Due returns states of a tenant that are neither acknowledged nor cleared and of which was notified last at a time or before, behind a row id, at most
// limit of them, in the order of row ids.
func Due(tx store.Tx, tenant, notified, after int64, limit int) ([]*State, error) {
	return read(tx, `WHERE tenant_id = ? AND cleared_at IS NULL AND acknowledged_at IS NULL AND notified IS NOT NULL AND notified <= ? AND id > ? ORDER BY id LIMIT ?`,
		tenant, notified, after, limit)
}

// Held returns states whose messages a mute holds back, behind a row id, at most limit of them, in the order of row ids.
func Held(tx store.Tx, mute, after int64, limit int) ([]*State, error) {
	return read(tx, `WHERE held_by = ? AND id > ? ORDER BY id LIMIT ?`, mute, after, limit)
}

// Sweep removes states whose alarm was cleared before a time, at most limit of them, and returns how many.
func Sweep(tx store.Tx, before model.Micros, limit int) (int64, error) {
	return tx.Exec(`DELETE FROM notification_states WHERE id IN (SELECT id FROM notification_states WHERE cleared_at IS NOT NULL AND cleared_at < ? LIMIT ?)`, int64(before), limit)
}

// Filter restricts what is listed. Zero fields restrict nothing.
type Filter struct {
	AlarmTokens   []string // nil: any
	Key, Severity string
}

func (f *Filter) where(tenant int64) (text string, args []any) {
	text, args = `WHERE tenant_id = ?`, []any{tenant}
	if f.Key != "" {
		text, args = text+` AND alarm_key = ?`, append(args, f.Key)
	}
	if f.Severity != "" {
		text, args = text+` AND severity = ?`, append(args, f.Severity)
	}
	if f.AlarmTokens != nil {
		text += ` AND alarm_token IN (''` + strings.Repeat(", ?", len(f.AlarmTokens)) + `)`
		for _, t := range f.AlarmTokens {
			args = append(args, t)
		}
	}
	return text, args
}

// Find returns the states that a filter selects, in the order of row ids.
func Find(tx store.Tx, tenant int64, f *Filter) ([]*State, error) {
	where, args := f.where(tenant)
	return read(tx, where+` ORDER BY id`, args...)
}

// List returns a page of the states that a filter selects, newest first, and the number of all.
func List(tx store.Tx, tenant int64, f *Filter, page store.Page) (found []*State, total int64, err error) {
	where, args := f.where(tenant)
	if err := tx.QueryRow(`SELECT count(*) FROM notification_states `+where, args...).Scan(&total); err != nil {
		return nil, 0, err
	}
	found, err = read(tx, where+` ORDER BY id DESC LIMIT ? OFFSET ?`, append(args, page.Size, page.Offset())...)
	return found, total, err
}

// Escalating returns the tenants with an enabled policy that escalates.
func Escalating(tx store.Tx) (tenants []int64, err error) {
	rows, err := tx.Query(`SELECT DISTINCT tenant_id FROM notification_policies WHERE enabled AND escalate_after_seconds > 0 ORDER BY tenant_id`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		tenants = append(tenants, id)
	}
	return tenants, rows.Err()
}

// Names are what people call what an alarm is about; "" for what has no name.
type Names struct{ Device, Rule, Description string }

// NamesOf returns the names of a device and of a rule that contributes to an alarm of it: name, or else token. A device that is gone has none.
func NamesOf(tx store.Tx, tenant, device int64, alarm string) (n Names, err error) {
	err = tx.QueryRow(`SELECT coalesce(nullif(name, ''), token) FROM devices WHERE tenant_id = ? AND id = ?`, tenant, device).Scan(&n.Device)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return n, err
	}
	var stable string
	err = tx.QueryRow(`SELECT c.rule FROM alarms AS a, alarm_contributors AS c WHERE a.tenant_id = ? AND a.token = ? AND c.alarm_id = a.id ORDER BY c.rule LIMIT 1`, tenant, alarm).Scan(&stable)
	if err == nil {
		_, token, _ := strings.Cut(stable, "/")
		err = tx.QueryRow(`SELECT coalesce(nullif(name, ''), token), coalesce(description, '') FROM detection_rules WHERE tenant_id = ? AND token = ?`, tenant, token).Scan(&n.Rule, &n.Description)
	}
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return n, err
}

// IsGroup reports whether a tenant has a static group of devices.
func IsGroup(tx store.Tx, tenant int64, token string) (there bool, err error) {
	err = tx.QueryRow(`SELECT EXISTS (SELECT 1 FROM entity_groups WHERE tenant_id = ? AND token = ? AND member_type = 'device' AND membership_mode = 'static')`, tenant, token).Scan(&there)
	return there, err
}

// CountHeld counts a message that a mute has held back.
func CountHeld(tx store.Tx, mute int64) error {
	_, err := tx.Exec(`UPDATE notification_mutes SET held_back = held_back + 1 WHERE id = ?`, mute)
	return err
}

// Over are mutes of any tenant whose time is over and whose end was not notified, by tenant and row id.
func Over(tx store.Tx, now model.Micros, limit int) (found [][2]int64, err error) {
	rows, err := tx.Query(`SELECT tenant_id, id FROM notification_mutes WHERE ended_at IS NULL AND until <= ? LIMIT ?`, int64(now), limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var m [2]int64
		if err := rows.Scan(&m[0], &m[1]); err != nil {
			return nil, err
		}
		found = append(found, m)
	}
	return found, rows.Err()
}

// SetEnded notes that the end of a mute was notified.
func SetEnded(tx store.Tx, mute int64, at model.Micros) error {
	_, err := tx.Exec(`UPDATE notification_mutes SET ended_at = ? WHERE id = ?`, int64(at), mute)
	return err
}

// clockKey is the key of the time of package notify.
const clockKey = "notify_clock"

// Clock is the time of package notify as it was stored: how much of it had passed at a time of the wall clock.
type Clock struct {
	Passed int64        `json:"passed"` // microseconds
	Wall   model.Micros `json:"wall"`
}

// ReadClock returns the time as it was stored last; the zero Clock when it never was.
func ReadClock(tx store.Tx) (c Clock, err error) {
	text, err := store.Meta(tx, clockKey)
	if err == nil && len(text) > 0 {
		if err = json.Unmarshal(text, &c); err != nil {
			err = fmt.Errorf("%w: %s: %w", store.ErrDamaged, clockKey, err)
		}
	}
	return c, err
}

// SetClock stores the time.
func SetClock(tx store.Tx, c Clock) error {
	text, err := json.Marshal(c)
	return cmp.Or(err, store.SetMeta(tx, clockKey, text))
}
