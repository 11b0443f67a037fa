package registry

import (
	"context"
	"slices"

	"weir/model"
	"weir/store"
)

// DeviceType is what a kind of device is. Its devices have the capabilities of its profile, if it has one.
type DeviceType struct {
	store.Row
	Token           string  `store:"token,token" gql:"token"`
	Name            *string `store:"name,clear,max=128" gql:"name"`
	Description     *string `store:"description,clear,max=1024" gql:"description"`
	ImageURL        *string `store:"image_url,clear,max=2048" gql:"imageUrl"`
	Icon            *string `store:"icon,clear,max=128" gql:"icon"`
	BackgroundColor *string `store:"background_color,clear,max=64" gql:"backgroundColor"`
	ForegroundColor *string `store:"foreground_color,clear,max=64" gql:"foregroundColor"`
	BorderColor     *string `store:"border_color,clear,max=64" gql:"borderColor"`
	ProfileID       *int64  `store:"profile_id,clear,emptyclears,ref=device_profiles" gql:"profileToken"`
	Manufacturer    *string `store:"manufacturer,clear,max=128" gql:"manufacturer"`
	Model           *string `store:"model,clear,max=128" gql:"model"`
	Metadata        *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
}

func (r *Registry) deviceTypes() *Kind[DeviceType] {
	table := store.NewTable(store.Desc[DeviceType]{
		Kind:      "device type",
		Name:      "device_types",
		Referrers: []store.Referrer{{Kind: "device", Table: "devices", Column: "type_id"}},
	})
	return &Kind[DeviceType]{r: r, table: table, changed: typeChanged}
}

// profile returns the row id of the type's profile, 0 for none.
func (t *DeviceType) profile() int64 {
	if t.ProfileID == nil {
		return 0
	}
	return *t.ProfileID
}

// typeChanged puts the type's view row on the change when it is new, has another profile, or goes.
func typeChanged(c *store.Change, old, row *DeviceType) error {
	switch {
	case row == nil:
		endView(c, model.ViewDeviceType, idKey(old.ID))
		return nil
	case old != nil && old.profile() == row.profile():
		return nil
	}
	return setView(c, model.ViewDeviceType, idKey(row.ID), model.DeviceTypeView{V: 1, Profile: row.profile()})
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
func (r *Registry) FacetValues(ctx context.Context, by *model.Principal, facet DeviceFacet) ([]string, error) {
	query := map[DeviceFacet]string{
		FacetManufacturer: `SELECT DISTINCT manufacturer FROM device_types WHERE tenant_id = ? AND manufacturer IS NOT NULL`,
		FacetModel:        `SELECT DISTINCT model FROM device_types WHERE tenant_id = ? AND model IS NOT NULL`,
		FacetCategory:     `SELECT DISTINCT category FROM device_profiles WHERE tenant_id = ? AND category IS NOT NULL`,
	}[facet]
	if query == "" {
		return nil, model.Invalid("facet", "%q is no facet", facet)
	}
	if err := needTenant(by); err != nil {
		return nil, err
	}
	values := []string{}
	err := r.parts.Store.Read(ctx, func(tx store.Tx) error {
		rows, err := tx.Query(query, by.TenantID)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var v string
			if err := rows.Scan(&v); err != nil {
				return err
			}
			values = append(values, v)
		}
		return rows.Err()
	})
	slices.Sort(values)
	return values, err
}
