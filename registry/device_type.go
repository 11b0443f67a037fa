package registry

import (
	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// Brand is how rows of a type look to people.
type Brand struct {
	ImageURL        *string `store:"image_url,clear,max=2048" gql:"imageUrl"`
	Icon            *string `store:"icon,clear,max=128" gql:"icon"`
	BackgroundColor *string `store:"background_color,clear,max=64" gql:"backgroundColor"`
	ForegroundColor *string `store:"foreground_color,clear,max=64" gql:"foregroundColor"`
	BorderColor     *string `store:"border_color,clear,max=64" gql:"borderColor"`
}

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
	// ManagedBy is the device as which this instance signs in at the Weir above that manages the row, nil for none.
	ManagedBy *string `store:"managed_by" gql:"managedBy"`
}

func deviceTypes(b entity.Base, limits func() *DeviceSettings) *entity.Kind[DeviceType] {
	return entity.New(b, entity.Desc[DeviceType]{
		Kind:   "device type",
		Type:   "DeviceType",
		Plural: "deviceTypes",
		Area:   area,
		Table:  "device_types",
		Read:   mayRead,
		Write:  mayWrite,
		Ceiling: &entity.Ceiling{
			Key:  "limits.device_types_per_tenant",
			Rows: func() int64 { return limits().TypesPerTenant },
		},
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
