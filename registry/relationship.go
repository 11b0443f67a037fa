package registry

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"

	"weir/model"
	"weir/store"
	"weir/store/entity"
	"weir/store/relations"
)

// RelationshipType is a way in which entities are related. Relationships of a tracked type from a device are anchors of its
// events.
type RelationshipType struct {
	store.Row
	Token       string  `store:"token,token" gql:"token"`
	Name        *string `store:"name,clear,max=128" gql:"name"`
	Description *string `store:"description,clear,max=1024" gql:"description"`
	Metadata    *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
	Tracked     bool    `store:"tracked,required" gql:"tracked"`
}

// Relationship relates two entities, each of which is named by its type and token. Tokens of entities never change.
type Relationship struct {
	store.Row
	Token      string  `store:"token,token" gql:"token"`
	SourceType string  `store:"source_type,required,immutable,oneof=device|asset|area|customer|group,filter" gql:"sourceType"`
	Source     string  `store:"source_token,required,immutable,max=128,filter" gql:"source"`
	SourceID   int64   `store:"source_id"`
	TargetType string  `store:"target_type,required,immutable,oneof=device|asset|area|customer|group,filter" gql:"targetType"`
	Target     string  `store:"target_token,required,immutable,max=128,filter" gql:"target"`
	TargetID   int64   `store:"target_id"`
	TypeID     int64   `store:"type_id,required,immutable,ref=entity_relationship_types,filter" gql:"relationshipType"`
	Metadata   *string `store:"metadata,immutable,json,max=65536" gql:"metadata"`
}

// Types of entities, as relationships, groups and attributes name them.
const (
	EntityDevice   = "device"
	EntityAsset    = "asset"
	EntityArea     = "area"
	EntityCustomer = "customer"
	EntityGroups   = relations.GroupType
)

// EntityTypes are the tables of the kinds whose rows are addressed by (type, token), by those types.
func EntityTypes() map[string]string { return maps.Clone(entityTypes()) }

// builtInTypes are the relationship types that come into being by their first use, by their tokens; the value says whether
// they are tracked.
func builtInTypes() map[string]bool {
	return map[string]bool{"assigned": true, relations.MemberRelation: false}
}

// BuiltInRelationshipTypes are the tokens of the relationship types that need not be made before they are used.
func BuiltInRelationshipTypes() []string { return slices.Sorted(maps.Keys(builtInTypes())) }

// BuiltInRelationshipType reports whether a token is that of one of them.
func BuiltInRelationshipType(token string) bool {
	_, builtIn := builtInTypes()[token]
	return builtIn
}

// Relations are how the entities of all tenants are related, and in which ways they can be.
type Relations struct {
	*entity.Kind[Relationship]
	Types *entity.Kind[RelationshipType]
	access
	limits func() *DeviceSettings
	groups *entity.Kind[EntityGroup] // whose members are relationships
}

// describe makes the kinds.
func (rs *Relations) describe(b entity.Base) {
	rs.Types = entity.New(b, entity.Desc[RelationshipType]{
		Kind:    "entity relationship type",
		Type:    "EntityRelationshipType",
		Plural:  "entityRelationshipTypes",
		Area:    area,
		Table:   "entity_relationship_types",
		Read:    mayRead,
		Write:   mayWrite,
		Check:   rs.checkType,
		Changed: rs.typeChanged,
	})
	rs.Kind = entity.New(b, entity.Desc[Relationship]{
		Kind:    "entity relationship",
		Type:    "EntityRelationship",
		Plural:  "entityRelationships",
		Area:    area,
		Table:   "entity_relationships",
		Read:    mayRead,
		Write:   mayWrite,
		Making:  rs.makeBuiltInType,
		Check:   rs.check,
		Changed: rs.changed,
		Filters: []entity.Filter{{Name: "tracked", Of: func(tracked any) store.Filter {
			return store.RefersToFlagged("type_id", "entity_relationship_types", "tracked", tracked == true)
		}}},
	})
}

// makeBuiltInType makes a built-in relationship type when it is used for the first time.
func (rs *Relations) makeBuiltInType(c *store.Change, p store.Patch) error {
	token, _ := p["relationshipType"].(string)
	tracked, builtIn := builtInTypes()[token]
	if !builtIn {
		return nil
	}
	have, err := rs.Types.Table.Get(c, c.By.TenantID, token)
	if err != nil || have != nil {
		return err
	}
	_, err = rs.Types.Make(c, store.Patch{"token": token, "tracked": tracked})
	return err
}

