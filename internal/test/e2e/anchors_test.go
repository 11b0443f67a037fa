package e2e_test

import (
	"fmt"
	"testing"

	"weir/internal/test/conformance"
)

// anchors: events bear what the tracked relationships of their device led to when they came, and are found by it.
func anchors(t *testing.T, w *world) {
	tn := w.tenant(t, "anchors")
	tn.plain("d", "e")
	tn.devices(`mutation{a:createAreaType(request:{token:"floor"}){id} b:createArea(request:{token:"hall",areaTypeToken:"floor"}){id}
		c:createCustomerType(request:{token:"renter"}){id} d:createCustomer(request:{token:"hall",customerTypeToken:"renter"}){id}}`, nil)
	relate := func(token, device, target string) {
		tn.devices(`mutation($r:EntityRelationshipCreateRequest!){createEntityRelationship(request:$r){id}}`, map[string]any{"r": map[string]any{"token": token,
			"sourceType": "device", "source": device, "targetType": target, "target": "hall", "relationshipType": "assigned"}})
	}
	send := func(device string, v int) { tn.kept(measured("temp", fmt.Sprint(v), tn.as(device))) }
	send("d", 1)
	relate("in-hall", "d", "area")
	send("d", 2)
	relate("of-renter", "d", "customer")
	send("d", 3)
	send("e", 4)
	tn.devices(`mutation{removeEntityRelationship(token:"in-hall")}`, nil)
	tn.kept(fmt.Sprintf(`{"eventType":"Alert","payload":{"entries":[{"type":"door","level":2}]},%s}`, tn.as("d")))
	send("d", 5)
	tn.arrived(5) // and what came before the last one
	for query, want := range map[string]string{
		`events(criteria:{pageNumber:1,pageSize:10,deviceToken:"d",eventTypes:[2]}){results{anchors{type token}}}`: `{"events":{"results":[{"anchors":[{"type":"customer","token":"hall"}]},` +
			`{"anchors":[{"type":"area","token":"hall"},{"type":"customer","token":"hall"}]},{"anchors":[{"type":"area","token":"hall"}]},{"anchors":[]}]}}`,
		`measurementEvents(criteria:{pageNumber:1,pageSize:10,anchor:{type:"area",token:"hall"}}){results{value}}`:                         `{"measurementEvents":{"results":[{"value":3},{"value":2}]}}`,
		`measurementEvents(criteria:{pageNumber:1,pageSize:10,anchor:{type:"customer",token:"hall"}}){results{value}}`:                     `{"measurementEvents":{"results":[{"value":5},{"value":3}]}}`,
		`events(criteria:{pageNumber:1,pageSize:10,eventTypes:[3],anchor:{type:"customer",token:"hall"}}){results{eventType deviceToken}}`: `{"events":{"results":[{"eventType":3,"deviceToken":"d"}]}}`,
		`events(criteria:{pageNumber:1,pageSize:10,deviceToken:"e",anchor:{type:"customer",token:"hall"}}){results{eventType}}`:            `{"events":{"results":[]}}`,
		`measurementEvents(criteria:{pageNumber:1,pageSize:10,anchor:{type:"area",token:"roof"}}){results{value}}`:                         `{"measurementEvents":{"results":[]}}`,
		`bucketedMeasurements(criteria:{name:"temp",intervalSeconds:86400,anchor:{type:"area",token:"hall"}}){count sum}`:                  `{"bucketedMeasurements":[{"count":2,"sum":5}]}`,
	} {
		if got := string(tn.events("{"+query+"}", nil).Data); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	conformance.Shown(t, "S3-027", "S3-039")
	if got := string(w.tenant(t, "anchors-other").events(`{events(criteria:{pageNumber:1,pageSize:10,anchor:{type:"area",token:"hall"}}){results{id}}}`, nil).Data); got != `{"events":{"results":[]}}` {
		t.Errorf("another tenant: %s", got)
	}
}
