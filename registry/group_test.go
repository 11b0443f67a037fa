package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"weir/model"
	"weir/registry/selector"
	"weir/store"
)

// attributeTable makes the table of attributes unless a migration has.
const attributeTable = `CREATE TABLE IF NOT EXISTS attributes (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant_id    INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    entity_type  TEXT    NOT NULL,
    entity_id    INTEGER NOT NULL,
    scope        TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    value_type   TEXT    NOT NULL,
    text_value   TEXT,
    number_value REAL,
    UNIQUE (tenant_id, entity_type, entity_id, scope, key)
) STRICT`

func (b *bench) makeAttributes() {
	b.Helper()
	b.write(attributeTable)
	b.write(`CREATE INDEX IF NOT EXISTS attributes_by_number ON attributes (tenant_id, entity_type, scope, key, number_value, value_type, entity_id)`)
	b.write(`CREATE INDEX IF NOT EXISTS attributes_by_text ON attributes (tenant_id, entity_type, scope, key, text_value, value_type, entity_id) WHERE text_value IS NOT NULL`)
}

func (b *bench) write(query string, args ...any) {
	b.Helper()
	err := b.db.Write(b.Context(), store.Results, func(tx store.Tx) error {
		_, err := tx.Exec(query, args...)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
}

// jsonValue is the value of an attribute of the type JSON.
type jsonValue string

// attribute sets an attribute: a string, a bool, a float64, a jsonValue, or nil for a number that is null.
func (b *bench) attribute(tenant int64, entityType string, id int64, scope, key string, value any) {
	b.Helper()
	err := b.db.Write(b.Context(), store.Results, func(tx store.Tx) error { return setAttribute(tx, tenant, entityType, id, scope, key, value) })
	if err != nil {
		b.Fatal(err)
	}
}

func setAttribute(tx store.Tx, tenant int64, entityType string, id int64, scope, key string, value any) error {
	var valueType string
	var text, number any
	switch v := value.(type) {
	case string:
		valueType, text = "STRING", v
	case jsonValue:
		valueType, text = "JSON", string(v)
	case bool:
		valueType, number = "BOOLEAN", 0.0
		if v {
			number = 1.0
		}
	case int:
		valueType, number = "LONG", float64(v)
	case float64:
		valueType, number = "DOUBLE", v
	case nil:
		valueType = "DOUBLE"
	}
	_, err := tx.Exec(`INSERT INTO attributes (tenant_id, created_at, updated_at, entity_type, entity_id, scope, key, value_type, text_value, number_value)
		VALUES (?, 1, 1, ?, ?, ?, ?, ?, ?, ?)`, tenant, entityType, id, scope, key, valueType, text, number)
	return err
}

// dynamic makes a dynamic group of devices.
func (b *bench) dynamic(token, source string) *EntityGroup {
	b.Helper()
	return must(b.Groups.Create(b.Context(), acme, store.Patch{"token": token, "memberType": "device", "membershipMode": "dynamic", "selector": source}))(b)
}

// membersOf are the tokens of a page of the members of a group, and how many there are.
func (b *bench) membersOf(group string, page store.Page) string {
	b.Helper()
	g := must(b.Groups.ByToken(b.Context(), acme, []string{group}))(b)[0]
	return b.tokens(must(b.Groups.MembersOf(b.Context(), g, page))(b))
}

func (b *bench) tokens(p *MemberPage) string {
	b.Helper()
	tokens := []string{strconv.FormatInt(must(p.Total(b.Context()))(b), 10) + ":"}
	for _, m := range p.Members {
		tokens = append(tokens, m.Token)
	}
	return strings.Join(tokens, " ")
}

func TestAGroupIsStaticOrHasASelector(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	g := must(b.Groups.Create(ctx, acme, store.Patch{"token": "s", "memberType": "asset"}))(t)
	if g.MembershipMode != "static" || g.Selector != nil {
		t.Errorf("%+v", g)
	}
	d := b.dynamic("d", `attr["a"] == 1`)
	if *d.Selector != `attr["a"] == 1` || d.ActiveVersion != nil {
		t.Errorf("%+v", d)
	}
	b.unchanged("refused groups", func() {
		for what, step := range map[string]struct {
			patch store.Patch
			text  string
		}{
			"a static group with a selector":     {store.Patch{"membershipMode": "static", "selector": `attr["a"] == 1`}, "selector: a static group has none"},
			"without a mode, with a selector":    {store.Patch{"selector": `attr["a"] == 1`}, "selector: a static group has none"},
			"a dynamic group without a selector": {store.Patch{"membershipMode": "dynamic"}, "selector: is required"},
			"a selector that is none":            {store.Patch{"membershipMode": "dynamic", "selector": "1 == 1"}, "selector: line 1, column 1: expected attr"},
			"another mode":                       {store.Patch{"membershipMode": "both"}, "membershipMode"},
			"a group of groups":                  {store.Patch{"memberType": "group"}, "memberType"},
		} {
			p := store.Patch{"token": "n", "memberType": "device"}
			maps.Copy(p, step.patch)
			_, err := b.Groups.Create(ctx, acme, p)
			b.refused(what, err, model.CodeInvalidInput, step.text)
		}
		_, err := b.Groups.Update(ctx, acme, "s", store.Patch{"name": "n", "selector": `attr["a"] == 1`})
		b.refused("a selector for a static group", err, model.CodeInvalidInput, "selector: a static group has none")
		_, err = b.Groups.Update(ctx, acme, "s", store.Patch{"selector": nil})
		b.refused("null for a static group", err, model.CodeInvalidInput, "selector: null is refused")
		_, err = b.Groups.Update(ctx, acme, "d", store.Patch{"name": "n", "selector": nil})
		b.refused("null for a dynamic group", err, model.CodeInvalidInput, "selector: null is refused")
		for _, field := range []string{"memberType", "membershipMode"} {
			_, err = b.Groups.Update(ctx, acme, "d", store.Patch{field: "static"})
			b.refused(field, err, model.CodeInvalidInput, field+": cannot be changed")
		}
	})
	must(b.Groups.Update(ctx, acme, "d", store.Patch{"name": "n"}))(t)
	if d = must(b.Groups.Update(ctx, acme, "d", store.Patch{"selector": `"k" in attr`}))(t); *d.Selector != `"k" in attr` || *d.Name != "n" {
		t.Errorf("%+v", d)
	}
}

func TestMembersOfAStaticGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.seedRelated()
	if got := b.membersOf("g", store.Page{}); got != "0:" {
		t.Errorf("before the first relationship: %s", got)
	}
	b.relate("r1", "group/g", "member", "device/d2")
	b.relate("r2", "group/g", "member", "device/d")
	b.relate("r3", "group/g", "member", "device/d2") // again
	b.relate("r4", "group/g", "assigned", "asset/a") // not as a member
	for page, want := range map[store.Page]string{{}: "2: d d2", {Number: 1, Size: 1}: "2: d", {Number: 2, Size: 1}: "2: d2", {Number: 3, Size: 1}: "2:"} {
		if got := b.membersOf("g", page); got != want {
			t.Errorf("page %v: %s, want %s", page, got, want)
		}
	}
	must(b.Devices.Delete(t.Context(), acme, "d2"))(t)
	if got := b.membersOf("g", store.Page{}); got != "1: d" {
		t.Errorf("%s", got)
	}
}

func TestMembersOfADynamicGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.makeAttributes()
	_, _, d := b.seed()
	d2 := must(b.Devices.Create(t.Context(), acme, store.Patch{"token": "d2", "deviceTypeToken": "t"}))(t)
	must(b.Types.Create(t.Context(), other, store.Patch{"token": "t"}))(t)
	theirs := must(b.Devices.Create(t.Context(), other, store.Patch{"token": "d", "deviceTypeToken": "t"}))(t)
	b.attribute(1, "device", d.ID, "SHARED", "n", 5)
	b.attribute(1, "device", d2.ID, "SHARED", "n", 7.5)
	b.attribute(1, "device", d2.ID, "SERVER", "only", 1)
	b.attribute(1, "asset", d.ID, "SHARED", "n", 7)
	b.attribute(2, "device", theirs.ID, "SHARED", "n", 7)
	for source, want := range map[string]string{
		`attr["n"] > 6`: "1: d2", `attr["n"] > 4`: "2: d d2", `attr["only"] == 1`: "0:", `"only" in attr`: "0:", `!("only" in attr)`: "2: d d2",
		`attr["n"] == 5 || attr["n"] == 7.5`: "2: d d2", `memberType == "device"`: "2: d d2", `memberType == "asset"`: "0:", `attr["n"] > 4 && attr["n"] < 6`: "1: d",
	} {
		p := must(b.Groups.PreviewSelector(t.Context(), acme, "device", source, store.Page{}))(t)
		if p.Refused != nil || b.tokens(p.Members) != want {
			t.Errorf("%s: %v, %s, want %s", source, p.Refused, b.tokens(p.Members), want)
		}
	}
	b.dynamic("g", `attr["n"] > 6`)
	for group, want := range map[string]string{"g": "d2", "none": ""} {
		rows, total, err := b.Devices.List(t.Context(), acme, store.Page{}, must(b.Devices.Info().Criteria(t.Context(), acme, map[string]any{"group": group}))(t)...)
		if err != nil || total != int64(len(rows)) || (total == 1) != (want != "") || total == 1 && rows[0].Token != want {
			t.Errorf("devices of %s: %v, %d, %v", group, rows, total, err)
		}
	}
	p := must(b.Groups.PreviewSelector(t.Context(), acme, "device", `attr.n == 5`, store.Page{}))(t)
	b.refused("a preview of what is no selector", p.Refused, model.CodeInvalidInput, "selector: line 1, column 5")
	_, err := b.Groups.PreviewSelector(t.Context(), acme, "group", `attr["n"] == 5`, store.Page{})
	b.refused("a preview of groups", err, model.CodeInvalidInput, "memberType")
	_, err = b.Groups.PreviewSelector(t.Context(), nil, "device", `attr["n"] == 5`, store.Page{})
	b.refused("a preview without a caller", err, model.CodeUnauthenticated, "")
}

