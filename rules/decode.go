package rules

import (
	"math"
	"slices"
	"strings"

	"weir/rules/strict"
)

// MaxDefinition is the largest definition in bytes.
const MaxDefinition = 64 << 10

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
	if err := strict.CheckText(src, "definition", MaxDefinition); err != nil {
		return nil, []*Error{err}
	}
	d, def := strict.New(src), new(Definition)
	fields := def.Fields(d)
	fields["type"] = strict.OneOf(d, &def.Type, typesOf(kinds))
	fields["when"] = func(path string) *Error { return d.Object(path, def.When.Fields(d)) }
	fields["actions"] = d.List(MaxActions, "actions", func(_ int, path string) *Error {
		def.Actions = append(def.Actions, Action{})
		return def.Actions[len(def.Actions)-1].decode(d, path)
	})
	d.Note(d.Object("", fields))
	if strings.TrimSpace(def.Name) == "" && !d.Refused("name") {
		d.Note(refuse("name", "required"))
	}
	if def.Type == "" && !d.Refused("type") {
		d.Note(refuse("type", "required"))
	}
	return def, d.Faults()
}

// Durations are the fields of definitions and actions that hold a duration.
var Durations = []string{"window", "hold", "timeout", "gap", "lateness", "maxAge"}

// Fields are the fields of the definition with what reads them, all but type, when and actions, which each form of a rule has in its own way.
func (def *Definition) Fields(d *strict.Decoder) map[string]strict.Setter {
	const maxCount = math.MaxInt32
	return map[string]strict.Setter{
		"name":        d.Text(&def.Name),
		"description": d.Text(&def.Description),
		"severity":    strict.OneOf(d, &def.Severity, severities[:]),
		"metric":      d.Metric(&def.Metric),
		"window":      d.Period(&def.Window),
		"hold":        d.Period(&def.Hold),
		"timeout":     d.Period(&def.Timeout),
		"gap":         d.Period(&def.Gap),
		"count":       d.Integer(&def.Count, 1, maxCount),
		"rate":        d.Flag(&def.Rate),
		"windowMode":  strict.OneOf(d, &def.WindowMode, windowModes[:]),
		"agg":         strict.OneOf(d, &def.Agg, aggregates[:]),
		"op":          strict.OneOf(d, &def.Op, ops[:]),
		"threshold":   d.Float(&def.Threshold),
		"clear":       d.Float(&def.Clear),
		"anchorType":  d.Identifier(&def.AnchorType),
		"memberCap":   d.Integer(&def.MemberCap, 1, maxCount),
		"lateness":    d.Span(&def.Lateness),
	}
}

// Fields are the fields of the condition with what reads them.
func (c *Condition) Fields(d *strict.Decoder) map[string]strict.Setter {
	return map[string]strict.Setter{
		"metric":        d.Metric(&c.Metric),
		"op":            strict.OneOf(d, &c.Op, ops[:]),
		"threshold":     d.Float(&c.Threshold),
		"clear":         d.Float(&c.Clear),
		"thresholdAttr": d.Identifier(&c.ThresholdAttr),
		"cel":           d.Text(&c.CEL),
	}
}

// decode reads an action as it stands in a definition.
func (a *Action) decode(d *strict.Decoder, path string) *Error {
	before := len(d.Faults())
	fields := map[string]strict.Setter{
		"type":   strict.OneOf(d, &a.Type, actionTypes[:]),
		"guard":  d.Text(&a.Guard),
		"maxAge": d.Span(&a.MaxAge),
	}
	for _, t := range actionTypes {
		fields[string(t)] = func(path string) *Error { return d.Object(path, a.Fields(d, t)) }
	}
	if err := d.Object(path, fields); err != nil || len(d.Faults()) > before {
		return err
	}
	return a.Check(path)
}

// Fields are the fields of an action's variant with what reads them; the action has this variant from then on.
func (a *Action) Fields(d *strict.Decoder, t ActionType) map[string]strict.Setter {
	switch t {
	case ActionRaiseAlarm:
		a.RaiseAlarm = new(RaiseAlarm)
		return map[string]strict.Setter{
			"alarmKey":         d.Identifier(&a.RaiseAlarm.AlarmKey),
			"alarmKeyTemplate": d.Text(&a.RaiseAlarm.AlarmKeyTemplate),
		}
	case ActionSendCommand:
		a.SendCommand = new(SendCommand)
		return map[string]strict.Setter{
			"command": d.Identifier(&a.SendCommand.Command),
			"payload": d.Text(&a.SendCommand.Payload),
		}
	case ActionHTTPCall:
		a.HTTPCall = new(HTTPCall)
		return map[string]strict.Setter{
			"url":          d.Text(&a.HTTPCall.URL),
			"method":       strict.OneOf(d, new(string), []string{"POST"}), // POST and absent are the same, so it need not be kept
			"headers":      headers(d, &a.HTTPCall.Headers),
			"bodyTemplate": d.Text(&a.HTTPCall.BodyTemplate),
			"secretRef":    d.Text(&a.HTTPCall.SecretRef),
			"timeoutMs":    d.Integer(&a.HTTPCall.TimeoutMs, 0, maxTimeoutMs),
		}
	default:
		a.Publish = new(Publish)
		return map[string]strict.Setter{
			"connectorRef":    d.Identifier(&a.Publish.ConnectorRef),
			"payloadTemplate": d.Text(&a.Publish.PayloadTemplate),
			"timeoutMs":       d.Integer(&a.Publish.TimeoutMs, 0, maxTimeoutMs),
		}
	}
}

func headers(d *strict.Decoder, to *[]Header) strict.Setter {
	return func(path string) *Error {
		err := d.Members(path, func(name, at string) *Error {
			h := Header{Name: canonicalHeader(name)}
			if err := d.Text(&h.Value)(at); err != nil {
				return err
			}
			*to = append(*to, h)
			return nil
		})
		slices.SortStableFunc(*to, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
		return err
	}
}

// Schema is the JSON Schema of what Decode reads, apart from what fields must be to each other.
func Schema() map[string]any {
	text, flag, number := kindSchema("string"), kindSchema("boolean"), kindSchema("number")
	count, span, op := kindSchema("integer"), kindSchema("string"), enumSchema(strict.Texts(ops[:]))
	headers := kindSchema("object")
	action := objectSchema(map[string]any{"type": enumSchema(strict.Texts(actionTypes[:])), "guard": text, "maxAge": span,
		"raiseAlarm":  objectSchema(map[string]any{"alarmKey": text, "alarmKeyTemplate": text}),
		"sendCommand": objectSchema(map[string]any{"command": text, "payload": text}),
		"httpCall":    objectSchema(map[string]any{"url": text, "method": text, "headers": headers, "bodyTemplate": text, "secretRef": text, "timeoutMs": count}),
		"publish":     objectSchema(map[string]any{"connectorRef": text, "payloadTemplate": text, "timeoutMs": count}),
	}, "type")
	return objectSchema(map[string]any{"name": text, "description": text, "type": enumSchema(strict.Texts(typesOf(builtin()))), "severity": enumSchema(severities[:]),
		"actions": map[string]any{"type": "array", "maxItems": MaxActions, "items": action},
		"when":    objectSchema(map[string]any{"metric": text, "op": op, "threshold": number, "clear": number, "thresholdAttr": text, "cel": text}),
		"metric":  text, "window": span, "hold": span, "timeout": span, "gap": span, "count": count, "rate": flag,
		"windowMode": enumSchema(windowModes[:]), "agg": enumSchema(aggregates[:]), "op": op, "threshold": number, "clear": number, "anchorType": text,
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
