package registry

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"weir/model"
	"weir/store"
)

// compareBytes holds the sums of the tenants against a count of all rows.
func (b *bench) compareBytes(t interface{ Errorf(string, ...any) }) {
	b.Helper()
	rows, sums := map[int64]int64{}, map[int64]int64{}
	err := b.db.Read(b.Context(), func(tx store.Tx) error {
		err := b.CountBytes(tx, rows)
		for _, tenant := range []int64{acme.TenantID, other.TenantID} {
			n, used := store.UsedBytes(tx, tenant)
			if sums[tenant] = n; n == 0 {
				delete(sums, tenant)
			}
			err = errors.Join(err, used)
		}
		return err
	})
	if err != nil || !maps.Equal(rows, sums) {
		t.Errorf("the sums are %v, the rows take %v, %v", sums, rows, err)
	}
}

func TestTheBytesOfATenantFollowItsRows(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{VersionsPerProfile: 3})
	ctx := t.Context()
	long, longer := `{"a":"`+strings.Repeat("ä", 1000)+`"}`, `{"a":"`+strings.Repeat("x", 5000)+`"}`
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"a profile with a version, a type, a device, a credential", func() error {
			return b.access.writer.Mutate(ctx, acme, func(c *store.Change) error { return furnish(t, b.Registry, c) })
		}},
		{"a text in two-byte characters", func() error { return b.update("d", store.Patch{"metadata": long, "name": "é"}) }},
		{"a longer one", func() error { return b.update("d", store.Patch{"metadata": longer}) }},
		{"none", func() error { return b.update("d", store.Patch{"metadata": nil}) }},
		{"a document that is an object", func() error { return b.update("d", store.Patch{"metadata": map[string]any{"b": []any{"c"}}}) }},
		{"a rename", func() error {
			_, err1 := b.Profiles.Create(ctx, acme, store.Patch{"token": "q"})
			_, err2 := b.Profiles.Rename(ctx, acme, "q", "longer")
			return errors.Join(err1, err2)
		}},
		{"devices in bulk", func() error {
			_, err := b.Devices.CreateBulk(ctx, acme, Bulk{Type: "t", Count: 7, TokenTemplate: "n{n}", Metadata: &long})
			return err
		}},
		{"versions up to the bound and past it", func() error {
			for i := range 5 {
				_, err := b.Profiles.Publish(ctx, acme, "p", new(strings.Repeat("l", i)), nil)
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{"a change that comes to nothing", func() error {
			_, err := b.Devices.Create(ctx, acme, store.Patch{"token": "d", "deviceTypeToken": "t"})
			if model.CodeOf(err) != model.CodeConflict {
				return err
			}
			return nil
		}},
		{"all of it removed", func() error {
			for i := range 7 {
				if _, err := b.Devices.Delete(ctx, acme, fmt.Sprintf("n%d", i+1)); err != nil {
					return err
				}
			}
			_, err1 := b.Devices.Delete(ctx, acme, "d")
			_, err2 := b.Types.Delete(ctx, acme, "t")
			_, err3 := b.Profiles.Delete(ctx, acme, "p")
			_, err4 := b.Profiles.Delete(ctx, acme, "longer")
			return errors.Join(err1, err2, err3, err4)
		}},
	} {
		if err := step.do(); err != nil {
			t.Fatal(step.what, err)
		}
		if b.compareBytes(t); t.Failed() {
			t.Fatal(step.what)
		}
	}
	if n := b.used(acme.TenantID); n != 0 {
		t.Errorf("%d bytes are left of nothing", n)
	}
}

func (b *bench) update(device string, p store.Patch) error {
	_, err := b.Devices.Update(b.Context(), acme, device, p)
	return err
}

func (b *bench) used(tenant int64) (n int64) {
	b.Helper()
	if err := b.db.Read(b.Context(), func(tx store.Tx) (err error) {
		n, err = store.UsedBytes(tx, tenant)
		return err
	}); err != nil {
		b.Fatal(err)
	}
	return n
}

// bounded makes a bench whose rows may grow as far as the result says.
func bounded(t *testing.T) (*bench, *store.Growth, *[2]int) {
	b := newBench(t, Config{})
	var refused [2]int
	w := &store.Bounded{Writer: b.access.writer, Growth: store.Growth{Refused: func(cause store.GrowthCause) {
		if cause == store.GrowthDisk {
			refused[1]++
		} else {
			refused[0]++
		}
	}}}
	p := b.parts
	p.Writer = w
	b.Registry = New(Config{}, p)
	must(b.Types.Create(t.Context(), acme, store.Patch{"token": "t"}))(t)
	must(b.Types.Create(t.Context(), other, store.Patch{"token": "t"}))(t)
	return b, &w.Growth, &refused
}

func TestATenantKeepsToItsBytes(t *testing.T) {
	t.Parallel()
	b, g, refused := bounded(t)
	ctx := t.Context()
	limit := int64(20_000)
	g.Limit = func(int64) int64 { return limit }
	metadata := func(n int) string { return `{"a":"` + strings.Repeat("x", n) + `"}` }
	device := func(by *model.Principal, token string, bytes int) error {
		_, err := b.Devices.Create(ctx, by, store.Patch{"token": token, "deviceTypeToken": "t", "metadata": metadata(bytes)})
		return err
	}
	if err := device(acme, "a", 8000); err != nil {
		t.Fatal(err)
	}
	b.unchanged("what is over the bound", func() {
		_, err := b.Devices.CreateBulk(ctx, acme, Bulk{Type: "t", Count: 1000, TokenTemplate: "n{n}", Metadata: new(metadata(64_000))})
		b.refused("in bulk", err, model.CodeLimitExceeded, "governance.registry_bytes")
		if text := err.Error(); !strings.Contains(text, "of 20000 bytes, 640") { // 64 MB and some: charged for all of them at once
			t.Error(text)
		}
		b.refused("one", device(acme, "b", 12_000), model.CodeLimitExceeded, "governance.registry_bytes")
		b.refused("an update", b.update("a", store.Patch{"metadata": metadata(20_000)}), model.CodeLimitExceeded, "governance.registry_bytes")
	})
	if refused[0] != 3 {
		t.Errorf("%d refusals are counted, want 3", refused[0])
	}
	if err := device(other, "b", 12_000); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	limit = 2_000 // the operator has lowered it
	if err := b.update("a", store.Patch{"metadata": metadata(7000)}); err != nil {
		t.Errorf("less than before: %v", err)
	}
	b.refused("one character more", b.update("a", store.Patch{"metadata": metadata(7001)}), model.CodeLimitExceeded, "")
	if gone, err := b.Devices.Delete(ctx, acme, "a"); err != nil || !gone {
		t.Errorf("a delete: %v, %v", gone, err)
	}
	if err := device(acme, "c", 1000); err != nil {
		t.Errorf("with room again: %v", err)
	}
	b.compareBytes(t)
}

func TestNothingGrowsWhileTheDiskIsNearlyFull(t *testing.T) {
	t.Parallel()
	b, g, refused := bounded(t)
	ctx := t.Context()
	must(b.Devices.Create(ctx, acme, store.Patch{"token": "a", "deviceTypeToken": "t", "name": "four"}))(t)
	must(b.Profiles.Create(ctx, acme, store.Patch{"token": "p"}))(t)
	g.Disk = func() error { return model.Errorf(model.CodeUnavailable, "spool.disk_reserve") }
	b.unchanged("on a disk that is nearly full", func() {
		_, err := b.Devices.Create(ctx, acme, store.Patch{"token": "b", "deviceTypeToken": "t"})
		b.refused("a create", err, model.CodeUnavailable, "spool.disk_reserve")
		b.refused("a longer name", b.update("a", store.Patch{"name": "seven"}), model.CodeUnavailable, "spool.disk_reserve")
		_, err = b.Profiles.Publish(ctx, acme, "p", nil, nil)
		b.refused("a publish", err, model.CodeUnavailable, "spool.disk_reserve")
	})
	if refused[1] != 3 {
		t.Errorf("%d refusals are counted, want 3", refused[1])
	}
	if err := b.update("a", store.Patch{"name": "two"}); err != nil {
		t.Errorf("a shorter name: %v", err)
	}
	if err := b.update("a", store.Patch{"name": nil}); err != nil {
		t.Errorf("none: %v", err)
	}
	if gone, err := b.Devices.Delete(ctx, acme, "a"); err != nil || !gone {
		t.Errorf("a delete: %v, %v", gone, err)
	}
	if err := b.access.writer.Mutate(ctx, nil, func(c *store.Change) error {
		_, err := b.Types.Table.Create(c, acme.TenantID, store.Patch{"token": "internal"})
		return err
	}); err != nil {
		t.Errorf("internal work: %v", err)
	}
}

func TestATenantHasAtMostItsTypesAndProfiles(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{DeviceSettings: DeviceSettings{TypesPerTenant: 2, ProfilesPerTenant: 2}})
	ctx := t.Context()
	for _, token := range []string{"a", "b"} {
		must(b.Types.Create(ctx, acme, store.Patch{"token": token}))(t)
		must(b.Profiles.Create(ctx, acme, store.Patch{"token": token}))(t)
	}
	_, err := b.Types.Create(ctx, acme, store.Patch{"token": "c"})
	b.refused("a type", err, model.CodeLimitExceeded, "limits.device_types_per_tenant: a tenant has at most 2")
	_, _, _, err = b.Devices.AddOfType(ctx, acme, store.Patch{"token": "d", "deviceTypeToken": "c"}, store.Patch{"token": "c"})
	b.refused("a type with a device", err, model.CodeLimitExceeded, "limits.device_types_per_tenant")
	_, err = b.Profiles.Create(ctx, acme, store.Patch{"token": "c"})
	b.refused("a profile", err, model.CodeLimitExceeded, "limits.device_profiles_per_tenant: a tenant has at most 2")
	must(b.Types.Create(ctx, other, store.Patch{"token": "c"}))(t)
	if _, err := b.Types.Delete(ctx, acme, "a"); err != nil {
		t.Fatal(err)
	}
	must(b.Types.Create(ctx, acme, store.Patch{"token": "c"}))(t)
	b.SetLimits(DeviceSettings{DevicesPerTenant: 1, TypesPerTenant: 3, ProfilesPerTenant: 3})
	must(b.Profiles.Create(ctx, acme, store.Patch{"token": "c"}))(t)
}

