// Package lwm2m keeps the registrations of LwM2M devices, their DTLS sessions and observations.
package lwm2m

import (
	"weir/model"
	"weir/store"
)

// Registration is a row. Device is the token of the device, which a row is not written with.
type Registration struct {
	DeviceID     int64
	Device       string
	TenantID     int64
	CredentialID int64
	Location     string // "" after the end of the registration
	Endpoint     string
	Version      string
	Binding      string
	Queue        bool
	Lifetime     int64 // seconds
	Links        string
	Session      uint64
	Registered   model.Micros
	Heard        model.Micros
	Harvested    model.Micros // 0: never
}

// All calls each for every row whose device exists, in the order of their device ids.
func All(tx store.Tx, each func(Registration)) error {
	rows, err := tx.Query(`SELECT r.device_id, d.token, r.tenant_id, r.credential_id, r.location, r.endpoint, r.version, r.binding, r.queue, r.lifetime, r.links, r.session,
		r.registered_at, r.heard_at, r.harvested_at FROM lwm2m_registrations r JOIN devices d ON d.id = r.device_id ORDER BY r.device_id`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var r Registration
		var session int64
		if err := rows.Scan(&r.DeviceID, &r.Device, &r.TenantID, &r.CredentialID, &r.Location, &r.Endpoint, &r.Version, &r.Binding, &r.Queue, &r.Lifetime, &r.Links, &session,
			&r.Registered, &r.Heard, &r.Harvested); err != nil {
			return err
		}
		r.Session = uint64(session)
		each(r)
	}
	return rows.Err()
}

// Save writes a row, unless its device is gone.
func Save(tx store.Tx, r *Registration) error {
	_, err := tx.Exec(`INSERT INTO lwm2m_registrations (device_id, tenant_id, credential_id, location, endpoint, version, binding, queue, lifetime, links, session,
		registered_at, heard_at, harvested_at) SELECT id, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM devices WHERE id = ?
		ON CONFLICT (device_id) DO UPDATE SET credential_id = excluded.credential_id, location = excluded.location, endpoint = excluded.endpoint, version = excluded.version,
		binding = excluded.binding, queue = excluded.queue, lifetime = excluded.lifetime, links = excluded.links, session = excluded.session,
		registered_at = excluded.registered_at, heard_at = excluded.heard_at, harvested_at = excluded.harvested_at`,
		r.TenantID, r.CredentialID, r.Location, r.Endpoint, r.Version, r.Binding, r.Queue, r.Lifetime, r.Links, int64(r.Session), int64(r.Registered), int64(r.Heard), int64(r.Harvested), r.DeviceID)
	return err
}

// Remove removes the rows of a device that is deleted.
func Remove(tx store.Tx, _, deviceID int64) error {
	for _, remove := range []func(store.Tx, int64) error{RemoveSession, RemoveObservations} {
		if err := remove(tx, deviceID); err != nil {
			return err
		}
	}
	for _, table := range []string{"lwm2m_firmware", "lwm2m_minted", "lwm2m_registrations"} {
		if _, err := tx.Exec(`DELETE FROM `+table+` WHERE device_id = ?`, deviceID); err != nil {
			return err
		}
	}
	return nil
}
