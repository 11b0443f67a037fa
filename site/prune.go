package site

import (
	"errors"
	"slices"
	"strings"

	"weir/auth"
	"weir/model"
)

// prune deletes what is not declared, of the kinds that go early or of the others. What refers goes before what it refers to.
func (l *level) prune(early bool) error {
	for _, k := range slices.Backward(l.kind.lists) {
		if k.live == nil || k == l.format.tenant { // tenants are never deleted
			continue
		}
		if err := l.pruneKind(k, early); err != nil {
			return err
		}
	}
	return nil
}

func (l *level) pruneKind(k *kind, early bool) error {
	for _, part := range slices.Backward(k.lists) {
		if err := l.pruneKind(part, early); err != nil {
			return err
		}
	}
	if k.early != early {
		return nil
	}
	list, ok := l.lists[k.list]
	switch {
	case k.parent != nil:
		return l.pruneParts(k)
	case !ok || l.opt.Parts:
		return nil
	}
	keep := names(list)
	var gone []string
	if err := l.each(k, func(r row) error {
		if !keep[r.name] && !((l.tenant == "" || k.is(tableRelationshipTypes)) && slices.Contains(seeded[k.list], r.name)) { // no file declared what Weir made
			gone = append(gone, r.name)
		}
		return nil
	}); err != nil {
		return err
	}
	return l.remove(k, gone)
}

func (l *level) remove(k *kind, gone []string) error {
	slices.Sort(gone)
	if !l.opt.Prune && !l.opt.Parts {
		l.plan.leave(k.name, l.tenant, gone)
		return nil
	}
	for _, name := range gone {
		if err := k.remove(l, k, name); err != nil {
			return unpruned(err)
		}
		l.plan.add(Change{Op: Delete, Kind: k.name, Tenant: l.tenant, Name: name})
	}
	return nil
}

// pruneParts deletes what stands inside of declared entities and is not declared, of those that have the list. What is
// declared inside of another one moves there instead.
func (l *level) pruneParts(k *kind) error {
	keep, with := map[string]bool{}, []string{}
	for _, o := range l.declared(k.outer) {
		inner, ok := o.Lists[k.list]
		if ok {
			with = append(with, o.Name)
		}
		for _, e := range inner {
			keep[e.Name] = true
		}
	}
	if len(with) == 0 {
		return nil
	}
	owners, err := k.outer.live.ByToken(l.ctx, l.by, with)
	if err != nil {
		return err
	}
	ids := make([]any, len(owners))
	for i, owner := range owners {
		ids[i] = k.outer.live.Head(owner).ID
	}
	rows, err := k.live.By(l.ctx, l.by, k.parent.Column, ids...)
	if err != nil {
		return err
	}
	var gone []string
	for _, row := range rows {
		if name := k.live.Token(row); !keep[name] {
			gone = append(gone, name)
		}
	}
	return l.remove(k, gone)
}

func names(list []*Entity) map[string]bool {
	all := make(map[string]bool, len(list))
	for _, e := range list {
		all[e.Name] = true
	}
	return all
}

// unpruned says of a refusal that it was about what is not declared.
func unpruned(err error) error {
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		return err
	}
	refusal := *e
	refusal.Message, refusal.Hint = "deleting what is not declared: "+e.Message, "declare it, or leave --prune out; nothing was changed"
	return &refusal
}

func isDeclared(list []*Entity, name string) bool {
	return slices.ContainsFunc(list, func(e *Entity) bool { return e.Name == name })
}

// pruneIdentities ends memberships that are not declared, of the people who have the list, and deletes people who are not.
func (w *work) pruneIdentities() error {
	list, ok := w.doc.Lists["identities"]
	if !ok {
		return nil
	}
	have, err := w.parts.Auth.Identities(w.ctx, w.by)
	if err != nil {
		return err
	}
	slices.SortFunc(have, func(a, b *auth.Identity) int { return strings.Compare(a.Email, b.Email) })
	var left []string
	for _, p := range have {
		i := slices.IndexFunc(list, func(e *Entity) bool { return e.Name == p.Email })
		if i < 0 && !w.opt.Prune {
			left = append(left, p.Email)
			continue
		}
		if i < 0 {
			if _, err := w.parts.Auth.DeleteIdentity(w.ctx, w.by, p.Email); err != nil {
				return unpruned(err)
			}
			w.plan.add(Change{Op: Delete, Kind: w.format.identity.name, Name: p.Email})
			continue
		}
		keep, ok := list[i].Lists["memberships"]
		if !ok {
			continue
		}
		for _, m := range p.Memberships {
			if isDeclared(keep, m.Tenant) {
				continue
			}
			if !w.opt.Prune {
				w.plan.leave(kindMembership, m.Tenant, []string{p.Email + " in " + m.Tenant})
				continue
			}
			if _, err := w.parts.Auth.RemoveMembership(w.ctx, w.by, p.Email, m.Tenant); err != nil {
				return unpruned(err)
			}
			w.plan.add(Change{Op: Delete, Kind: kindMembership, Tenant: m.Tenant, Name: p.Email})
		}
	}
	w.plan.leave(w.format.identity.name, "", left)
	return nil
}
