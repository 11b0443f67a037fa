package config

import (
	"fmt"
	"strings"
)

// document writes keys as YAML: the sections as they nest, and each key by line.
func document(keys []key, line func(b *strings.Builder, indent string, k key)) string {
	var b strings.Builder
	var open []string
	for _, k := range keys {
		var path []string
		if s := k.section(); s != "" {
			path = strings.Split(s, ".")
		}
		for i, name := range path {
			if i < len(open) && open[i] == name {
				continue
			}
			open = open[:min(i, len(open))]
			fmt.Fprintf(&b, "%s%s:\n", strings.Repeat("  ", i), name)
			open = append(open, name)
		}
		open = path
		line(&b, strings.Repeat("  ", len(path)), k)
	}
	return b.String()
}

// YAML is every key with its value. A secret is shown as set or not.
func (c *Config) YAML() string {
	return document(c.keys(), func(b *strings.Builder, indent string, k key) {
		fmt.Fprintf(b, "%s%s: %s\n", indent, k.name(), k.yaml())
	})
}

// OriginYAML is YAML with a comment after each value that says where it comes from, and what it has overridden.
func (c *Config) OriginYAML() string {
	return document(c.keys(), func(b *strings.Builder, indent string, k key) {
		fmt.Fprintf(b, "%-48s # %s\n", indent+k.name()+": "+k.yaml(), said(c.Origins(k.path)))
	})
}

// said is where a value comes from, and what it has overridden, for people.
func said(from []Origin) string {
	if len(from) == 1 {
		return from[0].String()
	}
	var over []string
	for _, o := range from[1:] {
		over = append(over, o.String())
	}
	return from[0].String() + ", over " + strings.Join(over, " and ")
}

// Tree is the configuration as JSON has it: sections in sections, a secret as set or not.
func (c *Config) Tree() map[string]any {
	root := map[string]any{}
	for _, k := range c.keys() {
		at := root
		if s := k.section(); s != "" {
			for name := range strings.SplitSeq(s, ".") {
				if at[name] == nil {
					at[name] = map[string]any{}
				}
				at = at[name].(map[string]any)
			}
		}
		at[k.name()] = k.json()
	}
	return root
}

// Value is a key, its value as text and where that comes from.
type Value struct {
	Path   string   `json:"key"`
	Value  any      `json:"value"`
	Origin Origin   `json:"origin"`
	Over   []Origin `json:"over,omitempty"` // what it has overridden, the nearest first
}

// Values are all keys with their values and origins.
func (c *Config) Values() []Value {
	var out []Value
	for _, k := range c.keys() {
		from := c.Origins(k.path)
		out = append(out, Value{Path: k.path, Value: k.json(), Origin: from[0], Over: from[1:]})
	}
	return out
}
