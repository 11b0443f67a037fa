package registry

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

// fenceAt is a square of one degree, fenceOf the ring around the origin with n positions.
func fenceAt(lon int) string {
	return fmt.Sprintf(`{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[[[%d,0],[%d,0],[%d,1],[%d,1],[%d,0]]]}}`, lon, lon+1, lon+1, lon, lon)
}

func fenceOf(n int) string {
	var at strings.Builder
	for i := range n - 3 {
		fmt.Fprintf(&at, "[%d.5,0],", i-100)
	}
	return `{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[[` + at.String() + `[0,50],[-100,50],[-100.5,0]]]}}`
}

// setOf is a version of a tenant's set, as token=longitude.
func (b *bench) setOf(t interface{ Fatal(...any) }, by *model.Principal, version int64) string {
	b.Helper()
	fences, total, err := b.GeoFences.OfSet(b.Context(), by, version, store.Page{Size: 1000})
	if err != nil || int(total) != len(fences) {
		t.Fatal(version, total, err)
	}
	var parts []string
	for _, f := range fences {
		_, rest, _ := strings.Cut(f.Geometry, "[[[")
		lon, _, _ := strings.Cut(rest, ",")
		parts = append(parts, f.Token+"="+lon)
	}
	return strings.Join(parts, " ")
}

func TestEachChangeOfAGeometryMakesAVersionOfTheSet(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	kind := b.Kinds.Of("geofences")
	version := func(want int64) {
		t.Helper()
		if got := must(b.GeoFences.NewestVersion(ctx, acme))(t); got != want {
			t.Errorf("version %d, want %d", got, want)
		}
	}
	version(0)
	must(kind.Create(ctx, acme, store.Patch{"token": "b", "geometry": fenceAt(1)}))(t)
	version(1)
	must(kind.Create(ctx, acme, store.Patch{"token": "a", "geometry": fenceAt(2), "name": "A"}))(t)
	version(2)
	must(kind.Update(ctx, acme, "a", store.Patch{"name": "B", "description": "c", "metadata": "{}"}))(t)
	must(kind.Update(ctx, acme, "a", store.Patch{}))(t)
	must(kind.Update(ctx, acme, "a", store.Patch{"geometry": " " + strings.Replace(fenceAt(2), "[2,", "[2.0,", 1)}))(t) // the same
	version(2)
	must(kind.Update(ctx, acme, "a", store.Patch{"geometry": fenceAt(3)}))(t)
	version(3)
	must(kind.Delete(ctx, acme, "b"))(t)
	version(4)
	if deleted := must(kind.Delete(ctx, acme, "b"))(t); deleted {
		t.Error("deleted twice")
	}
	must(kind.Delete(ctx, acme, "a"))(t)
	version(5)
	must(kind.Create(ctx, acme, store.Patch{"token": "a", "geometry": fenceAt(4)}))(t)
	version(6)
	for v, want := range []string{"", "b=1", "a=2 b=1", "a=3 b=1", "a=3", "", "a=4"} {
		if got := b.setOf(t, acme, int64(v)); got != want {
			t.Errorf("version %d is %q, want %q", v, got, want)
		}
	}
	if n := b.rows(`SELECT count(*) FROM geofence_sets`); n[0] != "4" {
		t.Errorf("%s rows for 6 versions", n[0])
	}
	b.refused("a version to come", b.GeoFences.HasSet(ctx, acme, 7), model.CodeNotFound, "no version 7, the newest is 6")
	b.refused("a negative one", b.GeoFences.HasSet(ctx, acme, -1), model.CodeInvalidInput, "must not be negative")
	if got := must(b.GeoFences.NewestVersion(ctx, other))(t); got != 0 {
		t.Errorf("another tenant is at version %d", got)
	}
	if _, _, err := b.GeoFences.OfSet(ctx, other, 6, store.Page{}); model.CodeOf(err) != model.CodeNotFound {
		t.Errorf("another tenant reads version 6: %v", err)
	}
	_, _, err := b.GeoFences.OfSet(ctx, fixture.Member("eve", "acme", 1, model.LocationRead), 6, store.Page{})
	b.refused("without device:read", err, model.CodeForbidden, "device:read")
	b.compareBytes(t)
}

