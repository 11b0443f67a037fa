package gql_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"weir/internal/test/conformance"
	"weir/model"
)

// gives runs a request whose data must be this.
func (w *registryWorld) gives(query, want string) {
	w.Helper()
	resp := w.as(writer, query, nil)
	if len(resp.Errors) > 0 {
		w.Fatalf("%s: %s", query, resp.Errors[0].Message)
	}
	b, err := json.Marshal(resp)
	if err != nil || string(b) != `{"data":`+want+`}` {
		w.Errorf("%s: %s, want %s, %v", query, b, want, err)
	}
}

func TestBothEndsOfARelationshipAreShown(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	w.ok(`mutation { createEntityRelationships(requests: [
		{token: "r1", sourceType: "device", source: "d", targetType: "asset", target: "Asset-1", relationshipType: "assigned", metadata: "{}"},
		{token: "r2", sourceType: "group", source: "EntityGroup-1", targetType: "device", target: "e", relationshipType: "assigned"}]) { token } }`, nil)
	w.gives(`{ entityRelationshipsByToken(tokens: ["r1"]) { token sourceType source { __typename id token ... on Device { deviceType { token } } } targetType target { __typename token ... on Asset { assetType { token } } }
		relationshipType { token tracked } metadata deletedAt } }`,
		`{"entityRelationshipsByToken":[{"token":"r1","sourceType":"device","source":{"__typename":"Device","id":"1","token":"d","deviceType":{"token":"t"}},`+
			`"targetType":"asset","target":{"__typename":"Asset","token":"Asset-1","assetType":{"token":"AssetType-1"}},"relationshipType":{"token":"assigned","tracked":true},"metadata":"{}","deletedAt":null}]}`)
	w.gives(`{ entityRelationships(criteria: {pageNumber: 1, pageSize: 10, sourceType: "group", relationshipType: "assigned"}) { results { source { __typename token } } pagination { totalRecords } } }`,
		`{"entityRelationships":{"results":[{"source":{"__typename":"EntityGroup","token":"EntityGroup-1"}}],"pagination":{"totalRecords":1}}}`)
	w.gives(`{ entityRelationships(criteria: {pageNumber: 1, pageSize: 10, sourceType: "none"}) { results { token } pagination { totalRecords } } }`,
		`{"entityRelationships":{"results":[],"pagination":{"totalRecords":0}}}`)
	w.refuses(`mutation { createEntityRelationships(requests: [
		{token: "r3", sourceType: "device", source: "d", targetType: "asset", target: "Asset-1", relationshipType: "assigned"},
		{token: "r4", sourceType: "device", source: "nope", targetType: "asset", target: "Asset-1", relationshipType: "assigned"}]) { token } }`, nil, model.CodeInvalidInput, `source: device "nope" does not exist`)
	w.gives(`mutation { a: removeEntityRelationship(token: "r1") b: removeEntityRelationship(token: "r1") c: removeEntityRelationships(tokens: ["r1", "r2"]) d: removeEntityRelationships(tokens: ["r2"]) e: removeEntityRelationships(tokens: []) }`,
		`{"a":true,"b":false,"c":true,"d":false,"e":false}`)
}

// A page of relationships reads its ends, and a page of groups its versions, in batches.
func TestRelationshipsAndGroupsAreReadTogether(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	w.ok(`mutation { createDevices(request: {deviceTypeToken: "t", count: 50, tokenTemplate: "n{n}"}) { token } }`, nil)
	requests := []any{}
	for i := range 50 {
		requests = append(requests, map[string]any{"token": fmt.Sprint("x", i), "sourceType": "device", "source": fmt.Sprint("n", i+1), "targetType": "asset", "target": "Asset-1", "relationshipType": "assigned"})
		w.ok(fmt.Sprintf(`mutation { createEntityGroup(request: {token: "g%d", memberType: "device", membershipMode: "dynamic", selector: "\"k%[1]d\" in attr"}) { id } publishEntityGroup(token: "g%[1]d") { version } }`, i), nil)
	}
	w.ok(`mutation ($r: [EntityRelationshipCreateRequest!]!) { createEntityRelationships(requests: $r) { token } }`, map[string]any{"r": requests})
	before := w.reads.Load()
	rows := w.ok(`{ entityRelationships(criteria: {pageNumber: 1, pageSize: 100, tracked: true}) { results { source { token ... on Device { deviceType { token profile { token } } } } target { token } relationshipType { token } } } }`,
		nil, "entityRelationships", "results").([]any)
	// The page, the ends (devices, assets, groups), the relationship types, the device types and the profiles.
	if n := w.reads.Load() - before; n > 7 || len(rows) != 52 {
		t.Errorf("%d reads for %d relationships", n, len(rows))
	}
	before = w.reads.Load()
	rows = w.ok(`{ entityGroups(criteria: {pageNumber: 1, pageSize: 100, memberType: "device", membershipMode: "dynamic"}) { results { token selector versions { version selector memberType } } } }`,
		nil, "entityGroups", "results").([]any)
	// The page, the versions, what they froze.
	if n := w.reads.Load() - before; n > 3 || len(rows) != 52 {
		t.Errorf("%d reads for %d groups", n, len(rows))
	}
}

