package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weir/model"
	"weir/store"
)

// modelKind is a kind as the model knows it: what its rows refer to, and what of them must be unique.
type modelKind struct {
	table  string
	ref    string // field that names another row, "" for none
	to     string // table of that
	parent bool   // the row is a part of the other, and goes with it
	maybe  bool   // the reference may be null
	key    string // field whose values are unique, below the parent where there is one
	wide   bool   // unique in the tenant, not below the parent
	secret bool   // the key cannot be read
	max    int    // ceiling, 0 for none that is met
	more   store.Patch
}

// modelKinds are those that the model is about; a kind that is added to the registry is one line here.
var modelKinds = []modelKind{
	{table: "device_profiles"},
	{table: "metric_definitions", ref: "deviceProfileToken", to: "device_profiles", parent: true, key: "metricKey", more: store.Patch{"dataType": "INT"}},
	{table: "command_definitions", ref: "deviceProfileToken", to: "device_profiles", parent: true, key: "commandKey"},
	{table: "detection_rules", ref: "deviceProfileToken", to: "device_profiles", parent: true, more: store.Patch{"definition": ruleText, "enabled": true}},
	{table: "device_types", ref: "profileToken", to: "device_profiles", maybe: true},
	{table: "devices", ref: "deviceTypeToken", to: "device_types", key: "externalId", max: 3},
	{table: "device_credentials", ref: "deviceToken", to: "devices", parent: true, key: "credentialId", wide: true, secret: true,
		more: store.Patch{"credentialType": MQTTBasic, "credentialValue": Hashed("$hash$"), "enabled": true}},
	{table: "asset_types", max: 2}, {table: "assets", ref: "assetTypeToken", to: "asset_types", max: 2},
	{table: "customer_types", max: 2}, {table: "customers", ref: "customerTypeToken", to: "customer_types", max: 2},
	{table: "area_types", max: 2}, {table: "areas", ref: "areaTypeToken", to: "area_types", max: 2},
}

// modelRow is a row of the model.
type modelRow struct {
	ref, key string
	versions [][]string // of a profile: the command keys of each version
	active   int        // 0: none
}

// world is what a tenant has, by table and token.
type world map[string]map[string]*modelRow

// refuses says with which code a write of a row is refused, "" for none; token is "" in an update.
func (w world) refuses(k modelKind, token, self string, row modelRow) model.Code {
	rows := w[k.table]
	switch {
	case token != "" && k.max > 0 && len(rows) >= k.max:
		return model.CodeLimitExceeded
	case row.ref != "" && w[k.to][row.ref] == nil:
		return model.CodeInvalidInput
	case token != "" && rows[token] != nil:
		return model.CodeConflict
	}
	for name, o := range rows {
		if row.key != "" && o.key == row.key && name != self && (!k.parent || k.wide || o.ref == row.ref) {
			return model.CodeConflict
		}
	}
	return ""
}

// used reports whether a row is referred to by one that is no part of it.
func (w world) used(table, token string) bool {
	return slices.ContainsFunc(modelKinds, func(k modelKind) bool {
		return k.to == table && !k.parent && slices.ContainsFunc(slices.Collect(maps.Values(w[k.table])), func(r *modelRow) bool { return r.ref == token })
	})
}

// remove removes a row with its parts.
func (w world) remove(table, token string) {
	delete(w[table], token)
	for _, k := range modelKinds {
		if k.to == table && k.parent {
			for name, r := range w[k.table] {
				if r.ref == token {
					w.remove(k.table, name)
				}
			}
		}
	}
}

// drafted are the command keys of a profile's draft.
func (w world) drafted(profile string) []string {
	keys := []string{}
	for _, r := range w["command_definitions"] {
		if r.ref == profile {
			keys = append(keys, r.key)
		}
	}
	slices.Sort(keys)
	return keys
}

// vocabulary are the command keys that a device takes, nil for every key.
func (w world) vocabulary(device string) []string {
	typ := w["device_types"][w["devices"][device].ref]
	profile := w["device_profiles"][typ.ref]
	if profile == nil || profile.active == 0 || len(profile.versions[profile.active-1]) == 0 {
		return nil
	}
	return profile.versions[profile.active-1]
}

// The registry after any operations is what a model of maps says: references, parts that go with their whole, uniqueness,
// ceilings, versions; and what is counted is what there is.
func TestTheRegistryIsWhatAModelSays(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{DeviceSettings: DeviceSettings{DevicesPerTenant: 3, AssetsPerTenant: 2, CustomersPerTenant: 2, AreasPerTenant: 2, EntityTypesPerTenant: 2}})
	rapid.Check(t, func(rt *rapid.T) {
		b.clear(rt)
		worlds := map[*model.Principal]world{}
		for _, by := range []*model.Principal{acme, other} {
			worlds[by] = world{}
			for _, k := range modelKinds {
				worlds[by][k.table] = map[string]*modelRow{}
			}
		}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			by := rapid.SampledFrom([]*model.Principal{acme, acme, other}).Draw(rt, "tenant")
			b.modelStep(rt, by, worlds[by])
		}
		for by, w := range worlds {
			b.compareModel(rt, by, w)
		}
		b.compareCounts(rt)
		b.compareBytes(rt)
		b.consistent(rt)
	})
}

