package site

import (
	"errors"
	"strconv"
	"strings"

	"weir/model"
)

// publish makes the drafts of the declared profiles active that are not, unless the profile says otherwise.
func (t *inTenant) publish() error {
	for _, e := range t.e.Lists["deviceProfiles"] {
		if e.Fields[keyPublish] == false {
			continue
		}
		differs, next, err := t.registry.Profiles.Unpublished(t.ctx, t.by, e.Name)
		if err != nil {
			return at(e, err)
		}
		if !differs {
			continue
		}
		if _, err := t.registry.Profiles.Publish(t.ctx, t.by, e.Name, nil, nil); err != nil {
			return at(refused(e, err), err)
		}
		t.plan.add(Change{Op: Publish, Kind: t.kinds.profile.name, Tenant: t.e.Name, Name: e.Name, Version: next})
	}
	return nil
}

// refused is the entity that a refused publish is about: the rule that its message names first, where it is declared.
func refused(profile *Entity, err error) *Entity {
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		return profile
	}
	first, place := profile, len(e.Message)
	for _, rule := range profile.Lists["detectionRules"] {
		if i := indexQuoted(e.Message, rule.Name); i >= 0 && i < place {
			first, place = rule, i
		}
	}
	if first != profile {
		definition := *first
		definition.At = first.field("definition")
		return &definition
	}
	return first
}

// indexQuoted is where a message names something, -1 where it does not.
func indexQuoted(message, name string) int { return strings.Index(message, strconv.Quote(name)) }
