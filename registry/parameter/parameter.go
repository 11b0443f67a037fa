// Package parameter checks the payload of a command against the parameters that its definition declares. It knows no device
// and no store: a schema is a text, and so is a payload. Both come from callers of the API, so that everything in them is
// bounded.
package parameter

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of a schema.
const (
	MaxParameters = 256 // at all depths together
	MaxDepth      = 8
	MaxName       = 128 // characters of a name
	MaxEnum       = 256 // values of an enum
)

// Schema is the parameters of a command: the keys that its payload may have.
type Schema struct{ params []parameter }

// parameter is one entry of a schema, in the form in which it is written. Every member but the name may be absent or null.
type parameter struct {
	Name        string            `json:"name"`
	Description *string           `json:"description"`
	Kind        *string           `json:"kind"` // SCALAR, OBJECT; absent: SCALAR
	DataType    *string           `json:"dataType"`
	Unit        *string           `json:"unit"`
	Required    *bool             `json:"required"`
	Default     *string           `json:"default"` // a hint for people, never put into a payload
	MinValue    *float64          `json:"minValue"`
	MaxValue    *float64          `json:"maxValue"`
	Enum        []json.RawMessage `json:"enum"`
	Parameters  []parameter       `json:"parameters"`

	allowed []any // Enum: strings, or numbers as float64
}

func (p *parameter) object() bool { return p.Kind != nil && *p.Kind == "OBJECT" }

func (p *parameter) dataType() string {
	if p.DataType == nil {
		return ""
	}
	return *p.DataType
}

func (p *parameter) numeric() bool { return p.dataType() == "DOUBLE" || p.dataType() == "INT" }

// Parse reads a schema, a JSON array of parameters. An error says which parameter is wrong, and how.
func Parse(text string) (*Schema, error) {
	if !strings.HasPrefix(strings.TrimLeft(text, " \t\r\n"), "[") {
		return nil, errors.New("must be a JSON array of parameters")
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	s := &Schema{}
	if err := d.Decode(&s.params); err != nil {
		return nil, fmt.Errorf("is no JSON array of parameters: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("has something after the JSON array of parameters")
	}
	left := MaxParameters
	return s, complete(s.params, "", 1, &left)
}

// complete checks the parameters of one object and puts their enums into the form that a payload is compared with. left is how
// many parameters the schema may still have.
func complete(params []parameter, path string, depth int, left *int) error {
	if depth > MaxDepth {
		return fmt.Errorf("%s: objects are nested more than %d deep", path, MaxDepth)
	}
	names := make(map[string]bool, len(params))
	for i := range params {
		p := &params[i]
		at := join(path, p.Name)
		if *left--; *left < 0 {
			return fmt.Errorf("has more than %d parameters", MaxParameters)
		}
		switch {
		case p.Name == "":
			return fmt.Errorf("parameter %d of %s has no name", i+1, shown(path))
		case utf8.RuneCountInString(p.Name) > MaxName:
			return fmt.Errorf("parameter %d of %s has a name of more than %d characters", i+1, shown(path), MaxName)
		case names[p.Name]:
			return fmt.Errorf("%s is declared twice", at)
		case p.Kind != nil && *p.Kind != "SCALAR" && *p.Kind != "OBJECT":
			return fmt.Errorf("%s: kind %.40q is neither SCALAR nor OBJECT", at, *p.Kind)
		}
		names[p.Name] = true
		if err := p.complete(at, depth, left); err != nil {
			return err
		}
	}
	return nil
}

// complete checks one parameter by its kind.
func (p *parameter) complete(at string, depth int, left *int) error {
	if !p.object() {
		return p.scalar(at)
	}
	if p.DataType != nil || p.Unit != nil || p.Default != nil || p.MinValue != nil || p.MaxValue != nil || len(p.Enum) > 0 {
		return fmt.Errorf("%s: an OBJECT has parameters, and no dataType, unit, default, minValue, maxValue and enum", at)
	}
	return complete(p.Parameters, at, depth+1, left)
}

func (p *parameter) scalar(at string) error {
	switch {
	case len(p.Parameters) > 0:
		return fmt.Errorf("%s: only an OBJECT has parameters", at)
	case !slices.Contains([]string{"DOUBLE", "INT", "BOOLEAN", "STRING"}, p.dataType()):
		return fmt.Errorf("%s: dataType must be DOUBLE, INT, BOOLEAN or STRING", at)
	case !p.numeric() && (p.MinValue != nil || p.MaxValue != nil):
		return fmt.Errorf("%s: only DOUBLE and INT have minValue and maxValue", at)
	case p.MinValue != nil && p.MaxValue != nil && *p.MinValue > *p.MaxValue:
		return fmt.Errorf("%s: minValue %v is above maxValue %v", at, *p.MinValue, *p.MaxValue)
	case len(p.Enum) > 0 && p.dataType() == "BOOLEAN":
		return fmt.Errorf("%s: a BOOLEAN has no enum", at)
	case len(p.Enum) > MaxEnum:
		return fmt.Errorf("%s: enum has more than %d values", at, MaxEnum)
	}
	for i, raw := range p.Enum {
		v, err := p.allow(raw)
		if err != nil {
			return fmt.Errorf("%s: value %d of enum: %w", at, i+1, err)
		}
		p.allowed = append(p.allowed, v)
	}
	return nil
}

// allow reads a value of an enum. That of a number may be written as a string, as enums of metrics are.
func (p *parameter) allow(raw json.RawMessage) (any, error) {
	var text string
	isText := json.Unmarshal(raw, &text) == nil && string(raw) != "null"
	switch {
	case p.numeric() && isText:
		return p.number(json.Number(text))
	case p.numeric():
		return p.number(json.Number(raw))
	case isText:
		return text, nil
	}
	return nil, errors.New("must be a string")
}

// number reads a number of the parameter's type.
func (p *parameter) number(n json.Number) (float64, error) {
	v, err := strconv.ParseFloat(string(n), 64)
	switch {
	case err != nil || math.IsInf(v, 0) || math.IsNaN(v):
		return 0, errors.New("must be a number")
	case p.dataType() == "INT" && v != math.Trunc(v):
		return 0, errors.New("must be a whole number")
	}
	return v, nil
}

// join is the path of a member.
func join(path, name string) string {
	name = fmt.Sprintf("%.40q", name)
	if path == "" {
		return name
	}
	return path + "." + name
}

// shown is the path of an object in a message.
func shown(path string) string {
	if path == "" {
		return "the command"
	}
	return path
}