func TestTheLifeOfAGroup(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	const all = `token memberType membershipMode selector activeVersion versions { version selector memberType label }
		members(pagination: {pageNumber: 1, pageSize: 1}) { results { id token } pagination { pageStart pageEnd totalRecords } }`
	w.gives(`mutation { createEntityGroup(request: {token: "s", memberType: "device", name: "S"}) { `+all+` } }`,
		`{"createEntityGroup":{"token":"s","memberType":"device","membershipMode":"static","selector":null,"activeVersion":null,"versions":[],`+
			`"members":{"results":[],"pagination":{"pageStart":0,"pageEnd":0,"totalRecords":0}}}}`)
	w.ok(`mutation { a: createEntityRelationship(request: {token: "r1", sourceType: "group", source: "s", targetType: "device", target: "e", relationshipType: "member"}) { id }
		b: createEntityRelationship(request: {token: "r2", sourceType: "group", source: "s", targetType: "device", target: "d", relationshipType: "member"}) { id } }`, nil)
	w.gives(`{ entityGroupsByToken(tokens: ["s"]) { members(pagination: {pageNumber: 2, pageSize: 1}) { results { token } pagination { pageStart pageEnd totalRecords } } } }`,
		`{"entityGroupsByToken":[{"members":{"results":[{"token":"e"}],"pagination":{"pageStart":2,"pageEnd":2,"totalRecords":2}}}]}`)
	w.gives(`{ devices(criteria: {pageNumber: 1, pageSize: 10, group: "s", deviceType: "t"}) { results { token } pagination { totalRecords } } }`,
		`{"devices":{"results":[{"token":"d"}],"pagination":{"totalRecords":1}}}`)
	w.gives(`{ resolveDeviceGroupTargets(groupToken: "s", limit: 1) { rejected code reason deviceTokens nextCursor resolvedVersion } }`,
		`{"resolveDeviceGroupTargets":{"rejected":false,"code":null,"reason":null,"deviceTokens":["d"],"nextCursor":"1","resolvedVersion":null}}`)
	w.gives(`{ resolveDeviceGroupTargets(groupToken: "s", afterId: "1", limit: 1) { rejected deviceTokens nextCursor } }`,
		`{"resolveDeviceGroupTargets":{"rejected":false,"deviceTokens":["e"],"nextCursor":null}}`)
	for _, bad := range []string{"x", "-1", "", "99999999999999999999"} {
		w.refuses(fmt.Sprintf(`{ resolveDeviceGroupTargets(groupToken: "s", afterId: %q, limit: 1) { rejected } }`, bad), nil, model.CodeInvalidInput, "afterId")
	}

	update := func(token, request string) string {
		return fmt.Sprintf(`mutation { updateEntityGroup(token: %q, request: {%s}) { selector name } }`, token, request)
	}
	w.refuses(update("s", `name: "T", selector: "\"k\" in attr"`), nil, model.CodeInvalidInput, "selector: a static group has none")
	w.refuses(update("s", `name: "T", selector: null`), nil, model.CodeInvalidInput, "selector")
	w.refuses(`mutation { createEntityGroup(request: {token: "n", memberType: "device", selector: "\"k\" in attr"}) { id } }`, nil, model.CodeInvalidInput, "selector: a static group has none")
	conformance.Shown(t, "S3-063")

	w.ok(`mutation { createEntityGroup(request: {token: "g", memberType: "device", membershipMode: "dynamic", selector: "memberType == \"device\""}) { id } }`, nil)
	w.gives(update("g", `name: "G"`), `{"updateEntityGroup":{"selector":"memberType == \"device\"","name":"G"}}`)
	w.refuses(update("g", `name: "H", selector: null`), nil, model.CodeInvalidInput, "selector: null is refused")
	w.refuses(update("g", `name: "H", selector: "attr.k == 1"`), nil, model.CodeInvalidInput, "selector: line 1, column 5: expected attr")
	w.gives(update("g", `selector: "memberType != \"device\""`), `{"updateEntityGroup":{"selector":"memberType != \"device\"","name":"G"}}`)
	conformance.Shown(t, "S3-062")

	w.gives(`mutation { a: publishEntityGroup(token: "g", label: "L") { version selector memberType label publishedBy }
		b: updateEntityGroup(token: "g", request: {selector: "memberType == \"device\""}) { activeVersion }
		c: publishEntityGroup(token: "g") { version selector } d: rollbackEntityGroup(token: "g", version: 1) { activeVersion selector } }`,
		`{"a":{"version":1,"selector":"memberType != \"device\"","memberType":"device","label":"L","publishedBy":"ada"},"b":{"activeVersion":1},`+
			`"c":{"version":2,"selector":"memberType == \"device\""},"d":{"activeVersion":1,"selector":"memberType == \"device\""}}`)
	w.gives(`{ entityGroupVersions(token: "g") { version selector } }`,
		`{"entityGroupVersions":[{"version":2,"selector":"memberType == \"device\""},{"version":1,"selector":"memberType != \"device\""}]}`)
	w.refuses(`mutation { publishEntityGroup(token: "s") { version } }`, nil, model.CodeInvalidInput, `entity group "s" is static`)
	w.refuses(`mutation { rollbackEntityGroup(token: "g", version: 7) { token } }`, nil, model.CodeNotFound, "g@7")
	w.gives(`{ a: resolveDeviceGroupTargets(groupToken: "g", limit: 10) { deviceTokens resolvedVersion } b: resolveDeviceGroupTargets(groupToken: "g", version: 2, limit: 10) { deviceTokens resolvedVersion }
		c: resolveDeviceGroupTargets(groupToken: "g", version: 3, limit: 10) { rejected code reason } }`,
		`{"a":{"deviceTokens":[],"resolvedVersion":1},"b":{"deviceTokens":["d","e"],"resolvedVersion":2},"c":{"rejected":true,"code":"GROUP_VERSION_NOT_FOUND","reason":"entity group \"g\" has no version 3"}}`)
	w.gives(`mutation { a: deleteEntityGroup(token: "s") b: deleteEntityGroup(token: "s") c: deleteEntityGroup(token: "g") }`, `{"a":true,"b":false,"c":true}`)
	w.gives(`{ entityRelationshipsByToken(tokens: ["r1", "r2"]) { token } }`, `{"entityRelationshipsByToken":[]}`)
}

func TestASelectorIsPreviewed(t *testing.T) {
	t.Parallel()
	w := newRegistryWorld(t)
	w.seed()
	preview := func(selector string) string {
		return fmt.Sprintf(`{ previewSelector(memberType: "device", selector: %q, pagination: {pageNumber: 1, pageSize: 1}) { valid error members { results { token } pagination { totalRecords } } } }`, selector)
	}
	w.gives(preview(`memberType == "device"`), `{"previewSelector":{"valid":true,"error":null,"members":{"results":[{"token":"d"}],"pagination":{"totalRecords":2}}}}`)
	w.gives(preview(`attr["k"] ==`), `{"previewSelector":{"valid":false,"error":"selector: line 1, column 13: Syntax error: mismatched input '\u003cEOF\u003e' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}","members":null}}`)
	w.gives(preview(`1 == 1`), `{"previewSelector":{"valid":false,"error":"selector: line 1, column 1: expected attr[\"key\"] or memberType on the left","members":null}}`)
	w.refuses(`{ previewSelector(memberType: "group", selector: "true", pagination: {pageNumber: 1, pageSize: 1}) { valid } }`, nil, model.CodeInvalidInput, "memberType")
}
