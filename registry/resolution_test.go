package registry

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/model"
	"weir/store"
)

// told are the view changes that wait, as kind, key and body, with the row ids of the device, group and tenant left out.
func (b *bench) told() (out []string) {
	b.Helper()
	for _, v := range b.views() {
		_, key, _ := strings.Cut(v.Key, "/")
		out = append(out, strings.TrimSpace(string(v.Kind)+" "+key+" "+string(v.Body)))
	}
	return out
}

// TestWhichAttributesTakeAPlaceInTheLog: a write that changes what messages are judged by is a metadata change, any other is none.
func TestWhichAttributesTakeAPlaceInTheLog(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.seed()
	must(b.Kinds.Of("asset_types").Create(t.Context(), acme, store.Patch{"token": "t"}))(t)
	must(b.Kinds.Of("assets").Create(t.Context(), acme, store.Patch{"token": "pump", "assetTypeToken": "t"}))(t)
	b.dynamic("g", `attr["named"] == "x" || "also" in attr`)
	must(b.Groups.Create(t.Context(), acme, store.Patch{"token": "assets", "memberType": "asset", "membershipMode": "dynamic", "selector": `"of assets" in attr`}))(t)
	must(b.Groups.Publish(t.Context(), acme, "assets", nil, nil))(t)
	b.views()
	set := func(scope, key, typ string, value *string) func() {
		return func() { b.set(attribute(scope, key, typ, value)) }
	}
	remove := func(scope, key string) func() {
		return func() { must(b.Attributes.Delete(t.Context(), acme, AttributeRef{"device", "d", scope, key}))(t) }
	}
	for _, c := range []struct {
		name string
		do   func()
		want string
	}{
		{"a number", set(ScopeServer, "n", ValueLong, new("7")), `attribute SERVER/n {"v":1,"n":7}`},
		{"the same number", set(ScopeServer, "n", ValueLong, new("7")), ``},
		{"written as another type", set(ScopeServer, "n", ValueDouble, new("7.0")), ``},
		{"another number", set(ScopeServer, "n", ValueDouble, new("7.5")), `attribute SERVER/n {"v":1,"n":7.5}`},
		{"a number of the device", set(ScopeClient, "n", ValueLong, new("1")), ``},
		{"a number that is null", set(ScopeServer, "n", ValueLong, nil), `attribute SERVER/n`},
		{"a text", set(ScopeShared, "named", ValueString, new("x")), ``},
		{"a text instead of nothing", set(ScopeServer, "n", ValueString, new("7")), ``},
		{"the removal of a text", remove(ScopeServer, "n"), ``},
		{"a number of an asset", func() {
			q := attribute(ScopeShared, "n", ValueLong, new("1"))
			q.EntityType, q.Entity = EntityAsset, "pump"
			b.set(q)
		}, ``},
		{"a group whose selector names a key", func() { must(b.Groups.Publish(t.Context(), acme, "g", nil, nil))(t) },
			`group 1 {"v":1,"tenant":1,"token":"g","version":1,"selector":"attr[\"named\"] == \"x\" || \"also\" in attr","active":true}|attribute SHARED/named {"v":1,"s":"x"}`},
		{"another text", set(ScopeShared, "named", ValueString, new("y")), `attribute SHARED/named {"v":1,"s":"y"}`},
		{"a truth value", set(ScopeShared, "named", ValueBoolean, new("false")), `attribute SHARED/named {"v":1,"b":false}`},
		{"null", set(ScopeShared, "named", ValueString, nil), `attribute SHARED/named {"v":1}`},
		{"a document", set(ScopeShared, "also", ValueJSON, new("{}")), `attribute SHARED/also {"v":1}`},
		{"a text of the platform", set(ScopeServer, "named", ValueString, new("y")), ``},
		{"a text of the device", set(ScopeClient, "named", ValueString, new("y")), ``},
		{"a key that a selector over assets names", set(ScopeShared, "of assets", ValueString, new("y")), ``},
		{"a number under a named key", set(ScopeShared, "also", ValueLong, new("3")), `attribute SHARED/also {"v":1,"n":3}`},
		{"the same version again", func() { must(b.Groups.Rollback(t.Context(), acme, "g", 1))(t) }, ``},
		{"another selector", func() {
			must(b.Groups.Update(t.Context(), acme, "g", store.Patch{"selector": `attr["also"] == 3`}))(t)
			must(b.Groups.Publish(t.Context(), acme, "g", nil, nil))(t)
		}, `group 2 {"v":1,"tenant":1,"token":"g","version":2,"selector":"attr[\"also\"] == 3","active":true}|group 1|attribute SHARED/named`},
		{"a text under the key that none names now", set(ScopeShared, "named", ValueString, new("z")), ``},
		{"back", func() { must(b.Groups.Rollback(t.Context(), acme, "g", 1))(t) },
			`group 1 {"v":1,"tenant":1,"token":"g","version":1,"selector":"attr[\"named\"] == \"x\" || \"also\" in attr","active":true}|group 2|attribute SHARED/named {"v":1,"s":"z"}`},
		{"the removal of a named one", remove(ScopeShared, "named"), `attribute SHARED/named`},
		{"the removal of the group", func() { must(b.Groups.Delete(t.Context(), acme, "g"))(t) }, `group 1`},
		{"the removal of the device", func() { must(b.Devices.Delete(t.Context(), acme, "d"))(t) }, `attribute SHARED/also|device d`},
	} {
		c.do()
		if got := strings.Join(b.told(), "|"); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
	}
	if left := b.rows(`SELECT * FROM attribute_keys_in_use`); len(left) > 0 {
		t.Errorf("keys in use are left: %q", left)
	}
}

