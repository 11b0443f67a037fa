package registry

import (
	"context"

	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// DeviceType is what a kind of device is. Its devices have the capabilities of its profile, if it has one.
type DeviceType struct {
	store.Row
	Token       string  `store:"token,token" gql:"token"`
	Name        *string `store:"name,clear,max=128" gql:"name"`
	Description *string `store:"description,clear,max=1024" gql:"description"`
	Brand
	ProfileID    *int64  `store:"profile_id,clear,emptyclears,ref=device_profiles" gql:"profileToken"`
	Manufacturer *string `store:"manufacturer,clear,max=128" gql:"manufacturer"`
	Model        *string `store:"model,clear,max=128" gql:"model"`
	Metadata     *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
}

func (r *Registry) deviceTypes() *entity.Kind[DeviceType] {
	return entity.New(r.base(), entity.Desc[DeviceType]{
		Kind: "device type", Type: "DeviceType", Plural: "deviceTypes", Area: area, Table: "device_types", Read: mayRead, Write: mayWrite,
		Admit: admitRows(func() *entity.Kind[DeviceType] { return r.Types }, "limits.device_types_per_tenant",
			func() int64 { return r.perTenant.Load().TypesPerTenant }),
		Views: typeViews,
	})
}

// profile returns the row id of the type's profile, 0 for none.
func (t *DeviceType) profile() int64 {
	if t.ProfileID == nil {
		return 0
	}
	return *t.ProfileID
}

// typeViews: readings are judged by the profile of their device's type.
func typeViews(_ *store.Change, old, row *DeviceType) []entity.View {
	switch {
	case row == nil:
		return []entity.View{{Kind: model.ViewDeviceType, Key: idKey(old.ID)}}
	case old != nil && old.profile() == row.profile():
		return nil
	}
	return []entity.View{{Kind: model.ViewDeviceType, Key: idKey(row.ID), Body: model.DeviceTypeView{V: 1, Profile: row.profile()}}}
}

// DeviceFacet names a property whose values in use can be listed.
type DeviceFacet string

// The facets: the first two of device types, the last of device profiles.
const (
	FacetManufacturer DeviceFacet = "MANUFACTURER"
	FacetModel        DeviceFacet = "MODEL"
	FacetCategory     DeviceFacet = "CATEGORY"
)

// FacetValues returns the distinct values of a facet in use, sorted.
func (r *Registry) FacetValues(ctx context.Context, by *model.Principal, facet DeviceFacet) (values []string, err error) {
	if err := r.Types.MayRead(by); err != nil {
		return nil, err
	}
	err = store.Read(ctx, r.parts.Store, func(tx store.Tx) (err error) {
		switch facet {
		case FacetManufacturer:
			values, err = r.Types.Table.Distinct(tx, by.TenantID, "manufacturer")
		case FacetModel:
			values, err = r.Types.Table.Distinct(tx, by.TenantID, "model")
		case FacetCategory:
			values, err = r.Profiles.Table.Distinct(tx, by.TenantID, "category")
		default:
			err = model.Invalid("facet", "%q is no facet", facet)
		}
		return err
	})
	return values, err
}
