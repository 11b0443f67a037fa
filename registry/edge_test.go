package registry

import (
	"errors"
	"testing"

	"weir/model"
	"weir/store"
)

// TestAnEdgeNamesDevicesByTokenFirst: the name of a topic is the token of a device before it is the external id of another one, whatever is
// remembered of either.
func TestAnEdgeNamesDevicesByTokenFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	create := func(d store.Patch) *Device {
		t.Helper()
		d["deviceTypeToken"] = "t"
		return must(b.Devices.Create(ctx, acme, d))(t)
	}
	if _, err := b.Types.Create(ctx, acme, store.Patch{"token": "t"}); err != nil {
		t.Fatal(err)
	}
	gw := create(store.Patch{"token": "gw"})
	edge := model.Binding{Tenant: acme.Tenant, TenantID: acme.TenantID, Device: "gw", DeviceID: gw.ID}
	if _, err := b.Edges.Behind(ctx, edge, "pump"); !errors.Is(err, ErrNoEdge) {
		t.Errorf("without an edge: %v", err)
	}
	if _, err := b.Edges.Create(ctx, acme, store.Patch{"token": "north", "deviceToken": "gw", "enabled": true}); err != nil {
		t.Fatal(err)
	}
	want := func(why, name string, d *Device) {
		t.Helper()
		for range 2 { // read, and remembered
			got, err := b.Edges.Behind(ctx, edge, name)
			if err != nil || d == nil && (got.DeviceID != 0 || got.Device != name) || d != nil && (got.DeviceID != d.ID || got.Device != d.Token) {
				t.Errorf("%s: %+v, %v", why, got, err)
			}
		}
	}
	want("none", "pump", nil)
	other := create(store.Patch{"token": "other", "externalId": "pump"})
	want("by its external id", "pump", other)
	pump := create(store.Patch{"token": "pump"})
	want("by its token", "pump", pump)
	if d, _, err := b.Adoptions.Adopt(ctx, adoption("pump")); err != nil || d.Device != "other" {
		t.Errorf("a source names devices by their external id: %v, %v", d, err)
	}
	want("beside a source that means another one", "pump", pump)
	if _, err := b.Devices.Delete(ctx, acme, "pump"); err != nil {
		t.Fatal(err)
	}
	want("after its end", "pump", other)
}
