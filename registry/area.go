package registry

import (
	"weir/store"
	"weir/store/entity"
)

// AreaType is what a kind of area is.
type AreaType struct {
	store.Row
	Token       string  `store:"token,token" gql:"token"`
	Name        *string `store:"name,clear,max=128" gql:"name"`
	Description *string `store:"description,clear,max=1024" gql:"description"`
	Brand
	Metadata *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
}

// Area is a place, or a part of one, in which devices are.
type Area struct {
	store.Row
	Token       string  `store:"token,token" gql:"token"`
	Name        *string `store:"name,clear,max=128" gql:"name"`
	Description *string `store:"description,clear,max=1024" gql:"description"`
	TypeID      int64   `store:"type_id,required,ref=area_types,filter" gql:"areaTypeToken"`
	Metadata    *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
}

func (r *Registry) areaTypes() *entity.Kind[AreaType] {
	return entity.New(r.base(), entity.Desc[AreaType]{
		Kind: "area type", Type: "AreaType", Plural: "areaTypes", Area: area, Table: "area_types", Read: mayRead, Write: mayWrite,
		Admit: admitCounted("area_types", entityTypesKey, r.maxEntityTypes), Removing: removeCounted[AreaType]("area_types"),
	})
}

func (r *Registry) areas() *entity.Kind[Area] {
	return entity.New(r.base(), entity.Desc[Area]{
		Kind: "area", Type: "Area", Plural: "areas", Area: area, Table: "areas", Read: mayRead, Write: mayWrite,
		Admit: admitCounted("areas", "limits.areas_per_tenant", func() int64 { return r.perTenant.Load().AreasPerTenant }),
		Removing: func(c *store.Change, row *Area) error {
			return r.removingThing(c, EntityArea, "areas", row.Row, row.Token)
		},
	})
}
