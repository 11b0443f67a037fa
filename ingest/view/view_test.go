package view

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
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
	kinds := []model.ViewKind{model.ViewTenant, model.ViewDevice, model.ViewDeviceType, model.ViewProfile, model.ViewAnchors}
	for range 5000 {
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
	for kind, b := range map[model.ViewKind]string{model.ViewTenant: `{"v":2}`, model.ViewAnchors: `{"v":2,"anchors":[{}]}`, model.ViewProfile: `{"v":2}`, "new": `{}`} {
		if _, err := New().Set(kind, "1", []byte(b)); err == nil {
			t.Errorf("%s %s is taken", kind, b)
		}
	}
}

func FuzzSet(f *testing.F) {
	f.Add("device", "acme/d1", []byte(`{"v":1,"id":1,"type":2}`))
	f.Add("anchors", "1", []byte(`{"v":1,"tenant":1,"anchors":[{"type":"area","token":"a"}]}`))
	f.Add("profile", "1", []byte(`{"v":1,"tenant":"acme","token":"p","version":1,"metrics":[{"key":"a","dataType":"DOUBLE"}]}`))
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
