package registry

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/model"
	"weir/store"
)

// seedRelated makes what relationships can be between: two devices, two assets and a static group of devices.
func (b *bench) seedRelated() {
	b.Helper()
	b.seed()
	must(b.Devices.Create(b.Context(), acme, store.Patch{"token": "d2", "deviceTypeToken": "t"}))(b)
	must(b.Kinds.Of("asset_types").Create(b.Context(), acme, store.Patch{"token": "at"}))(b)
	for _, asset := range []string{"a", "a2"} {
		must(b.Kinds.Of("assets").Create(b.Context(), acme, store.Patch{"token": asset, "assetTypeToken": "at"}))(b)
	}
	must(b.Groups.Create(b.Context(), acme, store.Patch{"token": "g", "memberType": "device"}))(b)
	b.views()
}

// relation is the request of a relationship between two entities, each written as type/token.
func relation(token, source, relationshipType, target string) store.Patch {
	sourceType, source, _ := strings.Cut(source, "/")
	targetType, target, _ := strings.Cut(target, "/")
	return store.Patch{"token": token, "sourceType": sourceType, "source": source, "targetType": targetType, "target": target, "relationshipType": relationshipType}
}

func (b *bench) relate(token, source, relationshipType, target string) *Relationship {
	b.Helper()
	return must(b.Relationships.Create(b.Context(), acme, relation(token, source, relationshipType, target)))(b)
}

// left are the tokens of the relationships that there are.
func (b *bench) left() string {
	b.Helper()
	return strings.Join(b.rows(`SELECT token FROM entity_relationships ORDER BY token`), " ")
}

func TestTheBuiltInTypesAreMadeByTheirFirstUse(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.seedRelated()
	if rows := b.rows(`SELECT token FROM entity_relationship_types`); len(rows) != 0 {
		t.Fatalf("there are %q", rows)
	}
	b.relate("r1", "device/d", "assigned", "asset/a")
	b.relate("r2", "device/d2", "assigned", "asset/a")
	b.relate("r3", "group/g", "member", "device/d")
	if got := strings.Join(b.rows(`SELECT token, tracked FROM entity_relationship_types ORDER BY id`), "; "); got != "assigned 1; member 0" {
		t.Errorf("%s", got)
	}
	_, err := b.Relationships.Create(t.Context(), acme, relation("r4", "device/d", "likes", "asset/a"))
	b.refused("an unknown type", err, model.CodeInvalidInput, `relationshipType: "likes" does not exist`)
	b.unchanged("a refused relationship of a built-in type", func() {
		_, err := b.Relationships.Create(t.Context(), other, relation("r5", "device/d", "assigned", "asset/a"))
		b.refused("another tenant's device", err, model.CodeInvalidInput, `source: device "d" does not exist`)
	})
}

func TestBothEndsOfARelationshipMustExist(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.seedRelated()
	b.relate("r", "device/d", "assigned", "asset/a")
	b.unchanged("refused relationships", func() {
		for what, step := range map[string]struct {
			patch store.Patch
			code  model.Code
			text  string
		}{
			"source":          {relation("n", "device/none", "assigned", "asset/a"), model.CodeInvalidInput, `source: device "none" does not exist`},
			"target":          {relation("n", "device/d", "assigned", "asset/none"), model.CodeInvalidInput, `target: asset "none" does not exist`},
			"of another type": {relation("n", "device/a", "assigned", "asset/a"), model.CodeInvalidInput, `source: device "a" does not exist`},
			"no type":         {relation("n", "thing/d", "assigned", "asset/a"), model.CodeInvalidInput, "sourceType"},
			"no token":        {relation("-", "device/d", "assigned", "asset/a"), model.CodeInvalidInput, "token"},
			"the token again": {relation("r", "device/d", "assigned", "asset/a2"), model.CodeConflict, "unique"},
		} {
			_, err := b.Relationships.Create(t.Context(), acme, step.patch)
			b.refused(what, err, step.code, step.text)
		}
		_, err := b.Relationships.Update(t.Context(), acme, "r", store.Patch{"target": "a2"})
		b.refused("a change", err, model.CodeInvalidInput, "cannot be changed")
	})
	again := b.relate("again", "device/d", "assigned", "asset/a")
	if again.SourceID != 1 || again.TargetID != 1 {
		t.Errorf("%+v", again)
	}
}

