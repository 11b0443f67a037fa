package content

import (
	"strings"
)

// ObjectLink is an entry of a list in link format: an object or an instance, or in the answer to a Discover a resource, with its attributes.
type ObjectLink struct {
	Target     string // as it was written, without the angle brackets
	Path       Path   // nil where the target is no path of an object
	Attributes []Attribute
}

// Attribute is an attribute of a link. Value is "" where there is none.
type Attribute struct{ Name, Value string }

// Get returns the value of an attribute.
func (l ObjectLink) Get(name string) (value string, ok bool) {
	for _, a := range l.Attributes {
		if a.Name == name {
			return a.Value, true
		}
	}
	return "", false
}

// maxLinks and maxAttributes bound a list.
const (
	maxLinks      = 1024
	maxAttributes = 32
)

// ParseLinks reads a list in link format. The paths are those below the root of the list, which is the target of the link with
// rt="oma.lwm2m", if there is one.
func ParseLinks(b []byte) (all []ObjectLink, err error) {
	s := strings.TrimSpace(string(b))
	for s != "" {
		var l ObjectLink
		if l, s, err = nextLink(s); err != nil {
			return nil, err
		}
		if len(all) == maxLinks {
			return nil, bad("more than %d links", maxLinks)
		}
		all = append(all, l)
	}
	root := ""
	for _, l := range all {
		if kind, _ := l.Get("rt"); kind == "oma.lwm2m" {
			root = strings.TrimSuffix(l.Target, "/")
		}
	}
	for i := range all {
		if below, ok := strings.CutPrefix(all[i].Target, root); ok {
			all[i].Path, _ = ParsePath(strings.TrimSuffix(below, "/"))
		}
	}
	return all, nil
}

// nextLink reads the first link and returns what follows its comma.
func nextLink(s string) (l ObjectLink, rest string, err error) {
	s = strings.TrimLeft(s, " \t\r\n")
	end := strings.IndexByte(s, '>')
	if !strings.HasPrefix(s, "<") || end < 0 {
		return l, "", bad("link format: a link begins with <target>")
	}
	l.Target, s = s[1:end], s[end+1:]
	for {
		s = strings.TrimLeft(s, " \t\r\n")
		switch {
		case s == "":
			return l, "", nil
		case s[0] == ',':
			if s = strings.TrimLeft(s[1:], " \t\r\n"); s == "" {
				return l, "", bad("link format: nothing follows a comma")
			}
			return l, s, nil
		case s[0] != ';' || len(l.Attributes) == maxAttributes:
			return l, "", bad("link format: ; or , is expected behind a link")
		}
		var a Attribute
		if a, s, err = nextAttribute(s[1:]); err != nil {
			return l, "", err
		}
		l.Attributes = append(l.Attributes, a)
	}
}

func nextAttribute(s string) (a Attribute, rest string, err error) {
	end := strings.IndexAny(s, "=;,")
	if end < 0 {
		end = len(s)
	}
	a.Name, s = strings.TrimSpace(s[:end]), s[end:]
	if a.Name == "" {
		return a, "", bad("link format: an attribute without a name")
	}
	if !strings.HasPrefix(s, "=") {
		return a, s, nil
	}
	s = s[1:]
	if !strings.HasPrefix(s, `"`) {
		if end = strings.IndexAny(s, ";,"); end < 0 {
			end = len(s)
		}
		a.Value = strings.TrimSpace(s[:end])
		return a, s[end:], nil
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i == len(s) {
				return a, "", bad("link format: a text is cut off")
			}
			b.WriteByte(s[i])
		case '"':
			a.Value = b.String()
			return a, s[i+1:], nil
		default:
			b.WriteByte(s[i])
		}
	}
	return a, "", bad("link format: a text is cut off")
}