// The oldest versions go, never the effective one, and numbers go on.
func TestAProfileKeepsItsNewestVersions(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{VersionsPerProfile: 3})
	ctx := t.Context()
	must(b.Profiles.Create(ctx, acme, store.Patch{"token": "p"}))(t)
	must(b.Profiles.Create(ctx, acme, store.Patch{"token": "q"}))(t)
	must(b.Profiles.Publish(ctx, acme, "q", nil, nil))(t)
	versions := func(want string) {
		t.Helper()
		vs := must(b.Profiles.History(ctx, acme, "p", 1000, 0))(t)
		var got []string
		for _, v := range vs {
			got = append(got, fmt.Sprint(v.Version))
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("the versions are %s, want %s", s, want)
		}
	}
	publish := func() { must(b.Profiles.Publish(ctx, acme, "p", nil, nil))(t) }
	for range 3 {
		publish()
	}
	versions("3 2 1")
	publish()
	versions("4 3 2")
	must(b.Profiles.Rollback(ctx, acme, "p", 2))(t)
	publish()
	versions("5 4 2") // while 5 is made, 2 is the effective one
	publish()
	versions("6 5 4")
	if _, err := b.Profiles.Rollback(ctx, acme, "p", 1); model.CodeOf(err) != model.CodeNotFound {
		t.Errorf("back to a version that is gone: %v", err)
	}
	if vs := must(b.Profiles.History(ctx, acme, "q", 1000, 0))(t); len(vs) != 1 {
		t.Errorf("the other profile has %d versions", len(vs))
	}
}

