package site

import (
	"errors"

	"weir/model"
)

// publish makes the drafts of the declared profiles active that are not, unless the profile says otherwise.
func (t *inTenant) publish() error {
	for _, e := range t.e.Lists["deviceProfiles"] {
		if e.Fields[keyPublish] == false {
			continue
		}
		differs, next, err := t.registry.Unpublished(t.ctx, t.by, e.Name)
		if err != nil {
			return at(e, err)
		}
		if !differs {
			continue
		}
		if _, err := t.registry.Publish(t.ctx, t.by, e.Name, nil, nil); err != nil {
			return at(refused(e, err), err)
		}
		t.plan.add(Change{Op: Publish, Kind: t.kinds.profile.name, Tenant: t.e.Name, Name: e.Name, Version: next})
	}
	return nil
}

// refused is the entity that a refused publish is about: the definition of the first refused rule that is declared, or else
// the profile.
func refused(profile *Entity, err error) *Entity {
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		return profile
	}
	for _, one := range e.All {
		for _, rule := range profile.Lists["detectionRules"] {
			if rule.Name == one.Token {
				definition := *rule
				definition.At = rule.field("definition")
				return &definition
			}
		}
	}
	return profile
}
