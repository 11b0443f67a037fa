package store

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"weir/model"
)

// Field describes a column of a kind of entity and the rules of its updates: what the API, the journal and the site
// file know of it. It is read off the struct tags of the entity:
//
//	Name *string `store:"name,clear,max=128" gql:"name"`
//
// store holds the column and then options, gql the name that a Patch uses (default: the Go name with a small first
// letter). A field without one of the options that make it a field of the API (token, clear, required, keep, immutable) is
// set by code only.
//
// The Go type decides about the values of a patch: string, bool, int64 (or int), float64, model.Micros (an RFC 3339
// text), []string (a JSON array in the column); a pointer where the column may be null.
type Field struct {
	Name   string // in the API; "" when no patch may name it
	Column string
	Label  string // name for messages: Name, or the column

	Token       bool // token: the entity's own token; checked against the token pattern, immutable
	Dotted      bool // dotted: the token may hold dots
	Unique      bool // unique: it has a unique index, in addition to the token's
	Clear       bool // clear: null clears; the zero value where the Go type is no pointer
	Required    bool // required: keep or set; null refused, and a create must name it
	Keep        bool // keep: keep or set; null refused in an update, and a create may leave it out
	Immutable   bool // immutable: named in creates only
	EmptyClears bool // emptyclears: "" is null
	Secret      bool // secret: never read through the API
	Hidden      bool // hidden: not in requests and responses; code uses it by its name
	JSON        bool // json: a well-formed JSON document, not null; objects and lists of a patch are written as one
	Large       bool // large: a text that lists leave out; reads of single rows have it
	List        bool // a list of strings
	NonEmpty    bool // nonempty: neither "" nor an empty list

	Max    int64    // max=: characters of a text, bytes of a document, the value of a number, the length of a list
	Min    *int64   // min=: the value of a number
	OneOf  []string // oneof=a|b
	Ref    string   // ref=table: a patch names a token of that table in the same tenant, the column holds the row id
	Shared bool     // shared: Ref is a table of the instance
	Parent bool     // parent: the row is a part of the one that Ref names, and goes with it
	Filter string   // filter or filter=name: lists may be restricted to a value of the field; name is that of the criterion

	index []int
	typ   reflect.Type // without the pointer
	null  bool         // the Go type is a pointer
}

var (
	rowType    = reflect.TypeFor[Row]()
	microsType = reflect.TypeFor[model.Micros]()
	listType   = reflect.TypeFor[[]string]()
	bytesType  = reflect.TypeFor[[]byte]()
)

// fieldsOf reads the description of an entity's struct. It panics on a mistake in the description.
func fieldsOf(entity reflect.Type) []*Field {
	if entity.Kind() != reflect.Struct {
		panic(fmt.Sprintf("store: %s is no struct", entity))
	}
	row, ok := entity.FieldByName("Row")
	if !ok || row.Type != rowType || !row.Anonymous {
		panic(fmt.Sprintf("store: %s embeds no store.Row", entity))
	}
	var fs []*Field
	for _, sf := range reflect.VisibleFields(entity) {
		tag, ok := sf.Tag.Lookup("store")
		if !ok {
			continue
		}
		f, err := newField(sf, tag)
		if err != nil {
			panic(fmt.Sprintf("store: %s.%s: %v", entity, sf.Name, err))
		}
		if slices.ContainsFunc(fs, func(o *Field) bool { return o.Column == f.Column || f.Name != "" && o.Name == f.Name }) {
			panic(fmt.Sprintf("store: %s.%s: described twice", entity, sf.Name))
		}
		fs = append(fs, f)
	}
	return fs
}

func newField(sf reflect.StructField, tag string) (*Field, error) {
	options := strings.Split(tag, ",")
	f := &Field{Column: options[0], index: sf.Index, typ: sf.Type}
	if f.Column == "" {
		return nil, fmt.Errorf("no column")
	}
	if sf.Type.Kind() == reflect.Pointer {
		f.null, f.typ = true, sf.Type.Elem()
	}
	f.List = f.typ == listType
	for _, option := range options[1:] {
		if err := f.option(option); err != nil {
			return nil, err
		}
	}
	if f.Token || f.Clear || f.Required || f.Keep || f.Immutable {
		f.Name = apiName(sf)
	}
	f.Label = cmp.Or(f.Name, f.Column)
	if f.Filter == filterByName {
		f.Filter = apiName(sf)
	}
	return f, f.consistent()
}