// The members of a static group are of its type, and a dynamic one has no others than those of its selector.
func TestMembersOfAGroupAreOfItsType(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.seedRelated()
	must(b.Groups.Create(t.Context(), acme, store.Patch{"token": "dyn", "memberType": "device", "membershipMode": "dynamic", "selector": `attr["a"] == 1`}))(t)
	_, err := b.Relationships.Create(t.Context(), acme, relation("n", "group/g", "member", "asset/a"))
	b.refused("an asset in a group of devices", err, model.CodeInvalidInput, "targetType: the members of entity group \"g\" are of the type device")
	_, err = b.Relationships.Create(t.Context(), acme, relation("n", "group/dyn", "member", "device/d"))
	b.refused("a member of a dynamic group", err, model.CodeInvalidInput, "is dynamic")
	must(b.RelationshipTypes.Create(t.Context(), acme, store.Patch{"token": "about", "tracked": false}))(t)
	b.relate("r1", "group/g", "about", "asset/a")
	b.relate("r2", "group/dyn", "about", "group/g")
	b.relate("r3", "asset/a", "member", "asset/a2")
}

func TestManyRelationshipsAreMadeTogetherOrNot(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.seedRelated()
	b.unchanged("a refused list", func() {
		_, err := b.Relationships.CreateAll(t.Context(), acme, []store.Patch{
			relation("x1", "device/d", "assigned", "asset/a"), relation("x2", "device/d", "assigned", "asset/none"), relation("x3", "device/d", "assigned", "asset/a2")})
		b.refused("one of three", err, model.CodeInvalidInput, `asset "none" does not exist`)
		_, err = b.Relationships.CreateAll(t.Context(), acme, []store.Patch{relation("x1", "device/d", "assigned", "asset/a"), relation("x1", "device/d", "assigned", "asset/a2")})
		b.refused("a token twice", err, model.CodeConflict, "unique")
	})
	made := must(b.Relationships.CreateAll(t.Context(), acme, []store.Patch{relation("x1", "device/d", "assigned", "asset/a"), relation("x2", "device/d2", "assigned", "asset/a")}))(t)
	if len(made) != 2 || b.left() != "x1 x2" {
		t.Errorf("%d, %s", len(made), b.left())
	}
	if removed := must(b.Relationships.RemoveAll(t.Context(), acme, []string{"x1", "none"}))(t); !removed || b.left() != "x2" {
		t.Errorf("%v, %s", removed, b.left())
	}
	if removed := must(b.Relationships.RemoveAll(t.Context(), acme, []string{"x1", "none"}))(t); removed {
		t.Error("a relationship that does not exist is removed")
	}
	_, err := b.Relationships.RemoveAll(t.Context(), other, []string{"x2"})
	if err != nil || b.left() != "x2" {
		t.Errorf("another tenant removes: %v, %s", err, b.left())
	}
}

// Whatever is deleted takes its relationships along, at either end, and nothing else.
func TestRelationshipsGoWithTheirEnds(t *testing.T) {
	t.Parallel()
	for gone, want := range map[string]string{"device/d": "r3 r5 r6", "asset/a": "r2 r3 r4 r6", "group/g": "r1 r2 r3 r5", "device/d2": "r1 r2 r4 r5 r6", "group/none": "r1 r2 r3 r4 r5 r6"} {
		t.Run(gone, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, Config{})
			b.seedRelated()
			b.relate("r1", "device/d", "assigned", "asset/a")
			b.relate("r2", "device/d", "assigned", "asset/a2")
			b.relate("r3", "device/d2", "assigned", "asset/a2")
			b.relate("r4", "group/g", "member", "device/d")
			b.relate("r5", "asset/a", "member", "asset/a2")
			must(b.Groups.Create(t.Context(), acme, store.Patch{"token": "g2", "memberType": "asset"}))(t)
			b.relate("r6", "group/g", "assigned", "group/g2")
			entityType, token, _ := strings.Cut(gone, "/")
			deleted := must(b.Kinds.Of(EntityTypes()[entityType]).Delete(t.Context(), acme, token))(t)
			if b.left() != want || deleted != (token != "none") {
				t.Errorf("%v, left are %s, want %s", deleted, b.left(), want)
			}
			b.compareBytes(t)
			if token == "none" {
				return
			}
			journal := b.rows(`SELECT operation, rows_affected, entity_label FROM audit_events WHERE table_name = 'entity_relationships' AND operation = 'delete'`)
			if n := 6 - len(strings.Fields(want)); !slices.Equal(journal, []string{fmt.Sprintf("delete %d %s %s", n, entityType, token)}) {
				t.Errorf("journal %q", journal)
			}
		})
	}
}

