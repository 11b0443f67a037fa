package site

import (
	"fmt"
	"maps"
	"slices"

	"weir/internal/sheet"
	"weir/internal/yamldoc"
	"weir/model"
	"weir/registry"
	"weir/store"
)

// fleets reads devicesFrom: lists of devices in CSV files. The other keys of an item are fields that each of its devices
// has, unless its row says otherwise.
func (r *reader) fleets(tenant *Entity, n *yamldoc.Node, path, scope string) {
	switch n.Kind {
	case yamldoc.Null:
		return
	case yamldoc.List:
	default:
		r.problem(start(n), path, "begin each with a dash", "must be a list")
		return
	}
	if tenant.Lists == nil {
		tenant.Lists = map[string][]*Entity{}
	}
	if tenant.Lists["devices"] == nil {
		tenant.Lists["devices"] = []*Entity{}
	}
	for i, item := range n.Items {
		r.fleet(tenant, item, fmt.Sprintf("%s[%d]", path, i), scope)
	}
}

func (r *reader) fleet(tenant *Entity, n *yamldoc.Node, path, scope string) {
	file := n.Get(keyFile)
	if n.Kind != yamldoc.Map || file == nil || file.Kind != yamldoc.Scalar {
		r.problem(start(n), path, "", "must be a mapping with %s: the CSV file, whose columns are fields of a device", keyFile)
		return
	}
	shared := store.Patch{}
	for _, e := range n.Entries {
		f := r.format.of(tableDevices).field(e.Key)
		switch full := yamldoc.Join(path, e.Key); {
		case e.Key == keyFile:
		case f == nil:
			r.problem(e.Place, full, suggestOr(e.Key, r.columns()), "is not a field of a device")
		default:
			if v, ok := r.fieldValue(f, e.Value, full); ok {
				shared[f.name] = v
			}
		}
	}
	name := beside(file.Place.File.Name, file.Text)
	text, ok := r.text(name, file.Place, yamldoc.Join(path, keyFile))
	if !ok {
		return
	}
	r.rows(tenant, &csvFile{name: name, shared: shared, scope: scope}, text)
}

// columns are what a CSV file of devices may have.
func (r *reader) columns() []string {
	cols := []string{"token", keyAccess}
	for _, f := range r.format.of(tableDevices).fields {
		cols = append(cols, f.name)
	}
	return cols
}

// csvFile is a list of devices that is being read.
type csvFile struct {
	name    string
	shared  store.Patch
	scope   string
	columns []string
}

// rows reads the devices. The lines are never shown: they may hold access tokens.
func (r *reader) rows(tenant *Entity, c *csvFile, text []byte) {
	file := yamldoc.NewFile(c.name)
	at := func(line int) yamldoc.Position { return yamldoc.Position{File: file, Line: line, Column: 1} }
	read := sheet.Read(text, r.columns())
	if slices.Contains(read.Columns, keyAccess) {
		r.exposed(c.name)
	}
	for _, p := range read.Problems {
		r.problem(at(p.Line), p.Column, p.Hint, "%s", p.Reason)
	}
	c.columns = read.Columns
	for _, row := range read.Rows {
		r.row(tenant, c, row.Cells, at(row.Line))
	}
}

// row reads one device. An empty cell says nothing: the field is kept, or is what all rows share.
func (r *reader) row(tenant *Entity, c *csvFile, row []string, at yamldoc.Position) {
	e := &Entity{At: Position{File: c.name, Line: at.Line, Column: at.Column}, Fields: maps.Clone(c.shared)}
	access := ""
	for i, text := range row {
		switch f := r.format.of(tableDevices).field(c.columns[i]); {
		case text == "":
		case c.columns[i] == "token":
			e.Name = text
		case c.columns[i] == keyAccess:
			access = text
		default:
			if v, ok := r.fieldValue(f, &yamldoc.Node{Kind: yamldoc.Scalar, Place: at, Text: text}, c.columns[i]); ok {
				e.Fields[f.name] = v
			}
		}
	}
	e.scope = c.scope
	r.items = append(r.items, item{r.format.of(tableDevices), e, tenant})
	if !model.ValidToken(e.Name) {
		r.problem(at, "token", "letters, digits, - and _, at most 128; the first is a letter or a digit", "is no token")
		return
	}
	if _, fresh := r.declare(r.format.of(tableDevices), c.scope, e, tenant.Lists); !fresh || access == "" {
		return
	}
	e.Lists = map[string][]*Entity{}
	credential := &Entity{Name: e.Name + "-access-token", At: e.At, Fields: store.Patch{"credentialType": registry.AccessToken},
		Secrets: map[string]string{"credentialId": access}}
	if !model.ValidToken(credential.Name) {
		r.problem(at, keyAccess, "give it a shorter token, or declare its credentials under devices", "the credential of the device would have the token %q, which is too long", shortened(credential.Name))
		return
	}
	r.declare(r.format.of(tableCredentials), c.scope, credential, e.Lists)
}
