package lwm2m

import (
	"weir/model"
	"weir/store"
)

// Firmware is a firmware update that is under way. Device is the token of the device, which a row is not written with.
type Firmware struct {
	DeviceID int64
	Device   string
	TenantID int64
	Command  string // token
	Nonce    string // of its dispatch
	Expires  model.Micros
	Artifact string // token
	Body     int64  // of the artifact
	Phase    string
	Pull     bool
	Secret   string
	Before   string
	Began    model.Micros
	Updated  model.Micros
}

// AllFirmware calls each for every row whose device exists.
func AllFirmware(tx store.Tx, each func(Firmware)) error {
	rows, err := tx.Query(`SELECT f.device_id, d.token, f.tenant_id, f.command, f.nonce, f.expires_at, f.artifact, f.body, f.phase, f.pull, f.secret, f.before, f.began_at, f.updated_at
		FROM lwm2m_firmware f JOIN devices d ON d.id = f.device_id ORDER BY f.device_id`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var f Firmware
		if err := rows.Scan(&f.DeviceID, &f.Device, &f.TenantID, &f.Command, &f.Nonce, &f.Expires, &f.Artifact, &f.Body, &f.Phase, &f.Pull, &f.Secret, &f.Before, &f.Began, &f.Updated); err != nil {
			return err
		}
		each(f)
	}
	return rows.Err()
}

// SaveFirmware writes a row, unless its device is gone.
func SaveFirmware(tx store.Tx, f *Firmware) error {
	_, err := tx.Exec(`INSERT INTO lwm2m_firmware (device_id, tenant_id, command, nonce, expires_at, artifact, body, phase, pull, secret, before, began_at, updated_at)
		SELECT id, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM devices WHERE id = ?
		ON CONFLICT (device_id) DO UPDATE SET command = excluded.command, nonce = excluded.nonce, expires_at = excluded.expires_at, artifact = excluded.artifact, body = excluded.body,
		phase = excluded.phase, pull = excluded.pull, secret = excluded.secret, before = excluded.before, began_at = excluded.began_at, updated_at = excluded.updated_at`,
		f.TenantID, f.Command, f.Nonce, int64(f.Expires), f.Artifact, f.Body, f.Phase, f.Pull, f.Secret, f.Before, int64(f.Began), int64(f.Updated), f.DeviceID)
	return err
}

// RemoveFirmware removes the row of a device, if it is that of a dispatch.
func RemoveFirmware(tx store.Tx, device int64, nonce string) error {
	_, err := tx.Exec(`DELETE FROM lwm2m_firmware WHERE device_id = ? AND nonce = ?`, device, nonce)
	return err
}