func TestTheVersionsOfAFenceSetArePagedByToken(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	for i := range 7 {
		must(b.Kinds.Of("geofences").Create(t.Context(), acme, store.Patch{"token": fmt.Sprint("f", 6-i), "geometry": fenceAt(i)}))(t)
	}
	fences, total, err := b.GeoFences.OfSet(t.Context(), acme, 6, store.Page{Number: 2, Size: 4})
	if err != nil || total != 6 || len(fences) != 2 || fences[0].Token != "f5" || fences[1].Token != "f6" {
		t.Errorf("%v of %d, %v", fences, total, err)
	}
}

func TestOldVersionsOfAFenceSetAreRemoved(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{FenceSetVersions: 3})
	ctx := t.Context()
	kind := b.Kinds.Of("geofences")
	must(kind.Create(ctx, acme, store.Patch{"token": "stays", "geometry": fenceAt(0)}))(t)
	must(kind.Create(ctx, other, store.Patch{"token": "stays", "geometry": fenceAt(0)}))(t)
	must(kind.Create(ctx, acme, store.Patch{"token": "moves", "geometry": fenceAt(0)}))(t)
	for i := 1; i <= 20; i++ {
		must(kind.Update(ctx, acme, "moves", store.Patch{"geometry": fenceAt(i)}))(t)
		b.compareBytes(t)
	}
	if n := b.rows(`SELECT count(*) FROM geofence_sets WHERE tenant_id = 1`); n[0] != "4" { // three of the one that moves
		t.Errorf("%s rows for 3 versions", n[0])
	}
	for v, want := range map[int64]string{22: "moves=20 stays=0", 21: "moves=19 stays=0", 20: "moves=18 stays=0", 0: ""} {
		if got := b.setOf(t, acme, v); got != want {
			t.Errorf("version %d is %q, want %q", v, got, want)
		}
	}
	b.refused("one that is gone", b.GeoFences.HasSet(ctx, acme, 19), model.CodeNotFound, "version 19 of the set of geofences is not kept any more, the oldest is 20")
	for range 2 {
		must(kind.Delete(ctx, acme, "moves"))(t)
		must(kind.Delete(ctx, acme, "stays"))(t)
	}
	if got := must(b.GeoFences.NewestVersion(ctx, acme))(t); got != 24 || b.setOf(t, acme, 24) != "" {
		t.Errorf("without fences the set is at version %d", got)
	}
	b.compareBytes(t)
}

func TestTheCeilingsOfGeofences(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	limits := FenceLimits{Fences: 2, Positions: 20, Budget: 30}
	p := b.parts
	p.FenceLimits = func(tenant string) FenceLimits {
		if tenant == "acme" {
			return limits
		}
		return defaultFenceLimits(tenant)
	}
	b.Registry = New(Config{}, p)
	ctx := t.Context()
	kind := b.Kinds.Of("geofences")
	create := func(by *model.Principal, token string, n int) error {
		_, err := kind.Create(ctx, by, store.Patch{"token": token, "geometry": fenceOf(n)})
		return err
	}
	update := func(token string, n int) error {
		_, err := kind.Update(ctx, acme, token, store.Patch{"geometry": fenceOf(n)})
		return err
	}
	fine := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	fine("the longest", create(acme, "a", 20))
	b.unchanged("over the ceilings", func() {
		b.refused("one that is longer", create(acme, "b", 21), model.CodeLimitExceeded, "geoFencePositionCeiling: the geometry has 21 positions over all rings, at most 20")
		b.refused("more than the budget", create(acme, "b", 11), model.CodeLimitExceeded, "geoFencePositionBudget: the geofences of the tenant would have 31 positions, at most 30")
		b.refused("a longer update", update("a", 21), model.CodeLimitExceeded, "geoFencePositionCeiling")
	})
	fine("the rest of the budget", create(acme, "b", 10))
	b.unchanged("over the ceilings", func() {
		b.refused("one too many", create(acme, "c", 4), model.CodeLimitExceeded, "geoFenceCeiling: the tenant has at most 2 geofences")
		b.refused("an update beyond the budget", update("b", 11), model.CodeLimitExceeded, "geoFencePositionBudget")
	})
	fine("another tenant", create(other, "a", 100))
	limits = FenceLimits{Fences: 1, Positions: 5, Budget: 6}
	fine("fewer positions under a lowered ceiling", update("b", 9))
	_, err := kind.Update(ctx, acme, "b", store.Patch{"name": "as before"})
	fine("a name under a lowered ceiling", err)
	b.refused("more under a lowered ceiling", update("b", 10), model.CodeLimitExceeded, "geoFencePositionCeiling")
	_, err = kind.Delete(ctx, acme, "b")
	fine("a delete", err)
	b.refused("made again under a lowered ceiling", create(acme, "b", 9), model.CodeLimitExceeded, "")
	b.compareBytes(t)
}

