package site

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"

	"weir/model"
	"weir/registry"
	"weir/store"
)

// Attributes stand in a file inside of their entity, those of a scope as a mapping. A text, a whole number, another number, true
// and false are attributes of the types STRING, LONG, DOUBLE and BOOLEAN; {type, value} says any type, and a null value. A
// mapping that is there is all that the entity has in the scope. Those of the scope CLIENT are the device's own and in no file.
var attributeScopes = []struct{ field, scope string }{{"serverAttributes", registry.ScopeServer}, {"sharedAttributes", registry.ScopeShared}}

// withAttributes adds the fields to a kind whose entities have attributes.
func withAttributes(k *kind, entityType string) {
	for _, s := range attributeScopes {
		k.fields = append(k.fields, field{name: s.field, typ: documentField, emptyIsNone: true, normal: func(text string) (string, error) {
			normal, err := normalAttributes(entityType, s.scope, text)
			if refusal, ok := errors.AsType[*model.Error](err); ok {
				err = model.Invalid(s.field, "%s", refusal.Message)
			}
			return normal, err
		}})
	}
	k.values = func(l *level, k *kind, rows []any, values []store.Patch) error {
		return attributeValues(l, k, entityType, rows, values)
	}
	write := k.write
	k.write = func(l *level, k *kind, name string, fresh bool, patch store.Patch) error {
		given := store.Patch{}
		for _, s := range attributeScopes {
			if v, ok := patch[s.field]; ok {
				given[s.scope] = v
				delete(patch, s.field)
			}
		}
		if fresh || len(patch) > 0 {
			if err := write(l, k, name, fresh, patch); err != nil {
				return err
			}
		}
		for _, scope := range slices.Sorted(maps.Keys(given)) {
			text, _ := given[scope].(string)
			if err := l.putAttributes(registry.AttributeRef{EntityType: entityType, Entity: name, Scope: scope}, text); err != nil {
				return err
			}
		}
		return nil
	}
}

// attributeValues adds what the rows have to their values.
func attributeValues(l *level, k *kind, entityType string, rows []any, values []store.Patch) error {
	ids := make([]int64, len(rows))
	of := make(map[int64]store.Patch, len(rows))
	for i, row := range rows {
		ids[i] = k.live.Head(row).ID
		of[ids[i]] = values[i]
	}
	all, err := l.parts.Registry.Attributes.Of(l.ctx, l.by, entityType, ids)
	if err != nil {
		return err
	}
	for _, s := range attributeScopes {
		documents := map[int64]map[string]any{}
		for _, a := range all {
			if a.Scope != s.scope {
				continue
			}
			if documents[a.EntityID] == nil {
				documents[a.EntityID] = map[string]any{}
			}
			documents[a.EntityID][a.Key] = attributeValue(a.Type, a.Value())
		}
		for id, document := range documents {
			text, err := json.Marshal(document)
			if err != nil {
				return err
			}
			of[id][s.field] = string(text)
		}
	}
	return nil
}

// putAttributes makes the attributes of a scope what a document says, "" for none.
func (l *level) putAttributes(of registry.AttributeRef, text string) error {
	want, err := readAttributes(of, text)
	if err != nil {
		return err
	}
	have, _, err := l.parts.Registry.Attributes.List(l.ctx, l.by, store.Page{Size: store.MaxPageSize},
		registry.AttributeFilter{EntityType: &of.EntityType, Entity: &of.Entity, Scope: &of.Scope})
	if err != nil {
		return err
	}
	for _, a := range have {
		q, ok := want[a.Key]
		switch {
		case !ok:
			of.Key = a.Key
			if _, err := l.parts.Registry.Attributes.Delete(l.ctx, l.by, of); err != nil {
				return err
			}
		case sameValue(attributeValue(a.Type, a.Value()), attributeValue(q.Type, q.Value)):
			delete(want, a.Key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if _, err := l.parts.Registry.Attributes.Set(l.ctx, l.by, want[key]); err != nil {
			return err
		}
	}
	return nil
}

// normalAttributes is a document in the form in which an export has it.
func normalAttributes(entityType, scope, text string) (string, error) {
	all, err := readAttributes(registry.AttributeRef{EntityType: entityType, Scope: scope}, text)
	if err != nil {
		return "", err
	}
	document := make(map[string]any, len(all))
	for key, q := range all {
		document[key] = attributeValue(q.Type, q.Value)
	}
	normal, err := json.Marshal(document)
	return string(normal), err
}

// readAttributes reads a document, "" for none.
func readAttributes(of registry.AttributeRef, text string) (map[string]registry.AttributeSet, error) {
	if text == "" {
		return nil, nil
	}
	v, err := decodeJSON(text)
	document, ok := v.(map[string]any)
	if err != nil || !ok {
		return nil, model.Errorf(model.CodeInvalidInput, "must be a mapping of keys to values")
	}
	all := make(map[string]registry.AttributeSet, len(document))
	for _, key := range slices.Sorted(maps.Keys(document)) {
		of.Key = key
		q := registry.AttributeSet{AttributeRef: of}
		if q.Type, q.Value, err = readAttribute(document[key]); err == nil {
			err = q.Check()
		}
		if err != nil {
			return nil, model.Errorf(model.CodeInvalidInput, "%s: %v", key, err)
		}
		all[key] = q
	}
	return all, nil
}

func readAttribute(v any) (typ string, value *string, err error) {
	switch x := v.(type) {
	case string:
		return registry.ValueString, &x, nil
	case bool:
		return registry.ValueBoolean, new(strconv.FormatBool(x)), nil
	case json.Number:
		if whole(x.String()) {
			return registry.ValueLong, new(x.String()), nil
		}
		return registry.ValueDouble, new(x.String()), nil
	case map[string]any:
		typ, ok := x["type"].(string)
		value, has := x["value"]
		if !ok || !has || len(x) != 2 {
			break
		}
		text, isText := value.(string)
		switch {
		case value == nil:
			return typ, nil, nil
		case isText && typ != registry.ValueJSON:
			return typ, &text, nil
		}
		document, err := json.Marshal(value)
		return typ, new(string(document)), err
	}
	return "", nil, model.Errorf(model.CodeInvalidInput, "must be a text, a number, true, false or {type: …, value: …}")
}

// attributeValue is the value of an attribute as a document has it.
func attributeValue(typ string, value *string) any {
	if value == nil {
		return map[string]any{"type": typ, "value": nil}
	}
	switch typ {
	case registry.ValueString:
		return *value
	case registry.ValueBoolean:
		return *value == "true"
	case registry.ValueLong:
		if n, err := strconv.ParseInt(*value, 10, 64); err == nil {
			return json.Number(strconv.FormatInt(n, 10))
		}
	case registry.ValueDouble:
		if f, err := strconv.ParseFloat(*value, 64); err == nil {
			if size := math.Abs(f); f != math.Trunc(f) && size > 1e-6 && size < 1e15 { // reads as no whole number however it is written
				return json.Number(strconv.FormatFloat(f, 'f', -1, 64))
			}
			return map[string]any{"type": typ, "value": strconv.FormatFloat(f, 'g', -1, 64)}
		}
	case registry.ValueJSON:
		if document, err := decodeJSON(*value); err == nil {
			return map[string]any{"type": typ, "value": document}
		}
	}
	return *value
}