// modelStep does one operation in the registry and in the model.
func (b *bench) modelStep(rt *rapid.T, by *model.Principal, w world) {
	ctx := b.Context()
	token := rapid.SampledFrom([]string{"a", "b", "c"})
	k := rapid.SampledFrom(modelKinds).Draw(rt, "kind")
	kind := b.Kinds.Of(k.table)
	name := token.Draw(rt, "token")
	old := w[k.table][name]
	expect := func(what string, err error, want model.Code) bool {
		rt.Helper()
		if got := model.CodeOf(err); got != want || err != nil && got == "" {
			rt.Fatalf("%s %s %q: %v (%s), the model says %q", what, k.table, name, err, got, want)
		}
		return err == nil
	}
	next := modelRow{}
	if k.ref != "" && !(k.maybe && rapid.Bool().Draw(rt, "none")) {
		next.ref = token.Draw(rt, "of")
	}
	if k.key != "" {
		next.key = rapid.SampledFrom([]string{"k1", "k2"}).Draw(rt, "key")
	}
	verb := rapid.SampledFrom([]string{"create", "create", "create", "update", "delete", "publish", "rollback"}).Draw(rt, "verb")
	switch {
	case verb == "create":
		p := store.Patch{"token": name}
		maps.Copy(p, k.more)
		next.into(k, p)
		_, err := kind.Create(ctx, by, p)
		if expect(verb, err, w.refuses(k, name, "", next)) {
			w[k.table][name] = &next
		}
	case verb == "update":
		p := store.Patch{"metadata": nil}
		next.into(k, p)
		_, err := kind.Update(ctx, by, name, p)
		want := model.CodeNotFound
		if old != nil {
			want = w.refuses(k, "", name, next)
		}
		if expect(verb, err, want) {
			old.ref, old.key = next.ref, next.key
		}
	case verb == "delete":
		gone, err := kind.Delete(ctx, by, name)
		want := model.Code("")
		if old != nil && w.used(k.table, name) {
			want = model.CodeInUse
		}
		if expect(verb, err, want) {
			if gone != (old != nil) {
				rt.Fatalf("delete %s %q: %v", k.table, name, gone)
			}
			w.remove(k.table, name)
		}
	default:
		b.modelPublish(rt, by, w, verb, name)
	}
}

// into puts the fields of the row into a patch.
func (r modelRow) into(k modelKind, p store.Patch) {
	if k.ref != "" {
		p[k.ref] = r.ref
		if r.ref == "" {
			p[k.ref] = nil
		}
	}
	if k.key != "" {
		p[k.key] = r.key
	}
}

// modelPublish publishes the draft of a profile, or goes back to a version.
func (b *bench) modelPublish(rt *rapid.T, by *model.Principal, w world, verb, name string) {
	ctx := b.Context()
	profile := w["device_profiles"][name]
	var err error
	version := rapid.IntRange(1, 3).Draw(rt, "version")
	switch verb {
	case "publish":
		_, err = b.Profiles.Publish(ctx, by, name, nil, nil)
	default:
		_, err = b.Profiles.Rollback(ctx, by, name, int64(version))
	}
	switch {
	case profile == nil || verb == "rollback" && version > len(profile.versions):
		if model.CodeOf(err) != model.CodeNotFound {
			rt.Fatalf("%s %q: %v", verb, name, err)
		}
	case err != nil:
		rt.Fatalf("%s %q: %v", verb, name, err)
	case verb == "publish":
		profile.versions = append(profile.versions, w.drafted(name))
		profile.active = len(profile.versions)
	default:
		profile.active = version
	}
}

// compareModel holds what a tenant reads against the model.
func (b *bench) compareModel(rt *rapid.T, by *model.Principal, w world) {
	ctx := b.Context()
	for _, k := range modelKinds {
		kind := b.Kinds.Of(k.table)
		rows, total, err := kind.List(ctx, by, store.Page{})
		if err != nil || int(total) != len(rows) {
			rt.Fatal(k.table, total, err)
		}
		patches, err := kind.Values(ctx, by, rows...)
		if err != nil {
			rt.Fatal(err)
		}
		got, want := map[string]string{}, map[string]string{}
		for i, row := range rows {
			got[kind.Token(row)] = shownRow(k, patches[i])
		}
		for token, r := range w[k.table] {
			p := store.Patch{}
			r.into(k, p)
			want[token] = shownRow(k, p)
		}
		if !maps.Equal(got, want) {
			rt.Errorf("%s of %s: %v, the model says %v", k.table, by.Tenant, got, want)
		}
	}
	for token, p := range w["device_profiles"] {
		if vs := must(b.Profiles.History(ctx, by, token, 100, 0))(b); len(vs) != len(p.versions) {
			rt.Errorf("profile %q has %d versions, the model says %d", token, len(vs), len(p.versions))
		}
	}
	var refs []EntityRef
	for _, token := range slices.Sorted(maps.Keys(w["devices"])) {
		refs = append(refs, EntityRef{"device", token})
		v := must(b.Vocabularies.Of(ctx, by, token))(b)
		var keys []string
		for _, c := range v.Commands {
			keys = append(keys, c.Key)
		}
		if want := w.vocabulary(token); !slices.Equal(keys, want) || v.Constrained != (want != nil) {
			rt.Errorf("device %q takes %v, the model says %v", token, keys, want)
		}
	}
	if got := must(b.ExistingRefs(ctx, by, append(refs, EntityRef{"device", "none"})))(b); !slices.Equal(got, refs) && len(refs) > 0 {
		rt.Errorf("%v exist, the model says %v", got, refs)
	}
}

