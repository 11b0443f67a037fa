package config

import (
	"fmt"
	"strings"
)

// document writes keys as YAML: the sections as they nest, and each key by line.
func document(keys []key, line func(b *strings.Builder, indent string, k key)) string {
	var b strings.Builder
	var open []string
	begins := false // a member of a list, with the line that follows
	write := func(depth int, text func(b *strings.Builder, indent string)) {
		indent := strings.Repeat("  ", depth)
		var lines strings.Builder
		text(&lines, indent)
		if begins {
			b.WriteString(indent[2:] + "- " + strings.TrimPrefix(lines.String(), indent))
		} else {
			b.WriteString(lines.String())
		}
		begins = false
	}
	for _, k := range keys {
		path := levels(k.section())
		for i, name := range path {
			if i < len(open) && open[i] == name {
				continue
			}
			open = append(open[:min(i, len(open))], name)
			if strings.HasPrefix(name, "[") {
				begins = true
				continue
			}
			write(i, func(b *strings.Builder, indent string) { fmt.Fprintf(b, "%s%s:\n", indent, name) })
		}
		open = path
		write(len(path), func(b *strings.Builder, indent string) { line(b, indent, k) })
	}
	return b.String()
}

// levels are the names of a path, and the numbers of members by themselves: sources, [0].
func levels(section string) (all []string) {
	if section == "" {
		return nil
	}
	for name := range strings.SplitSeq(section, ".") {
		if list, number, member := strings.Cut(name, "["); member {
			all = append(all, list, "["+number)
			continue
		}
		all = append(all, name)
	}
	return all
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
				at = below(at, name)
			}
		}
		at[k.name()] = k.json()
	}
	return root
}

// below is the section of a name in another one; it is made when it is not there.
func below(at map[string]any, name string) map[string]any {
	if list, i, member := memberOf(name); member {
		members, _ := at[list].([]any)
		if i == len(members) {
			at[list] = append(members, map[string]any{})
		}
		return at[list].([]any)[i].(map[string]any)
	}
	if at[name] == nil {
		at[name] = map[string]any{}
	}
	return at[name].(map[string]any)
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
