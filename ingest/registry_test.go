package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/ingest/view"
	"weir/internal/test/fixture"
	"weir/model"
	"weir/registry"
	"weir/store"
	"weir/store/entity"
)

// takesAll is a validator that takes every rule.
type takesAll struct{}

func (takesAll) Validate(context.Context, *model.Principal, []registry.Candidate, registry.Vocabulary) ([]registry.Refusal, []entity.Remark, error) {
	return nil, nil, nil
}

// registered is a registry whose changes go through the log of a world.
type registered struct {
	*world
	*registry.Registry
	ctx context.Context
	by  *model.Principal

	perChange int64 // values of attributes that a change takes in or out because of a selector; 0: the default
}

func newRegistered(t *testing.T) *registered {
	w := newWorld(t)
	p := &registered{world: w, ctx: t.Context(), by: fixture.Member("ada", "acme", 1, model.DeviceRead, model.DeviceWrite, model.LocationRead)}
	p.open()
	w.change(row(model.ViewTenant, "acme", model.TenantView{V: 1, ID: 1, Enabled: true}))
	for kind, patch := range map[string]store.Patch{"device_profiles": {"token": "p"}, "area_types": {"token": "t"}} {
		p.try(p.Kinds.Of(kind).Create(p.ctx, p.by, patch))
	}
	p.try(p.Kinds.Of("device_types").Create(p.ctx, p.by, store.Patch{"token": "t", "profileToken": "p"}))
	p.try(p.Kinds.Of("areas").Create(p.ctx, p.by, store.Patch{"token": "hall", "areaTypeToken": "t"}))
	p.try(p.Kinds.Of("detection_rules").Create(p.ctx, p.by, store.Patch{"token": "r", "deviceProfileToken": "p", "definition": "{}", "enabled": true}))
	return p
}

// open opens the registry, as a start does.
func (p *registered) open() {
	p.Registry = registry.New(registry.Config{DeviceSettings: registry.DeviceSettings{SelectorsPerTenant: 4}, ValuesPerChange: p.perChange},
		registry.Deps{Store: p.db, Writer: store.Direct{Store: p.db, Now: func() time.Time { return p.clock.stamp().Wall.Time() }}, Validator: takesAll{}})
}

// try fails the test when an operation is not merely refused.
func (p *registered) try(_ any, err error) {
	p.t.Helper()
	if refusal := new(model.Error); err != nil && !errors.As(err, &refusal) {
		p.t.Fatal(err)
	}
}

// step does something to what messages are judged by.
func (p *registered) step(r *rand.Rand) {
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	device, group, static := one("x1", "x2", "x3"), one("g1", "g2", "g3"), one("s1", "s2")
	ref := registry.AttributeRef{EntityType: one("device", "device", "device", "area"), Entity: one(device, device, "hall"), Scope: one("SHARED", "SHARED", "SERVER", "CLIENT"), Key: one("a", "b", "c")}
	square := fmt.Sprintf(`{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[[[8,47],[9,47],[9,%d],[8,48],[8,47]]]}}`, 48+r.IntN(3))
	switch r.IntN(16) {
	case 0, 1, 2:
		typ := one("LONG", "STRING", "BOOLEAN", "JSON", "DOUBLE")
		value := new(map[string]string{"LONG": one("1", "2"), "DOUBLE": one("1", "2.5"), "STRING": one("x", "y"), "BOOLEAN": one("true", "false"), "JSON": "{}"}[typ])
		if r.IntN(6) == 0 {
			value = nil
		}
		p.try(p.Attributes.Set(p.ctx, p.by, registry.AttributeSet{AttributeRef: ref, Type: typ, Value: value}))
	case 3:
		p.try(p.Attributes.Delete(p.ctx, p.by, ref))
	case 4, 5:
		selector := one(`attr["a"] > 1`, `attr["a"] == "x" || attr["b"] == true`, `!("b" in attr)`, `attr["c"] != "y"`, `memberType == "device"`)
		p.try(p.Groups.Create(p.ctx, p.by, store.Patch{"token": group, "memberType": one("device", "device", "area"), "membershipMode": "dynamic", "selector": selector}))
		p.try(p.Groups.Update(p.ctx, p.by, group, store.Patch{"selector": selector}))
		p.try(p.Groups.Publish(p.ctx, p.by, group, nil, nil))
	case 6:
		p.try(p.Groups.Rollback(p.ctx, p.by, group, int64(1+r.IntN(3))))
	case 7:
		p.try(p.Groups.Delete(p.ctx, p.by, one(group, static)))
	case 8:
		p.try(p.Groups.Create(p.ctx, p.by, store.Patch{"token": static, "memberType": "device"}))
		p.try(p.Relationships.Create(p.ctx, p.by, store.Patch{"token": static + device, "sourceType": "group", "source": static, "targetType": "device", "target": device, "relationshipType": "member"}))
	case 9:
		p.try(p.Relationships.Delete(p.ctx, p.by, one(static+device, device+"hall")))
	case 10:
		p.try(p.Relationships.Create(p.ctx, p.by, store.Patch{"token": device + "hall", "sourceType": "device", "source": device, "targetType": "area", "target": "hall", "relationshipType": "assigned"}))
	case 11:
		p.try(p.Devices.Create(p.ctx, p.by, store.Patch{"token": device, "deviceTypeToken": "t"}))
	case 12:
		if r.IntN(3) == 0 {
			p.try(p.Devices.Delete(p.ctx, p.by, device))
		}
	case 13:
		scope := store.Patch{"entityGroupToken": group, "entityGroupVersion": int64(1 + r.IntN(3))}
		if r.IntN(3) == 0 {
			scope = store.Patch{"entityGroupToken": nil, "entityGroupVersion": nil}
		}
		p.try(p.Rules.Update(p.ctx, p.by, "r", scope))
		p.try(p.Profiles.Publish(p.ctx, p.by, "p", nil, nil))
	case 14:
		p.try(p.Profiles.Rollback(p.ctx, p.by, "p", int64(1+r.IntN(3))))
	case 15:
		fences, token := p.Kinds.Of("geofences"), one("f1", "f2")
		p.try(fences.Create(p.ctx, p.by, store.Patch{"token": token, "geometry": square}))
		p.try(fences.Update(p.ctx, p.by, token, store.Patch{"geometry": square, "name": one("m", "n")}))
		if r.IntN(3) == 0 {
			p.try(fences.Delete(p.ctx, p.by, token))
		}
	}
}

