package registry

import (
	"context"
	"io"

	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// Device is one device. Readings name it by its token; what is kept of it belongs to its row id, so that a token made
// again after a delete begins a new history.
type Device struct {
	store.Row
	Token       string  `store:"token,token" gql:"token"`
	ExternalID  *string `store:"external_id,clear,emptyclears,unique,max=256" gql:"externalId"`
	Name        *string `store:"name,clear,max=128" gql:"name"`
	Description *string `store:"description,clear,max=1024" gql:"description"`
	TypeID      int64   `store:"type_id,required,ref=device_types,filter=deviceType" gql:"deviceTypeToken"`
	Metadata    *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
	// ManagedBy is the device as which this instance signs in at the Weir above that manages the row, nil for none.
	ManagedBy *string `store:"managed_by" gql:"managedBy"`
}

// Devices are the devices of all tenants.
type Devices struct {
	*entity.Kind[Device]
	access
	limits    func() *DeviceSettings
	random    io.Reader
	activeNow func(ctx context.Context, by *model.Principal) ([]int64, error) // nil: none is active
	// What devices are tied to, and who is told of their changes.
	types       *entity.Kind[DeviceType]
	profiles    *Profiles
	credentials *Credentials
	groups      *Groups
	attributes  *Attributes
	relations   *Relations
	removals    []Removal
	adopted     *adoptionCache
	verified    *verified
	synced      *edgeChanges
}

// describe makes the kind.
func (ds *Devices) describe(b entity.Base) {
	ds.Kind = entity.New(b, entity.Desc[Device]{
		Kind:   "device",
		Type:   "Device",
		Plural: "devices",
		Area:   area,
		Table:  "devices",
		Read:   mayRead,
		Write:  mayWrite,
		Filters: []entity.Filter{
			{Name: "search", Of: func(part any) store.Filter { return store.ContainsAny(part.(string), "token", "name", "external_id") }},
			{Name: "active", Find: ds.active},
			{Name: "group", Of: ds.groups.inGroup},
		},
		Addressed: EntityDevice,
		Admit:     ds.admit,
		Stored:    store.StoredDevices,
		Removing:  ds.removing,
		Changed:   ds.changed,
		Views:     deviceViews,
	})
}

// ByExternalID returns the devices with these external ids that exist. It demands no authority: several areas ask.
func (ds *Devices) ByExternalID(ctx context.Context, by *model.Principal, externalIDs []string) ([]*Device, error) {
	values := make([]any, 0, len(externalIDs))
	for _, id := range unique(externalIDs) {
		values = append(values, id)
	}
	return ds.Rows.By(ctx, by, "external_id", values...)
}

// active finds the devices that are active now, or those that are not.
func (ds *Devices) active(ctx context.Context, by *model.Principal, active any) (store.Filter, error) {
	if ds.activeNow == nil {
		return store.Among(nil, active.(bool)), nil
	}
	if err := ds.MayRead(by); err != nil {
		return store.Filter{}, err
	}
	ids, err := ds.activeNow(ctx, by)
	return store.Among(ids, active.(bool)), err
}

// admit counts n more devices of the tenant, and refuses them above its ceiling.
func (ds *Devices) admit(c *store.Change, n int64) error {
	have, err := store.CountDevices(c, c.By.TenantID, n)
	if err != nil {
		return err
	}
	if maximum := ds.limits().DevicesPerTenant; have > maximum {
		return model.OverLimit("limits.devices_per_tenant", "a tenant has at most %d devices", maximum)
	}
	return nil
}

// removing removes what is alive of the device, and its relationships. History stays with its row id.
func (ds *Devices) removing(c *store.Change, d *Device) error {
	// An edge judges no rules any more once its device is gone.
	if err := endJudging(c, d.ID); err != nil {
		return err
	}
	for _, remove := range ds.removals {
		if err := remove(c, d.TenantID, d.ID); err != nil {
			return err
		}
	}
	// One less for the ceiling, in the same change.
	_, err := store.CountDevices(c, d.TenantID, -1)
	return err
}

// changed has the verified credentials of a device forgotten that gets another type, or goes.
func (ds *Devices) changed(c *store.Change, old, d *Device) error {
	if old != nil && (d == nil || d.TypeID != old.TypeID) {
		ds.verified.forget(c, old.ID, 0)
	}
	// After the commit: caches must not be filled from before it.
	tenant := c.By.TenantID
	c.OnCommit(func() { ds.adopted.changed(tenant, old, d) })
	ds.synced.after(c)
	return nil
}

// deviceViews: readings name their device by tokens.
func deviceViews(c *store.Change, old, d *Device) []entity.View {
	// Only what resolution reads of a device makes a row of the view.
	switch {
	case d == nil:
		return []entity.View{{Kind: model.ViewDevice, Key: c.By.Tenant + "/" + old.Token}}
	case old != nil && old.TypeID == d.TypeID:
		return nil
	}
	return []entity.View{{Kind: model.ViewDevice, Key: c.By.Tenant + "/" + d.Token, Body: model.DeviceView{V: 1, ID: d.ID, Type: d.TypeID}}}
}