// A database of an older Weir has no sums: they are counted once.
func TestTheBytesAreCountedOnceForADatabaseWithoutSums(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	if err := b.access.writer.Mutate(ctx, acme, func(c *store.Change) error { return furnish(t, b.Registry, c) }); err != nil {
		t.Fatal(err)
	}
	was := b.used(acme.TenantID)
	forgotten := func(tx store.Tx) error {
		_, err := tx.Exec(`DELETE FROM meta WHERE key LIKE 'tenant_bytes/%'`)
		return err
	}
	if err := b.db.Write(ctx, store.Results, forgotten); err != nil {
		t.Fatal(err)
	}
	if err := store.CountUsage(ctx, b.db, b); err != nil || b.used(acme.TenantID) != was || was < 500 {
		t.Errorf("%v: %d bytes counted, %d were noted", err, b.used(acme.TenantID), was)
	}
	if err := b.db.Write(ctx, store.Results, forgotten); err != nil {
		t.Fatal(err)
	}
	if err := store.CountUsage(ctx, b.db, b); err != nil || b.used(acme.TenantID) != 0 {
		t.Errorf("%v: counted again, although the mark is there", err)
	}
}

// TestTheMetadataOfAllTenantsKeepsToItsMemory: what messages are judged by is in memory for every device.
func TestTheMetadataOfAllTenantsKeepsToItsMemory(t *testing.T) {
	t.Parallel()
	b, g, refused := bounded(t)
	held, limit := int64(0), int64(1<<20)
	g.Metadata = func() (int64, int64) { return held, limit }
	create := func(name string) error {
		_, err := b.Devices.Create(t.Context(), acme, store.Patch{"token": name, "deviceTypeToken": "t"})
		return err
	}
	if err := create("fits"); err != nil {
		t.Fatal(err)
	}
	held = limit - 100
	b.refused("a device for which there is no memory", create("more"), model.CodeLimitExceeded, "limits.memory")
	if refused[0] != 1 {
		t.Errorf("%d refusals are counted, want 1", refused[0])
	}
	if err := b.update("fits", store.Patch{"name": "x"}); err != nil {
		t.Errorf("a change that no message is judged by: %v", err)
	}
	if gone, err := b.Devices.Delete(t.Context(), acme, "fits"); err != nil || !gone {
		t.Errorf("a delete: %v, %v", gone, err)
	}
	held = 0
	if err := create("more"); err != nil {
		t.Errorf("with memory again: %v", err)
	}
}

