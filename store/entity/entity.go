package entity

import (
	"context"
	"slices"
	"strings"

	"weir/model"
	"weir/store"
)

// Base is what the kinds of an instance need.
type Base struct {
	Store  store.Store
	Writer store.Writer
	Vault  *store.Vault // of kinds with a secret
	// Managed reports whether rows with a managed_by are kept from changes by others than the one who manages them, see Managing; nil: they are not.
	Managed func() bool
	// Untie removes what is tied to a row of an addressed kind that is removed, in its transaction, see Desc.Addressed; nil: nothing is.
	Untie func(c *store.Change, entityType string, row store.Row, token string) error
}

// NotInSites is the Site of a kind whose rows no site file declares.
const NotInSites = "-"

// Needs names the authorities that a principal must hold, all of them.
func Needs(as ...model.Authority) []model.Authority { return as }

// Ceiling bounds the rows of a kind: those of a tenant, or those of the instance where the kind is the instance's.
type Ceiling struct {
	Key  string       // of the configuration, or of the API where it is fixed; a refusal names it
	Rows func() int64 // at most so many
	// Counted has the number of rows stored, in row_counts: for a kind that may have so many that counting them would cost.
	Counted bool
}

// Desc describes one kind of entity. What concerns a single field is in the tags of T, see store.Field.
type Desc[T any] struct {
	Kind   string // in messages: "device type"
	Type   string // in the API: "DeviceType"
	Plural string // in the API, the names of its reads: "deviceTypes"
	Site   string // the key of its list in a site file; default: Plural. See NotInSites
	Area   string // the API that serves it: "device-management"
	Table  string // in the database

	Instance bool   // belongs to the instance and not to a tenant: an area of the identity plane, no tenant_id
	Order    string // of lists; default: created_at DESC, token
	Label    func(row *T) string

	Read   []model.Authority
	Write  []model.Authority
	Delete []model.Authority // default: those of Write

	// Rename decides whether a row may have another token; nil: no row ever may. See Always.
	Rename func(tx store.Tx, row *T) error
	// Secret lets a row have a secret, which the vault keeps apart from it: a request names it "secret", a value sets it, null
	// and "" delete it, and nothing returns it. It returns the name in the vault, of which the token is no part, so that a
	// rename keeps it. The struct has a field HasSecret: store:"has_secret,keep,hidden" gql:"hasSecret". nil: rows have none.
	Secret func(row *T) store.SecretName
	// Referrers hold rows of this kind without being kinds themselves: while one exists, a delete is refused. Kinds that
	// refer to this one are known by their fields.
	Referrers []store.Referrer
	// Filters are criteria of lists besides those that fields give by their tag.
	Filters []Filter
	// Versions makes the rows drafts that are published, see Versions.
	Versions Versioning[T]

	// Prepare works on a copy of the patch before the transaction: what takes long (a password hash) or is not a value of
	// a column as it was sent. token is the row's, in a create as the patch names it.
	Prepare func(ctx context.Context, by *model.Principal, token string, p store.Patch, create bool) error
	// Ceiling bounds the rows; nil: their number has no bound, or Admit has one of its own.
	Ceiling *Ceiling
	// Addressed is the entity type by which attributes and relationships address rows, with the token: "asset". What is tied to a row in this
	// way is removed with it, see Base.Untie. "": rows are not addressed.
	Addressed string

	// Admit runs in the transaction before n rows are made, after Ceiling.
	Admit func(c *store.Change, n int64) error
	// Stored returns the number of rows that a tenant has, where Admit and Removing keep it, so that no list counts them all; nil
	// otherwise. A ceiling that counts has it.
	Stored func(tx store.Tx, tenantID int64) (int64, error)
	// Making runs in the transaction before a row is made of a patch: it makes what the row refers to and what comes into
	// being by its first use.
	Making func(c *store.Change, p store.Patch) error
	// Valid refuses a row by rules that concern several of its fields and nothing else, so that it can be asked where no
	// instance is. It may put values into their normal form.
	Valid func(row *T) error
	// Alone is what Prepare finds out about the values of a row: Kind.Check asks it, for which there is no Prepare.
	Alone func(row *T) error
	// Check refuses a row as it is about to be written, by rules that concern what is stored besides. Valid comes first.
	Check func(tx store.Tx, row *T, changed store.Changed) error
	// Advise says what a caller that made or changed a row by a patch probably did not mean, though it is no error: each a text that names the
	// field. It is asked after the change. nil: nothing is said.
	Advise func(ctx context.Context, by *model.Principal, row *T, p store.Patch) []string
	// Removing runs in the transaction before a row is removed: what goes with it and is no kind.
	Removing func(c *store.Change, row *T) error
	// Changed runs in the transaction after a row was made (old is nil), changed, or removed (row is nil). It is not called
	// for the parts of a row that is removed.
	Changed func(c *store.Change, old, row *T) error
	// Views names the metadata changes of such a step: what resolution reads from the offset of the change on.
	Views func(c *store.Change, old, row *T) []View
}

