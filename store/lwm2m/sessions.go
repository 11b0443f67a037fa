package lwm2m

import (
	"weir/model"
	"weir/store"
)

// Session is the row of a DTLS session of a device.
type Session struct {
	DeviceID     int64
	Device       string // token, which a row is not written with
	TenantID     int64
	CredentialID int64
	Name         string // among the sessions of the device
	Form         int    // of State
	State        []byte // sealed
	Bound        uint64 // no record with this number or a higher one was sent
	Received     uint64 // records of the device below it are not taken any more
	Address      string
	Heard        model.Micros
}

// Sessions calls each for every session whose device exists, in the order of the device ids.
func Sessions(tx store.Tx, each func(Session)) error {
	rows, err := tx.Query(`SELECT s.device_id, d.token, s.tenant_id, s.credential_id, s.name, s.form, s.state, s.bound, s.received, s.address, s.heard_at
		FROM lwm2m_sessions s JOIN devices d ON d.id = s.device_id ORDER BY s.device_id`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var s Session
		var bound, received int64
		if err := rows.Scan(&s.DeviceID, &s.Device, &s.TenantID, &s.CredentialID, &s.Name, &s.Form, &s.State, &bound, &received, &s.Address, &s.Heard); err != nil {
			return err
		}
		s.Bound, s.Received = uint64(bound), uint64(received)
		each(s)
	}
	return rows.Err()
}

// ReserveAll raises the bounds of all sessions.
func ReserveAll(tx store.Tx, by uint64) error {
	_, err := tx.Exec(`UPDATE lwm2m_sessions SET bound = bound + ?`, int64(by))
	return err
}

// RemoveSessions removes all sessions.
func RemoveSessions(tx store.Tx) error {
	_, err := tx.Exec(`DELETE FROM lwm2m_sessions`)
	return err
}

// SaveSession writes the session of a device in the place of the one before, unless the device is gone.
func SaveSession(tx store.Tx, s *Session) error {
	_, err := tx.Exec(`INSERT INTO lwm2m_sessions (device_id, tenant_id, credential_id, name, form, state, bound, received, address, heard_at)
		SELECT id, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM devices WHERE id = ?
		ON CONFLICT (device_id) DO UPDATE SET credential_id = excluded.credential_id, name = excluded.name, form = excluded.form, state = excluded.state,
		bound = excluded.bound, received = excluded.received, address = excluded.address, heard_at = excluded.heard_at`,
		s.TenantID, s.CredentialID, s.Name, s.Form, s.State, int64(s.Bound), int64(s.Received), s.Address, int64(s.Heard), s.DeviceID)
	return err
}

// Reserve raises the bound of a session.
func Reserve(tx store.Tx, device int64, name string, bound uint64) error {
	_, err := tx.Exec(`UPDATE lwm2m_sessions SET bound = ? WHERE device_id = ? AND name = ?`, int64(bound), device, name)
	return err
}

// Progress notes what was received over a session.
func Progress(tx store.Tx, device int64, name string, received uint64, address string, heard model.Micros) error {
	_, err := tx.Exec(`UPDATE lwm2m_sessions SET received = ?, address = ?, heard_at = ? WHERE device_id = ? AND name = ?`, int64(received), address, int64(heard), device, name)
	return err
}

// RemoveSession removes the session of a device.
func RemoveSession(tx store.Tx, device int64) error {
	_, err := tx.Exec(`DELETE FROM lwm2m_sessions WHERE device_id = ?`, device)
	return err
}

// Observation is the row of an observation.
type Observation struct {
	DeviceID int64
	TenantID int64
	Token    []byte
	Paths    string // separated by spaces
	Settings string // JSON
	Session  string // in which the device agreed to it, "" before
	Number   uint32
	Heard    model.Micros
	Value    model.Micros
}

// Observations calls each for every observation of a device that exists.
func Observations(tx store.Tx, each func(Observation)) error {
	rows, err := tx.Query(`SELECT o.device_id, o.tenant_id, o.token, o.paths, o.settings, o.session, o.number, o.heard_at, o.value_at
		FROM lwm2m_observations o JOIN devices d ON d.id = o.device_id ORDER BY o.device_id, o.token`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var o Observation
		if err := rows.Scan(&o.DeviceID, &o.TenantID, &o.Token, &o.Paths, &o.Settings, &o.Session, &o.Number, &o.Heard, &o.Value); err != nil {
			return err
		}
		each(o)
	}
	return rows.Err()
}

// SaveObservation writes an observation, unless its device is gone.
func SaveObservation(tx store.Tx, o *Observation) error {
	_, err := tx.Exec(`INSERT INTO lwm2m_observations (device_id, token, tenant_id, paths, settings, session, number, heard_at, value_at)
		SELECT id, ?, ?, ?, ?, ?, ?, ?, ? FROM devices WHERE id = ?
		ON CONFLICT (device_id, token) DO UPDATE SET paths = excluded.paths, settings = excluded.settings, session = excluded.session, number = excluded.number,
		heard_at = excluded.heard_at, value_at = excluded.value_at`,
		o.Token, o.TenantID, o.Paths, o.Settings, o.Session, o.Number, int64(o.Heard), int64(o.Value), o.DeviceID)
	return err
}

// RemoveObservation removes an observation.
func RemoveObservation(tx store.Tx, device int64, token []byte) error {
	_, err := tx.Exec(`DELETE FROM lwm2m_observations WHERE device_id = ? AND token = ?`, device, token)
	return err
}

// RemoveObservations removes those of a device.
func RemoveObservations(tx store.Tx, device int64) error {
	_, err := tx.Exec(`DELETE FROM lwm2m_observations WHERE device_id = ?`, device)
	return err
}
