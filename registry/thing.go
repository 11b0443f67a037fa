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

// things are the kinds of this file; what is referred to comes first.
func (r *Registry) things() []entity.Entry {
	return []entity.Entry{
		typeKind[AssetType](r, "asset type", "AssetType", "asset_types"),
		thingKind[Asset](r, EntityAsset, "Asset", "assets", func(s *DeviceSettings) int64 { return s.AssetsPerTenant }),
		typeKind[CustomerType](r, "customer type", "CustomerType", "customer_types"),
		thingKind[Customer](r, EntityCustomer, "Customer", "customers", func(s *DeviceSettings) int64 { return s.CustomersPerTenant }),
		typeKind[AreaType](r, "area type", "AreaType", "area_types"),
		thingKind[Area](r, EntityArea, "Area", "areas", func(s *DeviceSettings) int64 { return s.AreasPerTenant }),
	}
}

func typeKind[T any](r *Registry, kind, typ, table string) *entity.Kind[T] {
	return entity.New(r.base(), entity.Desc[T]{
		Kind: kind, Type: typ, Plural: strings.ToLower(typ[:1]) + typ[1:] + "s", Area: area, Table: table, Read: mayRead, Write: mayWrite,
		Admit: admitCounted(table, entityTypesKey, r.maxEntityTypes), Stored: store.StoredRows(table), Removing: removeCounted[T](table),
	})
}

func thingKind[T any](r *Registry, entityType, typ, table string, limit func(*DeviceSettings) int64) (kind *entity.Kind[T]) {
	kind = entity.New(r.base(), entity.Desc[T]{
		Kind: entityType, Type: typ, Plural: table, Area: area, Table: table, Read: mayRead, Write: mayWrite,
		Admit:  admitCounted(table, "limits."+table+"_per_tenant", func() int64 { return limit(r.perTenant.Load()) }),
		Stored: store.StoredRows(table),
		Removing: func(c *store.Change, row *T) error {
			return r.removingThing(c, entityType, table, *kind.Table.Head(row), kind.Table.Token(row))
		},
	})
	return kind
}
