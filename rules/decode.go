package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"weir/model"
)

// MaxDefinition is the largest definition in bytes.
const MaxDefinition = 64 << 10

// maxIdentifier is the longest metric, attribute, anchor type, alarm key, command or connector name.
const maxIdentifier = model.MaxToken

// Decode reads a definition strictly: unknown fields, fields given twice, names in another case, values of another
// type, null, and text after the object are refused, and so is every value that cannot stand in its field whatever
// the others are. Compile checks what the fields mean together. The error is an *Error and names the first offence in
// the order of the text. An empty string, false and an empty list count as absent. The type is one of Weir's kinds or
// of more.
func Decode(src []byte, more ...Kind) (*Definition, error) {
	def, faults := decodeAll(src, append(builtin(), more...))
	if len(faults) > 0 {
		return nil, faults[0]
	}
	return def, nil
}

// decodeAll is Decode with every offence, in the order of the text.
func decodeAll(src []byte, kinds []Kind) (*Definition, []*Error) {
	if err := checkText(src); err != nil {
		return nil, []*Error{err}
	}
	d := newDecoder(src)
	d.types = typesOf(kinds)
	def := new(Definition)
	d.definition(def)
	return def, d.faults
}

// checkText makes sure that the token walk meets one well-formed value, so that it need not handle broken syntax.
func checkText(src []byte) *Error {
	if len(src) > MaxDefinition {
		return refuse("", "the definition is %d bytes long, at most %d are allowed", len(src), MaxDefinition)
	}
	if !utf8.Valid(src) {
		return refuse("", "the definition is not valid UTF-8")
	}
	var raw json.RawMessage
	switch err := json.Unmarshal(src, &raw).(type) {
	case nil:
	case *json.SyntaxError:
		return refuse("", "the definition is not valid JSON: %v (at byte %d)", err, err.Offset)
	default:
		return refuse("", "the definition is not valid JSON: %v", err)
	}
	if t := bytes.TrimLeft(src, " \t\r\n"); t[0] != '{' {
		return refuse("", "the definition must be a JSON object, not %s", kindOfJSON(t[0]))
	}
	return nil
}

func (d *decoder) definition(def *Definition) {
	const maxCount = math.MaxInt32
	d.note(d.object("", map[string]setter{
		"name":        d.text(&def.Name),
		"description": d.text(&def.Description),
		"type":        oneOf(d, &def.Type, d.types),
		"severity":    oneOf(d, &def.Severity, severities[:]),
		"actions":     d.actions(&def.Actions),
		"when":        d.condition(&def.When),
		"metric":      d.identifier(&def.Metric),
		"window":      d.period(&def.Window),
		"hold":        d.period(&def.Hold),
		"timeout":     d.period(&def.Timeout),
		"gap":         d.period(&def.Gap),
		"count":       d.integer(&def.Count, 1, maxCount),
		"rate":        d.flag(&def.Rate),
		"windowMode":  oneOf(d, &def.WindowMode, windowModes[:]),
		"agg":         oneOf(d, &def.Agg, aggregates[:]),
		"op":          oneOf(d, &def.Op, ops[:]),
		"threshold":   d.float(&def.Threshold),
		"anchorType":  d.identifier(&def.AnchorType),
		"memberCap":   d.integer(&def.MemberCap, 1, maxCount),
		"lateness":    d.span(&def.Lateness),
	}))
	if strings.TrimSpace(def.Name) == "" && !d.refused("name") {
		d.note(refuse("name", "required"))
	}
	if def.Type == "" && !d.refused("type") {
		d.note(refuse("type", "required"))
	}
}

func (d *decoder) condition(to *Condition) setter {
	return func(path string) *Error {
		return d.object(path, map[string]setter{
			"metric":        d.identifier(&to.Metric),
			"op":            oneOf(d, &to.Op, ops[:]),
			"threshold":     d.float(&to.Threshold),
			"thresholdAttr": d.identifier(&to.ThresholdAttr),
			"cel":           d.text(&to.CEL),
		})
	}
}

func (d *decoder) actions(to *[]Action) setter {
	return func(path string) *Error {
		if err := d.open(path, '[', "an array"); err != nil {
			return err
		}
		for i := 0; d.More(); i++ {
			if i == MaxActions {
				return refuse(path, "at most %d actions are allowed", MaxActions)
			}
			var a Action
			d.apart(func() *Error { return d.action(&a, fmt.Sprintf("%s[%d]", path, i)) })
			*to = append(*to, a)
		}
		d.token()
		return nil
	}
}

