package registry

import (
	"weir/store"
	"weir/store/entity"
)

// CustomerType is what a kind of customer is.
type CustomerType struct {
	store.Row
	Token       string  `store:"token,token" gql:"token"`
	Name        *string `store:"name,clear,max=128" gql:"name"`
	Description *string `store:"description,clear,max=1024" gql:"description"`
	Brand
	Metadata *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
}

// Customer is one for whom devices work, or who owns them.
type Customer struct {
	store.Row
	Token       string  `store:"token,token" gql:"token"`
	Name        *string `store:"name,clear,max=128" gql:"name"`
	Description *string `store:"description,clear,max=1024" gql:"description"`
	TypeID      int64   `store:"type_id,required,ref=customer_types,filter" gql:"customerTypeToken"`
	Metadata    *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
}

func (r *Registry) customerTypes() *entity.Kind[CustomerType] {
	return entity.New(r.base(), entity.Desc[CustomerType]{
		Kind: "customer type", Type: "CustomerType", Plural: "customerTypes", Area: area, Table: "customer_types", Read: mayRead, Write: mayWrite,
		Admit: admitCounted("customer_types", entityTypesKey, r.maxEntityTypes), Removing: removeCounted[CustomerType]("customer_types"),
	})
}

func (r *Registry) customers() *entity.Kind[Customer] {
	return entity.New(r.base(), entity.Desc[Customer]{
		Kind: "customer", Type: "Customer", Plural: "customers", Area: area, Table: "customers", Read: mayRead, Write: mayWrite,
		Admit: admitCounted("customers", "limits.customers_per_tenant", func() int64 { return r.perTenant.Load().CustomersPerTenant }),
		Removing: func(c *store.Change, row *Customer) error {
			return r.removingThing(c, EntityCustomer, "customers", row.Row, row.Token)
		},
	})
}
