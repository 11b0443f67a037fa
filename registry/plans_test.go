package registry

import (
	"regexp"
	"strings"
	"testing"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

// wide are the columns of which many rows of a tenant have the same value: an index that is searched by these alone finds all of them.
var wide = regexp.MustCompile(`^(SCAN \w+|SEARCH \w+ USING .*\((tenant_id|source_type|target_type|entity_type|scope|type_id)=\?( AND (tenant_id|source_type|target_type|entity_type|scope)=\?)*\))`)

// few are indexes of tables that hold few rows of a tenant: its limits bound types, profiles and groups.
var few = regexp.MustCompile(`CONSTANT ROW|(device_profiles|device_types|entity_groups|entity_relationship_types)_listed|sqlite_autoindex_device_profiles_1`)

// The one writer of the database does the changes of all tenants: a change of one row must not walk through all rows of its tenant.
func TestNoChangeOfOneRowWalksThroughTheRowsOfItsTenant(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	plans := &fixture.Plans{Store: b.db}
	b.through = plans
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(b.Mutate(ctx, acme, func(c *store.Change) error { return furnish(t, b.Registry, c) }))
	for _, token := range []string{"one", "two"} {
		_, err := b.Devices.Create(ctx, acme, store.Patch{"token": token, "deviceTypeToken": "t"})
		must(err)
	}
	_, err := b.RelationshipTypes.Create(ctx, acme, store.Patch{"token": "next", "tracked": true})
	must(err)
	_, err = b.Groups.Create(ctx, acme, store.Patch{"token": "g", "memberType": EntityDevice, "membershipMode": "static"})
	must(err)
	between := func(token, sourceType, source, kind string) {
		t.Helper()
		_, err := b.Relationships.Create(ctx, acme, store.Patch{"token": token, "sourceType": sourceType, "source": source,
			"targetType": EntityDevice, "target": "two", "relationshipType": kind})
		must(err)
	}
	between("r", EntityDevice, "one", "next")
	between("m", EntityGroups, "g", "member")
	value := AttributeSet{AttributeRef: AttributeRef{EntityDevice, "one", ScopeShared, "k"}, Type: ValueString, Value: new("v")}
	for range 2 {
		_, err = b.Attributes.Set(ctx, acme, value)
		must(err)
	}
	_, err = b.Attributes.Delete(ctx, acme, value.AttributeRef)
	must(err)
	_, err = b.Attributes.Set(ctx, acme, value)
	must(err)
	_, err = b.RelationshipTypes.Update(ctx, acme, "next", store.Patch{"tracked": false})
	must(err)
	for _, step := range []func() (bool, error){
		func() (bool, error) { return b.Relationships.Delete(ctx, acme, "r") },
		func() (bool, error) { return b.Devices.Delete(ctx, acme, "two") },
		func() (bool, error) { return b.Devices.Delete(ctx, acme, "one") },
		func() (bool, error) { return b.Groups.Delete(ctx, acme, "g") },
	} {
		_, err := step()
		must(err)
	}
	for query, steps := range plans.Of() {
		if strings.Contains(query, "INDEXED BY entity_relationships_of_type") { // what has a type is asked for
			continue
		}
		for _, step := range steps {
			if wide.MatchString(step) && !few.MatchString(step) {
				t.Errorf("%s\n%s", step, query)
			}
		}
	}
}

func TestATypeOfTooManyRelationshipsDoesNotBecomeTrackedAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	made, err := b.RelationshipTypes.Create(ctx, acme, store.Patch{"token": "near", "tracked": false})
	if err != nil {
		t.Fatal(err)
	}
	relate := func(first, last int) {
		t.Helper()
		if err := b.db.Write(ctx, store.Results, func(tx store.Tx) error {
			_, err := tx.Exec(`INSERT INTO entity_relationships (tenant_id, created_at, updated_at, token, source_type, source_token, source_id, target_type, target_token, target_id, type_id)
				WITH RECURSIVE n(i) AS (SELECT ? UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT 1, 1, 1, 'r' || i, 'device', 'd' || i, i, 'area', 'a', 1, ? FROM n`, first, last, made.ID)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	relate(1, maxAnchored)
	if _, err := b.RelationshipTypes.Update(ctx, acme, "near", store.Patch{"tracked": true}); err != nil {
		t.Errorf("the relationships of %d devices: %v", maxAnchored, err)
	}
	relate(maxAnchored+1, maxAnchored+1)
	_, err = b.RelationshipTypes.Update(ctx, acme, "near", store.Patch{"tracked": false})
	b.refused("one more", err, model.CodeLimitExceeded, "tracked: changes what the events of more than 10000 devices belong to at once")
}