func TestAUsedRelationshipTypeIsNotDeleted(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.seedRelated()
	b.relate("r", "device/d", "assigned", "asset/a")
	_, err := b.RelationshipTypes.Delete(t.Context(), acme, "assigned")
	b.refused("a type in use", err, model.CodeInUse, `entity relationship type "assigned" is in use by an entity relationship`)
	must(b.Relationships.Delete(t.Context(), acme, "r"))(t)
	if !must(b.RelationshipTypes.Delete(t.Context(), acme, "assigned"))(t) {
		t.Error("it is not deleted")
	}
	b.relate("r", "device/d", "assigned", "asset/a") // and it is made again
}

func TestADeviceHasOnlySoManyRelationships(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{DeviceSettings: DeviceSettings{RelationshipsPerDevice: 4, TrackedPerDevice: 2}})
	b.seedRelated()
	ctx := t.Context()
	must(b.RelationshipTypes.Create(ctx, acme, store.Patch{"token": "near", "tracked": false}))(t)
	b.relate("r1", "device/d", "assigned", "asset/a")
	b.relate("r2", "device/d", "assigned", "asset/a2")
	_, err := b.Relationships.Create(ctx, acme, relation("r3", "device/d", "assigned", "device/d2"))
	b.refused("a third tracked one", err, model.CodeLimitExceeded, "limits.tracked_relationships_per_device")
	b.relate("r3", "device/d", "near", "device/d2")
	b.relate("r4", "group/g", "member", "device/d")
	for _, one := range []store.Patch{relation("r5", "device/d", "near", "asset/a"), relation("r5", "group/g", "member", "device/d")} {
		_, err = b.Relationships.Create(ctx, acme, one)
		b.refused("a fifth one", err, model.CodeLimitExceeded, "limits.relationships_per_device")
	}
	b.relate("r5", "device/d2", "near", "device/d") // it begins at another device
	b.relate("r6", "asset/a", "near", "device/d")
	_, err = b.RelationshipTypes.Update(ctx, acme, "near", store.Patch{"tracked": true})
	b.refused("a type that becomes tracked", err, model.CodeLimitExceeded, "limits.tracked_relationships_per_device")
	must(b.Relationships.Delete(ctx, acme, "r2"))(t)
	must(b.RelationshipTypes.Update(ctx, acme, "near", store.Patch{"tracked": true}))(t)
}