func TestAPublishFreezesTheSelector(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.dynamic("g", `attr["a"] == "é"`)
	must(b.Groups.Publish(ctx, acme, "g", new("first"), nil))(t)
	must(b.Groups.Update(ctx, acme, "g", store.Patch{"selector": `attr["a"] < 2`}))(t)
	must(b.Groups.Publish(ctx, acme, "g", nil, nil))(t)
	want := []string{`{"v":1,"selector":"attr[\"a\"] == \"é\"","memberType":"device"}`, `{"v":1,"selector":"attr[\"a\"] \u003c 2","memberType":"device"}`}
	if got := b.rows(`SELECT snapshot FROM entity_group_versions ORDER BY version`); !slices.Equal(got, want) {
		t.Errorf("%q, want %q: what was frozen is read for ever", got, want)
	}
	g := must(b.Groups.Rollback(ctx, acme, "g", 1))(t)
	if *g.ActiveVersion != 1 || *g.Selector != `attr["a"] < 2` {
		t.Errorf("after the rollback: version %d, %s", *g.ActiveVersion, *g.Selector)
	}
	_, err := b.Groups.Rollback(ctx, acme, "g", 3)
	b.refused("a version that is not there", err, model.CodeNotFound, "g@3")
	versions := must(b.Groups.VersionsOf(ctx, acme, []int64{g.ID, 0}))(t)[g.ID]
	if len(versions) != 2 || versions[0].Version != 2 || *versions[1].Label != "first" {
		t.Errorf("%v", versions)
	}
	bodies := must(b.Groups.Snapshots(ctx, acme, []int64{versions[0].ID, versions[1].ID}))(t)
	if bodies[versions[0].ID].Selector != `attr["a"] < 2` || bodies[versions[1].ID].Selector != `attr["a"] == "é"` {
		t.Errorf("%v", bodies)
	}
	if theirs := must(b.Groups.Snapshots(ctx, other, []int64{versions[0].ID}))(t); len(theirs) != 0 {
		t.Errorf("another tenant reads %v", theirs)
	}
	must(b.Groups.Create(ctx, acme, store.Patch{"token": "s", "memberType": "device"}))(t)
	b.unchanged("a static group", func() {
		_, err = b.Groups.Publish(ctx, acme, "s", nil, nil)
		b.refused("its publish", err, model.CodeInvalidInput, `entity group "s" is static`)
		_, err = b.Groups.Rollback(ctx, acme, "s", 1)
		b.refused("its rollback", err, model.CodeNotFound, "s@1")
	})
	if differs, _, err := b.Groups.Unpublished(ctx, acme, "s"); differs || err != nil {
		t.Errorf("a static group waits for a publish: %v", err)
	}
	if !must(b.Groups.Delete(ctx, acme, "g"))(t) || len(b.rows(`SELECT id FROM entity_group_versions`)) != 0 {
		t.Error("the versions are left")
	}
	b.compareBytes(t)
}

