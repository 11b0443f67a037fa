package engine

import (
	"fmt"
	"slices"

	"github.com/vektah/gqlparser/v2/ast"

	"weir/model"
)

// literalCoercer coerces values written in a document. While a document is validated vars is nil: the value of
// a variable is not known yet, so it fits everywhere (another rule checks its type). When a request runs vars holds the
// coerced variables, and the only thing that can still be wrong is a null.
type literalCoercer struct {
	schema *ast.Schema
	vars   map[string]any
	run    bool
	errs   []*Error
}

func (c *literalCoercer) failf(pos *ast.Position, format string, args ...any) {
	if len(c.errs) < maxInputErrors {
		c.errs = append(c.errs, Errorf(model.CodeInvalidInput, format, args...).at(pos))
	}
}

// value returns the coerced value; ok is false when it is a variable that was not given.
func (c *literalCoercer) value(t *ast.Type, v *ast.Value) (out any, ok bool) {
	switch v.Kind {
	case ast.Variable:
		out, ok = c.vars[v.Raw]
		if c.run && ok && out == nil && t.NonNull {
			c.failf(v.Position, `Expected value of type "%s", found null.`, t)
		}
		return out, ok
	case ast.NullValue:
		if t.NonNull {
			c.failf(v.Position, `Expected value of type "%s", found null.`, t)
		}
		return nil, true
	}
	if t.Elem != nil {
		return c.list(t, v), true
	}
	def := c.schema.Types[t.NamedType]
	if def.Kind == ast.InputObject {
		return c.object(def, v), true
	}
	out, problem := coerceLeaf(def, leafOfLiteral(v))
	if problem != "" {
		c.failf(v.Position, "%s", problem)
	}
	return out, true
}

// fill sets a default value.
func fill(schema *ast.Schema, into map[string]any, name string, t *ast.Type, def *ast.Value) []*Error {
	c := literalCoercer{schema: schema}
	if v, ok := c.value(t, def); ok {
		into[name] = v
	}
	return c.errs
}

func (c *literalCoercer) list(t *ast.Type, v *ast.Value) any {
	if v.Kind != ast.ListValue { // a single value stands for a list of one
		x, _ := c.value(t.Elem, v)
		return []any{x}
	}
	out := make([]any, len(v.Children))
	for i, child := range v.Children {
		var ok bool
		if out[i], ok = c.value(t.Elem, child.Value); !ok && c.run && t.Elem.NonNull {
			c.failf(child.Value.Position, `Expected value of type "%s", found null.`, t.Elem)
		}
	}
	return out
}

func (c *literalCoercer) object(def *ast.Definition, v *ast.Value) any {
	if v.Kind != ast.ObjectValue {
		c.failf(v.Position, `Expected value of type "%s", found %s.`, def.Name, clip(v.String()))
		return nil
	}
	for _, child := range v.Children {
		if def.Fields.ForName(child.Name) == nil {
			c.failf(child.Position, "%s", unknownField(def, child.Name))
		}
	}
	out := make(map[string]any, len(v.Children))
	for _, f := range def.Fields {
		i := slices.IndexFunc(v.Children, func(child *ast.ChildValue) bool { return child.Name == f.Name })
		if i >= 0 {
			x, ok := c.value(f.Type, v.Children[i].Value)
			if ok {
				out[f.Name] = x
				continue
			}
			if !c.run {
				continue // a variable without a known value
			}
		}
		if f.DefaultValue != nil {
			fill(c.schema, out, f.Name, f.Type, f.DefaultValue)
			continue
		}
		if f.Type.NonNull {
			c.failf(v.Position, `Field "%s.%s" of required type "%s" was not provided.`, def.Name, f.Name, f.Type)
		}
	}
	return out
}

// arguments coerces the arguments of a field or directive.
func (c *literalCoercer) arguments(defs ast.ArgumentDefinitionList, args ast.ArgumentList, pos *ast.Position) Args {
	out := make(map[string]any, len(defs))
	for _, d := range defs {
		if a := args.ForName(d.Name); a != nil {
			if v, ok := c.value(d.Type, a.Value); ok {
				out[d.Name] = v
				continue
			}
			if !c.run {
				continue
			}
			pos = a.Position
		}
		if d.DefaultValue != nil {
			fill(c.schema, out, d.Name, d.Type, d.DefaultValue)
			continue
		}
		if d.Type.NonNull {
			c.failf(pos, `Argument "%s" of required type "%s" was not provided.`, d.Name, d.Type)
		}
	}
	return Args{out}
}

func leafOfLiteral(v *ast.Value) leaf {
	switch v.Kind {
	case ast.IntValue:
		return leaf{intLeaf, v.Raw}
	case ast.FloatValue:
		return leaf{floatLeaf, v.Raw}
	case ast.StringValue, ast.BlockValue:
		return leaf{stringLeaf, v.Raw}
	case ast.BooleanValue:
		return leaf{booleanLeaf, v.Raw}
	case ast.EnumValue:
		return leaf{enumLeaf, v.Raw}
	}
	return leaf{otherLeaf, v.String()}
}

// isConstant reports whether a value holds no variable.
func isConstant(v *ast.Value) bool {
	if v.Kind == ast.Variable {
		return false
	}
	return !slices.ContainsFunc(v.Children, func(child *ast.ChildValue) bool { return !isConstant(child.Value) })
}

// listLimit finds a list that is longer than allowed; path is dotted, without indexes.
func listLimit(v any, path string, maximum func(path string) int) *Error {
	switch v := v.(type) {
	case []any:
		if limit := maximum(path); len(v) > limit {
			return LimitError("list argument", "the list %q has %d elements, at most %d are allowed", path, len(v), limit)
		}
		for _, x := range v {
			if err := listLimit(x, path, maximum); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, name := range sortedKeys(v) {
			if err := listLimit(v[name], joinPath(path, name), maximum); err != nil {
				return err
			}
		}
	}
	return nil
}

func joinPath(path, name string) string {
	if path == "" {
		return name
	}
	return fmt.Sprintf("%s.%s", path, name)
}
