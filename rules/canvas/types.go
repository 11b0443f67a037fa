package canvas

import (
	"maps"
	"slices"

	"weir/rules"
	"weir/rules/strict"
)

// Carries is what flows through a port.
type Carries string

// What edges carry.
const (
	Stream Carries = "stream" // samples of devices
	Signal Carries = "signal" // edges of the rule
	Value  Carries = "value"  // what a compute gives
)

// Port is where edges begin or end at a node.
type Port struct {
	Name    string
	Carries Carries
}

// NodeType is a type of node: its ports and what its config consists of.
type NodeType struct {
	Name    string
	In, Out []Port
	// Kind is the kind of rule that a condition node authors, "" for every other node.
	Kind rules.Type

	// fields are the fields of a config, in the order of the documentation, with what reads them into the node.
	fields func(n *node, d *strict.Decoder) []field
}

// Fields are the fields of the config, in the order of the documentation; of an action the one that names its type.
func (t *NodeType) Fields() (names []string) {
	for _, f := range t.fields(&node{config: []byte("{}")}, strict.New(nil)) {
		names = append(names, f.name)
	}
	return names
}

// field is a field of a config and what reads it.
type field struct {
	name string
	set  strict.Setter
}

// Names of the node types that author no kind of rule.
const (
	typeSource  = "source"
	typeBranch  = "branch"
	typeAction  = "action"
	typeCompute = "compute"
)

// Names of ports.
const (
	portIn    = "in"
	portOut   = "out"
	portValue = "value"
	portFires = "signal"
)

// The values that a scope and a threshold may have as their kind.
const (
	scopeProfile   = "profile"
	scopeDerived   = "derivedSubject" // reserved
	boundLiteral   = "literal"
	boundAttribute = "attribute"
)

// nodeTypes is the list of node types: the decoder, the checks and the documentation have them from here. There is a condition node for each
// kind of rule.
func nodeTypes(c *rules.Compiler) []NodeType {
	types := []NodeType{{Name: typeSource, Out: []Port{{portOut, Stream}}, fields: sourceFields}}
	for _, kind := range c.Types() {
		types = append(types, conditionType(kind, c.FieldsOf(kind)))
	}
	return append(types,
		NodeType{Name: typeBranch, In: []Port{{portIn, Signal}, {portValue, Value}}, Out: []Port{{portOut, Signal}}, fields: branchFields},
		NodeType{Name: typeAction, In: []Port{{portIn, Signal}}, fields: actionFields},
		NodeType{Name: typeCompute, Out: []Port{{portValue, Value}}, fields: computeFields})
}

// conditionType is the node of a kind of rule: its fields are those of the kind, and computes flow into it where it has a condition.
func conditionType(kind rules.Type, used []string) NodeType {
	t := NodeType{Name: string(kind), Kind: kind, In: []Port{{portIn, Stream}}, Out: []Port{{portFires, Signal}}}
	if slices.Contains(used, "when") {
		t.In = append(t.In, Port{portValue, Value})
	}
	names := slices.Concat([]string{"name", "description", "severity"}, used, []string{"lateness"})
	t.fields = func(n *node, d *strict.Decoder) []field {
		n.rule = &rules.Definition{Type: kind}
		known := n.rule.Fields(d)
		known["when"] = func(path string) *strict.Error { return d.Object(path, whenFields(&n.rule.When, d)) }
		var fields []field
		for _, name := range names {
			fields = append(fields, field{inCanvas(name), known[name]})
		}
		return fields
	}
	return t
}

// inCanvas is the name that a field of a definition has in a canvas: durations are whole milliseconds there, and are called so.
func inCanvas(name string) string {
	if slices.Contains(rules.Durations, name) {
		return name + "Ms"
	}
	return name
}

// whenFields are the fields of a condition, in which the threshold says what it is.
func whenFields(c *rules.Condition, d *strict.Decoder) map[string]strict.Setter {
	fields := c.Fields(d)
	number, attribute := fields["threshold"], fields["thresholdAttr"]
	delete(fields, "thresholdAttr")
	fields["threshold"] = func(path string) *strict.Error {
		var kind string
		before := len(d.Faults())
		err := d.Object(path, map[string]strict.Setter{"kind": strict.OneOf(d, &kind, []string{boundLiteral, boundAttribute}), "value": number, "attribute": attribute})
		switch {
		case err != nil || len(d.Faults()) > before:
			return err
		case kind == "":
			return strict.Refuse(strict.Join(path, "kind"), "required: %s or %s", boundLiteral, boundAttribute)
		case kind == boundLiteral && (c.Threshold == nil || c.ThresholdAttr != ""):
			return strict.Refuse(path, "a literal threshold has a value and no attribute")
		case kind == boundAttribute && (c.ThresholdAttr == "" || c.Threshold != nil):
			return strict.Refuse(path, "a threshold of kind attribute has an attribute and no value")
		}
		return nil
	}
	return fields
}

// maxHints bounds the metrics that a source names.
const maxHints = 64

func sourceFields(n *node, d *strict.Decoder) []field {
	n.source = new(source)
	return []field{
		{"scope", func(path string) *strict.Error {
			return d.Object(path, map[string]strict.Setter{"kind": strict.OneOf(d, &n.source.scope, []string{scopeProfile, scopeDerived}),
				"profileToken": d.Identifier(&n.source.profile)})
		}},
		{"metricFilter", d.List(maxHints, "metrics", func(_ int, at string) *strict.Error { return d.Metric(new(string))(at) })},
	}
}

func branchFields(n *node, d *strict.Decoder) []field {
	n.branch = new(branch)
	return []field{{"name", d.Text(new(string))}, {"when", d.Text(&n.branch.when)}}
}

func computeFields(n *node, d *strict.Decoder) []field {
	n.compute = new(compute)
	return []field{{"name", d.Text(&n.compute.name)}, {"expr", d.Text(&n.compute.expr)}}
}

// actionFields are the type of the action and the fields of that type, flat. The type is read first, wherever it stands.
func actionFields(n *node, d *strict.Decoder) []field {
	n.action = &rules.Action{Type: actionType(n.config)}
	fields := []field{{"action", strict.OneOf(d, &n.action.Type, rules.ActionTypes())}}
	if n.action.Type == "" {
		return fields
	}
	variant := n.action.Fields(d, n.action.Type)
	for _, name := range slices.Sorted(maps.Keys(variant)) {
		fields = append(fields, field{name, variant[name]})
	}
	if n.action.Type != rules.ActionRaiseAlarm {
		fields = append(fields, field{inCanvas("maxAge"), d.Span(&n.action.MaxAge)})
	}
	return fields
}

// actionType is the type that the config of an action names, "" for none that there is.
func actionType(config []byte) (t rules.ActionType) {
	d := strict.New(config)
	_ = d.Members("", func(name, at string) *strict.Error { // faults are found by the decoder that reads the fields
		if name != "action" {
			return nil
		}
		return strict.OneOf(d, &t, rules.ActionTypes())(at)
	})
	return t
}
