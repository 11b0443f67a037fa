package site

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
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
	return f.Name + " " + shownValue(f.Old) + " → " + shownValue(f.New)
}

// shownValue is a value on a line, cut where it is long.
func shownValue(v any) string {
	if v == nil {
		return "none"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return shortened(string(b))
}