func TestListsOfRelationshipsAreFiltered(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.seedRelated()
	must(b.Groups.Create(t.Context(), acme, store.Patch{"token": "d", "memberType": "device"}))(t) // the token of a device
	b.relate("r1", "device/d", "assigned", "asset/a")
	b.relate("r2", "device/d2", "assigned", "asset/a")
	b.relate("r3", "group/d", "member", "device/d")
	b.relate("r4", "device/d", "member", "asset/a2")
	for _, step := range []struct {
		criteria map[string]any
		want     string
	}{
		{nil, "r4 r3 r2 r1"},
		{map[string]any{"sourceType": "device"}, "r4 r2 r1"},
		{map[string]any{"source": "d"}, "r4 r3 r1"},
		{map[string]any{"sourceType": "device", "source": "d"}, "r4 r1"},
		{map[string]any{"targetType": "asset", "target": "a"}, "r2 r1"},
		{map[string]any{"relationshipType": "member"}, "r4 r3"},
		{map[string]any{"tracked": true}, "r2 r1"},
		{map[string]any{"tracked": false}, "r4 r3"},
		{map[string]any{"tracked": true, "source": "d"}, "r1"},
		{map[string]any{"source": "none"}, ""},
		{map[string]any{"relationshipType": "none"}, ""},
		{map[string]any{"sourceType": "none"}, ""},
	} {
		rows, total, err := b.Relationships.List(t.Context(), acme, store.Page{}, must(b.Relationships.Info().Criteria(t.Context(), acme, step.criteria))(t)...)
		tokens := make([]string, len(rows))
		for i, row := range rows {
			tokens[i] = row.Token
		}
		if got := strings.Join(tokens, " "); err != nil || got != step.want || total != int64(len(rows)) {
			t.Errorf("%v: %s, %d, %v; want %s", step.criteria, got, total, err, step.want)
		}
	}
}

// TestTrackedRelationshipsAnchorTheirDevice: each step that changes what a device is anchored to says so in one row of the metadata view.
func TestTrackedRelationshipsAnchorTheirDevice(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	must(b.Types.Create(ctx, acme, store.Patch{"token": "t"}))(t)
	must(b.Kinds.Of("area_types").Create(ctx, acme, store.Patch{"token": "t"}))(t)
	d := must(b.Devices.Create(ctx, acme, store.Patch{"token": "d", "deviceTypeToken": "t"}))(t)
	for _, area := range []string{"hall", "roof"} {
		must(b.Kinds.Of("areas").Create(ctx, acme, store.Patch{"token": area, "areaTypeToken": "t"}))(t)
	}
	b.views()
	relate := func(token, relationshipType, area string) func() error {
		return func() error {
			_, err := b.Relationships.Create(ctx, acme, relation(token, "device/d", relationshipType, "area/"+area))
			return err
		}
	}
	deleted := func(table, token string) func() error {
		return func() error { _, err := b.Kinds.Of(table).Delete(ctx, acme, token); return err }
	}
	for _, step := range []struct {
		what string
		do   func() error
		want string // the anchors in the row, "ends" for its end, "" for no row
	}{
		{"a tracked relationship", relate("a", "assigned", "hall"), "area/hall"},
		{"the same once more", relate("again", "assigned", "hall"), "area/hall"},
		{"one that is not tracked", relate("m", "member", "roof"), ""},
		{"another", relate("b", "assigned", "roof"), "area/hall area/roof"},
		{"a type that becomes tracked", func() error {
			_, err := b.RelationshipTypes.Update(ctx, acme, "member", store.Patch{"tracked": true})
			return err
		}, "area/hall area/roof"},
		{"what it leads to goes", deleted("areas", "roof"), "area/hall"},
		{"one of two goes", deleted("entity_relationships", "a"), "area/hall"},
		{"the last one goes", deleted("entity_relationships", "again"), "ends"},
		{"anchored again", relate("a", "assigned", "hall"), "area/hall"},
		{"the device goes", deleted("devices", "d"), "ends"},
	} {
		if err := step.do(); err != nil {
			t.Fatal(step.what, err)
		}
		got := ""
		for _, v := range b.views() {
			if v.Kind != model.ViewAnchors {
				continue
			}
			if v.Key != strconv.FormatInt(d.ID, 10) || got != "" {
				t.Errorf("%s: a second row, of %s", step.what, v.Key)
			}
			got = "ends"
			if v.Body != nil {
				var body model.AnchorsView
				if err := json.Unmarshal(v.Body, &body); err != nil {
					t.Fatal(err)
				}
				var names []string
				for _, a := range body.Anchors {
					names = append(names, a.Type+"/"+a.Token)
				}
				got = strings.Join(names, " ")
			}
		}
		if got != step.want {
			t.Errorf("%s: %q, want %q", step.what, got, step.want)
		}
	}
}
