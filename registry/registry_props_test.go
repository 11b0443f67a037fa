package registry

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// What resolution would read after any changes is what the tables say, the counts of devices are right, and attributes go with their device.
func TestViewRowsFollowAnyChanges(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{DeviceSettings: DeviceSettings{DevicesPerTenant: 6}})
	ctx := t.Context()
	rapid.Check(t, func(rt *rapid.T) {
		tenants := []*model.Principal{acme, other}
		view := map[string]string{}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			by := rapid.SampledFrom(tenants).Draw(rt, "tenant")
			token := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "token")
			of := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "of")
			var err error
			switch rapid.IntRange(0, 11).Draw(rt, "verb") {
			case 0:
				_, err = b.Types.Create(ctx, by, store.Patch{"token": token})
			case 1:
				_, err = b.Types.Create(ctx, by, store.Patch{"token": token, "profileToken": of})
			case 2:
				_, err = b.Types.Update(ctx, by, token, store.Patch{"profileToken": rapid.SampledFrom([]any{nil, "", of}).Draw(rt, "profile")})
			case 3:
				_, err = b.Types.Delete(ctx, by, token)
			case 4:
				_, err = b.Devices.Create(ctx, by, store.Patch{"token": token, "deviceTypeToken": of})
			case 5:
				_, err = b.Devices.Update(ctx, by, token, store.Patch{"deviceTypeToken": of})
			case 6:
				_, err = b.Devices.Delete(ctx, by, token)
			case 7:
				_, err = b.Devices.CreateBulk(ctx, by, Bulk{Type: of, Count: 2, TokenTemplate: token + "{n}"})
			case 8:
				_, err = b.Profiles.Create(ctx, by, store.Patch{"token": token})
			case 9:
				_, err = b.Profiles.Delete(ctx, by, token)
			case 10, 11:
				_, err = b.Attributes.Set(ctx, by, AttributeSet{AttributeRef{"device", token, ScopeShared, of}, ValueString, &of})
			}
			if err != nil && model.CodeOf(err) == "" {
				rt.Fatal(err)
			}
		}
		b.consistent(rt)
		for _, v := range b.views() {
			view[string(v.Kind)+" "+v.Key] = string(v.Body)
		}
		b.compareViews(rt, view)
		if lost := b.rows(`SELECT * FROM attributes WHERE entity_id NOT IN (SELECT id FROM devices d WHERE d.tenant_id = attributes.tenant_id)`); len(lost) > 0 {
			rt.Errorf("attributes of no device: %q", lost)
		}
		b.compareBytes(rt)
		b.clear(rt)
	})
}

// compareViews holds the last view row of each key against the tables; keys that no table has must have ended.
func (b *bench) compareViews(rt *rapid.T, view map[string]string) {
	tenant := map[string]string{"1": "acme", "2": "other"}
	want := map[string]string{}
	for _, row := range b.rows(`SELECT tenant_id, token, id, type_id FROM devices`) {
		var tid, token string
		var id, typ int64
		if _, err := fmt.Sscan(row, &tid, &token, &id, &typ); err != nil {
			rt.Fatal(err)
		}
		want["device "+tenant[tid]+"/"+token] = fmt.Sprintf(`{"v":1,"id":%d,"type":%d}`, id, typ)
	}
	for _, row := range b.rows(`SELECT id, coalesce(profile_id, 0) FROM device_types`) {
		var id, profile int64
		if _, err := fmt.Sscan(row, &id, &profile); err != nil {
			rt.Fatal(err)
		}
		body := `{"v":1}`
		if profile != 0 {
			body = `{"v":1,"profile":` + strconv.FormatInt(profile, 10) + `}`
		}
		want["device-type "+strconv.FormatInt(id, 10)] = body
	}
	for key, body := range view {
		if body != want[key] {
			rt.Errorf("view row %s is %q, the tables say %q", key, body, want[key])
		}
	}
	for key, body := range want {
		if view[key] != body {
			rt.Errorf("the tables say %s %q, its view row is %q", key, body, view[key])
		}
	}
	for tid := range tenant {
		counted := b.rows(`SELECT coalesce(sum(devices), 0) FROM device_counts WHERE tenant_id = ` + tid)
		if real := b.rows(`SELECT count(*) FROM devices WHERE tenant_id = ` + tid); !slices.Equal(counted, real) {
			rt.Errorf("tenant %s: counted %v devices, there are %v", tid, counted, real)
		}
		for _, table := range []string{"assets", "asset_types", "customers", "customer_types", "areas", "area_types"} { // their lists say what is stored
			counted := b.rows(`SELECT coalesce(sum(rows), 0) FROM row_counts WHERE tenant_id = ` + tid + ` AND name = '` + table + `'`)
			if real := b.rows(`SELECT count(*) FROM ` + table + ` WHERE tenant_id = ` + tid); !slices.Equal(counted, real) {
				rt.Errorf("tenant %s: counted %v %s, there are %v", tid, counted, table, real)
			}
		}
	}
}

