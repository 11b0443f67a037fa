package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// classed are the kinds that have types of their own, each with the two tables.
var classed = []struct{ name, table, types string }{
	{"asset", "assets", "asset_types"}, {"customer", "customers", "customer_types"}, {"area", "areas", "area_types"},
}

// thing is the request of one asset, customer or area.
func thing(name, token, typ string) store.Patch {
	return store.Patch{"token": token, name + "TypeToken": typ}
}

func TestAssetsCustomersAndAreasHaveTypesAndCeilings(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{DeviceSettings: DeviceSettings{AssetsPerTenant: 2, CustomersPerTenant: 2, AreasPerTenant: 2, EntityTypesPerTenant: 2}})
	ctx := t.Context()
	for _, c := range classed {
		kind, types := b.Kinds.Of(c.table), b.Kinds.Of(c.types)
		create := func(k entity.Any, p store.Patch) error {
			_, err := k.Create(ctx, acme, p)
			return err
		}
		for _, token := range []string{"t", "u"} {
			if err := errors.Join(create(types, store.Patch{"token": token, "icon": "drop"}), create(kind, thing(c.name, token, "t"))); err != nil {
				t.Fatal(err)
			}
		}
		b.unchanged(c.name, func() {
			b.refused("a third type", create(types, store.Patch{"token": "v"}), model.CodeLimitExceeded, "limits.entity_types_per_tenant: a tenant has at most 2")
			b.refused("a third", create(kind, thing(c.name, "v", "t")), model.CodeLimitExceeded, "limits."+c.table+"_per_tenant: a tenant has at most 2")
			b.refused("a type in use", second(types.Delete(ctx, acme, "t")), model.CodeInUse, c.name)
			b.refused("no type", second(kind.Update(ctx, acme, "t", store.Patch{c.name + "TypeToken": nil})), model.CodeInvalidInput, "null is refused")
			b.refused("an unknown type", second(kind.Update(ctx, acme, "t", store.Patch{"name": "x", c.name + "TypeToken": "nowhere"})), model.CodeInvalidInput, "does not exist")
		})
		if err := second(kind.Create(ctx, other, thing(c.name, "t", "t"))); model.CodeOf(err) != model.CodeInvalidInput {
			t.Errorf("a %s of another tenant's type: %v", c.name, err)
		}
		for _, token := range []string{"t", "u"} {
			if gone, err := kind.Delete(ctx, acme, token); !gone || err != nil {
				t.Errorf("a %s is deleted: %v %v", c.name, gone, err)
			}
		}
		if gone, err := types.Delete(ctx, acme, "t"); !gone || err != nil {
			t.Errorf("a type that is not used: %v %v", gone, err)
		}
		if err := errors.Join(create(types, store.Patch{"token": "v"}), create(kind, thing(c.name, "v", "v"))); err != nil {
			t.Errorf("with room again: %v", err)
		}
	}
	b.compareCounts(t)
	b.compareBytes(t)
}

// compareCounts holds the stored numbers of rows against the rows.
func (b *bench) compareCounts(t interface{ Errorf(string, ...any) }) {
	b.Helper()
	for _, c := range classed {
		for _, table := range []string{c.table, c.types} {
			counted := b.rows(`SELECT tenant_id, rows FROM row_counts WHERE name = ? AND rows <> 0 ORDER BY 1`, table)
			if real := b.rows(`SELECT tenant_id, count(*) FROM ` + table + ` GROUP BY 1 ORDER BY 1`); !slices.Equal(counted, real) {
				t.Errorf("%s: counted %v, there are %v", table, counted, real)
			}
		}
	}
}

