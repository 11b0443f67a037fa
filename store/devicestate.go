package store

import (
	"database/sql"
	"slices"
	"strconv"
	"strings"

	"weir/model"
)

// DeviceState is the presence and the last activity of a device.
type DeviceState struct {
	TenantID       int64
	DeviceID       int64
	CreatedAt      model.Micros
	UpdatedAt      model.Micros
	Source         string // event source that last moved the presence
	ActivitySource string // event source of the last activity
	LastActivity   model.Micros
	HasActivity    bool
	ActivityListen int64 // listening time at the last activity, in nanoseconds
	Asserted       bool  // presence comes from connects and disconnects, not from activity
	State          model.PresenceState
	Session        uint64
	PresenceTime   model.Micros
	HasPresence    bool
	LastConnect    model.Micros // 0: never
	LastDisconnect model.Micros // 0: never
}

const deviceStateColumns = `tenant_id, device_id, created_at, updated_at, source, activity_source, last_activity, activity_listen,
	presence_source, presence_state, session, presence_time, last_connect, last_disconnect`

// MovedBy is the event source that last moved the state: that of the presence where it is asserted, else that of the
// last event.
func (d *DeviceState) MovedBy() string {
	if d.Asserted || d.ActivitySource == "" {
		return d.Source
	}
	return d.ActivitySource
}

// Values of the column presence_source, as the API shows them.
const (
	PresenceInferred = "INFERRED"
	PresenceAsserted = "ASSERTED"
)

func presenceSource(asserted bool) string {
	if asserted {
		return PresenceAsserted
	}
	return PresenceInferred
}

type scanner interface{ Scan(...any) error }

func scanDeviceState(s scanner) (*DeviceState, error) {
	var d DeviceState
	var activity, presence, connect, disconnect sql.NullInt64
	var source, session string
	var state int64
	if err := s.Scan(&d.TenantID, &d.DeviceID, (*int64)(&d.CreatedAt), (*int64)(&d.UpdatedAt), &d.Source, &d.ActivitySource, &activity, &d.ActivityListen,
		&source, &state, &session, &presence, &connect, &disconnect); err != nil {
		return nil, err
	}
	d.LastActivity, d.HasActivity = model.Micros(activity.Int64), activity.Valid
	d.PresenceTime, d.HasPresence = model.Micros(presence.Int64), presence.Valid
	d.LastConnect, d.LastDisconnect = model.Micros(connect.Int64), model.Micros(disconnect.Int64)
	d.Asserted, d.State = source == PresenceAsserted, model.PresenceState(state)
	var err error
	if d.Session, err = strconv.ParseUint(session, 10, 64); err != nil {
		return nil, err
	}
	return &d, nil
}

