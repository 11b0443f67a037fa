package site

import (
	"fmt"
	"strings"

	"weir/internal/yamldoc"
	"weir/store"
)

// Version is the version of the format that this Weir reads and writes.
const Version = 1

// Document is a declared state: files that were read and merged, with their secrets. It travels as JSON.
type Document struct {
	Files []File               `json:"files"`
	Lists map[string][]*Entity `json:"lists"` // by the key of the list; a list that is there may be empty

	format *Format // nil: the default one
}

// File is one of the files that a document was read from.
type File struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// Entity is one thing that is declared.
type Entity struct {
	Name string   `json:"name"` // its token; the email of an identity, the tenant of a membership
	At   Position `json:"at"`
	// Fields are those that the file names: null clears. Values are string, bool, int64, float64 and []any of string; a
	// document is its JSON text.
	Fields store.Patch `json:"fields,omitempty"`
	// Secrets are what _file and _env gave, by field.
	Secrets map[string]string `json:"secrets,omitempty"`
	// Places are line and column of the fields, in the file of the entity.
	Places map[string][2]int    `json:"places,omitempty"`
	Lists  map[string][]*Entity `json:"lists,omitempty"`

	scope string // where its name is unique, while it is read
}

// Position is where something is declared.
type Position struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Path   string `json:"path,omitempty"`
}

func (p Position) String() string {
	if p.Column == 0 {
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// field is the place of one of the entity's fields or of what a document has at a path, its own where there is none.
func (e *Entity) field(name string) Position {
	at := e.At
	for ; name != ""; name = name[:max(strings.LastIndexAny(name, ".["), 0)] { // what is around it, where it has no place
		for _, key := range []string{name, name + "_file", name + "_env"} {
			if p, ok := e.Places[key]; ok {
				at.Line, at.Column, at.Path = p[0], p[1], yamldoc.Join(e.At.Path, key)
				return at
			}
		}
	}
	return at
}

// Tenants are the tokens of the tenants that the document declares.
func (d *Document) Tenants() (tokens []string) {
	for _, e := range d.Lists[tableTenants] {
		tokens = append(tokens, e.Name)
	}
	return tokens
}

// entities counts what the document declares.
func (d *Document) entities() int {
	var count func(lists map[string][]*Entity) int
	count = func(lists map[string][]*Entity) (n int) {
		for _, list := range lists {
			n += len(list)
			for _, e := range list {
				n += count(e.Lists)
			}
		}
		return n
	}
	return count(d.Lists)
}

// settle restores the types of a document that was encoded as JSON: whole numbers were decoded as floats.
func (d *Document) settle(k *kind) {
	if d.Lists == nil {
		d.Lists = map[string][]*Entity{}
	}
	settle(k, d.Lists)
}

func settle(k *kind, lists map[string][]*Entity) {
	for key, list := range lists {
		n := k.nested(key)
		if n == nil {
			continue
		}
		for _, e := range list {
			for i := range n.fields {
				if v, ok := e.Fields[n.fields[i].name].(float64); ok && n.fields[i].typ == integerField {
					e.Fields[n.fields[i].name] = int64(v)
				}
			}
			settle(n, e.Lists)
		}
	}
}

// Problems is everything that is wrong with the files of a site, in their order.
type Problems yamldoc.Problems

func (ps Problems) Error() string {
	return "the site file is not valid:\n" + yamldoc.Problems(ps).Lines()
}
