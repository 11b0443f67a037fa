package registry

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weir/model"
	"weir/store"
)

// relatedModel is what relationships and groups should be, in memory.
type relatedModel struct {
	entities map[string]bool // as type/token; groups too
	types    map[string]bool // tracked, by token
	related  map[string]modelRelationship
	groups   map[string]*modelGroup
}

type modelRelationship struct{ source, relationshipType, target string }

type modelGroup struct {
	dynamic  bool
	selector string
	versions []string
	active   int
}

// The ceilings of the model's bench.
const (
	modelRelationships = 3
	modelTracked       = 2
)

// Any operations on relationships and groups do what the model says: references, cascades, uniqueness, versions, ceilings.
func TestRelationshipsAndGroupsFollowTheModel(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{DeviceSettings: DeviceSettings{RelationshipsPerDevice: modelRelationships, TrackedPerDevice: modelTracked}})
	must(b.Types.Create(t.Context(), acme, store.Patch{"token": "t"}))(t)
	must(b.Kinds.Of("asset_types").Create(t.Context(), acme, store.Patch{"token": "t"}))(t)
	b.views()
	anchors := map[string]string{} // by device, as of the newest change
	rapid.Check(t, func(rt *rapid.T) {
		m := &relatedModel{map[string]bool{}, map[string]bool{}, map[string]modelRelationship{}, map[string]*modelGroup{}}
		for range rapid.IntRange(5, 40).Draw(rt, "steps") {
			what, want, err := m.step(rt, b)
			if got := model.CodeOf(err); got != want || err != nil && got == "" {
				rt.Fatalf("%s: %v (%s), want %q", what, err, got, want)
			}
		}
		m.compare(rt, b)
		b.compareBytes(rt)
		b.compareAnchors(rt, anchors)
		b.consistent(rt)
		b.clearRelated(rt)
		if b.compareAnchors(rt, anchors); len(anchors) > 0 {
			rt.Errorf("anchors of devices that are gone: %v", anchors)
		}
	})
}

func pick(rt *rapid.T, what string, of ...string) string { return rapid.SampledFrom(of).Draw(rt, what) }

// step runs a random operation and returns what the model expects of it.
func (m *relatedModel) step(rt *rapid.T, b *bench) (what string, want model.Code, err error) {
	ctx := b.Context()
	token := pick(rt, "token", "a", "b")
	switch rapid.IntRange(0, 9).Draw(rt, "verb") {
	case 0:
		entityType := pick(rt, "type", "device", "asset")
		_, err = b.Kinds.Of(EntityTypes()[entityType]).Create(ctx, acme, store.Patch{"token": token, map[string]string{"device": "deviceTypeToken", "asset": "assetTypeToken"}[entityType]: "t"})
		return "create " + entityType + "/" + token, m.make(entityType + "/" + token), err
	case 1:
		return m.makeGroup(rt, b, token)
	case 2:
		entity := pick(rt, "type", "device", "asset", "group") + "/" + token
		entityType, _, _ := strings.Cut(entity, "/")
		deleted, err := b.Kinds.Of(EntityTypes()[entityType]).Delete(ctx, acme, token)
		if deleted != m.entities[entity] {
			rt.Fatalf("deleting %s: %v", entity, deleted)
		}
		m.remove(entity)
		return "delete " + entity, "", err
	case 3:
		relationshipType := pick(rt, "relationship type", "assigned", "near")
		tracked := rapid.Bool().Draw(rt, "tracked")
		_, err = b.RelationshipTypes.Create(ctx, acme, store.Patch{"token": relationshipType, "tracked": tracked})
		if _, have := m.types[relationshipType]; have {
			return "create type", model.CodeConflict, err
		}
		m.types[relationshipType] = tracked
		return "create type", "", err
	case 4:
		return m.track(rt, b)
	case 5:
		relationshipType := pick(rt, "relationship type", "assigned", "near", "member")
		_, err = b.RelationshipTypes.Delete(ctx, acme, relationshipType)
		for _, r := range m.related {
			if r.relationshipType == relationshipType {
				return "delete type " + relationshipType, model.CodeInUse, err
			}
		}
		delete(m.types, relationshipType)
		return "delete type " + relationshipType, "", err
	case 6:
		return m.relate(rt, b)
	case 7:
		removed, err := b.Relationships.RemoveAll(ctx, acme, []string{"r" + token, "r" + token})
		if _, have := m.related["r"+token]; have != removed {
			rt.Fatalf("removing r%s: %v", token, removed)
		}
		delete(m.related, "r"+token)
		return "remove r" + token, "", err
	case 8:
		return m.publish(b, token)
	}
	return m.rollback(rt, b, token)
}

func (m *relatedModel) make(entity string) model.Code {
	if m.entities[entity] {
		return model.CodeConflict
	}
	m.entities[entity] = true
	return ""
}

