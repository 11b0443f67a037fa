package registry

import (
	"weir/store"
	"weir/store/entity"
)

// Asset is a thing that devices are about: a machine, a vehicle, a building.
type Asset struct {
	store.Row
	Token       string  `store:"token,token" gql:"token"`
	Name        *string `store:"name,clear,max=128" gql:"name"`
	Description *string `store:"description,clear,max=1024" gql:"description"`
	TypeID      int64   `store:"type_id,required,ref=asset_types,filter" gql:"assetTypeToken"`
	Metadata    *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
}

func (r *Registry) assets() *entity.Kind[Asset] {
	return entity.New(r.base(), entity.Desc[Asset]{
		Kind: "asset", Type: "Asset", Plural: "assets", Area: area, Table: "assets", Read: mayRead, Write: mayWrite,
		Removing: func(c *store.Change, a *Asset) error { return r.takeAttributes(c, "asset", a.Row, a.Token) },
	})
}