// scopedRule is a draft of a rule of the profile p, scoped to a version of a group.
func scopedRule(token, group string, version any) store.Patch {
	return store.Patch{"token": token, "deviceProfileToken": "p", "definition": ruleText, "enabled": true, "entityGroupToken": group, "entityGroupVersion": version}
}

func TestARuleIsScopedToAPublishedVersion(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	b.dynamic("g", `attr["a"] == 1`)
	must(b.Groups.Create(ctx, acme, store.Patch{"token": "s", "memberType": "device"}))(t)
	must(b.Groups.Create(ctx, acme, store.Patch{"token": "assets", "memberType": "asset", "membershipMode": "dynamic", "selector": `"a" in attr`}))(t)
	must(b.Groups.Publish(ctx, acme, "assets", nil, nil))(t)
	b.unchanged("refused scopes", func() {
		for group, text := range map[string]string{"none": `entity group "none" has no published version 1`, "g": `entity group "g" has no published version 1: it must be published first`,
			"s": `entity group "s" has no published version 1: rules are scoped to dynamic groups`, "asets": `entity group "asets" has no published version 1 (did you mean assets?)`, "assets": `entity group "assets" has members of the type asset`} {
			_, err := b.Rules.Create(ctx, acme, scopedRule("r", group, int64(1)))
			b.refused(group, err, model.CodeInvalidInput, "entityGroupToken: "+text)
		}
		_, err := b.Rules.Create(ctx, acme, scopedRule("r", "g", nil))
		b.refused("half a scope", err, model.CodeInvalidInput, "entityGroupVersion: is required")
	})
	must(b.Groups.Publish(ctx, acme, "g", nil, nil))(t)
	must(b.Rules.Create(ctx, acme, scopedRule("r", "g", int64(1))))(t)
	_, err := b.Rules.Update(ctx, acme, "r", store.Patch{"entityGroupVersion": int64(2)})
	b.refused("another version", err, model.CodeInvalidInput, "has no published version 2: version 1 is active")
	must(b.Rules.Update(ctx, acme, "r", store.Patch{"name": "n"}))(t)

	_, err = b.Groups.Delete(ctx, acme, "g")
	b.refused("a delete while a draft is scoped to it", err, model.CodeInUse, `entity group "g" is in use by a detection rule`)
	must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t)
	must(b.Rules.Delete(ctx, acme, "r"))(t)
	_, err = b.Groups.Delete(ctx, acme, "g")
	b.refused("a delete while an active version is scoped to it", err, model.CodeInUse, `entity group "g" is in use by a detection rule`)
	must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t)
	if !must(b.Groups.Delete(ctx, acme, "g"))(t) {
		t.Error("it is not deleted")
	}
	b.unchanged("a rollback to what is scoped to a group that is gone", func() {
		_, err = b.Profiles.Rollback(ctx, acme, "p", 1)
		b.refused("rollback", err, model.CodeInvalidInput, `entity group "g" has no published version 1`)
	})
}

