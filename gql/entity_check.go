package gql

import (
	"fmt"
	"slices"

	"github.com/vektah/gqlparser/v2/ast"

	"weir/store"
	"weir/store/entity"
)

// checkEntity compares the description of a kind with the schema: names, null, what an update may change, the criteria of
// lists.
func checkEntity(schema *ast.Schema, info *entity.Info) (problems []error) {
	c := entityCheck{schema: schema, info: info}
	create, update := c.input("CreateRequest"), c.input("UpdateRequest")
	var inCreate, inUpdate, criteria []string
	for _, f := range info.Fields {
		if f.Name == "" || f.Hidden {
			continue
		}
		inCreate = append(inCreate, f.Name)
		if def := create.ForName(f.Name); def != nil && def.Type.NonNull != f.Required {
			c.failf("%sCreateRequest.%s is %s, but the field's required is %v", info.Type, f.Name, def.Type, f.Required)
		}
		if !f.Immutable {
			inUpdate = append(inUpdate, f.Name)
		}
		c.shows(f)
	}
	if info.Secret {
		inCreate, inUpdate = append(inCreate, "secret"), append(inUpdate, "secret")
	}
	for _, f := range info.Filters {
		criteria = append(criteria, f.Name)
	}
	c.same("CreateRequest", create, inCreate)
	c.same("UpdateRequest", update, inUpdate)
	if list := c.input("SearchCriteria"); list != nil {
		c.same("SearchCriteria", list, append(criteria, "pageNumber", "pageSize"))
	}
	for _, def := range update {
		if def.Type.NonNull || def.DefaultValue != nil {
			c.failf("%sUpdateRequest.%s is %s with default %v: absent and null could not be distinguished", info.Type, def.Name, def.Type, def.DefaultValue)
		}
	}
	if info.Rename != (schema.Mutation != nil && schema.Mutation.Fields.ForName("rename"+info.Type) != nil) {
		c.failf("rename%s: the description says %v, the schema otherwise", info.Type, info.Rename)
	}
	return c.problems
}

type entityCheck struct {
	schema   *ast.Schema
	info     *entity.Info
	problems []error
}

func (c *entityCheck) failf(format string, args ...any) {
	c.problems = append(c.problems, fmt.Errorf(format, args...))
}

// input returns the fields of an input type, nil when the schema does not have it.
func (c *entityCheck) input(suffix string) ast.FieldList {
	if def := c.schema.Types[c.info.Type+suffix]; def != nil {
		return def.Fields
	}
	return nil
}

// shows returns the field that shows what an update sets.
func (c *entityCheck) shows(f store.Field) {
	def := c.schema.Types[c.info.Type].Fields.ForName(f.Name)
	switch {
	case !f.Immutable && f.Clear == (f.Required || f.Keep):
		c.failf("%s.%s: null must either clear or be refused", c.info.Type, f.Name)
	case f.Ref == "" && !f.Secret && (def == nil || def.Type.NonNull && !f.Required && !f.List && (f.Nullable() || !f.Immutable && !f.Keep)):
		c.failf("%s.%s does not show a field with required %v", c.info.Type, f.Name, f.Required)
	}
}

// same compares the names of an input with those of the description.
func (c *entityCheck) same(suffix string, fields ast.FieldList, want []string) {
	if fields == nil {
		return
	}
	var got []string
	for _, f := range fields {
		got = append(got, f.Name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		c.failf("%s%s has the fields %v, the description %v", c.info.Type, suffix, got, want)
	}
}
