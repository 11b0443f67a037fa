package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"weir/model"
)

func body(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestTheMemoryOfTheViewFollowsItsRows compares what is counted row by row with the sum over the rows that are effective.
func TestTheMemoryOfTheViewFollowsItsRows(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	v, rows := New(), map[rowKey][]byte{}
	kinds := []model.ViewKind{model.ViewTenant, model.ViewDevice, model.ViewDeviceType, model.ViewProfile, model.ViewAnchors,
		model.ViewAttribute, model.ViewMemberships, model.ViewGroup, model.ViewFence, model.ViewFenceSet}
	for range 10000 {
		k := rowKey{kinds[r.IntN(len(kinds))], fmt.Sprint(1 + r.IntN(5))}
		var b []byte
		switch k.kind {
		case model.ViewTenant:
			b = body(t, model.TenantView{V: 1, ID: 1, Enabled: r.IntN(2) == 0})
		case model.ViewDevice:
			k.key = "1/" + k.key
			b = body(t, model.DeviceView{V: 1, ID: int64(1 + r.IntN(5)), Type: 1})
		case model.ViewDeviceType:
			b = body(t, model.DeviceTypeView{V: 1, Profile: 2})
		case model.ViewProfile:
			b = body(t, model.ProfileView{V: 1, Tenant: "1", Token: "p", Version: r.IntN(100000)})
		case model.ViewAnchors:
			b = body(t, model.AnchorsView{V: 1, Tenant: 1, Anchors: []model.Anchor{{Type: "area", Token: fmt.Sprint(r.IntN(300))}}})
		}
		switch k.kind {
		case model.ViewAttribute:
			k.key += "/" + []string{"SERVER", "SHARED"}[r.IntN(2)] + "/" + []string{"a", "b", "a/b"}[r.IntN(3)]
			b = body(t, []model.AttributeView{{V: 1, Number: new(r.Float64())}, {V: 1, Text: new(fmt.Sprint(r.IntN(300)))}, {V: 1, Bool: new(true)}, {V: 1}}[r.IntN(4)])
		case model.ViewMemberships:
			b = body(t, model.MembershipsView{V: 1, Tenant: 1, Groups: []string{fmt.Sprint(r.IntN(300))}})
		case model.ViewGroup:
			k.key += "/1"
			b = body(t, model.GroupView{V: 1, Tenant: int64(1 + r.IntN(2)), Token: "g" + k.key, Version: 1, Selector: fmt.Sprintf(`attr["a"] == %d`, r.IntN(300)), Active: r.IntN(2) == 0})
		case model.ViewFence:
			k.key = "1/" + k.key
			b = body(t, model.FenceView{V: 1, Geometry: fmt.Sprint(r.IntN(300))})
		case model.ViewFenceSet:
			b = body(t, model.FenceSetView{V: 1, Version: r.Int64N(300)})
		}
		if r.IntN(3) == 0 {
			b = nil
			delete(rows, k)
		} else {
			rows[k] = b
		}
		if _, err := v.Set(k.kind, k.key, b); err != nil {
			t.Fatal(err)
		}
		var want int64
		for k, b := range rows {
			want += model.ViewChange{Kind: k.kind, Key: k.key, Body: b}.Memory()
		}
		if v.Memory() != want {
			t.Fatalf("%s %q: %d bytes, want %d", k.kind, k.key, v.Memory(), want)
		}
	}
}

// TestDevicesWithTheSameAnchorsShareThem: a set stays while a device has it, and until it is dropped.
func TestDevicesWithTheSameAnchorsShareThem(t *testing.T) {
	t.Parallel()
	v := New()
	set := func(device string, anchors ...model.Anchor) {
		t.Helper()
		var b []byte
		if anchors != nil {
			b = body(t, model.AnchorsView{V: 1, Tenant: 1, Anchors: anchors})
		}
		if _, err := v.Set(model.ViewAnchors, device, b); err != nil {
			t.Fatal(err)
		}
	}
	a, b := model.Anchor{Type: "area", Token: "a"}, model.Anchor{Type: "customer", Token: "b"}
	set("1", b, a, b)
	set("2", a, b)
	if v.anchors[1] != v.anchors[2] || !slices.Equal(v.anchors[1].Anchors, []model.Anchor{a, b}) {
		t.Errorf("%v and %v", v.anchors[1], v.anchors[2])
	}
	set("1", a)
	set("2")
	if len(v.sets) != 2 {
		t.Errorf("%d sets, want 2 until they are dropped", len(v.sets))
	}
	v.DropAnchorSets()
	if len(v.sets) != 1 || v.anchors[2] != nil || v.anchors[1].devices != 1 {
		t.Errorf("%v", v.sets)
	}
}

func TestARowOfANewerWeirIsRefused(t *testing.T) {
	t.Parallel()
	for kind, b := range map[model.ViewKind]string{model.ViewTenant: `{"v":2}`, model.ViewAnchors: `{"v":2,"anchors":[{}]}`, model.ViewProfile: `{"v":2}`, "new": `{}`,
		model.ViewAttribute: `{"v":2}`, model.ViewMemberships: `{"v":2,"groups":["g"]}`, model.ViewGroup: `{"v":2,"selector":"\"a\" in attr"}`, model.ViewFence: `{"v":2}`, model.ViewFenceSet: `{"v":2}`} {
		key := map[model.ViewKind]string{model.ViewAttribute: "1/SHARED/a", model.ViewFence: "1/f"}[kind]
		if _, err := New().Set(kind, cmp.Or(key, "1"), []byte(b)); err == nil {
			t.Errorf("%s %s is taken", kind, b)
		}
	}
}

func FuzzSet(f *testing.F) {
	f.Add("device", "acme/d1", []byte(`{"v":1,"id":1,"type":2}`))
	f.Add("anchors", "1", []byte(`{"v":1,"tenant":1,"anchors":[{"type":"area","token":"a"}]}`))
	f.Add("profile", "1", []byte(`{"v":1,"tenant":"acme","token":"p","version":1,"metrics":[{"key":"a","dataType":"DOUBLE"}]}`))
	f.Add("attribute", "1/SHARED/a", []byte(`{"v":1,"s":"x"}`))
	f.Add("attribute", "1/SERVER/a", []byte(`{"v":1,"n":1.5}`))
	f.Add("memberships", "1", []byte(`{"v":1,"tenant":1,"groups":["b","a","b"]}`))
	f.Add("group", "1/2", []byte(`{"v":1,"tenant":1,"token":"g","version":2,"selector":"attr[\"a\"] < 1","active":true}`))
	f.Add("fence", "1/f", []byte(`{"v":1,"geometry":"{}"}`))
	f.Add("fence-set", "1", []byte(`{"v":1,"version":3}`))
	f.Fuzz(func(t *testing.T, kind, key string, b []byte) {
		v := New()
		if _, err := v.Set(model.ViewKind(kind), key, b); err != nil {
			return
		}
		if _, err := v.Set(model.ViewKind(kind), key, nil); err != nil || v.Memory() != 0 {
			t.Fatalf("%v, %d bytes are left", err, v.Memory())
		}
	})
}

// TestMembershipsFollowAnyChanges holds what devices bear, as the view remembers it, against what a view says that is made of the same rows.
func TestMembershipsFollowAnyChanges(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	v, rows := New(), map[rowKey][]byte{}
	set := func(kind model.ViewKind, key string, value any) {
		t.Helper()
		k := rowKey{kind, key}
		if rows[k] = nil; value != nil && r.IntN(4) > 0 {
			rows[k] = body(t, value)
		}
		if _, err := v.Set(kind, key, rows[k]); err != nil {
			t.Fatal(err)
		}
	}
	for range 3000 {
		device := fmt.Sprint(1 + r.IntN(3))
		switch r.IntN(6) {
		case 0:
			set(model.ViewAnchors, device, model.AnchorsView{V: 1, Tenant: 1, Anchors: []model.Anchor{{Type: []string{"area", "group"}[r.IntN(2)], Token: fmt.Sprint(r.IntN(3))}}})
		case 1:
			set(model.ViewMemberships, device, model.MembershipsView{V: 1, Tenant: 1, Groups: []string{fmt.Sprint(r.IntN(3)), "s"}})
		case 2, 3:
			value := []model.AttributeView{{V: 1, Number: new(float64(r.IntN(3)))}, {V: 1, Text: new([]string{"x", "y"}[r.IntN(2)])}, {V: 1, Bool: new(r.IntN(2) == 0)}, {V: 1}}[r.IntN(4)]
			set(model.ViewAttribute, device+"/"+[]string{"SERVER", "SHARED"}[r.IntN(2)]+"/"+[]string{"a", "b"}[r.IntN(2)], value)
		case 4:
			group := 1 + r.IntN(3)
			set(model.ViewGroup, fmt.Sprintf("%d/1", group), model.GroupView{V: 1, Tenant: 1, Token: fmt.Sprint("g", group), Version: 1, Active: r.IntN(3) > 0,
				Selector: []string{`attr["a"] > 0`, `!("b" in attr)`, `attr["a"] == "x" || attr["b"] == true`}[r.IntN(3)]})
		case 5:
			v.DropAnchorSets()
		}
		fresh := New()
		for k, b := range rows {
			if _, err := fresh.Set(k.kind, k.key, b); err != nil {
				t.Fatal(err)
			}
		}
		for id := range int64(4) {
			for range 1 + r.IntN(2) {
				if got, want := v.Stamp(1, id), fresh.Stamp(1, id); (got == nil) != (want == nil) || got != nil && got.Members != want.Members {
					t.Fatalf("device %d bears %+v, want %+v", id, got, want)
				}
			}
			for _, key := range []string{"a", "b"} {
				got, has := v.Number(id, key)
				if want, should := fresh.Number(id, key); got != want || has != should {
					t.Fatalf("%s of device %d is %v, want %v", key, id, got, want)
				}
				if all, listed := v.Numbers(id)[key]; all != got || listed != has {
					t.Fatalf("%s of device %d is %v among all its numbers, %v alone", key, id, all, got)
				}
			}
		}
	}
	for k := range rows {
		if _, err := v.Set(k.kind, k.key, nil); err != nil {
			t.Fatal(err)
		}
	}
	for id := range int64(4) {
		v.Stamp(1, id)
	}
	v.DropAnchorSets()
	if v.Memory() != 0 || len(v.sets) != 0 || len(v.keys.numbers) != 0 || len(v.texts.numbers) != 0 || len(v.groups) != 0 {
		t.Errorf("%d bytes are held, %d sets, keys %v, texts %v, groups %v", v.Memory(), len(v.sets), v.keys.numbers, v.texts.numbers, v.groups)
	}
}

// TestAFenceSetIsReadOnce: it is immutable, and the same until a fence changes.
func TestAFenceSetIsReadOnce(t *testing.T) {
	t.Parallel()
	const square = `{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[[[8,47],[9,47],[9,48],[8,48],[8,47]]]}}`
	v := New()
	set := func(kind model.ViewKind, key string, value any) {
		t.Helper()
		if _, err := v.Set(kind, key, body(t, value)); err != nil {
			t.Fatal(err)
		}
	}
	set(model.ViewFence, "1/a", model.FenceView{V: 1, Geometry: square})
	set(model.ViewFenceSet, "1", model.FenceSetView{V: 1, Version: 7})
	first, err := v.Fences(1)
	if err != nil || first.Version != 7 || !first.Fences["a"].Contains(8.5, 47.5) || first.Fences["a"].Contains(7, 47.5) {
		t.Fatalf("%+v, %v", first, err)
	}
	if again, _ := v.Fences(1); again != first {
		t.Error("it is read twice")
	}
	set(model.ViewFence, "1/b", model.FenceView{V: 1, Geometry: square})
	if now, _ := v.Fences(1); len(now.Fences) != 2 || len(first.Fences) != 1 || now.Fences["a"] != first.Fences["a"] {
		t.Errorf("%+v after %+v", now, first)
	}
	for _, c := range []struct {
		tenant        int64
		fence         string
		lon           float64
		inside, known bool
	}{{1, "a", 8.5, true, true}, {1, "a", 7, false, true}, {1, "c", 8.5, false, false}, {2, "a", 8.5, false, false}} {
		if inside, known := v.Inside(c.tenant, c.fence, c.lon, 47.5); inside != c.inside || known != c.known {
			t.Errorf("%+v: %v, %v", c, inside, known)
		}
	}
	set(model.ViewFence, "1/c", model.FenceView{V: 1, Geometry: "{}"})
	if inside, known := v.Inside(1, "a", 8.5, 47.5); inside || known {
		t.Error("a set with a geometry that does not read is known")
	}
	if other, err := v.Fences(2); err != nil || other.Version != 0 || len(other.Fences) != 0 {
		t.Errorf("%+v, %v", other, err)
	}
}

// BenchmarkAttributes loads the view of 100,000 devices with ten attributes each, and says how much memory that takes.
func BenchmarkAttributes(b *testing.B) {
	const devices, each = 100_000, 10
	keys := make([]string, 0, devices*each)
	for d := range int64(devices) {
		for k := range each {
			keys = append(keys, model.AttributeKey(d, "SHARED", fmt.Sprint("limit", k)))
		}
	}
	value := body(b, model.AttributeView{V: 1, Number: new(21.5)})
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		v := New()
		for _, key := range keys {
			if _, err := v.Set(model.ViewAttribute, key, value); err != nil {
				b.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB")
		b.ReportMetric(float64(v.Memory())/(1<<20), "MiB-counted")
		runtime.KeepAlive(v)
	}
}
