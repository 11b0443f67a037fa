package gql

import (
	"encoding/json"

	"weir/rules"
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

// ruleVocabulary is what a definition may consist of, as the compiler knows it: what a form asks.
func ruleVocabulary(c *rules.Compiler) (string, error) {
	forms := []ruleForm{}
	for _, f := range c.Forms() {
		forms = append(forms, ruleForm{f.Type, f.WindowMode, f.Raises, f.Resolves, append([]string{}, f.Needs...), append([]string{}, f.May...), f.NoActions})
	}
	text, err := json.Marshal(struct {
		Forms  []ruleForm     `json:"forms"`
		Schema map[string]any `json:"schema"`
	}{forms, rules.Schema()})
	return string(text), err
}