func (m *relatedModel) makeGroup(rt *rapid.T, b *bench, token string) (what string, want model.Code, err error) {
	if g := m.groups[token]; g != nil && g.dynamic && rapid.Bool().Draw(rt, "update") {
		g.selector = fmt.Sprintf(`attr["a"] == %d`, rapid.IntRange(0, 3).Draw(rt, "n"))
		_, err = b.Groups.Update(b.Context(), acme, token, store.Patch{"selector": g.selector})
		return "update group/" + token, "", err
	}
	g := &modelGroup{dynamic: rapid.Bool().Draw(rt, "dynamic")}
	p := store.Patch{"token": token, "memberType": "device"}
	if g.dynamic {
		g.selector = `"k" in attr`
		p["membershipMode"], p["selector"] = "dynamic", g.selector
	}
	_, err = b.Groups.Create(b.Context(), acme, p)
	if want = m.make("group/" + token); want == "" {
		m.groups[token] = g
	}
	return "create group/" + token, want, err
}

func (m *relatedModel) remove(entity string) {
	delete(m.entities, entity)
	if token, ok := strings.CutPrefix(entity, "group/"); ok {
		delete(m.groups, token)
	}
	maps.DeleteFunc(m.related, func(_ string, r modelRelationship) bool { return r.source == entity || r.target == entity })
}

// count is how many relationships of a device there are, and how many of them are tracked if those of one more type were.
func (m *relatedModel) count(device, more string) (all, tracked int) {
	for _, r := range m.related {
		switch {
		case r.source == device:
			all++
			if m.types[r.relationshipType] || r.relationshipType == more {
				tracked++
			}
		case r.target == device && strings.HasPrefix(r.source, "group/"):
			all++
		}
	}
	return all, tracked
}

func (m *relatedModel) track(rt *rapid.T, b *bench) (what string, want model.Code, err error) {
	relationshipType, tracked := pick(rt, "relationship type", "assigned", "near", "member"), rapid.Bool().Draw(rt, "tracked")
	_, err = b.RelationshipTypes.Update(b.Context(), acme, relationshipType, store.Patch{"tracked": tracked})
	what = fmt.Sprint("track ", relationshipType, tracked)
	if _, have := m.types[relationshipType]; !have {
		return what, model.CodeNotFound, err
	}
	for device := range m.entities {
		if _, n := m.count(device, relationshipType); tracked && strings.HasPrefix(device, "device/") && n > modelTracked {
			return what, model.CodeLimitExceeded, err
		}
	}
	m.types[relationshipType] = tracked
	return what, "", err
}

func (m *relatedModel) relate(rt *rapid.T, b *bench) (what string, want model.Code, err error) {
	ends := []string{"device/a", "device/b", "asset/a", "asset/b", "group/a", "group/b"}
	r := modelRelationship{pick(rt, "source", ends...), pick(rt, "relationship type", "assigned", "near", "member"), pick(rt, "target", ends...)}
	token := pick(rt, "relationship", "ra", "rb", "rc", "rd", "re", "rf")
	_, err = b.Relationships.Create(b.Context(), acme, relation(token, r.source, r.relationshipType, r.target))
	what, want = fmt.Sprint("relate ", token, r), m.admits(token, r)
	if want == "" {
		m.related[token] = r
		if _, have := m.types[r.relationshipType]; !have {
			m.types[r.relationshipType] = r.relationshipType == "assigned"
		}
	}
	return what, want, err
}

func (m *relatedModel) admits(token string, r modelRelationship) model.Code {
	tracked, have := m.types[r.relationshipType]
	if !have {
		tracked = r.relationshipType == "assigned"
	}
	_, taken := m.related[token]
	group := m.groups[strings.TrimPrefix(r.source, "group/")]
	member := r.relationshipType == "member" && strings.HasPrefix(r.source, "group/")
	switch {
	case !have && r.relationshipType == "near", !m.entities[r.source], !m.entities[r.target]:
		return model.CodeInvalidInput
	case member && (group.dynamic || !strings.HasPrefix(r.target, "device/")):
		return model.CodeInvalidInput
	case strings.HasPrefix(r.source, "device/"):
		all, n := m.count(r.source, "")
		if all >= modelRelationships || tracked && n >= modelTracked {
			return model.CodeLimitExceeded
		}
	case strings.HasPrefix(r.source, "group/") && strings.HasPrefix(r.target, "device/"):
		if all, _ := m.count(r.target, ""); all >= modelRelationships {
			return model.CodeLimitExceeded
		}
	}
	if taken {
		return model.CodeConflict
	}
	return ""
}

func (m *relatedModel) publish(b *bench, token string) (what string, want model.Code, err error) {
	_, err = b.Groups.Publish(b.Context(), acme, token, nil, nil)
	g := m.groups[token]
	switch {
	case g == nil:
		return "publish " + token, model.CodeNotFound, err
	case !g.dynamic:
		return "publish " + token, model.CodeInvalidInput, err
	}
	g.versions = append(g.versions, g.selector)
	g.active = len(g.versions)
	return "publish " + token, "", err
}