// TestTheViewFollowsTheRegistry does anything to attributes, groups, relationships, fences and what is scoped to groups. Once the changes
// are applied the view's evaluator agrees with the database on the members of each group, and the view holds what it must and no more.
func TestTheViewFollowsTheRegistry(t *testing.T) {
	t.Parallel()
	for name, perChange := range map[string]int64{"in one change": 0, "by slices": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newRegistered(t)
			p.perChange = perChange
			p.open()
			p.follows(rand.New(rand.NewPCG(5, 6)))
		})
	}
}

// follows does anything to the registry and compares it with the view after each step.
func (p *registered) follows(r *rand.Rand) {
	t := p.t
	for range 400 {
		for range 1 + r.IntN(4) {
			p.step(r)
		}
		p.must(p.AttributeKeys.Empty(p.ctx))
		p.must(p.control.Drain(p.ctx))
		p.apply()
		p.compare()
		if t.Failed() {
			t.FailNow()
		}
		switch r.IntN(40) {
		case 0:
			p.finishHead(p.applier)
		case 1:
			p.world.restart()
			p.open()
			p.must(p.AttributeKeys.Find(p.ctx))
			p.apply()
		}
	}
}

// rows returns what a query gives, a line for each row.
func (p *registered) rows(query string, args ...any) []string {
	return fixture.Rows(p.t, p.db, query, args...)
}

func (p *registered) compare() {
	p.t.Helper()
	v := p.applier.results.metadata.view
	bears := map[string][]string{} // by device token, the groups
	for _, line := range p.rows(`SELECT g.token, d.token FROM entity_groups g JOIN entity_relationships r ON r.source_type = 'group' AND r.source_id = g.id JOIN devices d ON d.id = r.target_id ORDER BY g.token`) {
		group, device, _ := strings.Cut(line, " ")
		bears[device] = append(bears[device], group)
	}
	inUse := map[string]string{}
	for _, line := range p.rows(`SELECT token, active_version, 'true' FROM entity_groups WHERE active_version IS NOT NULL AND member_type = 'device'`) {
		at := strings.LastIndex(line, " ")
		inUse[line[:at]] = line[at+1:]
	}
	active, err := p.Profiles.Active(p.ctx, p.by, "p")
	p.must(err)
	if active != nil {
		for _, rule := range active.Rules {
			if name := fmt.Sprint(rule.Group, " ", rule.GroupVersion); rule.Group != "" && inUse[name] == "" {
				inUse[name] = "false"
			}
		}
	}
	members := map[string][]string{}
	for name, isActive := range inUse {
		var token string
		var version int64
		_, err := fmt.Sscan(name, &token, &version)
		p.must(err)
		targets, err := p.Groups.Targets(p.ctx, p.by, token, &version, 0, 1000)
		p.must(err)
		members[name] = targets.Devices
		if isActive == "true" {
			for _, device := range targets.Devices {
				bears[device] = append(bears[device], token)
			}
		}
	}
	for _, line := range p.rows(`SELECT d.token, d.id, EXISTS (SELECT 1 FROM entity_relationships r WHERE r.source_type = 'device' AND r.source_id = d.id) FROM devices d`) {
		var token string
		var id, anchored int64
		_, err := fmt.Sscan(line, &token, &id, &anchored)
		p.must(err)
		p.compareDevice(v, token, id, anchored != 0, bears[token], members)
	}
	var known, want []string
	for token := range map[string]bool{"g1": true, "g2": true, "g3": true} {
		for version := 1; version < 200; version++ {
			if _, ok := v.InGroup(1, 0, token, version); ok {
				known = append(known, fmt.Sprint(token, " ", version))
			}
		}
	}
	want = slices.Sorted(maps.Keys(inUse))
	if slices.Sort(known); !slices.Equal(known, want) {
		p.t.Errorf("the view holds the groups %q, want %q", known, want)
	}
	keys := map[string]bool{}
	for name := range inUse {
		token, version, _ := strings.Cut(name, " ")
		for _, text := range p.rows(`SELECT json_extract(v.snapshot, '$.selector') FROM entity_group_versions v JOIN entity_groups g ON g.id = v.group_id WHERE g.token = ? AND v.version = ?`, token, version) {
			for _, key := range []string{"a", "b", "c"} {
				if strings.Contains(text, `"`+key+`"`) {
					keys[key] = true
				}
			}
		}
	}
	if got, want := p.rows(`SELECT key FROM attribute_keys_in_use ORDER BY key`), slices.Sorted(maps.Keys(keys)); !slices.Equal(got, want) {
		p.t.Errorf("the keys %q are read, want %q", got, want)
	}
	p.compareFences(v)
	p.compareRows(v)
}

