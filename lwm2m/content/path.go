package content

import (
	"strconv"
	"strings"
)

// Path is the path of an object, an instance, a resource or a resource instance: 1 to 4 numbers. The root has none.
type Path []uint16

// String returns the path with a leading slash.
func (p Path) String() string {
	if len(p) == 0 {
		return "/"
	}
	var b strings.Builder
	for _, n := range p {
		b.WriteByte('/')
		b.WriteString(strconv.Itoa(int(n)))
	}
	return b.String()
}

// Segments are the numbers as they stand in an Uri-Path.
func (p Path) Segments() []string {
	all := make([]string, len(p))
	for i, n := range p {
		all[i] = strconv.Itoa(int(n))
	}
	return all
}

// Within reports whether a path is at or below another one.
func (p Path) Within(above Path) bool {
	if len(p) < len(above) {
		return false
	}
	for i := range above {
		if p[i] != above[i] {
			return false
		}
	}
	return true
}

// ParsePath reads 1 to 4 numbers in 0..65535, each without leading zeros, with slashes between; one before the first may be
// missing.
func ParsePath(s string) (p Path, ok bool) {
	s = strings.TrimPrefix(s, "/")
	if s == "" || len(s) > 4*6 {
		return nil, false
	}
	for part := range strings.SplitSeq(s, "/") {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil || strconv.FormatUint(n, 10) != part || len(p) == 4 {
			return nil, false
		}
		p = append(p, uint16(n))
	}
	return p, true
}

// parseName reads the name of a record: a path that may have doubled slashes, and must be that of a resource.
func parseName(s string) (Path, error) {
	for strings.Contains(s, "//") {
		s = strings.ReplaceAll(s, "//", "/")
	}
	p, ok := ParsePath(strings.TrimSuffix(s, "/"))
	if !ok || len(p) < 3 {
		return nil, bad("%.40q is no path of a resource", s)
	}
	return p, nil
}

// child returns the path below another one. It shares nothing with it.
func (p Path) child(ids ...uint16) Path {
	out := make(Path, 0, len(p)+len(ids))
	return append(append(out, p...), ids...)
}
