package registry

import (
	"weir/store"
	"weir/store/entity"
)

// AssetType is what a kind of asset is.
type AssetType struct {
	store.Row
	Token       string  `store:"token,token" gql:"token"`
	Name        *string `store:"name,clear,max=128" gql:"name"`
	Description *string `store:"description,clear,max=1024" gql:"description"`
	Brand
	Metadata *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
}

// Asset is a thing that devices are about: a machine, a vehicle, a building.
type Asset struct {
	store.Row
	Token       string  `store:"token,token" gql:"token"`
	Name        *string `store:"name,clear,max=128" gql:"name"`
	Description *string `store:"description,clear,max=1024" gql:"description"`
	TypeID      int64   `store:"type_id,required,ref=asset_types,filter" gql:"assetTypeToken"`
	Metadata    *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
}

func (r *Registry) assetTypes() *entity.Kind[AssetType] {
	return entity.New(r.base(), entity.Desc[AssetType]{
		Kind: "asset type", Type: "AssetType", Plural: "assetTypes", Area: area, Table: "asset_types", Read: mayRead, Write: mayWrite,
		Admit: admitCounted("asset_types", entityTypesKey, r.maxEntityTypes), Removing: removeCounted[AssetType]("asset_types"),
	})
}

func (r *Registry) assets() *entity.Kind[Asset] {
	return entity.New(r.base(), entity.Desc[Asset]{
		Kind: "asset", Type: "Asset", Plural: "assets", Area: area, Table: "assets", Read: mayRead, Write: mayWrite,
		Admit: admitCounted("assets", "limits.assets_per_tenant", func() int64 { return r.perTenant.Load().AssetsPerTenant }),
		Removing: func(c *store.Change, row *Asset) error {
			return r.removingThing(c, EntityAsset, "assets", row.Row, row.Token)
		},
	})
}