// The shape of a geometry takes time with the square of its positions. It is looked at before the transaction, and not at all where
// the ceiling refuses the geometry anyway.
func TestTheShapeOfAGeofenceHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	ctx := t.Context()
	kind := b.Kinds.Of("geofences")
	crossing := func(n int) string { // an eight, then so many positions more
		var text strings.Builder
		text.WriteString(`{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[[[0,0],[1,1],[1,0],[0,1]`)
		for i := range n {
			fmt.Fprintf(&text, ",[-%d.%03d,0]", i/1000, i%1000+1)
		}
		return text.String() + `,[0,0]]]}}`
	}
	_, err := kind.Create(ctx, acme, store.Patch{"token": "a", "geometry": crossing(0)})
	b.refused("an eight", err, model.CodeInvalidInput, "")
	_, err = kind.Create(ctx, acme, store.Patch{"token": "a", "geometry": crossing(600)})
	b.refused("an eight that is too long", err, model.CodeLimitExceeded, "geoFencePositionCeiling: the geometry has 605 positions over all rings, at most 512")
	if refused := b.GeoFences.Check(store.Patch{"token": "a", "geometry": crossing(0)}, true); len(refused) != 1 || model.CodeOf(refused[0]) != model.CodeInvalidInput {
		t.Errorf("a check without an instance says %v", refused)
	}
	row := GeoFence{Geometry: crossing(0)} // a transaction leaves the shape to Prepare
	if err := row.outline(); err != nil || row.positions != 5 {
		t.Errorf("%d positions, %v", row.positions, err)
	}
}

func TestARequestOfAGeofenceIsBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	kind := b.Kinds.Of("geofences")
	for _, p := range []store.Patch{
		{"token": "a", "geometry": strings.Repeat(" ", 256<<10) + fenceAt(1)},
		{"token": "a", "geometry": strings.Repeat(" ", 200<<10) + fenceAt(1), "metadata": `"` + strings.Repeat("x", 60<<10) + `"`},
	} {
		_, err := kind.Create(t.Context(), acme, p)
		b.refused("a large request", err, model.CodeLimitExceeded, "request: ")
	}
	must(kind.Create(t.Context(), acme, store.Patch{"token": "a", "geometry": strings.Repeat(" ", 200<<10) + fenceAt(1)}))(t)
	_, err := kind.Update(t.Context(), acme, "a", store.Patch{"geometry": strings.Repeat(" ", 256<<10) + fenceAt(1)})
	b.refused("a large update", err, model.CodeLimitExceeded, "request: ")
	_, err = kind.Update(t.Context(), acme, "a", store.Patch{"geometry": nil})
	b.refused("no geometry", err, model.CodeInvalidInput, "geometry: null is refused")
	_, err = kind.Update(t.Context(), acme, "a", store.Patch{"geometry": `{"kind":"VOXEL_3D"}`})
	b.refused("a reserved kind", err, model.CodeInvalidInput, "reserved")
}

