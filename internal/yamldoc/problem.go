package yamldoc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"weir/internal/similar"
)

// Problem is one thing that is wrong with a document.
type Problem struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"` // 0 when it is not in the file
	Column int    `json:"column,omitempty"`
	Path   string `json:"path,omitempty"` // the key, its parents before it, joined by dots
	Reason string `json:"reason"`
	Hint   string `json:"hint,omitempty"`
	Source string `json:"source,omitempty"` // the line itself, without the value of a secret
}

func (p Problem) String() string {
	var b strings.Builder
	switch {
	case p.Line > 0:
		fmt.Fprintf(&b, "%s:%d:%d: ", p.File, p.Line, p.Column)
	case p.File != "":
		fmt.Fprintf(&b, "%s: ", p.File)
	}
	if p.Path != "" {
		fmt.Fprintf(&b, "%s: ", p.Path)
	}
	b.WriteString(p.Reason)
	if p.Hint != "" {
		fmt.Fprintf(&b, " (%s)", p.Hint)
	}
	if p.Source != "" {
		fmt.Fprintf(&b, "\n    %s\n    %s^", p.Source, strings.Repeat(" ", min(max(p.Column-1, 0), maxShown)))
	}
	return b.String()
}

// Problems is every mistake that was found.
type Problems []Problem

// Lines writes the problems one below the other.
func (ps Problems) Lines() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Sort puts the problems into the order in which they are read: what has no line first, then by file, line and column.
func (ps Problems) Sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Path, b.Path))
	})
}

// Suggest is the hint "did you mean …?" for a name that is not known, "" when none of the known names is near.
func Suggest(name string, known []string) string {
	if s := similar.Nearest(name, known); s != "" {
		return "did you mean " + s + "?"
	}
	return ""
}