// A publish removes the oldest versions beyond the maximum, but none that a rule is scoped to.
func TestAScopedVersionIsKept(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{VersionsPerProfile: 3})
	ctx := t.Context()
	b.seed()
	b.dynamic("g", `attr["a"] == 1`)
	must(b.Groups.Publish(ctx, acme, "g", nil, nil))(t)
	must(b.Rules.Create(ctx, acme, scopedRule("r", "g", int64(1))))(t)
	for range 5 {
		must(b.Groups.Publish(ctx, acme, "g", nil, nil))(t)
	}
	if got := strings.Join(b.rows(`SELECT version FROM entity_group_versions ORDER BY version`), " "); got != "1 5 6" {
		t.Errorf("%s are left", got)
	}
	b.compareBytes(t)
}

func TestATenantHasOnlySoManyGroupsAndSelectorsInUse(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{DeviceSettings: DeviceSettings{GroupsPerTenant: 3, SelectorsPerTenant: 2}})
	ctx := t.Context()
	b.seed()
	for _, token := range []string{"g1", "g2", "g3"} {
		b.dynamic(token, `attr["a"] == 1`)
	}
	_, err := b.Groups.Create(ctx, acme, store.Patch{"token": "g4", "memberType": "device"})
	b.refused("a fourth group", err, model.CodeLimitExceeded, "limits.groups_per_tenant")
	publish := func(group string) error {
		_, err := b.Groups.Publish(ctx, acme, group, nil, nil)
		return err
	}
	if err := publish("g1"); err != nil {
		t.Fatal(err)
	}
	must(b.Rules.Create(ctx, acme, scopedRule("r1", "g1", int64(1))))(t)
	must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t) // the rule uses the active version
	if err := publish("g1"); err != nil {                 // which makes two: the active one, and that of the rule
		t.Fatal(err)
	}
	b.refused("a third selector", publish("g2"), model.CodeLimitExceeded, "limits.selectors_per_tenant")
	must(b.Groups.Rollback(ctx, acme, "g1", 1))(t)
	if err := publish("g2"); err != nil {
		t.Fatal(err)
	}
	b.refused("a new version of one that a rule is scoped to", publish("g1"), model.CodeLimitExceeded, "limits.selectors_per_tenant")
	if err := publish("g2"); err != nil { // not one more than before
		t.Error(err)
	}
	must(b.Rules.Create(ctx, acme, scopedRule("r2", "g2", int64(1))))(t)
	_, err = b.Profiles.Publish(ctx, acme, "p", nil, nil)
	b.refused("a profile with a rule of a third selector", err, model.CodeLimitExceeded, "limits.selectors_per_tenant")
}

func TestTheTargetsOfAGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.makeAttributes()
	b.seedRelated()
	ctx := t.Context()
	d, d2 := must(b.Devices.ByToken(ctx, acme, []string{"d"}))(t)[0], must(b.Devices.ByToken(ctx, acme, []string{"d2"}))(t)[0]
	b.attribute(1, "device", d.ID, "SHARED", "n", 5)
	b.attribute(1, "device", d2.ID, "SHARED", "n", 7)
	b.relate("r1", "group/g", "member", "device/d")
	b.relate("r2", "group/g", "member", "device/d2")
	b.dynamic("dyn", `attr["n"] == 5`)
	must(b.Groups.Create(ctx, acme, store.Patch{"token": "assets", "memberType": "asset"}))(t)
	show := func(group string, version any, after, limit int64) string {
		t.Helper()
		var number *int64
		if v, ok := version.(int); ok {
			number = new(int64(v))
		}
		p := must(b.Groups.Targets(ctx, acme, group, number, after, limit))(t)
		if p.Rejected {
			if *p.Reason == "" || len(p.Devices) > 0 || p.Next != nil || p.Version != nil {
				t.Errorf("%+v", p)
			}
			return *p.Code
		}
		out := strings.Join(p.Devices, " ")
		if p.Next != nil {
			out += " after " + *p.Next
		}
		if p.Version != nil {
			out += fmt.Sprint(" v", *p.Version)
		}
		return out
	}
	expect := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	expect("unknown", show("none", nil, 0, 10), "GROUP_NOT_FOUND")
	expect("of assets", show("assets", nil, 0, 10), "GROUP_NOT_A_DEVICE_GROUP")
	expect("a version of a static group", show("g", 1, 0, 10), "GROUP_NOT_VERSIONED")
	expect("not published", show("dyn", nil, 0, 10), "GROUP_NOT_PUBLISHED")
	expect("a version that is not there", show("dyn", 1, 0, 10), "GROUP_VERSION_NOT_FOUND")
	first := fmt.Sprint("d after ", d.ID)
	expect("first page", show("g", nil, 0, 1), first)
	expect("second page", show("g", nil, d.ID, 1), "d2")
	expect("beyond", show("g", nil, d2.ID, 1), "")
	expect("all", show("g", nil, 0, 2), "d d2")
	must(b.Groups.Publish(ctx, acme, "dyn", nil, nil))(t)
	must(b.Groups.Update(ctx, acme, "dyn", store.Patch{"selector": `attr["n"] >= 5`}))(t)
	expect("the draft does not count", show("dyn", nil, 0, 10), "d v1")
	must(b.Groups.Publish(ctx, acme, "dyn", nil, nil))(t)
	expect("active", show("dyn", nil, 0, 1), first+" v2")
	expect("active, second page", show("dyn", nil, d.ID, 1), "d2 v2")
	expect("a former version", show("dyn", 1, 0, 10), "d v1")
	for _, limit := range []int64{0, -1, 1001} {
		_, err := b.Groups.Targets(ctx, acme, "g", nil, 0, limit)
		b.refused("limit", err, model.CodeInvalidInput, "limit: must be between 1 and 1000")
	}
	expect("another tenant's", *must(b.Groups.Targets(ctx, other, "g", nil, 0, 10))(t).Code, "GROUP_NOT_FOUND")
}

// drawCondition draws a condition as a selector writes it.
func drawCondition(rt *rapid.T, depth int) string {
	if depth > 0 {
		switch rapid.IntRange(0, 5).Draw(rt, "node") {
		case 0:
			return "(" + drawCondition(rt, depth-1) + " && " + drawCondition(rt, depth-1) + ")"
		case 1:
			return "(" + drawCondition(rt, depth-1) + " || " + drawCondition(rt, depth-1) + ")"
		case 2:
			return "!(" + drawCondition(rt, depth-1) + ")"
		}
	}
	key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key")
	if rapid.IntRange(0, 9).Draw(rt, "leaf") == 0 {
		return fmt.Sprintf("memberType %s %q", rapid.SampledFrom([]string{"==", "!="}).Draw(rt, "cmp"), rapid.SampledFrom([]string{"device", "asset"}).Draw(rt, "type"))
	}
	if rapid.IntRange(0, 4).Draw(rt, "leaf") == 0 {
		return fmt.Sprintf("%q in attr", key)
	}
	number := rapid.SampledFrom([]string{"0", "1", "-1", "1.5", "1e300", "-0.0"}).Draw(rt, "number")
	if rapid.Bool().Draw(rt, "ordered") {
		return fmt.Sprintf("attr[%q] %s %s", key, rapid.SampledFrom([]string{"<", "<=", ">", ">="}).Draw(rt, "cmp"), number)
	}
	literal := rapid.SampledFrom([]string{number, `"x"`, `""`, `"é'\\%"`, "true", "false"}).Draw(rt, "literal")
	return fmt.Sprintf("attr[%q] %s %s", key, rapid.SampledFrom([]string{"==", "!="}).Draw(rt, "cmp"), literal)
}