func TestWritersOfGeofencesMayReadLocations(t *testing.T) {
	t.Parallel()
	b := newBench(t, Config{})
	kind := b.Kinds.Of("geofences")
	ctx := t.Context()
	must(kind.Create(ctx, acme, store.Patch{"token": "a", "geometry": fenceAt(1)}))(t)
	for _, c := range []struct {
		has   model.Authority
		lacks string
	}{{model.DeviceWrite, "location:read"}, {model.LocationRead, "device:write"}} {
		by := fixture.Member("eve", "acme", 1, model.DeviceRead, c.has)
		b.unchanged("with "+string(c.has), func() {
			_, err := kind.Create(ctx, by, store.Patch{"token": "b", "geometry": fenceAt(1)})
			b.refused("create", err, model.CodeForbidden, c.lacks)
			_, err = kind.Update(ctx, by, "a", store.Patch{"name": "x"})
			b.refused("update", err, model.CodeForbidden, c.lacks)
		})
	}
	if deleted := must(kind.Delete(ctx, fixture.Member("eve", "acme", 1, model.DeviceWrite), "a"))(t); !deleted {
		t.Error("a delete with device:write alone")
	}
}

// After any changes each kept version shows what a copy of all fences would have shown at that time.
func TestTheVersionsOfAFenceSetAreTheSetsOfTheirTime(t *testing.T) {
	t.Parallel()
	const kept = 4
	b := newBench(t, Config{FenceSetVersions: kept})
	ctx := t.Context()
	kind := b.Kinds.Of("geofences")
	tenant := int64(2)
	rapid.Check(t, func(rt *rapid.T) {
		tenant++ // a set of its own in each run
		by := fixture.Member("ada", fmt.Sprint("t", tenant), tenant, model.DeviceRead, model.DeviceWrite, model.LocationRead)
		now, sets := map[string]int{}, []string{""}
		note := func() {
			var parts []string
			for token, lon := range now {
				parts = append(parts, fmt.Sprintf("%s=%d", token, lon))
			}
			slices.Sort(parts)
			sets = append(sets, strings.Join(parts, " "))
		}
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			token, lon := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "token"), rapid.IntRange(0, 3).Draw(rt, "longitude")
			had, is := now[token]
			switch rapid.IntRange(0, 2).Draw(rt, "verb") {
			case 0:
				_, err := kind.Create(ctx, by, store.Patch{"token": token, "geometry": fenceAt(lon)})
				if (err == nil) == is {
					rt.Fatal(err)
				}
				if !is {
					now[token] = lon
					note()
				}
			case 1:
				_, err := kind.Update(ctx, by, token, store.Patch{"geometry": fenceAt(lon), "name": fmt.Sprint(lon)})
				if (err == nil) != is {
					rt.Fatal(err)
				}
				if is && had != lon {
					now[token] = lon
					note()
				}
			case 2:
				deleted, err := kind.Delete(ctx, by, token)
				if err != nil || deleted != is {
					rt.Fatal(deleted, err)
				}
				if is {
					delete(now, token)
					note()
				}
			}
		}
		newest := int64(len(sets) - 1)
		if got := must(b.GeoFences.NewestVersion(ctx, by))(t); got != newest {
			rt.Fatalf("version %d, want %d", got, newest)
		}
		for v := range sets {
			if v := int64(v); v > 0 && v <= newest-kept {
				if err := b.GeoFences.HasSet(ctx, by, v); model.CodeOf(err) != model.CodeNotFound {
					rt.Errorf("version %d of %d is kept: %v", v, newest, err)
				}
			} else if got := b.setOf(rt, by, v); got != sets[v] {
				rt.Errorf("version %d is %q, want %q", v, got, sets[v])
			}
		}
	})
}
