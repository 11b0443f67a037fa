package registry

import (
	"strings"

	"weir/store"
	"weir/store/entity"
)

// Assets, areas and customers are what devices belong to: things of a type, alike but in their names.

// thingType is what a kind of asset, area or customer is.
type thingType struct {
	store.Row
	Token       string  `store:"token,token" gql:"token"`
	Name        *string `store:"name,clear,max=128" gql:"name"`
	Description *string `store:"description,clear,max=1024" gql:"description"`
	Brand
	Metadata *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
}

// AssetType, AreaType and CustomerType are alike, and types of the API of their own.
type (
	AssetType    thingType
	AreaType     thingType
	CustomerType thingType
)

// Thing is what an asset, an area and a customer have in common.
type Thing struct {
	Token       string  `store:"token,token" gql:"token"`
	Name        *string `store:"name,clear,max=128" gql:"name"`
	Description *string `store:"description,clear,max=1024" gql:"description"`
}

// Asset is a thing that devices are about: a machine, a vehicle, a building.
type Asset struct {
	store.Row
	Thing
	TypeID   int64   `store:"type_id,required,ref=asset_types,filter" gql:"assetTypeToken"`
	Metadata *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
}

// Area is a place, or a part of one, in which devices are.
type Area struct {
	store.Row
	Thing
	TypeID   int64   `store:"type_id,required,ref=area_types,filter" gql:"areaTypeToken"`
	Metadata *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
}

// Customer is one for whom devices work, or who owns them.
type Customer struct {
	store.Row
	Thing
	TypeID   int64   `store:"type_id,required,ref=customer_types,filter" gql:"customerTypeToken"`
	Metadata *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
}

// describeThings makes the kinds; what is referred to comes first.
func describeThings(b entity.Base, limits func() *DeviceSettings) []entity.Entry {
	return []entity.Entry{
		typeKind[AssetType](b, "asset type", "AssetType", "asset_types", limits),
		thingKind[Asset](b, EntityAsset, "Asset", "assets", func() int64 { return limits().AssetsPerTenant }),
		typeKind[CustomerType](b, "customer type", "CustomerType", "customer_types", limits),
		thingKind[Customer](b, EntityCustomer, "Customer", "customers", func() int64 { return limits().CustomersPerTenant }),
		typeKind[AreaType](b, "area type", "AreaType", "area_types", limits),
		thingKind[Area](b, EntityArea, "Area", "areas", func() int64 { return limits().AreasPerTenant }),
	}
}

func typeKind[T any](b entity.Base, kind, typ, table string, limits func() *DeviceSettings) *entity.Kind[T] {
	return entity.New(b, entity.Desc[T]{
		Kind:   kind,
		Type:   typ,
		Plural: strings.ToLower(typ[:1]) + typ[1:] + "s",
		Area:   area,
		Table:  table,
		Read:   mayRead,
		Write:  mayWrite,
		Ceiling: &entity.Ceiling{ // one key for the types of assets, customers and areas: it holds for each kind by itself
			Key:     "limits.entity_types_per_tenant",
			Rows:    func() int64 { return limits().EntityTypesPerTenant },
			Counted: true,
		},
	})
}

func thingKind[T any](b entity.Base, entityType, typ, table string, limit func() int64) *entity.Kind[T] {
	return entity.New(b, entity.Desc[T]{
		Kind:      entityType,
		Type:      typ,
		Plural:    table,
		Area:      area,
		Table:     table,
		Read:      mayRead,
		Write:     mayWrite,
		Addressed: entityType,
		Ceiling: &entity.Ceiling{
			Key:     "limits." + table + "_per_tenant",
			Rows:    limit,
			Counted: true,
		},
	})
}