// checkType refuses a type that becomes tracked while a device would have too many tracked relationships.
func (rs *Relations) checkType(tx store.Tx, t *RelationshipType, changed store.Changed) error {
	if changed.New || !changed.Has("tracked") || !t.Tracked {
		return nil
	}
	n, err := relations.MaxTracked(tx, t.TenantID, t.ID)
	if maximum := rs.limits().TrackedPerDevice; err == nil && n > maximum {
		err = model.OverLimit("limits.tracked_relationships_per_device", "a device would have %d tracked relationships, at most %d are allowed", n, maximum)
	}
	return err
}

// check finds both ends of a new relationship.
func (rs *Relations) check(tx store.Tx, rel *Relationship, _ store.Changed) (err error) {
	// Both ends by row id: tokens may be given to others after a delete.
	if rel.SourceID, err = entityID(tx, rel.TenantID, "source", rel.SourceType, rel.Source); err != nil {
		return err
	}
	if rel.TargetID, err = entityID(tx, rel.TenantID, "target", rel.TargetType, rel.Target); err != nil {
		return err
	}
	// The type says whether this is a membership, and whether it is tracked.
	t, err := rs.Types.Table.GetByID(tx, rel.TenantID, rel.TypeID)
	if err != nil {
		return err
	}
	if err := rs.checkMember(tx, rel, t); err != nil {
		return err
	}
	return rs.checkCount(tx, rel, t)
}

// entityID returns the row id of an entity that a field names, and refuses one that does not exist.
func entityID(tx store.Tx, tenant int64, field, entityType, token string) (int64, error) {
	var found map[string]int64
	if table, ok := entityTypes()[entityType]; ok {
		var err error
		if found, err = store.IDs(tx, table, tenant, []string{token}); err != nil {
			return 0, err
		}
	}
	if id, ok := found[token]; ok {
		return id, nil
	}
	return 0, model.Invalid(field, "%s %.128q does not exist", entityType, token)
}

// checkMember refuses a member that its group cannot have.
func (rs *Relations) checkMember(tx store.Tx, rel *Relationship, t *RelationshipType) error {
	if t.Token != relations.MemberRelation || rel.SourceType != EntityGroups {
		return nil
	}
	g, err := rs.groups.Table.GetByID(tx, rel.TenantID, rel.SourceID)
	switch {
	case err != nil:
		return err
	case g.dynamic():
		return model.Invalid("source", "entity group %q is dynamic: its selector says who the members are", g.Token)
	case g.MemberType != rel.TargetType:
		return model.Invalid("targetType", "the members of entity group %q are of the type %s", g.Token, g.MemberType)
	}
	return nil
}

// checkCount refuses one more relationship of a device that has as many as it may: those that begin at it, and its
// memberships in static groups.
func (rs *Relations) checkCount(tx store.Tx, rel *Relationship, t *RelationshipType) error {
	limits := rs.limits()
	if rel.SourceType == EntityDevice {
		if err := rs.refuse(tx, rel, rel.SourceID, limits.RelationshipsPerDevice); err != nil || !t.Tracked {
			return err
		}
		// Tracked ones are part of each event, so that they have a lower ceiling.
		n, err := rs.Table.Count(tx, rel.TenantID, store.Eq("source_type", EntityDevice), store.Eq("source_id", rel.SourceID),
			store.RefersToFlagged("type_id", "entity_relationship_types", "tracked", true))
		if err == nil && n >= limits.TrackedPerDevice {
			err = model.OverLimit("limits.tracked_relationships_per_device", "a device has at most %d tracked relationships", limits.TrackedPerDevice)
		}
		return err
	}
	if rel.SourceType == EntityGroups && rel.TargetType == EntityDevice {
		return rs.refuse(tx, rel, rel.TargetID, limits.RelationshipsPerDevice)
	}
	return nil
}

func (rs *Relations) refuse(tx store.Tx, rel *Relationship, device, maximum int64) error {
	from, err := rs.Table.Count(tx, rel.TenantID, store.Eq("source_type", EntityDevice), store.Eq("source_id", device))
	if err != nil {
		return err
	}
	in, err := rs.Table.Count(tx, rel.TenantID, store.Eq("target_type", EntityDevice), store.Eq("target_id", device), store.Eq("source_type", EntityGroups))
	if err == nil && from+in >= maximum {
		err = model.OverLimit("limits.relationships_per_device", "a device has at most %d relationships, memberships in static groups among them", maximum)
	}
	return err
}

