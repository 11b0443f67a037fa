package gql

import (
	"encoding/json"

	"weir/rules"
	"weir/rules/canvas"
)

// ruleForm is a kind of rule in ruleVocabulary.
type ruleForm struct {
	Type       rules.Type `json:"type"`
	WindowMode string     `json:"windowMode,omitempty"`
	Raises     string     `json:"raises"`
	Resolves   string     `json:"resolves"`
	Needs      []string   `json:"needs"`
	May        []string   `json:"may"`
	NoActions  bool       `json:"noActions,omitempty"`
}

// ruleNode is a type of node of a canvas in ruleVocabulary.
type ruleNode struct {
	Type   string     `json:"type"`
	Kind   rules.Type `json:"kind,omitempty"` // of rule that it authors
	In     []rulePort `json:"in"`
	Out    []rulePort `json:"out"`
	Fields []string   `json:"fields"`
}

type rulePort struct {
	Name    string         `json:"name"`
	Carries canvas.Carries `json:"carries"`
}

func rulePorts(ports []canvas.Port) []rulePort {
	out := make([]rulePort, len(ports))
	for i, p := range ports {
		out[i] = rulePort{p.Name, p.Carries}
	}
	return out
}

// ruleVocabulary is what a definition may consist of, as the compiler knows it, and what a canvas may: what a form asks, and an editor draws.
func ruleVocabulary(c *rules.Compiler) (string, error) {
	forms := []ruleForm{}
	for _, f := range c.Forms() {
		forms = append(forms, ruleForm{f.Type, f.WindowMode, f.Raises, f.Resolves, append([]string{}, f.Needs...), append([]string{}, f.May...), f.NoActions})
	}
	nodes := []ruleNode{}
	for _, t := range canvas.NewCompiler(c).Types() {
		nodes = append(nodes, ruleNode{t.Name, t.Kind, rulePorts(t.In), rulePorts(t.Out), t.Fields()})
	}
	text, err := json.Marshal(struct {
		Forms  []ruleForm     `json:"forms"`
		Nodes  []ruleNode     `json:"nodes"`
		Schema map[string]any `json:"schema"`
	}{forms, nodes, rules.Schema()})
	return string(text), err
}
