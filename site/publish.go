package site

import (
	"errors"

	"weir/model"
)

// publish makes the declared drafts effective that are not, unless they say otherwise.
func (l *level) publish() error {
	for _, k := range l.kinds() {
		if k.first {
			continue // done
		}
		if err := l.publishKind(k); err != nil {
			return err
		}
	}
	return nil
}

func (l *level) publishKind(k *kind) error {
	versions := k.live.Versions()
	if versions == nil {
		return nil
	}
	for _, d := range l.declared(k) {
		if d.Fields[keyPublish] == false || l.isLost(l.tenant, k.list, d.Name) {
			continue
		}
		differs, next, err := versions.Unpublished(l.ctx, l.by, d.Name)
		if err != nil {
			return at(d.Entity, err)
		}
		if !differs {
			continue
		}
		if _, err := versions.Publish(l.ctx, l.by, d.Name, nil, nil); err != nil {
			if err := l.refuse(refused(k, d.Entity, err), err); err != nil {
				return err
			}
			continue
		}
		l.plan.add(Change{Op: Publish, Kind: k.name, Tenant: l.tenant, Name: d.Name, Version: next})
	}
	return nil
}

// refused is the entity that a refused publish is about: the first refused part that is declared, at the field that was
// refused, or else the draft itself.
func refused(k *kind, draft *Entity, err error) *Entity {
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		return draft
	}
	for _, one := range e.All {
		for _, inner := range k.lists {
			for _, part := range draft.Lists[inner.list] {
				if inner.name == one.Kind && part.Name == one.Token {
					placed := *part
					placed.At = part.field(one.Field)
					return &placed
				}
			}
		}
	}
	return draft
}
