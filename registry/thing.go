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

// things are the assets, areas and customers of all tenants.
type things struct {
	limits     func() *DeviceSettings
	attributes *Attributes
	relations  *Relations
}

// describe makes the kinds; what is referred to comes first.
func (ts *things) describe(b entity.Base) []entity.Entry {
	return []entity.Entry{
		typeKind[AssetType](ts, b, "asset type", "AssetType", "asset_types"),
		thingKind[Asset](ts, b, EntityAsset, "Asset", "assets", func(s *DeviceSettings) int64 { return s.AssetsPerTenant }),
		typeKind[CustomerType](ts, b, "customer type", "CustomerType", "customer_types"),
		thingKind[Customer](ts, b, EntityCustomer, "Customer", "customers", func(s *DeviceSettings) int64 { return s.CustomersPerTenant }),
		typeKind[AreaType](ts, b, "area type", "AreaType", "area_types"),
		thingKind[Area](ts, b, EntityArea, "Area", "areas", func(s *DeviceSettings) int64 { return s.AreasPerTenant }),
	}
}

func typeKind[T any](ts *things, b entity.Base, kind, typ, table string) *entity.Kind[T] {
	return entity.New(b, entity.Desc[T]{
		Kind: kind, Type: typ, Plural: strings.ToLower(typ[:1]) + typ[1:] + "s", Area: area, Table: table, Read: mayRead, Write: mayWrite,
		Admit: admitCounted(table, entityTypesKey, ts.maxTypes), Stored: store.StoredRows(table), Removing: removeCounted[T](table),
	})
}

func thingKind[T any](ts *things, b entity.Base, entityType, typ, table string, limit func(*DeviceSettings) int64) (kind *entity.Kind[T]) {
	kind = entity.New(b, entity.Desc[T]{
		Kind: entityType, Type: typ, Plural: table, Area: area, Table: table, Read: mayRead, Write: mayWrite,
		Admit:  admitCounted(table, "limits."+table+"_per_tenant", func() int64 { return limit(ts.limits()) }),
		Stored: store.StoredRows(table),
		Removing: func(c *store.Change, row *T) error {
			return ts.removing(c, entityType, table, *kind.Table.Head(row), kind.Table.Token(row))
		},
	})
	return kind
}

// The ceiling that the types of assets, customers and areas share: it holds for each kind by itself.
const entityTypesKey = "limits.entity_types_per_tenant"

func (ts *things) maxTypes() int64 { return ts.limits().EntityTypesPerTenant }

// removing removes what goes with an asset, a customer or an area.
func (ts *things) removing(c *store.Change, entityType, table string, row store.Row, token string) error {
	if err := ts.attributes.takeAll(c, entityType, row, token); err != nil {
		return err
	}
	if err := ts.relations.removeAll(c, row.TenantID, entityType, row.ID, token); err != nil {
		return err
	}
	_, err := store.AddRows(c, row.TenantID, table, -1)
	return err
}
