package registry

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/model"
	"weir/store"
)

// view checks that exactly the wanted view changes wait for the log.
func (b *bench) view(what string, want ...model.ViewChange) {
	b.Helper()
	got := b.views()
	if !slices.EqualFunc(got, want, func(x, y model.ViewChange) bool {
		return x.Kind == y.Kind && x.Key == y.Key && string(x.Body) == string(y.Body)
	}) {
		b.Errorf("%s: view changes are %s, want %s", what, shown(got), shown(want))
	}
}

func shown(vs []model.ViewChange) string {
	var parts []string
	for _, v := range vs {
		parts = append(parts, fmt.Sprintf("%s %s = %s", v.Kind, v.Key, v.Body))
	}
	return "[" + strings.Join(parts, "; ") + "]"
}

func row(t testing.TB, kind model.ViewKind, key string, body any) model.ViewChange {
	t.Helper()
	if body == nil {
		return model.ViewChange{Kind: kind, Key: key}
	}
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return model.ViewChange{Kind: kind, Key: key, Body: b}
}

func TestADevicesLifeIsSeenByResolution(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	t1 := must(b.Types.Create(ctx, acme, store.Patch{"token": "t1"}))(t)
	t2 := must(b.Types.Create(ctx, acme, store.Patch{"token": "t2"}))(t)
	b.view("types", row(t, model.ViewDeviceType, idKey(t1.ID), model.DeviceTypeView{V: 1}),
		row(t, model.ViewDeviceType, idKey(t2.ID), model.DeviceTypeView{V: 1}))

	d := must(b.Devices.Create(ctx, acme, store.Patch{"token": "pump", "deviceTypeToken": "t1"}))(t)
	b.view("create", row(t, model.ViewDevice, "acme/pump", model.DeviceView{V: 1, ID: d.ID, Type: t1.ID}))

	must(b.Devices.Update(ctx, acme, "pump", store.Patch{"name": "Pump"}))(t)
	must(b.Devices.Update(ctx, acme, "pump", store.Patch{"deviceTypeToken": "t1"}))(t)
	b.view("a change of no meaning")
	if b.forgotten != nil {
		t.Errorf("credentials of %v were forgotten for a name", b.forgotten)
	}

	must(b.Devices.Update(ctx, acme, "pump", store.Patch{"deviceTypeToken": "t2"}))(t)
	b.view("another type", row(t, model.ViewDevice, "acme/pump", model.DeviceView{V: 1, ID: d.ID, Type: t2.ID}))
	if want := [][2]int64{{d.ID, 0}}; !slices.Equal(b.forgotten, want) {
		t.Errorf("forgotten %v after a change of type, want %v", b.forgotten, want)
	}

	if !must(b.Devices.Delete(ctx, acme, "pump"))(t) {
		t.Error("nothing was deleted")
	}
	b.view("delete", row(t, model.ViewDevice, "acme/pump", nil))
	if again := must(b.Devices.Create(ctx, acme, store.Patch{"token": "pump", "deviceTypeToken": "t1"}))(t); again.ID <= d.ID {
		t.Errorf("a device made again has row id %d, which history of %d may bear", again.ID, d.ID)
	}
}