// The evaluator and the database agree about any selector and any attributes, whatever the page.
func TestTheEvaluatorAgreesWithTheDatabase(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.makeAttributes()
	b.seed()
	const devices = 12
	must(b.Devices.CreateBulk(t.Context(), acme, Bulk{Type: "t", Count: devices, TokenTemplate: "x{n:02d}"}))(t)
	must(b.Devices.Delete(t.Context(), acme, "d"))(t)
	ids := b.rows(`SELECT id FROM devices ORDER BY id`)
	values := []any{"x", "", `é'\%`, true, false, 0, 1, -1, 1.5, 1e300, nil, jsonValue(`"x"`), jsonValue("1")}
	rapid.Check(t, func(rt *rapid.T) {
		b.write(`DELETE FROM attributes`)
		attributes := make([]map[string]any, devices)
		err := b.db.Write(t.Context(), store.Results, func(tx store.Tx) error {
			for i, text := range ids {
				id, _ := strconv.ParseInt(text, 10, 64)
				attributes[i] = map[string]any{}
				for _, key := range []string{"a", "b", "c"} {
					if !rapid.Bool().Draw(rt, "has") {
						continue
					}
					value := rapid.SampledFrom(values).Draw(rt, "value")
					if err := setAttribute(tx, 1, "device", id, "SHARED", key, value); err != nil {
						return err
					}
					if n, ok := value.(int); ok {
						value = float64(n)
					}
					attributes[i][key] = value
				}
			}
			return nil
		})
		if err != nil {
			rt.Fatal(err)
		}
		source := drawCondition(rt, 3)
		condition, err := b.Groups.selectors.Compile(source, "device")
		if err != nil {
			rt.Fatal(source, err)
		}
		var want []string
		for i := range ids {
			if selector.Holds(condition, func(key string) (any, bool) { value, exists := attributes[i][key]; return value, exists }) {
				want = append(want, fmt.Sprintf("x%02d", i+1))
			}
		}
		for _, page := range []store.Page{{Number: 1, Size: 1000}, {Number: 1, Size: 2}, {Number: 2, Size: 3}} {
			from := min((page.Number-1)*page.Size, len(want))
			some := want[from:min(from+page.Size, len(want))]
			p := must(b.Groups.PreviewSelector(t.Context(), acme, "device", source, page))(t)
			if got, expected := b.tokens(p.Members), strings.Join(append([]string{fmt.Sprint(len(want), ":")}, some...), " "); got != expected {
				rt.Fatalf("%s, page %v: %s, want %s", source, page, got, expected)
			}
		}
		b.dynamicOnce("g", source)
		rows, total, err := b.Devices.List(t.Context(), acme, store.Page{}, must(b.Devices.Info().Criteria(t.Context(), acme, map[string]any{"group": "g"}))(t)...)
		if err != nil || total != int64(len(want)) || len(rows) != len(want) {
			rt.Fatalf("%s: the list has %d of %d, want %d, %v", source, len(rows), total, len(want), err)
		}
	})
}

// dynamicOnce gives the one dynamic group of that token a selector.
func (b *bench) dynamicOnce(token, source string) {
	b.Helper()
	if len(must(b.Groups.ByToken(b.Context(), acme, []string{token}))(b)) == 0 {
		b.dynamic(token, source)
		return
	}
	must(b.Groups.Update(b.Context(), acme, token, store.Patch{"selector": source}))(b)
}