// clear removes everything, so that each run of the property begins empty.
func (b *bench) clear(rt *rapid.T) {
	err := b.db.Write(b.Context(), store.Results, func(tx store.Tx) error {
		for _, table := range []string{"device_credentials", "attributes", "devices", "device_counts", "device_types", "device_profile_versions", "metric_definitions", "command_definitions",
			"detection_rules", "device_profiles", "assets", "asset_types", "customers", "customer_types", "areas", "area_types", "row_counts", "audit_events", "control"} {
			if _, err := tx.Exec("DELETE FROM " + table); err != nil {
				return err
			}
		}
		_, err := tx.Exec(`DELETE FROM meta WHERE key LIKE 'tenant_bytes/%'`)
		return err
	})
	if err != nil {
		rt.Fatal(err)
	}
}

func TestWritersOfDifferentFieldsDoNotUndoEachOther(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.seed()
	const rounds = 20
	var wg sync.WaitGroup
	write := func(field string) {
		wg.Go(func() {
			for i := range rounds {
				if _, err := b.Devices.Update(t.Context(), acme, "d", store.Patch{field: fmt.Sprint(field, i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, field := range []string{"name", "description", "externalId"} {
		write(field)
	}
	wg.Wait()
	got := must(b.Devices.ByToken(t.Context(), acme, []string{"d"}))(t)[0]
	last := strconv.Itoa(rounds - 1)
	if *got.Name != "name"+last || *got.Description != "description"+last || *got.ExternalID != "externalId"+last {
		t.Errorf("%s, %s, %s", *got.Name, *got.Description, *got.ExternalID)
	}
}

func TestARecordAskedForTwiceIsReturnedOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	_, _, d := b.seed()
	ids, tokens := make([]int64, 600), make([]string, 600)
	for i := range ids {
		ids[i], tokens[i] = d.ID, d.Token
	}
	if n := len(must(b.Devices.ByID(t.Context(), acme, ids))(t)); n != 1 {
		t.Errorf("%d by id", n)
	}
	if n := len(must(b.Devices.ByToken(t.Context(), acme, tokens))(t)); n != 1 {
		t.Errorf("%d by token", n)
	}
}

func TestRecordsOfAnotherTenantAreNotThere(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	p, typ, d := b.seed()
	b.fillDraft()
	c := must(b.Credentials.Create(ctx, acme, store.Patch{"token": "c", "deviceToken": "d", "credentialType": AccessToken, "credentialId": "x", "enabled": true}))(t)
	b.views()
	b.unchanged("another tenant's calls", func() {
		foreign(b, b.Types, "t", typ.ID, store.Patch{"name": "x"}, store.Patch{"token": "n", "profileToken": "p"})
		foreign(b, b.Profiles.Kind, "p", p.ID, store.Patch{"name": "x"}, nil)
		foreign(b, b.Metrics, "m-temp", 1, store.Patch{"name": "x"}, store.Patch{"token": "n", "deviceProfileToken": "p", "metricKey": "k", "dataType": "INT"})
		foreign(b, b.Rules, "r1", 1, store.Patch{"name": "x"}, store.Patch{"token": "n", "deviceProfileToken": "p", "definition": ruleText, "enabled": true})
		foreign(b, b.Devices.Kind, "d", d.ID, store.Patch{"name": "x"}, store.Patch{"token": "n", "deviceTypeToken": "t"})
		foreign(b, b.Credentials.Kind, "c", c.ID, store.Patch{"enabled": false}, store.Patch{"token": "n", "deviceToken": "d", "credentialType": AccessToken, "credentialId": "y", "enabled": true})
	})
	nobody := fixture.Member("eve", "", 0, model.DeviceRead, model.DeviceWrite)
	if _, err := b.Devices.ByToken(ctx, nobody, []string{"d"}); model.CodeOf(err) != model.CodeUnauthenticated {
		t.Errorf("a caller without a tenant reads: %v", err)
	}
	if _, err := b.Devices.Delete(ctx, nobody, "d"); model.CodeOf(err) != model.CodeUnauthenticated {
		t.Errorf("a caller without a tenant deletes: %v", err)
	}
}

// foreign tries a record of acme's as the other tenant; create refers to one of acme's records.
func foreign[T any](b *bench, k *entity.Kind[T], token string, id int64, update, create store.Patch) {
	b.Helper()
	ctx := b.Context()
	if rows := must(k.ByID(ctx, other, []int64{id}))(b); len(rows) != 0 {
		b.Errorf("%s: another tenant reads by id", k.Name())
	}
	if rows := must(k.ByToken(ctx, other, []string{token}))(b); len(rows) != 0 {
		b.Errorf("%s: another tenant reads by token", k.Name())
	}
	if rows, total, err := k.List(ctx, other, store.Page{}); err != nil || total != 0 || len(rows) != 0 {
		b.Errorf("%s: another tenant lists %d, %v", k.Name(), total, err)
	}
	_, err := k.Update(ctx, other, token, update)
	b.refused(k.Name()+": another tenant's update", err, model.CodeNotFound, k.Name())
	if must(k.Delete(ctx, other, token))(b) {
		b.Errorf("%s: another tenant deletes", k.Name())
	}
	if create != nil {
		_, err := k.Create(ctx, other, create)
		b.refused(k.Name()+": a reference into another tenant", err, model.CodeInvalidInput, "does not exist")
	}
}