func TestDeletingADeviceTakesWhatIsAliveOfIt(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	_, _, d := b.seed()
	must(b.Credentials.Create(ctx, acme, store.Patch{"token": "c1", "deviceToken": "d", "credentialType": AccessToken,
		"credentialId": "secret-of-d", "enabled": true}))(t)
	must(b.Devices.Create(ctx, acme, store.Patch{"token": "d2", "deviceTypeToken": "t"}))(t)
	must(b.Credentials.Create(ctx, acme, store.Patch{"token": "c2", "deviceToken": "d2", "credentialType": AccessToken,
		"credentialId": "secret-of-d2", "enabled": true}))(t)

	if deleted := must(b.Devices.Delete(ctx, acme, "nobody"))(t); deleted {
		t.Error("a device that does not exist was deleted")
	}
	if deleted := must(b.Devices.Delete(ctx, other, "d"))(t); deleted {
		t.Error("a device of another tenant was deleted")
	}
	if deleted := must(b.Devices.Delete(ctx, acme, "d"))(t); !deleted {
		t.Error("the device was not deleted")
	}
	if got := b.rows(`SELECT token FROM device_credentials`); !slices.Equal(got, []string{"c2"}) {
		t.Errorf("credentials left: %v", got)
	}
	if want := [][2]int64{{1, d.ID}}; !slices.Equal(b.removed, want) {
		t.Errorf("live state removed of %v, want %v", b.removed, want)
	}
	if want := [][2]int64{{d.ID, 0}}; !slices.Equal(b.forgotten, want) {
		t.Errorf("forgotten %v, want %v", b.forgotten, want)
	}
	if got := b.rows(`SELECT devices FROM device_counts WHERE tenant_id = 1`); !slices.Equal(got, []string{"1"}) {
		t.Errorf("the count of devices is %v, want 1", got)
	}
	audit := b.rows(`SELECT operation, table_name, entity_label FROM audit_events WHERE operation = 'delete' ORDER BY id`)
	if want := []string{"delete device_credentials c1", "delete devices d"}; !slices.Equal(audit, want) {
		t.Errorf("journal %q, want %q", audit, want)
	}
}

func TestAFailingRemovalKeepsTheDevice(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.seed()
	b.Devices.removals = append(b.Devices.removals, func(store.Tx, int64, int64) error { return model.Errorf(model.CodeUnavailable, "no") })
	b.unchanged("delete", func() {
		_, err := b.Devices.Delete(t.Context(), acme, "d")
		b.refused("delete", err, model.CodeUnavailable, "no")
	})
	if b.removed != nil || b.forgotten != nil {
		t.Errorf("told of a delete that never was: %v, %v", b.removed, b.forgotten)
	}
}