func (m *relatedModel) rollback(rt *rapid.T, b *bench, token string) (what string, want model.Code, err error) {
	version := rapid.IntRange(1, 3).Draw(rt, "version")
	_, err = b.Groups.Rollback(b.Context(), acme, token, int64(version))
	what = fmt.Sprint("rollback ", token, version)
	if g := m.groups[token]; g != nil && version <= len(g.versions) {
		g.active = version
		return what, "", err
	}
	return what, model.CodeNotFound, err
}

// compare holds the rows against the model.
func (m *relatedModel) compare(rt *rapid.T, b *bench) {
	same := func(what string, got, want []string) {
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			rt.Errorf("%s: %q, the model has %q", what, got, want)
		}
	}
	var related, types, groups, versions []string
	for token, r := range m.related {
		related = append(related, fmt.Sprint(token, " ", r.source, " ", r.relationshipType, " ", r.target))
	}
	for token, tracked := range m.types {
		types = append(types, fmt.Sprint(token, " ", map[bool]int{true: 1}[tracked]))
	}
	for token, g := range m.groups {
		groups = append(groups, fmt.Sprint(token, " ", g.dynamic, " ", g.selector, " ", g.active))
		for i, selector := range g.versions {
			versions = append(versions, fmt.Sprint(token, " ", i+1, " ", selector))
		}
	}
	same("relationships", b.rows(`SELECT r.token, r.source_type || '/' || r.source_token, t.token, r.target_type || '/' || r.target_token FROM entity_relationships r JOIN entity_relationship_types t ON t.id = r.type_id`), related)
	for _, end := range []string{"source", "target"} { // the row ids are those of the tokens
		same("ends", b.rows(`SELECT r.token FROM entity_relationships r WHERE NOT EXISTS (SELECT 1 FROM (SELECT 'device' AS type, id, token FROM devices
			UNION ALL SELECT 'asset', id, token FROM assets UNION ALL SELECT 'group', id, token FROM entity_groups) e WHERE e.type = r.`+end+`_type AND e.id = r.`+end+`_id AND e.token = r.`+end+`_token)`), nil)
	}
	same("types", b.rows(`SELECT token, tracked FROM entity_relationship_types`), types)
	same("groups", b.rows(`SELECT token, CASE membership_mode WHEN 'dynamic' THEN 'true' ELSE 'false' END, coalesce(selector, ''), coalesce(active_version, 0) FROM entity_groups`), groups)
	same("versions", b.rows(`SELECT g.token, v.version, json_extract(v.snapshot, '$.selector') FROM entity_group_versions v JOIN entity_groups g ON g.id = v.group_id`), versions)
}

// compareAnchors holds the rows of the metadata view, as the changes since the last time have left them, against the relationships.
func (b *bench) compareAnchors(rt *rapid.T, anchors map[string]string) {
	for _, v := range b.views() {
		if v.Kind != model.ViewAnchors {
			continue
		}
		if v.Body == nil {
			delete(anchors, v.Key)
			continue
		}
		var body model.AnchorsView
		if err := json.Unmarshal(v.Body, &body); err != nil || body.V != 1 || body.Tenant != acme.TenantID {
			rt.Fatalf("%s: %v", v.Body, err)
		}
		var names []string
		for _, a := range body.Anchors {
			names = append(names, a.Type+"/"+a.Token)
		}
		anchors[v.Key] = strings.Join(names, " ")
	}
	want := map[string]string{}
	for _, row := range b.rows(`SELECT source_id, group_concat(target, ' ') FROM (SELECT DISTINCT r.source_id, r.target_type || '/' || r.target_token AS target FROM entity_relationships r
		JOIN entity_relationship_types t ON t.id = r.type_id WHERE r.source_type = 'device' AND t.tracked = 1 ORDER BY 1, r.target_type, r.target_token) GROUP BY source_id`) {
		id, names, _ := strings.Cut(row, " ")
		want[id] = names
	}
	if !maps.Equal(anchors, want) {
		rt.Errorf("devices are anchored to %v, their relationships say %v", anchors, want)
	}
}

// clearRelated removes what a run has made.
func (b *bench) clearRelated(rt *rapid.T) {
	for _, kind := range []string{"entity_relationships", "devices", "assets", "entity_groups", "entity_relationship_types"} {
		k := b.Kinds.Of(kind)
		rows, _, err := k.List(b.Context(), acme, store.Page{})
		if err != nil {
			rt.Fatal(err)
		}
		for _, row := range rows {
			if _, err := k.Delete(b.Context(), acme, k.Token(row)); err != nil {
				rt.Fatal(err)
			}
		}
	}
}