func (p *registered) compareDevice(v *view.View, token string, id int64, anchored bool, bears []string, members map[string][]string) {
	p.t.Helper()
	var got, want []string
	if s := v.Stamp(1, id); s != nil {
		for _, a := range s.Anchors {
			got = append(got, a.Type+"/"+a.Token)
		}
	}
	if anchored {
		want = append(want, "area/hall")
	}
	slices.Sort(bears)
	for _, group := range bears {
		want = append(want, "group/"+group)
	}
	if !slices.Equal(got, want) {
		p.t.Errorf("%s bears %q, want %q", token, got, want)
	}
	for name, tokens := range members {
		var group string
		var version int
		_, err := fmt.Sscan(name, &group, &version)
		p.must(err)
		if in, known := v.InGroup(1, id, group, version); !known || in != slices.Contains(tokens, token) {
			p.t.Errorf("%s in group %s: %v (known: %v), the database says %q", token, name, in, known, tokens)
		}
	}
	for _, key := range []string{"a", "b", "c"} {
		n, has := v.Number(id, key)
		values := p.rows(`SELECT number_value FROM attributes WHERE entity_type = 'device' AND entity_id = ? AND key = ? AND scope <> 'CLIENT' AND value_type IN ('LONG', 'DOUBLE')
			AND number_value IS NOT NULL ORDER BY scope`, id, key)
		if has != (len(values) > 0) || has && fmt.Sprint(n) != values[0] {
			p.t.Errorf("%s of %s is %v (%v), want %q", key, token, n, has, values)
		}
	}
}

func (p *registered) compareFences(v *view.View) {
	p.t.Helper()
	version, err := p.GeoFences.NewestVersion(p.ctx, p.by)
	p.must(err)
	fences, _, err := p.GeoFences.OfSet(p.ctx, p.by, version, store.Page{Number: 1, Size: 1000})
	p.must(err)
	set, err := v.Fences(1)
	p.must(err)
	if set.Version != version || len(set.Fences) != len(fences) {
		p.t.Errorf("set %d has %d fences, want set %d with %d", set.Version, len(set.Fences), version, len(fences))
	}
	for _, f := range fences {
		if got := set.Fences[f.Token]; got == nil || got.String() != f.Geometry {
			p.t.Errorf("fence %s is %v, want %s", f.Token, got, f.Geometry)
		}
	}
}

// compareRows holds the rows of attributes in the store against those of the registry that resolution reads.
func (p *registered) compareRows(v *view.View) {
	p.t.Helper()
	got := p.rows(`SELECT key FROM view_rows WHERE kind = 'attribute' AND to_offset IS NULL ORDER BY key`)
	want := p.rows(`SELECT entity_id || '/' || scope || '/' || key AS name FROM attributes a WHERE entity_type = 'device' AND scope <> 'CLIENT'
		AND (value_type IN ('LONG', 'DOUBLE') AND number_value IS NOT NULL OR scope = 'SHARED' AND key IN (SELECT key FROM attribute_keys_in_use)) ORDER BY name`)
	if !slices.Equal(got, want) {
		p.t.Errorf("the view has the attributes %q, want %q", got, want)
	}
	var loaded *view.View
	p.must(p.db.Read(p.ctx, func(tx store.Tx) (err error) {
		loaded, _, err = loadMetadata(tx, p.applier.Applied())
		return err
	}))
	for id := range int64(300) { // both remember the same
		loaded.Stamp(1, id)
		v.Stamp(1, id)
	}
	v.DropAnchorSets()
	loaded.DropAnchorSets()
	if v.Memory() != loaded.Memory() {
		p.t.Errorf("the view takes %d bytes, loaded again %d", v.Memory(), loaded.Memory())
	}
}