// BenchmarkMembers reads the first page of a group over 100,000 devices with ten attributes each. Run it with -benchtime=20x.
func BenchmarkMembers(b *testing.B) {
	w := newBench(b, Config{DeviceSettings: DeviceSettings{DevicesPerTenant: 1 << 40}})
	w.makeAttributes()
	const devices = 100_000
	w.fleet(devices)
	ids := w.rows(`SELECT id FROM devices ORDER BY id`)
	random := rand.New(rand.NewPCG(1, 2))
	for some := range slices.Chunk(ids, 10_000) {
		err := w.db.Write(b.Context(), store.Results, func(tx store.Tx) error {
			for _, text := range some {
				id, _ := strconv.ParseInt(text, 10, 64)
				for key := range 10 {
					var value any = float64(random.IntN(1000))
					if key >= 8 {
						value = fmt.Sprint("site-", random.IntN(1000))
					}
					if err := setAttribute(tx, 1, "device", id, "SHARED", fmt.Sprint("k", key), value); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	for _, of := range []struct{ name, source string }{
		{"30%", `attr["k0"] < 548 && attr["k1"] < 548`},
		{"0.1%, each of 3%", `attr["k0"] < 32 && attr["k1"] < 32`},
		{"0.1%, one of 0.1%", `attr["k8"] == "site-7" && attr["k1"] >= 0`},
		{"0.1%, of two of 30% and a third", `attr["k0"] < 300 && attr["k1"] < 300 && attr["k2"] < 11`},
		{"0.2%, either", `attr["k8"] == "site-7" || attr["k9"] == "site-8"`},
		{"99.9%, not", `!(attr["k8"] == "site-7") && !(attr["k9"] == "no")`},
	} {
		b.Run(of.name+"/page", func(b *testing.B) {
			for b.Loop() {
				must(w.Groups.PreviewSelector(b.Context(), acme, "device", of.source, store.Page{Number: 1, Size: 100}))(b)
			}
		})
		b.Run(of.name+"/count", func(b *testing.B) {
			p := must(w.Groups.PreviewSelector(b.Context(), acme, "device", of.source, store.Page{Number: 1, Size: 1}))(b)
			for b.Loop() {
				must(p.Members.Total(context.Background()))(b)
			}
		})
	}
}

// TestPublishingAGroupOfManyGoesBySlices: the values that its selector needs enter the metadata some in a change, and leave it so. The
// version itself is one row of one change, the last.
func TestPublishingAGroupOfManyGoesBySlices(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{ValuesPerChange: 10})
	b.fleet(1000)
	b.texts("site", 995)
	b.dynamic("g", `attr["site"] == "north"`)
	b.changes() // removes what waits
	must(b.Groups.Publish(t.Context(), acme, "g", nil, nil))(t)
	b.slices("the publish", b.changes(), 995, 10, "group")
	b.fully("site")
	must(b.Groups.Delete(t.Context(), acme, "g"))(t)
	b.slices("the removal", append(b.changes(), b.emptied()...), 995, 10, "group")
	if left := b.rows(`SELECT key, through FROM attribute_keys_in_use`); len(left) > 0 {
		t.Errorf("keys are left: %q", left)
	}
}

// TestAPublishThatWasBrokenOffIsCompletedOrTakenBack: the values that an earlier process has brought in are not brought in again, and leave
// when no selector comes to name their key.
func TestAPublishThatWasBrokenOffIsCompletedOrTakenBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{ValuesPerChange: 10})
	b.fleet(1000)
	b.texts("site", 100)
	b.dynamic("g", `attr["site"] == "north"`)
	b.changes()
	broken, cancel := context.WithCancel(t.Context())
	changes := 0
	b.after = func() {
		if changes++; changes == 4 {
			cancel()
		}
	}
	if _, err := b.Groups.Publish(broken, acme, "g", nil, nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	b.after = nil
	b.slices("what was done", b.changes(), 40, 10, "")
	if got := b.rows(`SELECT count(*) FROM entity_group_versions`); got[0] != "0" {
		t.Errorf("%s versions", got)
	}
	b.set(AttributeSet{AttributeRef: AttributeRef{"device", "f40", ScopeShared, "site"}, Type: ValueString, Value: new("south")})
	b.set(AttributeSet{AttributeRef: AttributeRef{"device", "f41", ScopeShared, "site"}, Type: ValueString, Value: new("south")})
	if got := b.told(); len(got) != 1 || !strings.Contains(got[0], "south") {
		t.Errorf("of a value that is in and one that is not: %q", got)
	}
	again := New(b.config, b.parts) // the process after
	if _, err := again.Groups.Publish(t.Context(), acme, "g", nil, nil); err != nil {
		t.Fatal(err)
	}
	b.slices("the rest", b.changes(), 60, 10, "group")
	b.fully("site")

	b.dynamic("h", `attr["other"] == "north"`)
	b.texts("other", 100)
	b.changes()
	broken, cancel = context.WithCancel(t.Context())
	changes = 0
	b.after = func() {
		if changes++; changes == 4 {
			cancel()
		}
	}
	if _, err := b.Groups.Publish(broken, acme, "h", nil, nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	b.after = nil
	b.changes()
	after := New(b.config, b.parts)
	if err := errors.Join(after.AttributeKeys.Find(t.Context()), after.AttributeKeys.Empty(t.Context())); err != nil {
		t.Fatal(err)
	}
	b.slices("what is taken back", b.changes(), 40, 10, "")
	b.fully("site")
}

// texts gives the first n devices of a fleet a text under a key.
func (b *bench) texts(key string, n int) {
	b.Helper()
	if err := b.db.Write(b.Context(), store.Results, func(tx store.Tx) error {
		_, err := tx.Exec(`INSERT INTO attributes (tenant_id, created_at, updated_at, entity_type, entity_id, scope, key, value_type, text_value)
			SELECT tenant_id, 1, 1, 'device', id, 'SHARED', ?, 'STRING', iif(id % 2, 'north', 'south') FROM devices WHERE token LIKE 'f%' ORDER BY id LIMIT ?`, key, n)
		return err
	}); err != nil {
		b.Fatal(err)
	}
}

// changes are the kinds of the metadata changes that wait, one list for each change. They are removed.
func (b *bench) changes() (all [][]string) {
	b.Helper()
	if err := b.db.Write(b.Context(), store.Results, func(tx store.Tx) error {
		pending, err := store.PendingControl(tx, 0, 1<<20)
		for len(pending) > 0 && err == nil {
			var body []byte
			sequence := pending[0].Sequence
			for len(pending) > 0 && pending[0].Sequence == sequence {
				body, pending = append(body, pending[0].Body...), pending[1:]
			}
			var kinds []string
			views, derr := store.DecodeViewChanges(body)
			for _, v := range views {
				kinds = append(kinds, string(v.Kind))
			}
			all, err = append(all, kinds), errors.Join(derr, store.RemoveControl(tx, sequence))
			if len(pending) == 0 && err == nil {
				pending, err = store.PendingControl(tx, sequence, 1<<20)
			}
		}
		return err
	}); err != nil {
		b.Fatal(err)
	}
	return all
}

// emptied takes values out that no key needs any more and returns the changes of that.
func (b *bench) emptied() [][]string {
	b.Helper()
	if err := b.AttributeKeys.Empty(b.Context()); err != nil {
		b.Fatal(err)
	}
	return b.changes()
}

// slices compares changes of attributes: how many there are of all changes together, and the maximum in one. One change, of all others the
// only one, has a row of the kind also.
func (b *bench) slices(what string, changes [][]string, values, maximum int, also string) {
	b.Helper()
	others := 0
	for _, kinds := range changes {
		n := 0
		for _, kind := range kinds {
			switch kind {
			case string(model.ViewAttribute):
				n++
			case also:
				others++
			default:
				b.Errorf("%s has a row of the kind %s", what, kind)
			}
		}
		if values -= n; n > maximum {
			b.Errorf("%s has a change with %d values", what, n)
		}
	}
	if values != 0 || (others != 1) != (also == "") {
		b.Errorf("%s: %d values are missing, and there are %d rows of %s", what, values, others, also)
	}
}

// fully fails unless the values of the key, and of no other, are in the metadata for all devices.
func (b *bench) fully(key string) {
	b.Helper()
	if got, want := b.rows(`SELECT key, through FROM attribute_keys_in_use`), fmt.Sprintf("%s, %d", key, int64(math.MaxInt64)); len(got) != 1 || strings.Join(strings.FieldsFunc(got[0], notWord), ", ") != want {
		b.Errorf("the keys in use are %q, want %s", got, want)
	}
}

func notWord(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }

// BenchmarkPublishGroupOf100000 reports how long the longest change held the writer.
func BenchmarkPublishGroupOf100000(b *testing.B) {
	for _, perChange := range []int64{1 << 40, 4000, 2000, 1000} {
		b.Run(fmt.Sprint(perChange), func(b *testing.B) {
			w := newBench(b, Config{ValuesPerChange: perChange, DeviceSettings: DeviceSettings{DevicesPerTenant: 1 << 40}})
			w.fleet(100_000)
			w.texts("site", 100_000)
			w.dynamic("g", `attr["site"] == "north"`)
			for b.Loop() {
				w.longest = 0
				_, err := w.Groups.Publish(b.Context(), acme, "g", nil, nil)
				if err == nil {
					must(w.Groups.Delete(b.Context(), acme, "g"))(b)
					w.emptied()
					b.StopTimer()
					w.dynamic("g", `attr["site"] == "north"`)
					w.changes()
					b.StartTimer()
				}
				b.ReportMetric(float64(w.longest.Milliseconds()), "ms/longest")
				if err != nil {
					b.Skip(err)
				}
			}
		})
	}
}
