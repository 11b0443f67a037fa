package parameter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Check says why a payload is not one of the command: it is a JSON object whose keys are all declared, at every depth, that has
// the required ones, and whose values have the type, lie within the bounds and are of the enum. The payload "" is the empty
// object.
func (s *Schema) Check(payload string) error {
	if payload == "" {
		payload = "{}"
	}
	d := json.NewDecoder(strings.NewReader(payload))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New("the payload must be a JSON object")
	}
	if err := checkObject(d, s.params, ""); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the payload has something after the JSON object")
	}
	return nil
}

// checkObject reads an object, whose opening brace was read, up to its closing one.
func checkObject(d *json.Decoder, params []parameter, path string) error {
	seen := make(map[string]bool, len(params))
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return errors.New("the payload is no JSON document")
		}
		name := t.(string) // what stands for a key always is
		at := join(path, name)
		i := slices.IndexFunc(params, func(p parameter) bool { return p.Name == name })
		switch {
		case i < 0:
			return fmt.Errorf("%s is no parameter of %s", at, shown(path))
		case seen[name]:
			return fmt.Errorf("%s is given twice", at)
		}
		seen[name] = true
		if err := params[i].check(d, at); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return errors.New("the payload is no JSON document")
	}
	for _, p := range params {
		if p.Required != nil && *p.Required && !seen[p.Name] {
			return fmt.Errorf("%s is required", join(path, p.Name))
		}
	}
	return nil
}

// check reads one value.
func (p *parameter) check(d *json.Decoder, at string) error {
	t, err := d.Token()
	if err != nil {
		return errors.New("the payload is no JSON document")
	}
	if p.object() {
		if t != json.Delim('{') {
			return fmt.Errorf("%s must be an object", at)
		}
		return checkObject(d, p.Parameters, at)
	}
	switch v := t.(type) {
	case string:
		if p.dataType() == "STRING" {
			return p.inEnum(at, v)
		}
	case bool:
		if p.dataType() == "BOOLEAN" {
			return nil
		}
	case json.Number:
		if p.numeric() {
			return p.inBounds(at, v)
		}
	}
	return fmt.Errorf("%s must be of the type %s", at, p.dataType())
}

func (p *parameter) inBounds(at string, n json.Number) error {
	v, err := p.number(n)
	switch {
	case err != nil:
		return fmt.Errorf("%s %w", at, err)
	case p.MinValue != nil && v < *p.MinValue:
		return fmt.Errorf("%s must be at least %v", at, *p.MinValue)
	case p.MaxValue != nil && v > *p.MaxValue:
		return fmt.Errorf("%s must be at most %v", at, *p.MaxValue)
	}
	return p.inEnum(at, v)
}

func (p *parameter) inEnum(at string, v any) error {
	if len(p.allowed) == 0 || slices.Contains(p.allowed, v) {
		return nil
	}
	var all bytes.Buffer
	for i, raw := range p.Enum {
		if i > 0 {
			all.WriteString(", ")
		}
		if all.Write(raw); all.Len() > 200 {
			all.WriteString(", …")
			break
		}
	}
	return fmt.Errorf("%s must be one of %s", at, all.String())
}