func shownRow(k modelKind, p store.Patch) string {
	if k.secret {
		return fmt.Sprint(p[k.ref])
	}
	return strings.TrimSpace(fmt.Sprint(p[k.ref], " ", p[k.key]))
}

// Each cell of the table of deletes in docs/api.md: what refers to a row refuses its delete, what is a part of it goes with it.
func TestEachCellOfTheTableOfDeletes(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	known := map[string]modelKind{}
	for _, k := range modelKinds {
		known[k.table] = k
	}
	known["entity_relationship_types"] = modelKind{table: "entity_relationship_types", more: store.Patch{"tracked": false}}
	known["entity_relationships"] = modelKind{table: "entity_relationships", ref: "relationshipType", to: "entity_relationship_types",
		more: store.Patch{"sourceType": "asset", "source": "end", "targetType": "asset", "target": "end"}}
	create := func(table, token, of string) {
		t.Helper()
		k, p := known[table], store.Patch{"token": token}
		maps.Copy(p, k.more)
		modelRow{ref: of, key: "k"}.into(k, p)
		if _, err := b.Kinds.Of(table).Create(ctx, acme, p); err != nil {
			t.Fatal(table, err)
		}
	}
	known["entity_groups"] = modelKind{table: "entity_groups", more: store.Patch{"memberType": EntityDevice, "membershipMode": "static"}}
	known["edges_of_sites"] = modelKind{table: "edges_of_sites", ref: "deviceToken", to: "devices", parent: true, more: store.Patch{"enabled": true}}
	of := store.Patch{"enabled": true, "deviceToken": "gateway"}
	further := map[string]modelKind{ // of kinds with several references
		"groupToken":            {table: "edges_of_sites", ref: "groupToken", to: "entity_groups", more: of},
		"autoRegisterTypeToken": {table: "edges_of_sites", ref: "autoRegisterTypeToken", to: "device_types", more: of},
	}
	create("device_types", "gateways", "")
	must(b.Devices.Create(ctx, acme, store.Patch{"token": "gateway", "deviceTypeToken": "gateways"}))(t)
	create("asset_types", "ends", "")
	create("assets", "end", "ends") // which relationships are between
	for _, kind := range b.Kinds.All() {
		for _, ref := range kind.Info().Refs() {
			k, ok := known[kind.Info().Table]
			if other, is := further[ref.Name]; is && other.table == kind.Info().Table {
				k = other
			}
			if !ok || k.to != ref.Ref || k.ref != ref.Name || k.parent != ref.Parent {
				t.Errorf("%s.%s is not in modelKinds as it is described", kind.Info().Type, ref.Name)
				continue
			}
			whole := known[k.to]
			if whole.ref != "" && !whole.maybe { // and what that refers to
				create(whole.to, "base", "")
			}
			create(k.to, "whole", map[bool]string{true: "base"}[whole.ref != "" && !whole.maybe])
			one := known[k.table]
			known[k.table] = k
			create(k.table, "row", "whole")
			known[k.table] = one
			gone, err := b.Kinds.Of(k.to).Delete(ctx, acme, "whole")
			left := len(must(kind.ByToken(ctx, acme, []string{"row"}))(t))
			switch {
			case k.parent:
				if !gone || err != nil || left != 0 {
					t.Errorf("%s is a part of %s: deleted %v, %v, %d left", k.table, k.to, gone, err, left)
				}
			default:
				b.refused(k.to+" in use", err, model.CodeInUse, kind.Info().Kind)
				if _, err := kind.Delete(ctx, acme, "row"); err != nil {
					t.Error(err)
				}
				if gone, err := b.Kinds.Of(k.to).Delete(ctx, acme, "whole"); !gone || err != nil {
					t.Errorf("%s that is not used: %v %v", k.to, gone, err)
				}
			}
			if whole.ref != "" && !whole.maybe {
				must(b.Kinds.Of(whole.to).Delete(ctx, acme, "base"))(t)
			}
		}
	}
	must(b.Profiles.Create(ctx, acme, store.Patch{"token": "v"}))(t)
	must(b.Profiles.Publish(ctx, acme, "v", nil, nil))(t)
	must(b.Profiles.Delete(ctx, acme, "v"))(t)
	if left := b.rows(`SELECT * FROM device_profile_versions`); len(left) != 0 {
		t.Errorf("versions outlive what they are of: %v", left)
	}
	b.compareCounts(t)
	b.compareBytes(t)
}
