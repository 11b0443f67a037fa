package site

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"weir/internal/yamldoc"
	"weir/model"
	"weir/store"
)

// Selection names entities of one kind.
type Selection struct {
	Tenant string `json:"tenant,omitempty"` // the tenant of whose they are; not for kinds of the instance
	Kind   string `json:"kind"`             // as it is called in a site file: devices, or device
	Name   string `json:"name,omitempty"`   // token or email of one of them; "": all
}

// Selected is what was found, in the order of names, each with what a site file declares inside of it and no secret.
type Selected struct {
	Kind     string    // of the list: devices
	Found    []*Entity //
	Document *Document // the same as a site file, which changes nothing when it is applied
}

// selected are entities of a kind, as an export meets them.
type selected struct {
	kind *kind
	name string // "": all
}

// reads reports whether rows of a kind are needed: those selected, what they are inside of and what is inside of them.
func (s *selected) reads(k *kind) bool {
	return within(k, s.kind) || within(s.kind, k)
}

// within reports whether a kind is another one or declared inside of it.
func within(k, outer *kind) bool {
	for ; k != nil; k = k.outer {
		if k == outer {
			return true
		}
	}
	return false
}

// takes reports whether an entity is a part of the export.
func (s *selected) takes(k *kind, name string) bool {
	return s == nil || k != s.kind || s.name == "" || s.name == name
}

// Kinds are the kinds that Get knows, as lists in a site file are called: those of tenants, and those of the instance.
func (f *Format) Kinds() (tenant, instance []string) {
	for _, k := range append(slices.Clone(f.kinds), f.identity) {
		if within(k, f.tenant) && k != f.tenant {
			tenant = append(tenant, k.list)
		} else {
			instance = append(instance, k.list)
		}
	}
	slices.Sort(tenant)
	slices.Sort(instance)
	return slices.Compact(tenant), slices.Compact(instance)
}

// OfInstance reports whether entities of a kind belong to the instance and to no tenant.
func (f *Format) OfInstance(kind string) bool {
	k := f.named(kind)
	return k != nil && (k == f.tenant || !within(k, f.tenant))
}

// named is the kind of a list or of a name, nil for none.
func (f *Format) named(name string) *kind {
	for _, k := range append(slices.Clone(f.kinds), f.identity) {
		if k.list == name || strings.ReplaceAll(k.name, " ", "-") == name || k.name == name {
			return k
		}
	}
	return nil
}

// Get returns the entities of a kind. The error is NOT_FOUND for a name that none of them has, with the nearest one as a hint.
func (s *Site) Get(ctx context.Context, by *model.Principal, q Selection) (*Selected, error) {
	k := s.format.named(q.Kind)
	tenants, instance := s.format.Kinds()
	switch {
	case k == nil:
		e := model.Invalid("kind", "there is no kind %q; the kinds are %s", q.Kind, strings.Join(slices.Concat(tenants, instance), ", "))
		e.Hint = yamldoc.Suggest(q.Kind, slices.Concat(tenants, instance))
		return nil, e
	case s.format.OfInstance(q.Kind) && q.Tenant != "":
		return nil, model.Invalid("tenant", "%s are those of the instance, not of a tenant", k.list)
	case !s.format.OfInstance(q.Kind) && q.Tenant == "":
		return nil, model.Invalid("tenant", "is missing: %s belong to a tenant", k.list)
	}
	d := &Document{Files: []File{}, Lists: map[string][]*Entity{}, format: s.format}
	err := s.parts.Store.Read(ctx, func(tx store.Tx) error {
		w := s.work(&store.Change{Tx: tx, By: by}, by, d, Options{}, &passwords{})
		w.only = &selected{k, q.Name}
		switch {
		case q.Tenant != "":
			return w.top().exportTenant(q.Tenant)
		case k == s.format.identity:
			return w.exportPeople(d)
		}
		return w.top().export()
	})
	if err != nil {
		return nil, err
	}
	out := &Selected{Kind: k.list, Document: d}
	keep(s.format.root, k, d.Lists, func(e *Entity) bool {
		if q.Name != "" && e.Name != q.Name {
			return false
		}
		out.Found = append(out.Found, e)
		return true
	})
	if q.Name != "" && len(out.Found) == 0 {
		return nil, s.missing(ctx, by, q, k)
	}
	return out, nil
}

// missing is the refusal of a name, with what is nearest to it.
func (s *Site) missing(ctx context.Context, by *model.Principal, q Selection, k *kind) error {
	e := model.NotFound(k.name, q.Name)
	name := q.Name
	q.Name = ""
	all, err := s.Get(ctx, by, q)
	if err != nil {
		return err
	}
	names := make([]string, len(all.Found))
	for i, f := range all.Found {
		names[i] = f.Name
	}
	in := ""
	if q.Tenant != "" {
		in = " --tenant " + q.Tenant
	}
	e.Hint = strings.TrimSpace(fmt.Sprintf("%s see what there is with: weir get %s%s", yamldoc.Suggest(name, names), k.list, in))
	return e
}

// keep leaves in lists only the entities of a kind that take accepts, and what they are inside of.
func keep(outer, k *kind, lists map[string][]*Entity, take func(*Entity) bool) {
	for _, inner := range outer.lists {
		if inner == k {
			lists[inner.list] = slices.DeleteFunc(lists[inner.list], func(e *Entity) bool { return !take(e) })
			continue
		}
		lists[inner.list] = slices.DeleteFunc(lists[inner.list], func(e *Entity) bool {
			keep(inner, k, e.Lists, take)
			for _, list := range e.Lists {
				if len(list) > 0 {
					return false
				}
			}
			return true
		})
	}
}
