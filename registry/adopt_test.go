package registry

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/model"
	"weir/store"
)

func adoption(id string) Adoption {
	return Adoption{Tenant: acme.Tenant, TenantID: acme.TenantID, ExternalID: id, Make: true, Prefix: "mq", DeviceType: "t", ByToken: true}
}

func TestAnExternalIDMeansOneDevice(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	if _, err := b.Types.Create(ctx, acme, store.Patch{"token": "t"}); err != nil {
		t.Fatal(err)
	}
	first, made, err := b.Adoptions.Adopt(ctx, adoption("hall 1/röhre"))
	if err != nil || !made || first.Device != AdoptedToken("mq", "hall 1/röhre") || !strings.HasPrefix(first.Device, "mq-hall-1-r-hre-") {
		t.Fatal(first, made, err)
	}
	again, made, err := b.Adoptions.Adopt(ctx, adoption("hall 1/röhre"))
	if err != nil || made || again != first {
		t.Errorf("again: %v %v %v", again, made, err)
	}
	// One that has the token is meant where none has the external id, and no longer once one has.
	if _, err := b.Devices.Create(ctx, acme, store.Patch{"token": "pump", "deviceTypeToken": "t"}); err != nil {
		t.Fatal(err)
	}
	if d, made, err := b.Adoptions.Adopt(ctx, adoption("pump")); err != nil || made || d.Device != "pump" {
		t.Errorf("by its token: %v %v %v", d, made, err)
	}
	if _, err := b.Devices.Create(ctx, acme, store.Patch{"token": "other", "externalId": "pump", "deviceTypeToken": "t"}); err != nil {
		t.Fatal(err)
	}
	if d, _, err := b.Adoptions.Adopt(ctx, adoption("pump")); err != nil || d.Device != "other" {
		t.Errorf("by its external id: %v %v", d, err)
	}
	// What is remembered ends with the device, and an absence with a device.
	if _, err := b.Devices.Delete(ctx, acme, "other"); err != nil {
		t.Fatal(err)
	}
	none := adoption("pump")
	none.ByToken, none.Make = false, false
	for range 2 {
		if d, _, err := b.Adoptions.Adopt(ctx, none); !errors.Is(err, ErrNotAdopted) {
			t.Errorf("%v, %v; want none", d, err)
		}
	}
	if _, err := b.Devices.Update(ctx, acme, "pump", store.Patch{"externalId": "pump"}); err != nil {
		t.Fatal(err)
	}
	if d, _, err := b.Adoptions.Adopt(ctx, none); err != nil || d.Device != "pump" {
		t.Errorf("%v, %v", d, err)
	}
	b.compareBytes(t)
}

func TestAdoptionKeepsToItsLimits(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{DeviceSettings: DeviceSettings{DevicesPerTenant: 3}})
	ctx := t.Context()
	if _, err := b.Types.Create(ctx, acme, store.Patch{"token": "t"}); err != nil {
		t.Fatal(err)
	}
	limited := func(id string, most int64) error {
		a := adoption(id)
		a.Max = most
		_, _, err := b.Adoptions.Adopt(ctx, a)
		return err
	}
	if err := errors.Join(limited("a", 2), limited("b", 2)); err != nil {
		t.Fatal(err)
	}
	refused := func(err error, text string) {
		t.Helper()
		if !errors.Is(err, ErrNotAdopted) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v; want %s", err, text)
		}
	}
	refused(limited("c", 2), "max_devices: at most 2 devices")
	a := adoption("e")
	a.DeviceType = "absent"
	_, _, err := b.Adoptions.Adopt(ctx, a)
	refused(err, "absent")
	if err := limited("c", 0); err != nil {
		t.Error(err)
	}
	refused(limited("d", 0), "limits.devices_per_tenant")
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := b.Adoptions.Adopt(ctx, adoption("f")); err == nil {
		t.Error("a device is adopted after the end")
	}
}

// TestDevicesAreMadeAtAPace: a hundred a second, and the clock is that of the bubble.
func TestDevicesAreMadeAtAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newAdoptionCache()
		begun := time.Now()
		for range 101 {
			if err := w.await(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took != time.Second {
			t.Errorf("101 devices took %v", took)
		}
		if err := w.await(t.Context(), 2); err != nil || time.Since(begun) != time.Second {
			t.Error("another tenant waits")
		}
	})
}

func TestTheTokenOfAnAdoptedDevice(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "G/N/D", strings.Repeat("ä", 200), strings.Repeat("x", 256), "€"} {
		token := AdoptedToken("sp", id)
		if !model.ValidToken(token) || len(token) > 128 {
			t.Errorf("%q becomes %q", id, token)
		}
	}
	if AdoptedToken("sp", "a/b") == AdoptedToken("sp", "a-b") {
		t.Error("two ids have one token")
	}
}
