package site

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Op is what happens to an entity.
type Op string

// The operations.
const (
	Create  Op = "create"
	Update  Op = "update"
	Delete  Op = "delete"
	Publish Op = "publish"
)

// Plan is what an apply changes, in its order.
type Plan struct {
	Files   []File   `json:"files,omitempty"`
	Changes []Change `json:"changes"`
	// Digest names the files and the changes: an apply that expects it refuses to make others.
	Digest  string `json:"digest"`
	Applied bool   `json:"applied"`
	// Undeclared is what is there, of the kinds whose lists the files have, and is not declared: what prune would delete. Of a
	// plan without prune only.
	Undeclared []Undeclared `json:"undeclared,omitempty"`
	// Warnings are what is probably not meant, each with its position. Of a plan only.
	Warnings []string `json:"warnings,omitempty"`
}

// Undeclared are entities of one kind that the files do not name.
type Undeclared struct {
	Kind   string   `json:"kind"`
	Tenant string   `json:"tenant,omitempty"`
	Count  int      `json:"count"`
	Names  []string `json:"names"` // the first of them, in their order
}

// maxNamed bounds the names of what is not declared.
const maxNamed = 5

// String is what is not declared on one line.
func (u *Undeclared) String() string {
	kind, verb, them := u.Kind, "is", "it"
	if u.Count != 1 {
		kind, verb, them = plural(u.Kind), "are", "them"
	}
	of := slices.Clone(u.Names)
	for i := range of {
		if u.Tenant != "" && u.Kind != kindMembership {
			of[i] = u.Tenant + "/" + of[i]
		}
	}
	if u.Count > len(of) {
		of = append(of, "…")
	}
	return fmt.Sprintf("%d %s %s not in the file; --prune would delete %s: %s", u.Count, kind, verb, them, strings.Join(of, ", "))
}

func plural(kind string) string {
	if stem, ok := strings.CutSuffix(kind, "y"); ok {
		return stem + "ies"
	}
	return kind + "s"
}

// leave notes what prune would delete.
func (p *Plan) leave(kind, tenant string, names []string) {
	if len(names) > 0 {
		p.Undeclared = append(p.Undeclared, Undeclared{kind, tenant, len(names), slices.Clone(names[:min(len(names), maxNamed)])})
	}
}

// Change is what happens to one entity.
type Change struct {
	Op     Op            `json:"op"`
	Kind   string        `json:"kind"`
	Tenant string        `json:"tenant,omitempty"`
	Name   string        `json:"name"`
	Fields []FieldChange `json:"fields,omitempty"` // of an update
	// Version is what a publish makes.
	Version int64 `json:"version,omitempty"`
}

// FieldChange is the change of one field. What a secret was and becomes is not said.
type FieldChange struct {
	Name   string `json:"name"`
	Old    any    `json:"old"`
	New    any    `json:"new"`
	Secret bool   `json:"secret,omitempty"`
	// Inside is what differs within a document, each with its path.
	Inside []FieldChange `json:"inside,omitempty"`
}

// add notes a change.
func (p *Plan) add(c Change) { p.Changes = append(p.Changes, c) }

// seal names the changes.
func (p *Plan) seal() {
	if p.Changes == nil {
		p.Changes = []Change{}
	}
	hashes := make([]string, len(p.Files))
	for i := range p.Files {
		hashes[i] = p.Files[i].SHA256
	}
	b, _ := json.Marshal([]any{hashes, p.Changes}) // texts, numbers, truth values: always JSON
	sum := sha256.Sum256(b)
	p.Digest = hex.EncodeToString(sum[:8])
}

// Count returns how many changes are of an operation.
func (p *Plan) Count(op Op) (n int) {
	for i := range p.Changes {
		if p.Changes[i].Op == op {
			n++
		}
	}
	return n
}

// String is the change on one line.
func (c *Change) String() string {
	of := c.Name
	switch {
	case c.Kind == kindMembership:
		of = c.Name + " in " + c.Tenant
	case c.Tenant != "":
		of = c.Tenant + "/" + c.Name
	}
	switch c.Op {
	case Create:
		return "+ " + c.Kind + " " + of
	case Delete:
		return "- " + c.Kind + " " + of
	case Publish:
		return fmt.Sprintf("^ publish %s v%d", of, c.Version)
	}
	fields := make([]string, len(c.Fields))
	for i := range c.Fields {
		fields[i] = c.Fields[i].String()
	}
	return "~ " + c.Kind + " " + of + ": " + strings.Join(fields, ", ")
}

func (f *FieldChange) String() string {
	if f.Secret {
		return f.Name + " (changed)"
	}
	if len(f.Inside) > 0 {
		parts := make([]string, len(f.Inside))
		for i := range f.Inside {
			parts[i] = f.Inside[i].String()
		}
		return strings.Join(parts, ", ")
	}
	before, after := shownValue(f.Old), shownValue(f.New)
	from := commonStart(before, after)
	return f.Name + " " + cut(before, from) + " → " + cut(after, from)
}

// shownValue is a value on a line.
func shownValue(v any) string {
	if v == nil {
		return "none"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return string(b)
}

// What is shown of a long value: so many characters, and so many of them before the first that differs.
const (
	maxValueShown = 60
	sharedShown   = 20
)

// commonStart is where the part of two values begins in which they differ, 0 where both can be shown whole.
func commonStart(a, b string) int {
	x, y := []rune(a), []rune(b)
	if max(len(x), len(y)) <= maxValueShown {
		return 0
	}
	n := 0
	for n < min(len(x), len(y)) && x[n] == y[n] {
		n++
	}
	return max(n-sharedShown, 0)
}

// cut is the part of a value that is shown.
func cut(s string, from int) string {
	r := []rune(s)[from:]
	out := string(r[:min(len(r), maxValueShown)])
	if from > 0 {
		out = "…" + out
	}
	if len(r) > maxValueShown {
		out += "…"
	}
	return out
}