// removeAll removes the relationships of an entity that goes, at either end.
func (rs *Relations) removeAll(c *store.Change, tenant int64, entityType string, id int64, token string) error {
	// Find out whose anchors and memberships end before the rows are gone.
	anchored, err := relations.AnchoredTo(c, tenant, entityType, id)
	if err != nil {
		return err
	}
	if entityType == EntityDevice {
		own, err := relations.Anchors(c, tenant, id)
		if err != nil {
			return err
		}
		if len(own[id]) > 0 && !slices.Contains(anchored, id) {
			anchored = append(anchored, id)
		}
	}
	members, err := enlisted(c, tenant, entityType, id)
	if err != nil {
		return err
	}
	// Then remove, and make the rest effective.
	if _, err := relations.Remove(c, tenant, entityType, id, token); err != nil {
		return err
	}
	return cmp.Or(setAnchors(c, tenant, anchored...), setMemberships(c, tenant, members...))
}

// changed anchors the device of a tracked relationship that comes or goes, and enlists that of a membership.
func (rs *Relations) changed(c *store.Change, old, rel *Relationship) error {
	// One of the two is there: the new one, or the old one where it goes.
	row := cmp.Or(rel, old)
	member := row.SourceType == EntityGroups && row.TargetType == EntityDevice
	if row.SourceType != EntityDevice && !member {
		return nil
	}
	t, err := rs.Types.Table.GetByID(c, row.TenantID, row.TypeID)
	switch {
	case err != nil || t == nil:
		return err
	case member && t.Token == relations.MemberRelation:
		return setMemberships(c, row.TenantID, row.TargetID)
	case member || !t.Tracked:
		return nil
	}
	return setAnchors(c, row.TenantID, row.SourceID)
}

// maxAnchored bounds the devices that one change of a relationship type anchors: the others wait for the writer meanwhile.
const maxAnchored = 10_000

// typeChanged anchors the devices that have relationships of a type which is tracked from now on, or no longer.
func (rs *Relations) typeChanged(c *store.Change, old, t *RelationshipType) error {
	if old == nil || t == nil || old.Tracked == t.Tracked {
		return nil
	}
	// Every event of these devices changes, so that their number is bounded.
	devices, err := relations.HavingType(c, t.TenantID, t.ID, maxAnchored+1)
	if err != nil {
		return err
	}
	if len(devices) > maxAnchored {
		return model.OverLimit("tracked", "changes what the events of more than %d devices belong to at once: make another relationship type and move the relationships to it", maxAnchored)
	}
	return setAnchors(c, t.TenantID, devices...)
}

// setAnchors makes the tracked relationships that devices have now effective for their messages.
func setAnchors(c *store.Change, tenant int64, devices ...int64) error {
	anchors, err := relations.Anchors(c, tenant, devices...)
	if err != nil {
		return err
	}
	for _, id := range devices {
		v := entity.View{Kind: model.ViewAnchors, Key: strconv.FormatInt(id, 10)}
		if len(anchors[id]) > 0 {
			v.Body = model.AnchorsView{V: 1, Tenant: tenant, Anchors: anchors[id]}
		}
		if err := entity.SetViews(c, v); err != nil {
			return err
		}
	}
	return nil
}

// CreateAll makes relationships, all or none.
func (rs *Relations) CreateAll(ctx context.Context, by *model.Principal, requests []store.Patch) (made []*Relationship, err error) {
	err = rs.mutate(ctx, by, func(c *store.Change) error {
		// The change may be tried again.
		made = made[:0]
		for _, p := range requests {
			rel, err := rs.Create(c.Context(), by, p)
			if err != nil {
				return err
			}
			made = append(made, rel)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

// RemoveAll removes those of the relationships that exist in one transaction, and reports whether there was one.
func (rs *Relations) RemoveAll(ctx context.Context, by *model.Principal, tokens []string) (removed bool, err error) {
	err = rs.mutate(ctx, by, func(c *store.Change) error {
		removed = false
		for _, token := range tokens {
			one, err := rs.Delete(c.Context(), by, token)
			if err != nil {
				return err
			}
			removed = removed || one
		}
		return nil
	})
	return removed && err == nil, err
}
