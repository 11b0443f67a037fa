package site

import (
	"reflect"
	"slices"
	"strings"

	"weir/auth"
	"weir/connectors"
	"weir/dashboard"
	"weir/govern"
	"weir/model"
	"weir/notify"
	"weir/provision"
	"weir/store"
	"weir/store/entity"
)

// kind is what can be declared under one key. Most are kinds of store/entity, whose description says all there is to say;
// see special.go for what a description cannot say.
type kind struct {
	name   string   // in messages and plans: "device"
	list   string   // the key of its list: "devices"
	ids    []string // the keys that name one of them: token, email; the values are joined by a slash
	fields []field
	lists  []*kind      // what is declared inside one of them
	outer  *kind        // what it is declared inside of
	live   entity.Any   // nil: no kind of store/entity
	parent *store.Field // of a part: the field that names the outer one
	early  bool         // what is not declared is deleted before others are made, see prune.go
	dotted bool         // the name may hold dots
	first  bool         // drafts are published before the kinds that follow are made, which refer to versions

	// What is special of some, see special.go.
	ordered  bool // the order of its list means something
	values   func(l *level, k *kind, rows []any, values []store.Patch) error
	find     func(l *level, k *kind, names []string) ([]any, error)
	named    func(row any) string // the name of a row
	remove   func(l *level, k *kind, name string) error
	secrets  func(l *level, k *kind, d *declared, row any, patch store.Patch) ([]FieldChange, error) // row is nil in a create
	write    func(l *level, k *kind, name string, fresh bool, patch store.Patch) error
	exported func(l *level, row any, e *Entity) error
	mentions func(e *Entity) []mention // what its documents name
}

// fieldType is how a value is written.
type fieldType uint8

const (
	textField fieldType = iota
	boolField
	integerField
	numberField
	instantField
	listField     // of texts
	setField      // of texts whose order means nothing
	documentField // JSON, as a mapping or as a text
)

type field struct {
	name        string
	column      string
	typ         fieldType
	ref         string // the list that it names a member of
	emptyClears bool
	emptyIsNone bool  // {} means null
	required    bool  // a create names it
	max         int64 // as of store.Field
	min         *int64
	oneOf       []string // permitted values; nil: any
	unique      bool     // no two in a tenant have the same value
	secret      bool     // given by name_file or name_env
	fresh       any      // value of a new one where the file names none; nil: none
	own         bool     // no field of the API: it says what to do, not what is
	keys        []string // a document has only these keys; nil: any

	uniqueInside bool                  // no two inside of one entity have the same value
	with         string                // of one that is uniqueInside: the field whose values it must not have either; "": its own only
	inner        func() map[string]any // JSON Schema of a document; nil: any
	placed       bool                  // the places inside of a document are kept: refusals name what is in it
	// normal is a document in the form in which it is compared, or what is wrong with it; nil: as it is.
	normal func(text string) (string, error)
	// normalList is the same of a list.
	normalList func([]string) ([]string, error)
	// sent is a document in the form in which the API takes it; nil: as it is.
	sent func(text string) string
}

// mention is a name in a document of an entity: a member of a list, and the path where it stands.
type mention struct{ list, name, path string }

// Format is everything that can be declared, by the keys of a file.
type Format struct {
	root, tenant, identity, membership *kind
	kinds                              []*kind // of store/entity, in their catalogs' order: what is referred to comes first
}

// Keys of the format that are no fields of the API.
const (
	keyVersion = "version"
	keyFrom    = "devicesFrom"
	keyFile    = "file"
	keyPublish = "publish"     // of a kind with versions: false leaves the draft unpublished
	keyAccess  = "accessToken" // column of a list of devices
	keySecret  = "secret"      // of a kind whose rows have one in the vault
)

// NewFormat makes the format of the kinds of some catalogs and of people. Kinds of the instance stand at the top of a file,
// those of a tenant inside of it, and parts inside of what they are a part of.
func NewFormat(catalogs ...*entity.Catalog) *Format {
	f := &Format{root: &kind{name: "site"}}
	for _, catalog := range catalogs {
		for _, live := range catalog.All() {
			if live.Info().Site != entity.NotInSites {
				f.kinds = append(f.kinds, newKind(live))
			}
		}
	}
	f.tenant = f.of(tableTenants)
	f.kinds = append(slices.DeleteFunc(f.kinds, func(k *kind) bool { return k == f.tenant }), f.tenant)
	f.people()
	for _, k := range f.kinds {
		f.place(k)
	}
	f.root.lists = append(f.root.lists, f.tenant, f.identity)
	for _, k := range slices.Backward(f.kinds) {
		k.early = f.goesFirst(k)
	}
	f.specialize()
	return f
}

// DefaultFormat is that of an instance's own catalogs, which are asked for their descriptions only: it reads, writes and describes, and
// applies nothing.
func DefaultFormat() *Format {
	tenants, _ := provision.Describe()
	return NewFormat(govern.Describe(), auth.Describe(), tenants.Kinds, tenants.Keyed, connectors.Describe(), notify.Describe(), dashboard.Describe())
}

