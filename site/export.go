package site

import (
	"context"
	"slices"
	"strings"

	"weir/auth"
	"weir/model"
	"weir/store"
)

// Export returns what is there as a document, of one tenant, or of the whole instance for "": every field that is set, in
// an order that depends on nothing else, and no secret. Its plan is empty.
func (s *Site) Export(ctx context.Context, by *model.Principal, tenant string) (*Document, error) {
	d := &Document{Files: []File{}, Lists: map[string][]*Entity{}, format: s.format}
	err := s.parts.Store.Read(ctx, func(tx store.Tx) error {
		// A change that nothing is written in: all reads see one snapshot.
		w := s.work(&store.Change{Tx: tx, By: by}, by, d, Options{}, &passwords{})
		top := w.top()
		if tenant != "" {
			return top.exportTenant(tenant)
		}
		if err := top.export(); err != nil {
			return err
		}
		return w.exportPeople(d)
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (l *level) exportTenant(token string) error {
	k := l.format.tenant
	found, err := k.live.ByToken(l.ctx, l.by, []string{token})
	if err != nil {
		return err
	}
	rows, err := l.rows(k, found)
	if err != nil {
		return err
	}
	if len(rows) == 0 || !l.parts.Govern.Known(token) {
		return model.NotFound(k.name, token)
	}
	if l.only != nil { // what is asked for is inside: the tenant is only named
		return l.exportInside(add(l.lists, k, rows[0].name, nil))
	}
	return l.exportInside(add(l.lists, k, rows[0].name, rows[0].values))
}

func (l *level) exportInside(tenant *Entity) error {
	inside, err := l.enter(tenant)
	if err != nil {
		return err
	}
	return inside.export()
}

// export fills the lists of the level.
func (l *level) export() error {
	made := map[*kind]map[string]*Entity{} // those that others are inside of
	for _, k := range l.kinds() {
		if l.only != nil && !l.only.reads(k) {
			continue
		}
		made[k] = map[string]*Entity{}
		err := l.each(k, func(r row) error {
			if !l.only.takes(k, r.name) {
				return nil
			}
			if k == l.format.tenant && !l.parts.Govern.Known(r.name) {
				return nil // it is deleted
			}
			into := l.lists
			if k.parent != nil {
				outer := made[k.outer][r.values[k.parent.Name].(string)]
				if outer == nil { // it was not asked for
					return nil
				}
				into = outer.Lists
			}
			e := add(into, k, r.name, r.values)
			if len(k.lists) > 0 {
				made[k][e.Name] = e
			}
			return l.complete(k, r.row, e)
		})
		if err != nil {
			return err
		}
	}
	l.kind.sort(l.lists)
	if l.only != nil {
		return nil
	}
	for _, e := range made[l.format.tenant] {
		if err := l.exportInside(e); err != nil {
			return err
		}
	}
	return nil
}

// complete adds what the values of a row do not say.
func (l *level) complete(k *kind, row any, e *Entity) error {
	if versions := k.live.Versions(); versions != nil {
		differs, _, err := versions.Unpublished(l.ctx, l.by, e.Name)
		if err != nil {
			return err
		}
		if differs {
			e.Fields[keyPublish] = false
		}
	}
	if k.exported == nil {
		return nil
	}
	return k.exported(l, row, e)
}

// add adds an entity with the fields that are set.
func add(lists map[string][]*Entity, k *kind, name string, values store.Patch) *Entity {
	e := &Entity{Name: name, Fields: store.Patch{}}
	if len(k.lists) > 0 {
		e.Lists = map[string][]*Entity{}
	}
	for i := range k.fields {
		f := &k.fields[i]
		if v := f.shown(values[f.name]); v != nil && !f.secret {
			e.Fields[f.name] = v
		}
	}
	lists[k.list] = append(lists[k.list], e)
	return e
}

// sort puts the lists inside of one of the kind into the order of names.
func (k *kind) sort(lists map[string][]*Entity) {
	for _, inner := range k.lists {
		list := lists[inner.list]
		if !inner.ordered {
			slices.SortFunc(list, func(a, b *Entity) int { return strings.Compare(a.Name, b.Name) })
		}
		for _, e := range list {
			inner.sort(e.Lists)
		}
	}
}

func (w *work) exportPeople(d *Document) error {
	people, err := w.parts.Auth.Identities(w.ctx, w.by)
	if err != nil {
		return err
	}
	for _, p := range people {
		e := add(d.Lists, w.format.identity, p.Email, identityValues(p))
		for _, m := range p.Memberships {
			add(e.Lists, w.format.membership, m.Tenant, membershipValues(m))
		}
	}
	w.format.root.sort(d.Lists)
	return nil
}

func membershipValues(m auth.IdentityMembership) store.Patch {
	return store.Patch{"enabled": m.Enabled, "roles": m.Roles}
}
