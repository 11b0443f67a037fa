package gql_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"weir/internal/test/conformance"
	"weir/model"
)

func (w *registryWorld) fence(token, geometry string) {
	w.Helper()
	w.ok(`mutation ($r: GeoFenceCreateRequest!) { createGeoFence(request: $r) { id } }`, map[string]any{"r": map[string]any{"token": token, "geometry": geometry}})
}

func TestATokenOfAGeofenceCannotBeChanged(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.fence("old", squareAt(1))
	w.refuses(`mutation { updateGeoFence(token: "old", request: {token: "new"}) { token } }`, nil, model.CodeInvalidInput, `Field "token" is not defined by type "GeoFenceUpdateRequest"`)
	w.refuses(`mutation { renameGeoFence(token: "old", newToken: "new") { token } }`, nil, "", `Cannot query field "renameGeoFence"`)
	w.fence("new", squareAt(1))
	if w.ok(`mutation { deleteGeoFence(token: "old") }`, nil, "deleteGeoFence") != true {
		t.Error("the old one is not deleted")
	}
	got := w.ok(`{ currentGeoFenceSet { version fences(pagination: {pageNumber: 1, pageSize: 10}) { results { token geometry } } } }`, nil, "currentGeoFenceSet")
	want := map[string]any{"version": 3.0, "fences": map[string]any{"results": []any{map[string]any{"token": "new", "geometry": squareAt(1)}}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the set is %v", got)
	}
	conformance.Shown(t, "S3-093")
}

func TestGeofencesOverTheAPI(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	const spaced = ` { "geometry" : {"coordinates": [[[1.0, 0], [2, 0], [2, 1e0], [1, 0]]], "type": "Polygon"}, "kind": "POLYGON_2D"}`
	w.fence("b", spaced)
	w.fence("a", squareAt(5))
	got := w.ok(`{ geoFencesByToken(tokens: ["b", "none"]) { token kind geometry name metadata deletedAt } }`, nil, "geoFencesByToken")
	want := []any{map[string]any{"token": "b", "kind": "POLYGON_2D", "geometry": squareAt(1), "name": nil, "metadata": nil, "deletedAt": nil}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	w.refuses(`mutation ($g: String!) { createGeoFence(request: {token: "c", geometry: $g}) { id } }`, map[string]any{"g": `{"kind":"POLYGON_2D","geometry":{"type":"Polygon","coordinates":[[[0,0],[200,0],[1,1],[0,0]]]}}`},
		model.CodeInvalidInput, "geometry: ring 1, position 2: longitude 200 is outside")
	w.refuses(`mutation { updateGeoFence(token: "b", request: {geometry: null}) { id } }`, nil, model.CodeInvalidInput, "geometry: null is refused")
	w.refuses(`mutation { updateGeoFence(token: "none", request: {name: "x"}) { id } }`, nil, model.CodeNotFound, `geofence "none"`)
	set := func(version, page int) (tokens string) {
		t.Helper()
		q := fmt.Sprintf(`{ s: geoFenceSetSnapshot(version: %d) { version fences(pagination: {pageNumber: %d, pageSize: 1}) { results { token } pagination { pageStart pageEnd totalRecords } } } }`, version, page)
		for _, f := range w.ok(q, nil, "s", "fences", "results").([]any) {
			tokens += f.(map[string]any)["token"].(string)
		}
		p := w.ok(q, nil, "s", "fences", "pagination").(map[string]any)
		return fmt.Sprint(tokens, " ", p["pageStart"], p["pageEnd"], p["totalRecords"])
	}
	for _, c := range []struct {
		version, page int
		want          string
	}{{0, 1, " 0 0 0"}, {1, 1, "b 1 1 1"}, {2, 1, "a 1 1 2"}, {2, 2, "b 2 2 2"}, {2, 3, " 0 0 2"}} {
		if got := set(c.version, c.page); got != c.want {
			t.Errorf("page %d of version %d: %q, want %q", c.page, c.version, got, c.want)
		}
	}
	w.refuses(`{ geoFenceSetSnapshot(version: 3) { version } }`, nil, model.CodeNotFound, "version 3")
	w.refuses(`{ geoFenceSetSnapshot(version: -1) { version } }`, nil, model.CodeInvalidInput, "version: ")
	if v := w.ok(`{ currentFenceSetVersion }`, nil, "currentFenceSetVersion"); v != 2.0 {
		t.Errorf("version %v", v)
	}
}

const setAttribute = `mutation ($r: EntityAttributeSetRequest!) { a: setEntityAttribute(request: $r) { entityType entity { __typename token } scope attrKey valueType value createdAt updatedAt lastUpdated deletedAt } }`

func TestAttributesOverTheAPI(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	request := map[string]any{"entityType": "device", "entity": "d", "scope": "SHARED", "attrKey": "site", "valueType": "STRING", "value": "north"}
	made := w.ok(setAttribute, map[string]any{"r": request}, "a").(map[string]any)
	for name, want := range map[string]any{"entityType": "device", "entity": map[string]any{"__typename": "Device", "token": "d"}, "scope": "SHARED", "attrKey": "site",
		"valueType": "STRING", "value": "north", "deletedAt": nil, "lastUpdated": made["createdAt"], "updatedAt": made["createdAt"]} {
		if !reflect.DeepEqual(made[name], want) {
			t.Errorf("%s is %v, want %v", name, made[name], want)
		}
	}
	again := w.ok(setAttribute, map[string]any{"r": with(request, "value", "north")}, "a").(map[string]any)
	if again["createdAt"] != made["createdAt"] || again["lastUpdated"] == made["lastUpdated"] {
		t.Errorf("set again: %v", again)
	}
	for _, null := range []map[string]any{with(request, "value", nil), {"entityType": "asset", "entity": "Asset-1", "scope": "SERVER", "attrKey": "x", "valueType": "LONG"}} {
		if v := w.ok(setAttribute, map[string]any{"r": null}, "a", "value"); v != nil {
			t.Errorf("null reads as %v", v)
		}
	}
	w.refuses(setAttribute, map[string]any{"r": with(request, "valueType", "LONG")}, model.CodeInvalidInput, "value: ")
	w.refuses(setAttribute, map[string]any{"r": with(request, "entity", "none")}, model.CodeInvalidInput, "entity: ")
	w.refuses(`{ entityAttributes(criteria: {pageNumber: 1, pageSize: 1, entity: "d"}) { results { id } } }`, nil, model.CodeInvalidInput, "needs entityType")
	list := func(filter string) (found string) {
		t.Helper()
		for _, a := range w.ok(`{ entityAttributes(criteria: {pageNumber: 1, pageSize: 10`+filter+`}) { results { attrKey entity { token } } } }`, nil, "entityAttributes", "results").([]any) {
			found += fmt.Sprint(a.(map[string]any)["attrKey"], "=", a.(map[string]any)["entity"].(map[string]any)["token"], " ")
		}
		return found
	}
	for filter, want := range map[string]string{"": "x=Asset-1 site=d ", `, entityType: "device", entity: "d"`: "site=d ", `, entityType: "device", entity: "none"`: "",
		`, scope: "SERVER"`: "x=Asset-1 ", `, attrKeys: []`: "x=Asset-1 site=d ", `, attrKeys: ["site"], scope: null, entityType: null`: "site=d "} {
		if got := list(filter); got != want {
			t.Errorf("%s: %q, want %q", filter, got, want)
		}
	}
	remove := `mutation { r: deleteEntityAttribute(entityType: "device", entity: "d", scope: "SHARED", attrKey: "site") }`
	if first, second := w.ok(remove, nil, "r"), w.ok(remove, nil, "r"); first != true || second != false {
		t.Errorf("deleted: %v, then %v", first, second)
	}
}

// The entities of a page of attributes are read in one batch for each kind.
func TestTheEntitiesOfAttributesAreReadTogether(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	w.ok(`mutation { createDevices(request: {deviceTypeToken: "u", count: 50, tokenTemplate: "b{n}"}) { token } }`, nil)
	for i := range 50 {
		w.ok(setAttribute, map[string]any{"r": map[string]any{"entityType": "device", "entity": fmt.Sprint("b", i+1), "scope": "SHARED", "attrKey": "k", "valueType": "LONG", "value": "1"}})
	}
	w.ok(setAttribute, map[string]any{"r": map[string]any{"entityType": "asset", "entity": "Asset-1", "scope": "SHARED", "attrKey": "k", "valueType": "LONG", "value": "1"}})
	before := w.reads.Load()
	tokens := w.ok(`{ entityAttributes(criteria: {pageNumber: 1, pageSize: 100}) { results { entity { token ... on Device { deviceType { token } } ... on Asset { assetType { token } } } } } }`, nil, "entityAttributes", "results").([]any)
	if n := w.reads.Load() - before; len(tokens) != 51 || n > 5 {
		t.Errorf("%d attributes took %d reads", len(tokens), n)
	}
	if !strings.Contains(fmt.Sprint(tokens), "token:b50") || !strings.Contains(fmt.Sprint(tokens), "assetType:map[token:AssetType-1]") {
		t.Errorf("%v", tokens)
	}
}