// TestARefusalOfAnyCeilingIsCounted: what a change is refused for is counted where all changes pass, once.
func TestARefusalOfAnyCeilingIsCounted(t *testing.T) {
	t.Parallel()
	b, _, refused := bounded(t)
	if _, err := b.Devices.Create(t.Context(), acme, store.Patch{"token": "d", "deviceTypeToken": "t"}); err != nil {
		t.Fatal(err)
	}
	limits := *b.perTenant.Load()
	limits.DevicesPerTenant, limits.AttributesPerEntity, limits.RelationshipsPerDevice = 1, 1, 1
	b.perTenant.Store(&limits)
	set := func(key string) error {
		_, err := b.Attributes.Set(t.Context(), acme, AttributeSet{Type: ValueLong, AttributeRef: AttributeRef{EntityType: "device", Entity: "d", Scope: ScopeServer, Key: key}})
		return err
	}
	relate := func(token string) error {
		_, err := b.Relationships.CreateAll(t.Context(), acme, []store.Patch{relation(token, "device/d", "assigned", "device/d")})
		return err
	}
	if err := errors.Join(set("a"), relate("a")); err != nil || refused[0] != 0 {
		t.Fatal(err, refused[0])
	}
	b.refused("an attribute", set("b"), model.CodeLimitExceeded, "limits.attributes_per_entity")
	b.refused("a relationship, within a list", relate("b"), model.CodeLimitExceeded, "limits.relationships_per_device")
	_, err := b.Devices.Create(t.Context(), acme, store.Patch{"token": "e", "deviceTypeToken": "t"})
	b.refused("a device", err, model.CodeLimitExceeded, "limits.devices_per_tenant")
	if refused[0] != 3 {
		t.Errorf("%d refusals are counted, want 3", refused[0])
	}
}
