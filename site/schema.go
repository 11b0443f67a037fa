package site

import (
	"maps"
	"slices"

	"weir/model"
)

// Schema is the JSON Schema (2020-12) of a site file, for editors and for programs that write one. It is made from the
// descriptions of the kinds. What two values must be to each other it does not say: weir site validate does.
func Schema() map[string]any {
	f := DefaultFormat()
	s := f.properties(f.root)
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "Site file of Weir"
	s["required"] = []string{keyVersion}
	s["properties"].(map[string]any)[keyVersion] = map[string]any{"enum": []int{Version}}
	return s
}

// properties describes one entity of a kind.
func (f *Format) properties(k *kind) map[string]any {
	properties := map[string]any{}
	s := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	for _, id := range k.ids {
		properties[id] = k.identifierSchema(id)
		s["required"] = k.ids
	}
	for i := range k.fields {
		field := &k.fields[i]
		if field.secret {
			for _, from := range []string{"_file", "_env"} {
				properties[field.name+from] = map[string]any{"type": "string", "minLength": 1}
			}
		}
		switch {
		case !field.secret || field.literal():
			properties[field.name] = field.schema()
		default: // null clears it, and no other value stands in a file
			properties[field.name] = map[string]any{"type": "null"}
		}
	}
	for _, inner := range k.lists {
		properties[inner.list] = listSchema(f.properties(inner))
	}
	if k == f.tenant {
		properties[keyFrom] = listSchema(f.fleetSchema())
	}
	return s
}

// fleetSchema describes an item of devicesFrom.
func (f *Format) fleetSchema() map[string]any {
	properties := map[string]any{keyFile: map[string]any{"type": "string", "minLength": 1}}
	devices := f.of(tableDevices)
	for i := range devices.fields {
		properties[devices.fields[i].name] = devices.fields[i].schema()
	}
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false, "required": []string{keyFile}}
}

// listSchema describes a list. One whose items are all commented out is null.
func listSchema(item map[string]any) map[string]any {
	return map[string]any{"type": []string{"array", "null"}, "items": item}
}

func (k *kind) identifierSchema(name string) map[string]any {
	switch f := k.field(name); {
	case name == "email":
		return map[string]any{"type": "string", "minLength": 3}
	case f != nil: // one of several
		return f.schema()
	case k.dotted:
		return map[string]any{"type": []string{"string", "number"}, "pattern": "^[A-Za-z0-9._-]+$", "maxLength": model.MaxToken}
	}
	// A token of digits alone is read as a token.
	return map[string]any{"type": []string{"string", "integer"}, "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]*$", "maxLength": model.MaxToken}
}

// schema describes the values of a field.
func (f *field) schema() map[string]any {
	s := map[string]any{}
	types := []string{}
	switch f.typ {
	case boolField:
		types = append(types, "boolean")
	case integerField, numberField:
		types = append(types, map[fieldType]string{integerField: "integer", numberField: "number"}[f.typ])
		f.limits(s, "minimum", "maximum")
	case instantField:
		types = append(types, "string")
	case listField, setField:
		types = append(types, "array")
		s["items"] = map[string]any{"type": []string{"string", "number", "boolean"}}
	case documentField:
		types = append(types, "object", "array", "string")
		if f.inner != nil {
			maps.Copy(s, f.inner())
			other := "array"
			if s["items"] != nil {
				other = "object"
			}
			types = slices.DeleteFunc(types, func(t string) bool { return t == other })
		}
		if f.keys != nil {
			inner := map[string]any{}
			for _, key := range f.keys {
				inner[key] = true
			}
			s["properties"], s["additionalProperties"] = inner, false
		}
	default: // a number that stands where a text does is read as a text
		types = append(types, "string", "number", "boolean")
		f.limits(s, "minLength", "maxLength")
	}
	if len(f.oneOf) > 0 {
		words := make([]any, 0, len(f.oneOf)+1)
		for _, word := range f.oneOf {
			words = append(words, word)
		}
		if !f.required {
			words = append(words, nil)
		}
		s["enum"] = words
		return s
	}
	if !f.required && !f.own {
		types = append(types, "null")
	}
	s["type"] = types
	return s
}

// limits adds the bounds of a field under their names.
func (f *field) limits(s map[string]any, lowest, highest string) {
	if f.min != nil {
		s[lowest] = *f.min
	}
	if f.max > 0 {
		s[highest] = f.max
	}
}
