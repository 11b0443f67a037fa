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

// Brand is how rows of a type look to people.
type Brand struct {
	ImageURL        *string `store:"image_url,clear,max=2048" gql:"imageUrl"`
	Icon            *string `store:"icon,clear,max=128" gql:"icon"`
	BackgroundColor *string `store:"background_color,clear,max=64" gql:"backgroundColor"`
	ForegroundColor *string `store:"foreground_color,clear,max=64" gql:"foregroundColor"`
	BorderColor     *string `store:"border_color,clear,max=64" gql:"borderColor"`
}

func (r *Registry) assetTypes() *entity.Kind[AssetType] {
	return entity.New(r.base(), entity.Desc[AssetType]{
		Kind: "asset type", Type: "AssetType", Plural: "assetTypes", Area: area, Table: "asset_types", Read: mayRead, Write: mayWrite,
	})
}