// filterByName is the Filter of a field until its name is known.
const filterByName = "="

func apiName(sf reflect.StructField) string {
	if name := sf.Tag.Get("gql"); name != "" {
		return name
	}
	return strings.ToLower(sf.Name[:1]) + sf.Name[1:]
}

func (f *Field) option(option string) error {
	name, value, _ := strings.Cut(option, "=")
	switch name {
	case "token":
		f.Token, f.Immutable, f.Required = true, true, true
	case "dotted":
		f.Dotted = true
	case "unique":
		f.Unique = true
	case "clear":
		f.Clear = true
	case "required":
		f.Required = true
	case "keep":
		f.Keep = true
	case "immutable":
		f.Immutable = true
	case "emptyclears":
		f.EmptyClears = true
	case "secret":
		f.Secret = true
	case "hidden":
		f.Hidden = true
	case "json":
		f.JSON = true
	case "large":
		f.Large = true
	case "list":
		f.List = true
	case "nonempty":
		f.NonEmpty = true
	case "shared":
		f.Shared = true
	case "parent":
		f.Parent = true
	case "filter":
		f.Filter = cmp.Or(value, filterByName)
	case "ref":
		f.Ref = value
	case "oneof":
		f.OneOf = strings.Split(value, "|")
	case "max":
		return f.number(value, &f.Max)
	case "min":
		f.Min = new(int64)
		return f.number(value, f.Min)
	default:
		return fmt.Errorf("unknown option %q", option)
	}
	return nil
}

func (f *Field) number(value string, to *int64) (err error) {
	*to, err = strconv.ParseInt(value, 10, 64)
	return err
}

// checkToken refuses what can be no token of the kind.
func (f *Field) checkToken(label, s string) error {
	if f.Dotted {
		return model.CheckDotted(label, s)
	}
	return model.CheckToken(label, s)
}

// consistent refuses descriptions that contradict themselves.
func (f *Field) consistent() error {
	text := f.typ.Kind() == reflect.String
	switch {
	case f.typ == microsType, f.typ == listType, f.typ == bytesType:
	case text, f.typ.Kind() == reflect.Bool, isInt(f.typ.Kind()), f.typ.Kind() == reflect.Float64:
	default:
		return fmt.Errorf("type %s has no column type", f.typ)
	}
	switch {
	case f.Clear && f.Required:
		return fmt.Errorf("both clear and required")
	case f.Keep && (f.Clear || f.Required || f.Immutable):
		return fmt.Errorf("keep and another of clear, required, immutable")
	case f.EmptyClears && !f.Clear:
		return fmt.Errorf("emptyclears without clear")
	case f.Token && !(text && !f.null):
		return fmt.Errorf("a token is a string")
	case f.Ref != "" && f.typ.Kind() != reflect.Int64:
		return fmt.Errorf("a reference is an int64")
	case f.Ref != "" && f.Clear && !f.null:
		return fmt.Errorf("a reference that can be cleared is a pointer")
	case f.Parent && (f.Ref == "" || !f.Required):
		return fmt.Errorf("a parent is a required reference")
	case f.JSON && !text:
		return fmt.Errorf("a document is a string")
	case f.Large && !(text && f.Required && (f.JSON || f.NonEmpty)):
		return fmt.Errorf("a large field is a required text that is never empty: in a list it is")
	case f.List != (f.typ == listType):
		return fmt.Errorf("a list is a []string")
	case f.List && f.null:
		return fmt.Errorf("a list is no pointer")
	case f.Name != "" && f.typ == bytesType:
		return fmt.Errorf("no patch can hold bytes")
	}
	return nil
}

func isInt(k reflect.Kind) bool { return k == reflect.Int || k == reflect.Int32 || k == reflect.Int64 }
