package engine

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"

	"weir/model"
)

// maxInputErrors bounds the errors about the values of one request.
const maxInputErrors = 20

// variables coerces the values that came with a request (decoded with UseNumber) to the types that the operation
// declares. In the result a variable that was not given and has no default is absent. Texts are those of graphql-js, on
// which clients rely. Values of variables that the operation does not declare are ignored.
func (e *Engine) variables(op *ast.OperationDefinition, in map[string]any) (map[string]any, []*Error) {
	c := variableCoercer{schema: e.schema}
	out := make(map[string]any, len(op.VariableDefinitions))
	for _, d := range op.VariableDefinitions {
		c.def = d
		v, sent := in[d.Variable]
		switch {
		case !sent && d.DefaultValue != nil:
			c.errs = append(c.errs, fill(e.schema, out, d.Variable, d.Type, d.DefaultValue)...)
		case !sent && d.Type.NonNull:
			c.failf(`Variable "$%s" of required type "%s" was not provided.`, d.Variable, d.Type)
		case !sent:
		case v == nil && d.Type.NonNull:
			c.failf(`Variable "$%s" of non-null type "%s" must not be null.`, d.Variable, d.Type)
		default:
			out[d.Variable] = c.value(d.Type, v, nil)
		}
	}
	return out, c.errs
}

type variableCoercer struct {
	schema *ast.Schema
	def    *ast.VariableDefinition
	errs   []*Error
}

func (c *variableCoercer) failf(format string, args ...any) {
	switch len(c.errs) {
	case maxInputErrors:
		return
	case maxInputErrors - 1:
		c.errs = append(c.errs, Errorf(model.CodeInvalidInput, "Too many errors processing variables, error limit reached."))
		return
	}
	c.errs = append(c.errs, Errorf(model.CodeInvalidInput, format, args...).at(c.def.Position))
}

func (c *variableCoercer) invalid(v any, path *inputPath, message string) {
	if len(c.errs) >= maxInputErrors {
		return
	}
	at := ""
	if path != nil {
		at = fmt.Sprintf(` at "%s%s"`, c.def.Variable, path)
	}
	c.failf(`Variable "$%s" got invalid value %s%s; %s`, c.def.Variable, inspect(v), at, message)
}

func (c *variableCoercer) value(t *ast.Type, v any, path *inputPath) any {
	if v == nil {
		if t.NonNull {
			c.invalid(v, path, fmt.Sprintf(`Expected non-nullable type "%s" not to be null.`, t))
		}
		return nil
	}
	if t.Elem != nil {
		list, ok := v.([]any)
		if !ok { // a single value stands for a list of one
			return []any{c.value(t.Elem, v, path)}
		}
		out := make([]any, len(list))
		for i, x := range list {
			out[i] = c.value(t.Elem, x, &inputPath{up: path, index: i})
		}
		return out
	}
	def := c.schema.Types[t.NamedType]
	if def.Kind == ast.InputObject {
		return c.object(def, v, path)
	}
	out, problem := coerceLeaf(def, leafOfJSON(v))
	if problem != "" {
		c.invalid(v, path, problem)
	}
	return out
}

func (c *variableCoercer) object(def *ast.Definition, v any, path *inputPath) any {
	m, ok := v.(map[string]any)
	if !ok {
		c.invalid(v, path, fmt.Sprintf(`Expected type "%s" to be an object.`, def.Name))
		return nil
	}
	out := make(map[string]any, len(m))
	known := 0
	for _, f := range def.Fields {
		x, sent := m[f.Name]
		if sent {
			known++
			out[f.Name] = c.value(f.Type, x, &inputPath{up: path, key: f.Name})
			continue
		}
		if f.DefaultValue != nil {
			fill(c.schema, out, f.Name, f.Type, f.DefaultValue) // the schema's default is valid
			continue
		}
		if f.Type.NonNull {
			c.invalid(v, path, fmt.Sprintf(`Field "%s" of required type "%s" was not provided.`, f.Name, f.Type))
		}
	}
	if known < len(m) {
		for _, name := range sortedKeys(m) {
			if def.Fields.ForName(name) == nil {
				c.invalid(v, path, unknownField(def, name))
			}
		}
	}
	return out
}

// unknownField is the refusal of a field that an input type does not have, with a suggestion of the nearest one.
func unknownField(def *ast.Definition, name string) string {
	names := make([]string, len(def.Fields))
	for i, f := range def.Fields {
		names[i] = f.Name
	}
	return fmt.Sprintf(`Field "%s" is not defined by type "%s".`, clip(name), def.Name) + didYouMean(`"`, "", name, names)
}