func TestDevicesAreSearched(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	must(b.Types.Create(ctx, acme, store.Patch{"token": "u"}))(t)
	for _, p := range []store.Patch{
		{"token": "Pump-1", "name": "Große Pumpe", "externalId": "SN/100%"},
		{"token": "pump-2", "name": "ÄÖÜ _x", "deviceTypeToken": "u"},
		{"token": "valve", "externalId": "pUmP\\"},
	} {
		if p["deviceTypeToken"] == nil {
			p["deviceTypeToken"] = "t"
		}
		must(b.Devices.Create(ctx, acme, p))(t)
	}
	find := func(by *model.Principal, criteria map[string]any) string {
		t.Helper()
		filters := must(b.Devices.Info().Criteria(ctx, by, criteria))(t)
		rows, total, err := b.Devices.List(ctx, by, store.Page{}, filters...)
		var tokens []string
		for _, d := range rows {
			tokens = append(tokens, d.Token)
		}
		if err != nil || int(total) != len(rows) {
			t.Error(rows, total, err)
		}
		return strings.Join(tokens, " ")
	}
	for part, want := range map[string]string{
		"": "valve pump-2 Pump-1 d", "PUMP": "valve pump-2 Pump-1", "-": "pump-2 Pump-1", "%": "Pump-1", "_": "pump-2", `\`: "valve", "äö": "pump-2",
		"sn/1": "Pump-1", "große": "Pump-1", "nothing": "", "e": "valve Pump-1", "1große": "", "umpe": "Pump-1", "'": "",
	} {
		if got := find(acme, map[string]any{"search": part}); got != want {
			t.Errorf("%q: %s, want %s", part, got, want)
		}
		if got := find(other, map[string]any{"search": part}); got != "" {
			t.Errorf("%q: another tenant finds %s", part, got)
		}
	}
	if got := find(acme, map[string]any{"search": "pump", "deviceType": "t"}); got != "valve Pump-1" {
		t.Error("with a type: " + got)
	}
	must(b.Devices.Update(ctx, acme, "Pump-1", store.Patch{"name": nil, "externalId": "x"}))(t)
	if got := find(acme, map[string]any{"search": "sn/"}) + find(acme, map[string]any{"search": "große"}); got != "" {
		t.Error("what a device was called: " + got)
	}
	for _, active := range []bool{true, false} {
		want := map[bool]string{true: "", false: "valve pump-2 Pump-1 d"}[active]
		if got := find(acme, map[string]any{"active": active}); got != want {
			t.Errorf("active %v: %s, want %s", active, got, want)
		}
	}
	fails := errors.New("not known")
	var ids []int64
	b.Devices.activeNow = func(context.Context, *model.Principal) ([]int64, error) { return ids, fails }
	if _, err := b.Devices.Info().Criteria(ctx, acme, map[string]any{"active": true}); !errors.Is(err, fails) {
		t.Error(err)
	}
	fails = nil
	for _, d := range must(b.Devices.ByToken(ctx, acme, []string{"d", "pump-2"}))(t) {
		ids = append(ids, d.ID)
	}
	if got := find(acme, map[string]any{"active": true}); got != "pump-2 d" {
		t.Error("active: " + got)
	}
	if got := find(acme, map[string]any{"active": false, "search": "v"}); got != "valve" {
		t.Error("not active: " + got)
	}
	nobody := model.Service("test", acme.Tenant, acme.TenantID)
	if _, err := b.Devices.Info().Criteria(ctx, nobody, map[string]any{"active": true}); model.CodeOf(err) != model.CodeForbidden {
		t.Errorf("without device:read: %v", err)
	}
}

// BenchmarkSearchOf100000 is a page of what a search finds, and how many there are in all.
func BenchmarkSearchOf100000(b *testing.B) {
	w := newBench(b, Config{DeviceSettings: DeviceSettings{DevicesPerTenant: 1 << 40}})
	ctx := b.Context()
	w.seed()
	for start := 0; start < 100_000; start += maxBulk {
		must(w.Devices.CreateBulk(ctx, acme, Bulk{Type: "t", Count: maxBulk, StartIndex: new(int64(start + 1)), TokenTemplate: "boiler-{n:06d}",
			NameTemplate: new("Boiler {n} of hall 7"), ExternalIDTemplate: new("SN-{n:08d}-A"), Metadata: new(`{"floor": 3, "line": "north", "installed": "2024-05-06"}`)}))(b)
	}
	for name, c := range map[string]struct {
		criteria map[string]any
		total    int64
	}{
		"one": {map[string]any{"search": "BOILER-054321"}, 1}, "hundreds": {map[string]any{"search": "r 123"}, 111}, "all": {map[string]any{"search": "oile"}, 100_000},
		"none": {map[string]any{"search": "nothing"}, 0}, "umlaut": {map[string]any{"search": "ü"}, 0}, "one of a type": {map[string]any{"search": "054321", "deviceType": "t"}, 1},
	} {
		filters := must(w.Devices.Info().Criteria(ctx, acme, c.criteria))(b)
		b.Run(name, func(b *testing.B) {
			cpu := fixture.CPU(b, func() {
				for b.Loop() {
					rows, total, err := w.Devices.List(ctx, acme, store.Page{}, filters...)
					if err != nil || int64(len(rows)) != min(total, 100) || total < c.total {
						b.Fatal(len(rows), total, err)
					}
				}
			})
			b.ReportMetric(float64(cpu.Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
	ids := make([]int64, 100_000)
	for i := range ids {
		ids[i] = int64(i + 1)
	}
	w.Devices.activeNow = func(context.Context, *model.Principal) ([]int64, error) { return ids, nil }
	b.Run("active", func(b *testing.B) {
		for b.Loop() {
			filters := must(w.Devices.Info().Criteria(ctx, acme, map[string]any{"active": true}))(b)
			if rows, total, err := w.Devices.List(ctx, acme, store.Page{}, filters...); err != nil || len(rows) != 100 || total < 99_999 {
				b.Fatal(len(rows), total, err)
			}
		}
	})
}

// BenchmarkCommandFor10000 checks a command for 10,000 devices.
func BenchmarkCommandFor10000(b *testing.B) {
	w := newBench(b, Config{DeviceSettings: DeviceSettings{DevicesPerTenant: 1 << 40}})
	w.fleet(10_000)
	w.commands()
	must(w.Profiles.Publish(b.Context(), acme, "p", nil, nil))(b)
	tokens := make([]string, 10_000)
	for i := range tokens {
		tokens[i] = fmt.Sprint("f", i+1)
	}
	for b.Loop() {
		if n := len(must(w.Vocabularies.Refused(b.Context(), acme, tokens, "valve", new(`{"level": 7}`)))(b)); n != 0 {
			b.Fatal(n)
		}
	}
}