// Always lets every row be renamed.
func Always[T any](store.Tx, *T) error { return nil }

// View is a row of what resolution reads. A nil Body ends it.
type View struct {
	Kind model.ViewKind
	Key  string
	Body any // has a JSON form
}

// Filter is a criterion of lists that is more than a column's value. It has one of Of and Find.
type Filter struct {
	Name string
	Of   func(value any) store.Filter
	// Find is for a criterion that must be looked up before the list is read.
	Find func(ctx context.Context, by *model.Principal, value any) (store.Filter, error)
}

// Info is what there is to know of a kind without its Go type.
type Info struct {
	Kind, Type, Plural, Site, Area, Table string

	Addressed           string // see Desc.Addressed
	Instance            bool
	Rename              bool
	Secret              bool // rows may have a secret, see Desc.Secret
	Read, Write, Delete []model.Authority
	Fields              []store.Field
	Parent              *store.Field // the reference to the entity that one of this kind is a part of, nil for none
	Filters             []Filter     // those of the fields' tags, too

	ceiling *Ceiling
	untie   func(c *store.Change, entityType string, row store.Row, token string) error
}

// Refs returns the fields that name another entity.
func (i *Info) Refs() []store.Field {
	var refs []store.Field
	for _, f := range i.Fields {
		if f.Ref != "" {
			refs = append(refs, f)
		}
	}
	return refs
}

// Object is the name under which the API shows the entity that a reference names: deviceTypeToken is shown as deviceType.
func Object(ref store.Field) string { return strings.TrimSuffix(ref.Name, "Token") }

func infoOf[T any](d *Desc[T], fields []store.Field) *Info {
	i := &Info{Kind: d.Kind, Type: d.Type, Plural: d.Plural, Site: d.Site, Area: d.Area, Table: d.Table, Addressed: d.Addressed, Instance: d.Instance,
		Rename: d.Rename != nil, Secret: d.Secret != nil, Read: d.Read, Write: d.Write, Delete: d.Delete, Fields: fields, Filters: slices.Clone(d.Filters)}
	if i.Site == "" {
		i.Site = d.Plural
	}
	if i.Delete == nil {
		i.Delete = d.Write
	}
	for _, f := range fields {
		if f.Parent {
			i.Parent = &f
		}
		if f.Filter != "" {
			of := filterOf(f)
			if f.Parent {
				of = func(value any) store.Filter { return filterOf(f)(value).Narrow() }
			}
			i.Filters = append(i.Filters, Filter{Name: f.Filter, Of: of})
		}
	}
	return i
}

func filterOf(f store.Field) func(any) store.Filter {
	if f.Ref == "" {
		return func(value any) store.Filter { return store.Eq(f.Column, value) }
	}
	return func(value any) store.Filter {
		token, _ := value.(string)
		if f.Shared {
			return store.RefersToShared(f.Column, f.Ref, token)
		}
		return store.RefersTo(f.Column, f.Ref, token)
	}
}

// Criteria turns the criteria of a list into filters. Null and what is no filter of the kind do not restrict.
func (i *Info) Criteria(ctx context.Context, by *model.Principal, criteria map[string]any) (fs []store.Filter, err error) {
	for _, f := range i.Filters {
		v := criteria[f.Name]
		switch {
		case v == nil:
		case f.Find == nil:
			fs = append(fs, f.Of(v))
		default:
			found, err := f.Find(ctx, by, v)
			if err != nil {
				return nil, err
			}
			fs = append(fs, found)
		}
	}
	return fs, nil
}
