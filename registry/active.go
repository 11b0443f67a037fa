package registry

import (
	"context"

	"weir/model"
	"weir/store"
)

// LocationCapability is what the active version of a device's profile says about its location.
type LocationCapability struct {
	Declared    bool                 `gql:"declared"`
	Declaration *LocationDeclaration `gql:"declaration"`
}

// LocationOf returns what a device's active profile version declares, nil for an unknown device. A device whose type has
// no profile, or one that was never published, declares nothing.
func (ds *Devices) LocationOf(ctx context.Context, by *model.Principal, device string) (found *LocationCapability, err error) {
	if err := ds.MayRead(by); err != nil {
		return nil, err
	}
	err = store.Read(ctx, ds.store, func(tx store.Tx) error {
		d, err := ds.Table.Get(tx, by.TenantID, device)
		if err != nil || d == nil {
			return err
		}
		s, err := ds.profiles.activeOf(tx, d)
		if err != nil {
			return err
		}
		found = &LocationCapability{}
		if s != nil && s.Location != nil {
			found = &LocationCapability{Declared: true, Declaration: s.Location}
		}
		return nil
	})
	return found, err
}

// LwM2MOf returns what the active profile version of a device says about LwM2M, nil for nothing, and the metrics that it declares.
func (ds *Devices) LwM2MOf(ctx context.Context, tenantID, deviceID int64) (said *model.LwM2MProfile, metrics []model.MetricView, err error) {
	err = store.Read(ctx, ds.store, func(tx store.Tx) error {
		d, err := ds.Table.GetByID(tx, tenantID, deviceID)
		if err != nil || d == nil {
			return err
		}
		s, err := ds.profiles.activeOf(tx, d)
		if err != nil || s == nil {
			return err
		}
		for i := range s.Metrics {
			metrics = append(metrics, s.Metrics[i].MetricView)
		}
		if s.LwM2M != nil {
			said, err = model.ParseLwM2MProfile(s.LwM2M)
		}
		return err
	})
	return said, metrics, err
}

// activeOf returns the active version that judges a device, nil when there is none.
func (ps *Profiles) activeOf(tx store.Tx, d *Device) (*Snapshot, error) {
	active := map[int64]*Snapshot{d.TypeID: nil}
	err := ps.activeOfTypes(tx, d.TenantID, active)
	return active[d.TypeID], err
}

// Active returns the active version of a profile as resolution reads it, nil when the profile does not exist or was
// never published.
func (ps *Profiles) Active(ctx context.Context, by *model.Principal, profile string) (view *model.ProfileView, err error) {
	if err := ps.MayRead(by); err != nil {
		return nil, err
	}
	err = store.Read(ctx, ps.store, func(tx store.Tx) error {
		p, err := ps.Table.Get(tx, by.TenantID, profile)
		if err != nil || p == nil || p.ActiveVersion == nil {
			return err
		}
		s, err := ps.versions.Body(tx, p.ID, *p.ActiveVersion)
		if err == nil && s != nil {
			view = new(s.view(by.Tenant, p.Token, int(*p.ActiveVersion)))
		}
		return err
	})
	return view, err
}