// TestAScopeBringsItsVersionIntoUse: a version that is not the active one is in use while a rule of an active profile version is scoped to it.
func TestAScopeBringsItsVersionIntoUse(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	must(b.Profiles.Create(ctx, acme, store.Patch{"token": "p"}))(t)
	b.dynamic("g", `"a" in attr`)
	must(b.Groups.Publish(ctx, acme, "g", nil, nil))(t)
	must(b.Groups.Update(ctx, acme, "g", store.Patch{"selector": `"b" in attr`}))(t)
	must(b.Groups.Publish(ctx, acme, "g", nil, nil))(t)
	b.views()
	groups := func() (out []string) {
		for _, line := range b.told() {
			if strings.HasPrefix(line, "group ") {
				out = append(out, line)
			}
		}
		return append(out, b.rows(`SELECT key FROM attribute_keys_in_use ORDER BY key`)...)
	}
	first := func(active string) string {
		return `group 1 {"v":1,"tenant":1,"token":"g","version":1,"selector":"\"a\" in attr"` + active + `}`
	}
	second := `group 2 {"v":1,"tenant":1,"token":"g","version":2,"selector":"\"b\" in attr","active":true}`
	for _, c := range []struct {
		name string
		do   func()
		want []string
	}{
		{"a draft", func() { must(b.Rules.Create(ctx, acme, scopedRule("r", "g", int64(1))))(t) }, []string{"b"}},
		{"its publish", func() { must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t) }, []string{first(""), "a", "b"}},
		{"a rollback to the version", func() { must(b.Groups.Rollback(ctx, acme, "g", 1))(t) }, []string{first(`,"active":true`), "group 2", "a"}},
		{"and forth", func() { must(b.Groups.Rollback(ctx, acme, "g", 2))(t) }, []string{first(""), second, "a", "b"}},
		{"a publish without the rule", func() {
			must(b.Rules.Delete(ctx, acme, "r"))(t)
			must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t)
		}, []string{"group 1", "b"}},
		{"a rollback to the rule", func() { must(b.Profiles.Rollback(ctx, acme, "p", 1))(t) }, []string{first(""), "a", "b"}},
		{"the removal of the profile", func() { must(b.Profiles.Delete(ctx, acme, "p"))(t) }, []string{"group 1", "b"}},
	} {
		c.do()
		if got := groups(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestMembershipsAndFencesTakeAPlaceInTheLog: those of static groups of devices, and each version of the set of fences.
func TestMembershipsAndFencesTakeAPlaceInTheLog(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	must(b.Kinds.Of("asset_types").Create(ctx, acme, store.Patch{"token": "t"}))(t)
	must(b.Kinds.Of("assets").Create(ctx, acme, store.Patch{"token": "pump", "assetTypeToken": "t"}))(t)
	for token, memberType := range map[string]string{"s": "device", "z": "device", "assets": "asset"} {
		must(b.Groups.Create(ctx, acme, store.Patch{"token": token, "memberType": memberType}))(t)
	}
	b.views()
	relate := func(token, source, relationshipType, targetType, target string) func() {
		return func() {
			must(b.Relationships.Create(ctx, acme, store.Patch{"token": token, "sourceType": "group", "source": source, "targetType": targetType, "target": target, "relationshipType": relationshipType}))(t)
		}
	}
	must(b.RelationshipTypes.Create(ctx, acme, store.Patch{"token": "near", "tracked": false}))(t)
	fences := b.Kinds.Of("geofences")
	polygon := func(lat int) string {
		return fmt.Sprintf(`{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[[[8,47],[9,47],[9,%d],[8,47]]]}}`, lat)
	}
	for _, c := range []struct {
		name string
		do   func()
		want string
	}{
		{"a member", relate("r1", "z", "member", "device", "d"), `memberships  {"v":1,"tenant":1,"groups":["z"]}`},
		{"of a second group", relate("r2", "s", "member", "device", "d"), `memberships  {"v":1,"tenant":1,"groups":["s","z"]}`},
		{"something else", relate("r3", "s", "near", "device", "d"), ``},
		{"an asset", relate("r4", "assets", "member", "asset", "pump"), ``},
		{"no member of the one any more", func() { must(b.Relationships.Delete(ctx, acme, "r1"))(t) }, `memberships  {"v":1,"tenant":1,"groups":["s"]}`},
		{"a group goes", func() { must(b.Groups.Delete(ctx, acme, "s"))(t) }, `memberships`},
		{"a member again", relate("r5", "z", "member", "device", "d"), `memberships  {"v":1,"tenant":1,"groups":["z"]}`},
		{"a fence", func() { must(fences.Create(ctx, acme, store.Patch{"token": "f", "geometry": polygon(48)}))(t) },
			`fence f {"v":1,"geometry":"` + strings.ReplaceAll(polygon(48), `"`, `\"`) + `"}|fence-set  {"v":1,"version":1}`},
		{"its name", func() { must(fences.Update(ctx, acme, "f", store.Patch{"name": "n"}))(t) }, ``},
		{"its geometry", func() { must(fences.Update(ctx, acme, "f", store.Patch{"geometry": polygon(49)}))(t) },
			`fence f {"v":1,"geometry":"` + strings.ReplaceAll(polygon(49), `"`, `\"`) + `"}|fence-set  {"v":1,"version":2}`},
		{"no fence", func() { must(fences.Delete(ctx, acme, "f"))(t) }, `fence f|fence-set  {"v":1,"version":3}`},
		{"the device goes", func() { must(b.Devices.Delete(ctx, acme, "d"))(t) }, `memberships|device d`},
	} {
		c.do()
		if got := strings.Join(b.told(), "|"); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
	}
}

// TestAKeyComesIntoUseWithManyValues: they are one change in several records of at most 1 MiB, or refused whole.
func TestAKeyComesIntoUseWithManyValues(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.seed()
	must(b.Devices.CreateBulk(t.Context(), acme, Bulk{Type: "t", Count: 100, TokenTemplate: "x{n}"}))(t)
	b.write(`INSERT INTO attributes (tenant_id, created_at, updated_at, entity_type, entity_id, scope, key, value_type, text_value)
		SELECT 1, 1, 1, 'device', id, 'SHARED', 'site', 'STRING', ? FROM devices WHERE token <> 'd'`, strings.Repeat("x", maxAttributeValue))
	b.dynamic("g", `attr["site"] == "x"`)
	b.views()
	must(b.Groups.Publish(t.Context(), acme, "g", nil, nil))(t)
	if got := b.rows(`SELECT count(*), count(DISTINCT sequence), max(length(body)) <= ? FROM control`, store.MaxControlBody); len(got) != 1 || got[0] != "3 1 1" {
		t.Errorf("parts, changes and whether each fits: %q", got)
	}
	n := 0
	for _, v := range b.views() {
		if v.Kind == model.ViewAttribute {
			n++
		}
	}
	if n != 100 {
		t.Errorf("%d values come into use, want 100", n)
	}
	must(b.Groups.Delete(t.Context(), acme, "g"))(t)
	b.write(`UPDATE attributes SET text_value = ?`, strings.Repeat("x", 200<<10))
	b.dynamic("g", `attr["site"] == "x"`)
	b.unchanged("values that would fill the log", func() {
		_, err := b.Groups.Publish(t.Context(), acme, "g", nil, nil)
		b.refused("publish", err, model.CodeLimitExceeded, "bytes of the log")
	})
}
