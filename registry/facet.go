package registry

import (
	"context"

	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// FacetKey declares an attribute by which clients group and select entities: which type its values have, which of them
// clients offer, and how they call it. It restricts no attribute. A member type has a key once.
type FacetKey struct {
	store.Row
	MemberType string   `store:"member_type,required,immutable,oneof=device|asset|area|customer,filter" gql:"memberType"`
	Key        string   `store:"key,required,immutable,nonempty,max=128" gql:"key"`
	ValueType  string   `store:"value_type,required,oneof=STRING|LONG|DOUBLE|BOOLEAN|JSON" gql:"valueType"`
	Source     string   `store:"source" gql:"source"`
	Values     []string `store:"vocabulary,clear,list,max=1000" gql:"values"`
	Label      *string  `store:"label,clear,max=128" gql:"label"`
}

// Sources of facet keys. Those of the system are reserved: no call writes or deletes them.
const (
	FacetAttribute = "attribute"
	FacetSystem    = "system"
)

// FacetKeys are the facet keys of all tenants.
type FacetKeys struct {
	*entity.Kind[FacetKey]
	access
	limits   func() *DeviceSettings
	types    *entity.Kind[DeviceType]
	profiles *entity.Kind[DeviceProfile]
}

// describe makes the kind.
func (fs *FacetKeys) describe(b entity.Base) {
	fs.Kind = entity.New(b, entity.Desc[FacetKey]{
		Kind:   "facet key",
		Type:   "FacetKey",
		Plural: "facetKeys",
		Area:   area,
		Table:  "facet_keys",
		Order:  "created_at DESC, member_type, key",
		Label:  func(k *FacetKey) string { return k.MemberType + "/" + k.Key },
		Read:   mayRead,
		Write:  mayWrite,
		Valid: func(k *FacetKey) error {
			k.Source = FacetAttribute
			return nil
		},
		Ceiling: &entity.Ceiling{
			Key:  "limits.facet_keys_per_tenant",
			Rows: func() int64 { return fs.limits().FacetKeysPerTenant },
		},
	})
}

// Set makes a facet key, or replaces what the one with this member type and key says.
func (fs *FacetKeys) Set(ctx context.Context, by *model.Principal, p store.Patch) (key *FacetKey, err error) {
	if err := fs.MayWrite(by); err != nil {
		return nil, err
	}
	// Check the fields before the change: a refusal needs no writer.
	wanted, refused := fs.Table.Check(p, true)
	if len(refused) > 0 {
		return nil, refused[0]
	}
	err = fs.mutate(ctx, by, func(c *store.Change) error {
		if key, err = fs.find(c, wanted.MemberType, wanted.Key); err != nil {
			return err
		}
		if key == nil {
			if err = fs.Admit(c, 1); err == nil {
				key, err = fs.Make(c, p)
			}
			return err
		}
		// The key itself and its member type never change.
		key.ValueType, key.Values, key.Label = wanted.ValueType, wanted.Values, wanted.Label
		return fs.Table.Save(c, key, "value_type", "vocabulary", "label")
	})
	return key, err
}

// Unset removes a facet key; false when there is none.
func (fs *FacetKeys) Unset(ctx context.Context, by *model.Principal, memberType, key string) (deleted bool, err error) {
	if err := fs.MayWrite(by); err != nil {
		return false, err
	}
	err = fs.mutate(ctx, by, func(c *store.Change) error {
		row, err := fs.find(c, memberType, key)
		if err != nil || row == nil {
			return err
		}
		deleted = true
		return fs.Table.Remove(c, row)
	})
	return deleted && err == nil, err
}

// find returns a facet key to be written, nil when there is none.
func (fs *FacetKeys) find(c *store.Change, memberType, key string) (*FacetKey, error) {
	row, err := fs.Table.First(c, c.By.TenantID, store.Eq("member_type", memberType), store.Eq("key", key))
	if err == nil && row != nil && row.Source == FacetSystem {
		err = model.Invalid("key", "%q of %s is reserved: its source is %s", key, memberType, FacetSystem)
	}
	return row, err
}

// DeviceFacet names a property whose values in use can be listed.
type DeviceFacet string

// The facets: the first two of device types, the last of device profiles.
const (
	FacetManufacturer DeviceFacet = "MANUFACTURER"
	FacetModel        DeviceFacet = "MODEL"
	FacetCategory     DeviceFacet = "CATEGORY"
)

// ValuesInUse returns the distinct values of a facet in use, sorted.
func (fs *FacetKeys) ValuesInUse(ctx context.Context, by *model.Principal, facet DeviceFacet) (values []string, err error) {
	if err := fs.types.MayRead(by); err != nil {
		return nil, err
	}
	err = store.Read(ctx, fs.store, func(tx store.Tx) (err error) {
		switch facet {
		case FacetManufacturer:
			values, err = fs.types.Table.Distinct(tx, by.TenantID, "manufacturer")
		case FacetModel:
			values, err = fs.types.Table.Distinct(tx, by.TenantID, "model")
		case FacetCategory:
			values, err = fs.profiles.Table.Distinct(tx, by.TenantID, "category")
		default:
			err = model.Invalid("facet", "%q is no facet", facet)
		}
		return err
	})
	return values, err
}