func TestDevicesAreMadeInBulk(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	_, typ, _ := b.seed()
	devices := must(b.Devices.CreateBulk(ctx, acme, Bulk{Type: "t", Count: 3, StartIndex: new(int64(9)), TokenTemplate: "pump-{n:03d}",
		NameTemplate: new("Pump {n}"), ExternalIDTemplate: new("sn:{n}/{random}"), Metadata: new(`{"a":1}`)}))(t)
	var got []string
	for _, d := range devices {
		if d.TypeID != typ.ID || !strings.HasPrefix(*d.ExternalID, "sn:") || len(*d.ExternalID) < 36 || *d.Metadata != `{"a":1}` {
			t.Errorf("device %+v", d)
		}
		got = append(got, d.Token+" "+*d.Name)
	}
	if want := []string{"pump-009 Pump 9", "pump-010 Pump 10", "pump-011 Pump 11"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if n := len(b.views()); n != 3 {
		t.Errorf("%d view changes, want 3", n)
	}
	if many := must(b.Devices.CreateBulk(ctx, acme, Bulk{Type: "t", Count: 1000, TokenTemplate: "m{n}"}))(t); len(many) != 1000 || many[0].Token != "m1" {
		t.Errorf("%d devices, the first %q", len(many), many[0].Token)
	}
}

func TestBulkCreatesAllDevicesOrNone(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	b.seed()
	must(b.Devices.Create(t.Context(), acme, store.Patch{"token": "x3", "deviceTypeToken": "t", "externalId": "e2"}))(t)
	good := Bulk{Type: "t", Count: 5, TokenTemplate: "n{n}"}
	for what, c := range map[string]struct {
		change func(*Bulk)
		code   model.Code
		text   string
	}{
		"no device":             {func(q *Bulk) { q.Count = 0 }, model.CodeInvalidInput, "count"},
		"too many":              {func(q *Bulk) { q.Count = 1001 }, model.CodeInvalidInput, "count"},
		"start below 1":         {func(q *Bulk) { q.StartIndex = new(int64(0)) }, model.CodeInvalidInput, "startIndex"},
		"no index":              {func(q *Bulk) { q.TokenTemplate = "n" }, model.CodeInvalidInput, "tokenTemplate"},
		"no index, one device":  {func(q *Bulk) { q.TokenTemplate, q.Count = "n", 1 }, model.CodeInvalidInput, "tokenTemplate"},
		"random token":          {func(q *Bulk) { q.TokenTemplate = "n{n}{random}" }, model.CodeInvalidInput, "tokenTemplate"},
		"random name":           {func(q *Bulk) { q.NameTemplate = new("{random}") }, model.CodeInvalidInput, "nameTemplate"},
		"no token":              {func(q *Bulk) { q.TokenTemplate = "a.{n}" }, model.CodeInvalidInput, "tokenTemplate"},
		"same external id":      {func(q *Bulk) { q.ExternalIDTemplate = new("sn") }, model.CodeInvalidInput, "externalIdTemplate"},
		"unknown type":          {func(q *Bulk) { q.Type = "nope" }, model.CodeInvalidInput, "deviceTypeToken"},
		"bad metadata":          {func(q *Bulk) { q.Metadata = new("{") }, model.CodeInvalidInput, "metadata"},
		"one token in use":      {func(q *Bulk) { q.TokenTemplate = "x{n}" }, model.CodeConflict, "unique"},
		"one external id taken": {func(q *Bulk) { q.ExternalIDTemplate = new("e{n}") }, model.CodeConflict, "unique"},
	} {
		b.unchanged(what, func() {
			q := good
			c.change(&q)
			_, err := b.Devices.CreateBulk(t.Context(), acme, q)
			b.refused(what, err, c.code, c.text)
		})
	}
	one := good
	one.Count, one.ExternalIDTemplate = 1, new("sn")
	must(b.Devices.CreateBulk(t.Context(), acme, one))(t)
}

func TestATenantHasAtMostItsCeilingOfDevices(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{DeviceSettings: DeviceSettings{DevicesPerTenant: 3}})
	ctx := t.Context()
	b.seed()
	bulk := func(p *model.Principal, n int64) error {
		_, err := b.Devices.CreateBulk(ctx, p, Bulk{Type: "t", Count: n, TokenTemplate: "b{n}"})
		return err
	}
	b.unchanged("bulk over the ceiling", func() { b.refused("bulk", bulk(acme, 3), model.CodeLimitExceeded, "devices_per_tenant") })
	if err := bulk(acme, 2); err != nil {
		t.Fatal(err)
	}
	b.unchanged("one over the ceiling", func() {
		_, err := b.Devices.Create(ctx, acme, store.Patch{"token": "more", "deviceTypeToken": "t"})
		b.refused("one", err, model.CodeLimitExceeded, "devices_per_tenant")
		_, _, err = b.Devices.Add(ctx, acme, store.Patch{"token": "more", "deviceTypeToken": "t"})
		b.refused("add", err, model.CodeLimitExceeded, "devices_per_tenant")
	})
	must(b.Types.Create(ctx, other, store.Patch{"token": "t"}))(t)
	if err := bulk(other, 3); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	must(b.Devices.Delete(ctx, acme, "b1"))(t)
	must(b.Devices.Create(ctx, acme, store.Patch{"token": "more", "deviceTypeToken": "t"}))(t)
}

func TestAnExternalIDIsUniqueInATenantWhenPresent(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	b.seed()
	must(b.Types.Create(ctx, other, store.Patch{"token": "t"}))(t)
	make := func(p *model.Principal, token string, external any) error {
		_, err := b.Devices.Create(ctx, p, store.Patch{"token": token, "deviceTypeToken": "t", "externalId": external})
		return err
	}
	const id = "urn:dev/00:1b.44 11"
	for _, err := range []error{make(acme, "a", id), make(other, "a", id), make(acme, "n1", nil), make(acme, "n2", nil),
		make(acme, "e1", ""), make(acme, "e2", "")} {
		if err != nil {
			t.Error(err)
		}
	}
	b.unchanged("twice", func() {
		b.refused("twice", make(acme, "b", id), model.CodeConflict, "externalId of a device must be unique")
	})
	b.unchanged("update", func() {
		_, err := b.Devices.Update(ctx, acme, "n1", store.Patch{"name": "x", "externalId": id})
		b.refused("update", err, model.CodeConflict, "unique")
	})
	if got := must(b.Devices.ByExternalID(ctx, acme, []string{id, id, "unknown"}))(t); len(got) != 1 || got[0].Token != "a" {
		t.Errorf("by external id: %v", got)
	}
}
