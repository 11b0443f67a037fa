package registry

import (
	"context"

	"weir/model"
	"weir/store"
)

// Device is one device. Readings name it by its token; what is kept of it belongs to its row id, so that a token made
// again after a delete begins a new history.
type Device struct {
	store.Row
	Token       string  `store:"token,token" gql:"token"`
	ExternalID  *string `store:"external_id,clear,emptyclears,unique,max=256" gql:"externalId"`
	Name        *string `store:"name,clear,max=128" gql:"name"`
	Description *string `store:"description,clear,max=1024" gql:"description"`
	TypeID      int64   `store:"type_id,required,ref=device_types" gql:"deviceTypeToken"`
	Metadata    *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
}

func (r *Registry) devices() *Kind[Device] {
	table := store.NewTable(store.Desc[Device]{Kind: "device", Name: "devices"})
	return &Kind[Device]{r: r, table: table, admit: r.admitDevices, removing: r.removingDevice, changed: r.deviceChanged}
}

// DevicesByExternalID returns the devices with these external ids that exist.
func (r *Registry) DevicesByExternalID(ctx context.Context, by *model.Principal, externalIDs []string) ([]*Device, error) {
	values := make([]any, 0, len(externalIDs))
	for _, id := range unique(externalIDs) {
		values = append(values, id)
	}
	return r.Devices.By(ctx, by, "external_id", values...)
}

// admitDevices counts n more devices of the tenant, and refuses them above its ceiling.
func (r *Registry) admitDevices(c *store.Change, n int64) error {
	var have int64
	if err := c.QueryRow(`INSERT INTO device_counts (tenant_id, devices) VALUES (?, ?)
		ON CONFLICT (tenant_id) DO UPDATE SET devices = device_counts.devices + excluded.devices RETURNING devices`,
		c.By.TenantID, n).Scan(&have); err != nil {
		return err
	}
	if most := r.devicesPerTenant.Load(); have > most {
		return model.OverLimit("limits.devices_per_tenant", "a tenant has at most %d devices", most)
	}
	return nil
}

// removingDevice removes what is alive of the device. History stays with its row id.
func (r *Registry) removingDevice(c *store.Change, d *Device) error {
	credentials, err := r.Credentials.table.By(c, d.TenantID, "device_id", d.ID)
	if err != nil {
		return err
	}
	for _, credential := range credentials {
		if err := r.Credentials.table.Remove(c, credential); err != nil {
			return err
		}
	}
	for _, remove := range r.parts.Removals {
		if err := remove(c, d.TenantID, d.ID); err != nil {
			return err
		}
	}
	_, err = c.Exec(`UPDATE device_counts SET devices = devices - 1 WHERE tenant_id = ?`, d.TenantID)
	return err
}

// deviceChanged puts the device's view row on the change when it is new, gets another type, or goes.
func (r *Registry) deviceChanged(c *store.Change, old, d *Device) error {
	if d == nil {
		r.forgetDevice(c, old.ID)
		endView(c, model.ViewDevice, deviceKey(c.By.Tenant, old.Token))
		return nil
	}
	if old != nil {
		if old.TypeID == d.TypeID {
			return nil
		}
		r.forgetDevice(c, d.ID)
	}
	return setView(c, model.ViewDevice, deviceKey(c.By.Tenant, d.Token), model.DeviceView{V: 1, ID: d.ID, Type: d.TypeID})
}
