package mqttsource

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// path is a singular path of RFC 9535: $.name['other name'][0].
type path []step

// step is the name of a member, or the index of an element.
type step struct {
	name  string
	index int
	array bool
}

var errPath = errors.New("is no singular path such as $.env.temperature or $['a b'][0] (RFC 9535)")

// parsePath parses a singular path.
func parsePath(text string) (path, error) {
	rest, ok := strings.CutPrefix(text, "$")
	if !ok || !utf8.ValidString(text) {
		return nil, errPath
	}
	p := path{}
	for rest != "" && len(p) < 64 {
		var s step
		switch {
		case rest[0] == '.':
			end := 1 + strings.IndexAny(rest[1:], ".[")
			if end == 0 {
				end = len(rest)
			}
			if s.name = rest[1:end]; !shorthand(s.name) {
				return nil, errPath
			}
			rest = rest[end:]
		case strings.HasPrefix(rest, "['"), strings.HasPrefix(rest, `["`):
			name, after, ok := quotedName(rest[1:])
			if !ok {
				return nil, errPath
			}
			s.name, rest = name, after
		case rest[0] == '[':
			number, after, ok := strings.Cut(rest[1:], "]")
			n, err := strconv.Atoi(number)
			if !ok || err != nil || strconv.Itoa(n) != number {
				return nil, errPath
			}
			s.index, s.array, rest = n, true, after
		default:
			return nil, errPath
		}
		p = append(p, s)
	}
	if rest != "" {
		return nil, errPath
	}
	return p, nil
}

// shorthand reports whether a name can stand after a point, RFC 9535 section 2.5.1.1.
func shorthand(name string) bool {
	for i, r := range name {
		if r != '_' && r < 0x80 && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// quotedName reads a name in quotes and the bracket after it.
func quotedName(s string) (name, rest string, ok bool) {
	quote := s[0]
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case quote:
			after, closed := strings.CutPrefix(s[i+1:], "]")
			return b.String(), after, closed
		case '\\':
			if i++; i >= len(s) || s[i] != quote && s[i] != '\\' {
				return "", "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}

// find returns the value at the path; ok is false when there is none.
func (p path) find(v any) (_ any, ok bool) {
	for _, s := range p {
		if s.array {
			list, isList := v.([]any)
			i := s.index
			if i < 0 {
				i += len(list)
			}
			if !isList || i < 0 || i >= len(list) {
				return nil, false
			}
			v = list[i]
			continue
		}
		object, isObject := v.(map[string]any)
		if !isObject {
			return nil, false
		}
		if v, ok = object[s.name]; !ok {
			return nil, false
		}
	}
	return v, true
}
