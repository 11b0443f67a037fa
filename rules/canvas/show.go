package canvas

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/rules"
	"weir/rules/strict"
)

// Show shows a rule definition as a canvas that watches a profile: exactly one of graph and reason is set. The canvas compiles to the same
// definition. A rule that does not compile has none, nor has one with a duration that is no whole number of milliseconds.
func (c *Compiler) Show(definition, profile string) (graph, reason string) {
	program, _, faults := c.rules.Inspect(definition, rules.Options{})
	if len(faults) > 0 {
		return "", faults[0].Error()
	}
	def := program.Definition()
	drawn, err := draw(def, strings.TrimSpace(profile))
	if err != nil {
		return "", err.Error()
	}
	again := c.Compile(drawn, profile)
	if i := slices.IndexFunc(again.Diagnostics, func(d Diagnostic) bool { return d.Severity == Error }); i >= 0 {
		return "", again.Diagnostics[i].Message
	}
	if again.Definition != string(def.Canonical()) {
		return "", "a canvas has no form for all of the rule"
	}
	return drawn, ""
}

// wireCanvas is a canvas as it is written.
type wireCanvas struct {
	Version int        `json:"schemaVersion"`
	Nodes   []wireNode `json:"nodes"`
	Edges   []wireEdge `json:"edges"`
}

type wireNode struct {
	ID     string     `json:"id"`
	Type   string     `json:"type"`
	Config wireObject `json:"config"`
	UI     wireSpot   `json:"ui"`
}

// wireSpot is where a node is drawn: columns from the left, rows from the top.
type wireSpot struct {
	X int `json:"x"`
	Y int `json:"y"`
}

type wireEdge struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// wireObject is an object with its fields in an order.
type wireObject []wireField

type wireField struct {
	name  string
	value any
}

// MarshalJSON writes the fields in their order.
func (o wireObject) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range o {
		value, err := plain(f.value)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%s", f.name, value) // names of fields need no escape
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// plain is v as JSON, without escaping what HTML would need.
func plain(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// Ids of the nodes that are drawn. Actions and branches are numbered.
const (
	idSource    = "source"
	idCondition = "condition"
	idBranch    = "branch-"
	idAction    = "action-"
)

// draw draws a definition from left to right: source, condition, branches, actions. Actions with one guard share a branch.
func draw(def *rules.Definition, profile string) (string, error) {
	condition, actions, err := split(def)
	if err != nil {
		return "", err
	}
	out := wireCanvas{Version: Version, Nodes: []wireNode{
		{ID: idSource, Type: typeSource, Config: wireObject{{"scope", wireObject{{"kind", scopeProfile}, {"profileToken", profile}}}}},
		{ID: idCondition, Type: string(def.Type), Config: condition, UI: wireSpot{X: 1}},
	}, Edges: []wireEdge{{idSource + ":" + portOut, idCondition + ":" + portIn}}}
	guarded := slices.ContainsFunc(def.Actions, func(a rules.Action) bool { return a.Guard != "" })
	branches := map[string]string{}
	for i := range actions {
		from, spot := idCondition+":"+portFires, wireSpot{X: 2, Y: i}
		if guarded {
			spot.X = 3
		}
		if guard := def.Actions[i].Guard; guard != "" {
			id, drawn := branches[guard]
			if !drawn {
				id = idBranch + strconv.Itoa(len(branches)+1)
				branches[guard] = id
				out.Nodes = append(out.Nodes, wireNode{id, typeBranch, wireObject{{"when", guard}}, wireSpot{X: 2, Y: i}})
				out.Edges = append(out.Edges, wireEdge{from, id + ":" + portIn})
			}
			from = id + ":" + portOut
		}
		id := idAction + strconv.Itoa(i+1) // one digit: the order of the ids is that of the actions
		out.Nodes = append(out.Nodes, wireNode{id, typeAction, actions[i], spot})
		out.Edges = append(out.Edges, wireEdge{from, id + ":" + portIn})
	}
	text, err := plain(out)
	return string(text), err
}

// split takes the canonical form of a definition apart: whatever fields it has go into the configs of its nodes.
func split(def *rules.Definition) (condition wireObject, actions []wireObject, err error) {
	var top []wireField
	if top, err = members(def.Canonical()); err != nil {
		return nil, nil, err
	}
	for _, f := range top {
		raw := f.value.(json.RawMessage)
		switch f.name {
		case "type", "actions":
		case "when":
			if when := shownWhen(&def.When); len(when) > 0 {
				condition = append(condition, wireField{"when", when})
			}
		default:
			if f, err = shown(f.name, raw); err != nil {
				return nil, nil, err
			}
			condition = append(condition, f)
		}
	}
	for i := range def.Actions {
		action, err := shownAction(def, i)
		if err != nil {
			return nil, nil, err
		}
		actions = append(actions, action)
	}
	return condition, actions, nil
}

// shownAction is an action with the fields of its type flat. Its guard is a branch, and no part of it.
func shownAction(def *rules.Definition, i int) (wireObject, error) {
	out := wireObject{{"action", def.Actions[i].Type}}
	top, err := members(def.Actions[i].Canonical())
	for _, f := range top {
		if f.name == string(def.Actions[i].Type) {
			inner, err := members(f.value.(json.RawMessage))
			if err != nil {
				return nil, err
			}
			out = append(out, inner...)
		}
	}
	if age := def.Actions[i].MaxAge; age != nil {
		f, err := millis("maxAge", *age)
		if err != nil {
			return nil, fmt.Errorf("actions[%d].%w", i, err)
		}
		out = append(out, f)
	}
	return out, err
}

// shown is a field of a definition as it stands in a canvas.
func shown(name string, raw json.RawMessage) (wireField, error) {
	if !slices.Contains(rules.Durations, name) {
		return wireField{name, raw}, nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return wireField{}, err
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return wireField{}, err
	}
	return millis(name, d)
}

func millis(name string, d time.Duration) (wireField, error) {
	if d%time.Millisecond != 0 {
		return wireField{}, strict.Refuse(name, "a canvas counts whole milliseconds, %s is none", rules.FormatDuration(d))
	}
	return wireField{inCanvas(name), d.Milliseconds()}, nil
}

// shownWhen is a condition whose threshold says what it is.
func shownWhen(c *rules.Condition) (out wireObject) {
	if c.CEL != "" {
		return wireObject{{"cel", c.CEL}}
	}
	if c.Empty() {
		return nil
	}
	bound := wireObject{{"kind", boundAttribute}, {"attribute", c.ThresholdAttr}}
	if c.Threshold != nil {
		bound = wireObject{{"kind", boundLiteral}, {"value", *c.Threshold}}
	}
	out = wireObject{{"metric", c.Metric}, {"op", c.Op}, {"threshold", bound}}
	if c.Clear != nil {
		out = append(out, wireField{"clear", *c.Clear})
	}
	return out
}

// members are the fields of an object in their order.
func members(object []byte) (out []wireField, err error) {
	d := strict.New(object)
	if err := d.Members("", func(name, at string) *strict.Error {
		var raw []byte
		_ = d.Raw(&raw)(at)
		out = append(out, wireField{name, json.RawMessage(raw)})
		return nil
	}); err != nil {
		return nil, err
	}
	return out, nil
}