func deviceStates(tx Tx, where string, args ...any) ([]*DeviceState, error) {
	rows, err := tx.Query(`SELECT `+deviceStateColumns+` FROM device_states WHERE `+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []*DeviceState
	for rows.Next() {
		d, err := scanDeviceState(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, rows.Err()
}

// GetDeviceState returns the state of a device, nil when there is none.
func GetDeviceState(tx Tx, deviceID int64) (*DeviceState, error) {
	ds, err := deviceStates(tx, `device_id = ?`, deviceID)
	if err != nil || len(ds) == 0 {
		return nil, err
	}
	return ds[0], nil
}

// DeviceStatesOf returns the states of some devices by their row ids; devices without one are left out.
func DeviceStatesOf(tx Tx, devices []int64) (map[int64]*DeviceState, error) {
	found := make(map[int64]*DeviceState, len(devices))
	for part := range slices.Chunk(devices, maxIn) {
		args := Padded(len(part), func(i int) any { return part[i] })
		ds, err := deviceStates(tx, `device_id IN (?`+strings.Repeat(", ?", len(args)-1)+`)`, args...)
		if err != nil {
			return nil, err
		}
		for _, d := range ds {
			found[d.DeviceID] = d
		}
	}
	return found, nil
}

// DeviceStates returns the states of a tenant, in order of device row ids.
func DeviceStates(tx Tx, tenantID int64) ([]*DeviceState, error) {
	return deviceStates(tx, `tenant_id = ? ORDER BY device_id`, tenantID)
}

// AssertedState is a presence that a source asserts, with the device's token.
type AssertedState struct {
	TenantID int64
	DeviceID int64
	Token    string
	State    model.PresenceState
	Session  uint64
	At       model.Micros // of the last transition
}

// PresenceSources returns the event sources that moved the presence of a device last, sorted. It reads as many rows as there are sources.
func PresenceSources(tx Tx) (all []string, err error) {
	for last := ""; ; {
		var next *string
		if err := tx.QueryRow(`SELECT min(source) FROM device_states WHERE source > ?`, last).Scan(&next); err != nil || next == nil {
			return all, err
		}
		all, last = append(all, *next), *next
	}
}

// AssertedStates returns the presences that a source asserts of devices above a device row id, in order of device row
// ids.
func AssertedStates(tx Tx, source string, after int64, limit int) ([]AssertedState, error) {
	rows, err := tx.Query(`SELECT s.tenant_id, s.device_id, d.token, s.presence_state, s.session, coalesce(s.presence_time, 0) FROM device_states AS s
		JOIN devices AS d ON d.id = s.device_id WHERE s.source = ? AND s.presence_source = ? AND s.device_id > ?
		ORDER BY s.device_id LIMIT ?`, source, PresenceAsserted, after, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []AssertedState
	for rows.Next() {
		var a AssertedState
		var state int64
		var session string
		if err := rows.Scan(&a.TenantID, &a.DeviceID, &a.Token, &state, &session, &a.At); err != nil {
			return nil, err
		}
		a.State = model.PresenceState(state)
		if a.Session, err = strconv.ParseUint(session, 10, 64); err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, rows.Err()
}

// mergeTimes keeps the earliest creation and the newest update, whichever half of the row is written first.
const mergeTimes = `created_at = CASE WHEN device_states.created_at < excluded.created_at THEN device_states.created_at ELSE excluded.created_at END,
		updated_at = CASE WHEN device_states.updated_at > excluded.updated_at THEN device_states.updated_at ELSE excluded.updated_at END`

// PutPresence writes the columns of a transition; it inserts the row when there is none.
func PutPresence(tx Tx, d *DeviceState) error {
	_, err := tx.Exec(`INSERT INTO device_states (tenant_id, device_id, created_at, updated_at, source, presence_source, presence_state, session,
		presence_time, last_connect, last_disconnect) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (device_id) DO UPDATE SET `+mergeTimes+`, source = excluded.source, presence_source = excluded.presence_source,
		presence_state = excluded.presence_state, session = excluded.session, presence_time = excluded.presence_time,
		last_connect = excluded.last_connect, last_disconnect = excluded.last_disconnect`,
		d.TenantID, d.DeviceID, int64(d.CreatedAt), int64(d.UpdatedAt), d.Source, presenceSource(d.Asserted), int64(d.State),
		strconv.FormatUint(d.Session, 10), sql.NullInt64{Int64: int64(d.PresenceTime), Valid: d.HasPresence},
		nullMicros(d.LastConnect), nullMicros(d.LastDisconnect))
	return err
}

// PutActivity writes the columns of an activity; it inserts the row when there is none.
func PutActivity(tx Tx, d *DeviceState) error {
	_, err := tx.Exec(`INSERT INTO device_states (tenant_id, device_id, created_at, updated_at, activity_source, last_activity, activity_listen)
		VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (device_id) DO UPDATE SET `+mergeTimes+`, activity_source = excluded.activity_source,
		last_activity = excluded.last_activity, activity_listen = excluded.activity_listen`,
		d.TenantID, d.DeviceID, int64(d.CreatedAt), int64(d.UpdatedAt), d.ActivitySource, int64(d.LastActivity), d.ActivityListen)
	return err
}

// DeleteDeviceState removes the state of a device.
func DeleteDeviceState(tx Tx, deviceID int64) error {
	_, err := tx.Exec(`DELETE FROM device_states WHERE device_id = ?`, deviceID)
	return err
}

func nullMicros(m model.Micros) sql.NullInt64 { return sql.NullInt64{Int64: int64(m), Valid: m != 0} }