func (d *decoder) action(a *Action, path string) *Error {
	before := len(d.faults)
	err := d.object(path, map[string]setter{
		"type":        oneOf(d, &a.Type, actionTypes[:]),
		"raiseAlarm":  d.raiseAlarm(a),
		"sendCommand": d.sendCommand(a),
		"httpCall":    d.httpCall(a),
		"publish":     d.publish(a),
		"guard":       d.text(&a.Guard),
		"maxAge":      d.span(&a.MaxAge),
	})
	if err != nil || len(d.faults) > before {
		return err
	}
	return a.checkForm(path)
}

func (d *decoder) raiseAlarm(a *Action) setter {
	return func(path string) *Error {
		a.RaiseAlarm = new(RaiseAlarm)
		return d.object(path, map[string]setter{
			"alarmKey":         d.identifier(&a.RaiseAlarm.AlarmKey),
			"alarmKeyTemplate": d.text(&a.RaiseAlarm.AlarmKeyTemplate),
		})
	}
}

func (d *decoder) sendCommand(a *Action) setter {
	return func(path string) *Error {
		a.SendCommand = new(SendCommand)
		return d.object(path, map[string]setter{
			"command": d.identifier(&a.SendCommand.Command),
			"payload": d.text(&a.SendCommand.Payload),
		})
	}
}

func (d *decoder) httpCall(a *Action) setter {
	return func(path string) *Error {
		a.HTTPCall = new(HTTPCall)
		var method string // POST and absent are the same, so it need not be kept
		return d.object(path, map[string]setter{
			"url":          d.text(&a.HTTPCall.URL),
			"method":       oneOf(d, &method, []string{"POST"}),
			"headers":      d.headers(&a.HTTPCall.Headers),
			"bodyTemplate": d.text(&a.HTTPCall.BodyTemplate),
			"secretRef":    d.text(&a.HTTPCall.SecretRef),
			"timeoutMs":    d.integer(&a.HTTPCall.TimeoutMs, 0, maxTimeoutMs),
		})
	}
}

func (d *decoder) headers(to *[]Header) setter {
	return func(path string) *Error {
		err := d.members(path, func(name, at string) *Error {
			h := Header{Name: canonicalHeader(name)}
			if err := d.text(&h.Value)(at); err != nil {
				return err
			}
			*to = append(*to, h)
			return nil
		})
		slices.SortStableFunc(*to, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
		return err
	}
}

func (d *decoder) publish(a *Action) setter {
	return func(path string) *Error {
		a.Publish = new(Publish)
		return d.object(path, map[string]setter{
			"connectorRef":    d.identifier(&a.Publish.ConnectorRef),
			"payloadTemplate": d.text(&a.Publish.PayloadTemplate),
			"timeoutMs":       d.integer(&a.Publish.TimeoutMs, 0, maxTimeoutMs),
		})
	}
}

// Schema is the JSON Schema of what Decode reads, apart from what fields must be to each other.
func Schema() map[string]any {
	text, flag, number := kindSchema("string"), kindSchema("boolean"), kindSchema("number")
	count, span, op := kindSchema("integer"), kindSchema("string"), enumSchema(texts(ops[:]))
	headers := kindSchema("object")
	action := objectSchema(map[string]any{"type": enumSchema(texts(actionTypes[:])), "guard": text, "maxAge": span,
		"raiseAlarm":  objectSchema(map[string]any{"alarmKey": text, "alarmKeyTemplate": text}),
		"sendCommand": objectSchema(map[string]any{"command": text, "payload": text}),
		"httpCall":    objectSchema(map[string]any{"url": text, "method": text, "headers": headers, "bodyTemplate": text, "secretRef": text, "timeoutMs": count}),
		"publish":     objectSchema(map[string]any{"connectorRef": text, "payloadTemplate": text, "timeoutMs": count}),
	}, "type")
	return objectSchema(map[string]any{"name": text, "description": text, "type": enumSchema(texts(typesOf(builtin()))), "severity": enumSchema(severities[:]),
		"actions": map[string]any{"type": "array", "maxItems": MaxActions, "items": action},
		"when":    objectSchema(map[string]any{"metric": text, "op": op, "threshold": number, "thresholdAttr": text, "cel": text}),
		"metric":  text, "window": span, "hold": span, "timeout": span, "gap": span, "count": count, "rate": flag,
		"windowMode": enumSchema(windowModes[:]), "agg": enumSchema(aggregates[:]), "op": op, "threshold": number, "anchorType": text,
		"memberCap": count, "lateness": span}, "name", "type")
}

func kindSchema(kind string) map[string]any { return map[string]any{"type": kind} }

// enumSchema describes a text that is one of those named, or empty: the field is absent then.
func enumSchema(words []string) map[string]any {
	return map[string]any{"enum": append([]string{""}, words...)}
}

func objectSchema(properties map[string]any, required ...string) map[string]any {
	s := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}
