package registry

import (
	"context"

	"weir/model"
	"weir/store"
)

// What messages of devices change. The applier calls these in the transaction of a record (store.Within): the change holds from that
// record on, and is not logged again. It is made by the device and bounded as any other.

// Report sets and removes CLIENT attributes of a device, all that a report names or, when one is refused, none. What is equal
// already is not written. The journal gets nothing: a device may report as often as it measures. A device that has been deleted
// since has no attributes.
func (r *Registry) Report(ctx context.Context, by *model.Principal, device int64, report *model.Report) error {
	return r.writer.Mutate(ctx, by, func(c *store.Change) error {
		c.Unjournaled()
		d, err := r.Devices.Table.GetByID(c, by.TenantID, device)
		if err != nil || d == nil {
			return err
		}
		have, err := r.Attributes.reported(c, d, report)
		if err != nil {
			return err
		}
		for _, a := range report.Attributes { // those that go first: at the ceiling they make room for others
			if old := have[a.Key]; a.Type == model.ReportedNull && old != nil {
				if err := r.Attributes.take(c, old, d.Token); err != nil {
					return err
				}
			}
		}
		for _, a := range report.Attributes {
			q := AttributeSet{AttributeRef: AttributeRef{
				EntityType: EntityDevice,
				Entity:     d.Token,
				Scope:      ScopeClient,
				Key:        a.Key,
			}, Type: a.Type.String(), Value: new(a.Value)}
			if a.Type == model.ReportedNull || q.is(have[a.Key]) {
				continue
			}
			if _, err := r.Attributes.put(c, d.ID, q); err != nil {
				return err
			}
		}
		return nil
	})
}

// reported returns the CLIENT attributes of a device that a report names, by key.
func (as *Attributes) reported(tx store.Tx, d *Device, report *model.Report) (map[string]*Attribute, error) {
	have := make(map[string]*Attribute, len(report.Attributes))
	if len(report.Attributes) == 0 {
		return have, nil
	}
	keys := make([]any, len(report.Attributes))
	for i := range report.Attributes {
		keys[i] = report.Attributes[i].Key
	}
	all, err := as.rows.Select(tx, d.TenantID, "key", store.Eq("entity_type", EntityDevice), store.Eq("entity_id", d.ID),
		store.Eq("scope", ScopeClient), store.In("key", keys...))
	for _, a := range all {
		have[a.Key] = a
	}
	return have, err
}

// is reports whether an attribute has the value already.
func (q *AttributeSet) is(a *Attribute) bool {
	return a != nil && a.Type == q.Type && a.Value() != nil && *a.Value() == *q.Value
}

// Relate relates a device to the entity that an event of a new relationship names, by the rules of any relationship. One that the
// device has already is not made again. token is that of the new one.
func (r *Registry) Relate(ctx context.Context, by *model.Principal, device int64, token string, to *model.Relationship) error {
	return r.writer.Mutate(ctx, by, func(c *store.Change) error {
		d, err := r.Devices.Table.GetByID(c, by.TenantID, device)
		if err != nil || d == nil {
			return err
		}
		have, err := r.Relationships.Table.Count(c, by.TenantID, store.Eq("source_type", EntityDevice), store.Eq("source_id", d.ID), store.Eq("target_type", to.TargetType),
			store.Eq("target_token", to.Target), store.RefersTo("type_id", "entity_relationship_types", to.Type))
		if err != nil || have > 0 {
			return err
		}
		_, err = r.Relationships.Create(c.Context(), c.By, store.Patch{
			"token":            token,
			"sourceType":       EntityDevice,
			"source":           d.Token,
			"targetType":       to.TargetType,
			"target":           to.Target,
			"relationshipType": to.Type,
		})
		return err
	})
}
