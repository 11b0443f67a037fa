package mqttsource

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// template is a topic template: its levels, some of which are captured by name.
type template struct {
	text   string
	levels []level
	rest   int // index of {device...}, -1: there is none
}

// level is one level of a template: a literal, a name in braces, or + for any.
type level struct {
	literal string
	name    string // "" for a literal
}

// maxLevels bounds the levels of a template and of a topic that is matched.
const maxLevels = 64

// parseTemplate parses a template. It says what is wrong with one that cannot be.
func parseTemplate(text string) (*template, error) {
	t := &template{text: text, rest: -1}
	if text == "" {
		return nil, errors.New("must not be empty")
	}
	for i, part := range strings.Split(text, "/") {
		name, rest := "", false
		switch {
		case i >= maxLevels:
			return nil, fmt.Errorf("has more than %d levels", maxLevels)
		case part == "+":
			name = "+"
		case strings.HasPrefix(part, "{") && strings.HasSuffix(part, "}"):
			if name, rest = strings.CutSuffix(part[1:len(part)-1], "..."); !validName(name) {
				return nil, fmt.Errorf("the level %s has no valid name", part)
			}
			if rest && (name != levelDevice || t.rest >= 0) {
				return nil, errors.New("may have {device...} once, and no other name with dots at its end")
			}
			if t.captures(name) {
				return nil, fmt.Errorf("has %s twice", part)
			}
		case strings.ContainsAny(part, "{}+#\x00"):
			return nil, fmt.Errorf("the level %q must be a name in braces, + or a text without {, }, + and #", part)
		}
		if rest {
			t.rest = i
		}
		t.levels = append(t.levels, level{literal: part, name: name})
	}
	return t, nil
}

// Names of levels with a meaning.
const (
	levelDevice = "device"
	levelTenant = "tenant"
	levelMetric = "metric"
)

// validName reports whether a name can stand in braces.
func validName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
}

// captures reports whether the template captures a name.
func (t *template) captures(name string) bool {
	return name != "+" && slices.ContainsFunc(t.levels, func(l level) bool { return l.name == name })
}

// captured are the values of the names of a template in a topic.
type captured map[string]string

// match returns what the template captures of a topic; ok is false when the topic is another one.
func (t *template) match(topic string) (c captured, ok bool) {
	if strings.Count(topic, "/") >= maxLevels {
		return nil, false
	}
	parts := strings.Split(topic, "/")
	more := len(parts) - len(t.levels) // levels that {device...} takes besides its own
	if more < 0 || more > 0 && t.rest < 0 || strings.HasPrefix(topic, "$") && !strings.HasPrefix(t.levels[0].literal, "$") {
		return nil, false
	}
	for i, l := range t.levels {
		part := parts[0]
		if i == t.rest {
			part = strings.Join(parts[:more+1], "/")
			parts = parts[more+1:]
		} else {
			parts = parts[1:]
		}
		switch l.name {
		case "":
			if part != l.literal {
				return nil, false
			}
		case "+":
		default:
			if part == "" {
				return nil, false
			}
			if c == nil {
				c = captured{}
			}
			c[l.name] = part
		}
	}
	return c, true
}

// filter is the topic filter that covers the template.
func (t *template) filter() string {
	var parts []string
	for i, l := range t.levels {
		switch {
		case i == t.rest:
			return strings.Join(append(parts, "#"), "/")
		case l.name != "":
			parts = append(parts, "+")
		default:
			parts = append(parts, l.literal)
		}
	}
	return strings.Join(parts, "/")
}

// covers reports whether a filter matches all that another one does.
func covers(wide, narrow string) bool {
	w, n := strings.Split(wide, "/"), strings.Split(narrow, "/")
	if len(narrow) > 0 && narrow[0] == '$' && (wide[0] == '+' || wide[0] == '#') {
		return false
	}
	for i, level := range w {
		switch {
		case level == "#":
			return true
		case i >= len(n) || n[i] == "#":
			return false
		case level != "+" && level != n[i]:
			return false
		}
	}
	return len(w) == len(n)
}

// withoutCovered leaves the filters out that another one covers.
func withoutCovered(filters []string) (out []string) {
	for i, f := range filters {
		if !slices.ContainsFunc(filters, func(o string) bool { return o != f && covers(o, f) }) && !slices.Contains(filters[:i], f) {
			out = append(out, f)
		}
	}
	return out
}

// text is a text with names in braces.
type text struct {
	parts []level
}

// parseText parses a text whose names must be captured by the template, or are in also.
func parseText(s string, t *template, also ...string) (*text, error) {
	out := &text{}
	for s != "" {
		before, after, found := strings.Cut(s, "{")
		if before != "" {
			out.parts = append(out.parts, level{literal: before})
		}
		if !found {
			break
		}
		name, rest, closed := strings.Cut(after, "}")
		if !closed || !t.captures(name) && !slices.Contains(also, name) {
			return nil, fmt.Errorf("{%s} is no level of the topic %s", name, t.text)
		}
		out.parts = append(out.parts, level{name: name})
		s = rest
	}
	return out, nil
}

// fill puts the values in the place of the names.
func (x *text) fill(c captured) string {
	if len(x.parts) == 1 { // by far the most frequent
		if p := x.parts[0]; p.name != "" {
			return c[p.name]
		}
		return x.parts[0].literal
	}
	var b strings.Builder
	for _, p := range x.parts {
		if p.name != "" {
			b.WriteString(c[p.name])
		} else {
			b.WriteString(p.literal)
		}
	}
	return b.String()
}