func newKind(live entity.Any) *kind {
	info := live.Info()
	k := &kind{name: info.Kind, list: info.Site, live: live, parent: info.Parent, find: plainFind, named: live.Token, remove: plainRemove,
		secrets: plainSecrets, write: plainWrite}
	for _, d := range info.Fields {
		if d.Token {
			k.ids, k.dotted = []string{d.Name}, d.Dotted
		}
		if d.Name == "" || d.Token || d.Parent || d.Hidden {
			continue
		}
		k.fields = append(k.fields, field{name: d.Name, column: d.Column, typ: typeOf(&d), ref: d.Ref, emptyClears: d.EmptyClears, secret: d.Secret, oneOf: d.OneOf, unique: d.Unique && !d.Secret,
			required: d.Required && !d.Secret, max: d.Max, min: d.Min, fresh: freshValue(d.Name)})
	}
	if info.Secret {
		k.fields = append(k.fields, field{name: keySecret, secret: true})
		k.secrets = vaultSecrets
	}
	if live.Versions() != nil {
		k.fields = append(k.fields, field{name: keyPublish, typ: boolField, own: true})
	}
	return k
}

// freshValue is the value that a new entity has in a field of that name where the file names none.
func freshValue(name string) any {
	switch name {
	case "enabled":
		return true
	case "outOfRange": // the API's default is that of its contract, REFUSE, with which the worst reading raises no alarm
		return model.OutOfRangeFlag
	}
	return nil
}

// is reports whether these are the rows of a table.
func (k *kind) is(table string) bool { return k.live != nil && k.live.Info().Table == table }

// of returns the kind whose rows a table holds, nil for none.
func (f *Format) of(table string) *kind {
	i := slices.IndexFunc(f.kinds, func(k *kind) bool { return k.is(table) })
	if i < 0 {
		return nil
	}
	return f.kinds[i]
}

// place puts a kind where it is declared, and turns the tables that it refers to into lists.
func (f *Format) place(k *kind) {
	for i := range k.fields {
		if other := f.of(k.fields[i].ref); other != nil {
			k.fields[i].ref = other.list
		}
	}
	into := f.tenant
	switch {
	case k == f.tenant:
		k.outer = f.root // listed last
		return
	case k.parent != nil:
		into = f.of(k.parent.Ref)
	case k.live.Info().Instance:
		into = f.root
	}
	k.outer, into.lists = into, append(into.lists, k)
}

// goesFirst: what is a part, or holds something that must be unique, is deleted before others are made, so that one of them
// may take it; not so while something that stays until the end may refer to it.
func (f *Format) goesFirst(k *kind) bool {
	info := k.live.Info()
	unique := slices.ContainsFunc(info.Fields, func(d store.Field) bool { return d.Unique })
	if info.Instance || k.parent == nil && !unique {
		return false
	}
	return !slices.ContainsFunc(f.kinds, func(o *kind) bool {
		return !o.early && slices.ContainsFunc(o.live.Info().Refs(), func(d store.Field) bool { return d.Ref == info.Table })
	})
}

func typeOf(d *store.Field) fieldType {
	switch {
	case d.Ref != "":
		return textField
	case d.List:
		return listField
	case d.JSON:
		return documentField
	case d.Type() == reflect.TypeFor[model.Micros]():
		return instantField
	}
	switch d.Type().Kind() {
	case reflect.Bool:
		return boolField
	case reflect.Int64, reflect.Int, reflect.Int32:
		return integerField
	case reflect.Float64:
		return numberField
	}
	return textField
}

// field returns the field of that name, nil for none.
func (k *kind) field(name string) *field {
	for i := range k.fields {
		if k.fields[i].name == name {
			return &k.fields[i]
		}
	}
	return nil
}

// secretOf returns the secret field that a key with _file or _env names.
func (k *kind) secretOf(key string) (f *field, from string) {
	for _, from := range []string{"_file", "_env"} {
		if name, ok := strings.CutSuffix(key, from); ok {
			if f := k.field(name); f != nil && f.secret {
				return f, from
			}
		}
	}
	return nil, ""
}

// nested returns the kind whose list has that key, nil for none.
func (k *kind) nested(key string) *kind {
	for _, n := range k.lists {
		if n.list == key {
			return n
		}
	}
	return nil
}

// keys are all keys that one of the kind may have.
func (k *kind) keys() []string {
	var keys []string
	keys = append(keys, k.ids...)
	for _, f := range k.fields {
		if f.secret {
			keys = append(keys, f.name+"_file", f.name+"_env")
			if !f.literal() {
				continue
			}
		}
		keys = append(keys, f.name)
	}
	for _, n := range k.lists {
		keys = append(keys, n.list)
	}
	if k.is(tableTenants) {
		keys = append(keys, keyFrom)
	}
	return keys
}

// literal reports whether the secret may be one in name only: the credentialId of a user name or of a certificate.
func (f *field) literal() bool { return f.name == "credentialId" }