// inputPath is the coercion's position in a variable's value.
type inputPath struct {
	up    *inputPath
	key   string // "" for an element of a list
	index int
}

func (p *inputPath) String() string {
	if p == nil {
		return ""
	}
	if p.key == "" {
		return p.up.String() + "[" + strconv.Itoa(p.index) + "]"
	}
	return p.up.String() + "." + p.key
}

// leaf is a scalar or enum value as it was written, from a literal or from JSON.
type leaf struct {
	kind leafKind
	text string // digits, string content, true or false, enum name; else how it is shown in a refusal
}

type leafKind uint8

const (
	otherLeaf leafKind = iota // an object or list where a leaf belongs
	intLeaf
	floatLeaf
	stringLeaf
	booleanLeaf
	enumLeaf // a name, possible in a literal only
	jsonText // a JSON string, which may stand for an enum's name
)

func leafOfJSON(v any) leaf {
	switch v := v.(type) {
	case string:
		return leaf{jsonText, v}
	case bool:
		return leaf{booleanLeaf, strconv.FormatBool(v)}
	case json.Number:
		return leafOfNumber(string(v))
	case float64: // from callers within the process
		return leafOfNumber(strconv.FormatFloat(v, 'g', -1, 64))
	case int:
		return leaf{intLeaf, strconv.Itoa(v)}
	}
	return leaf{otherLeaf, inspect(v)}
}

// leafOfNumber distinguishes whole numbers from others. JSON has one kind of number, so 5.0 is the Int 5 as well.
func leafOfNumber(s string) leaf {
	if !strings.ContainsAny(s, ".eE") {
		return leaf{intLeaf, s}
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil && f == math.Trunc(f) && math.Abs(f) <= 1<<53 {
		return leaf{intLeaf, strconv.FormatInt(int64(f), 10)}
	}
	return leaf{floatLeaf, s}
}

// shown is the value as a refusal quotes it.
func (l leaf) shown() string {
	switch l.kind {
	case stringLeaf, jsonText:
		return strconv.Quote(clip(l.text))
	}
	return clip(l.text)
}

// coerceLeaf returns the value of a scalar or enum: string, int, float64 or bool. problem is "" or what is wrong with it.
func coerceLeaf(def *ast.Definition, l leaf) (v any, problem string) {
	if def.Kind == ast.Enum {
		return coerceEnum(def, l)
	}
	switch def.Name {
	case "String":
		if l.kind == stringLeaf || l.kind == jsonText {
			return l.text, ""
		}
		return nil, "String cannot represent a non string value: " + l.shown()
	case "ID":
		if l.kind == stringLeaf || l.kind == jsonText || l.kind == intLeaf {
			return l.text, ""
		}
		return nil, "ID cannot represent a non-string and non-integer value: " + l.shown()
	case "Boolean":
		if l.kind == booleanLeaf {
			return l.text == "true", ""
		}
		return nil, "Boolean cannot represent a non boolean value: " + l.shown()
	case "Int":
		if l.kind != intLeaf {
			return nil, "Int cannot represent non-integer value: " + l.shown()
		}
		n, err := strconv.ParseInt(l.text, 10, 32)
		if err != nil {
			return nil, "Int cannot represent non 32-bit signed integer value: " + l.shown()
		}
		return int(n), ""
	case "Float":
		if l.kind == intLeaf || l.kind == floatLeaf {
			if f, err := strconv.ParseFloat(l.text, 64); err == nil {
				return f, ""
			}
		}
		return nil, "Float cannot represent non numeric value: " + l.shown()
	}
	return nil, fmt.Sprintf(`Scalar "%s" takes no input.`, def.Name)
}

func coerceEnum(def *ast.Definition, l leaf) (any, string) {
	names := make([]string, len(def.EnumValues))
	for i, v := range def.EnumValues {
		names[i] = v.Name
	}
	meant := didYouMean(`"`, "the enum value ", l.text, names)
	switch {
	case l.kind == stringLeaf:
		return nil, fmt.Sprintf(`Enum "%s" cannot represent non-enum value: %s.`, def.Name, l.shown()) + meant
	case l.kind != enumLeaf && l.kind != jsonText:
		return nil, fmt.Sprintf(`Enum "%s" cannot represent non-string value: %s.`, def.Name, l.shown())
	case def.EnumValues.ForName(l.text) == nil:
		return nil, fmt.Sprintf(`Value "%s" does not exist in "%s" enum.`, clip(l.text), def.Name) + meant
	}
	return l.text, ""
}
