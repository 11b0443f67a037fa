package gql_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"weir/internal/test/poll"
	"weir/internal/test/testweir"
	"weir/model"
)

// walkOp is one operation as the interface describes it: what it asks of its caller, a call on acme's rows, and what
// another tenant is answered.
type walkOp struct {
	kind, name string
	needs      model.Authority // "" for any caller
	also       model.Authority // a second one, "" for none
	anonymous  bool
	noTenant   bool   // runs without a resolved tenant
	args       string // <Type> stands for the id of acme's row of the type
	// stranger is the answer to another tenant's administrator: the data as JSON, "!CODE text" for a refusal whose
	// message holds the text, or "" for success with rows of his own.
	stranger string
	owner    string // what the message of the refusal holds that even the right caller gets, "" for success
	moves    bool   // the answer changes by itself
}

const noPage = `{"results":[],"pagination":{"pageStart":0,"pageEnd":0,"totalRecords":0}}`

// read, write: operations of the device registry.
func read(name, args, stranger string) walkOp {
	return walkOp{kind: "query", name: name, needs: model.DeviceRead, args: args, stranger: stranger}
}

func write(name, args, stranger string) walkOp {
	return walkOp{kind: "mutation", name: name, needs: model.DeviceWrite, args: args, stranger: stranger}
}

func alarmVerb(name, args, stranger string) walkOp {
	return walkOp{kind: "mutation", name: name, needs: model.AlarmWrite, args: args, stranger: stranger}
}

// lists are the three reads that every kind of the registry has.
func lists(plural, typ, token string, needs model.Authority) []walkOp {
	return []walkOp{
		{kind: "query", name: plural + "ById", needs: needs, args: `(ids: ["<` + typ + `>"])`, stranger: "[]"},
		{kind: "query", name: plural + "ByToken", needs: needs, args: `(tokens: ["` + token + `"])`, stranger: "[]"},
		{kind: "query", name: plural, needs: needs, args: `(criteria: {pageNumber: 1, pageSize: 10})`, stranger: noPage},
	}
}

func together(all ...[]walkOp) (out []walkOp) {
	for _, ops := range all {
		out = append(out, ops...)
	}
	return out
}

func events(name string, needs model.Authority) walkOp {
	return walkOp{kind: "query", name: name, needs: needs, args: `(criteria: {pageNumber: 1, pageSize: 10})`, stranger: noPage}
}

func state(name, args, stranger string) walkOp {
	return walkOp{kind: "query", name: name, needs: model.StateRead, args: args, stranger: stranger}
}

// walkRegistry has the rows of the device registry: those of the kinds, and what is special.
func walkRegistry() []walkOp {
	reads, creates, updates, deletes := walkKinds()
	return together(reads, []walkOp{
		read("facetValues", `(facet: MANUFACTURER)`, "[]"),
		read("facetKeys", `(criteria: {pageNumber: 1, pageSize: 10})`, noPage),
		read("existingEntityRefs", `(refs: [{type: "device", token: "d"}, {type: "area", token: "Area-1"}])`, "[]"),
		read("deviceCommandVocabulary", `(deviceToken: "d")`, "null"),
		read("validateCommandEnqueue", `(deviceToken: "d", commandKey: "reboot")`,
			`{"allowed":false,"code":"DEVICE_NOT_FOUND","reason":"there is no device \"d\""}`),
		read("validateCommandEnqueueBatch", `(deviceTokens: ["d"], commandKey: "reboot")`,
			`[{"deviceToken":"d","code":"DEVICE_NOT_FOUND","reason":"there is no device \"d\""}]`),
		read("deviceProfileVersions", `(token: "p")`, "[]"),
		read("deviceLocationDeclaration", `(deviceToken: "d")`, "null"),
		read("devicesByExternalId", `(externalIds: ["sn/1"])`, "[]"),
		read("entityGroupVersions", `(token: "EntityGroup-1")`, "[]"),
		read("previewSelector", `(memberType: "asset", selector: "memberType == \"asset\"", pagination: {pageNumber: 1, pageSize: 10})`,
			`{"valid":true,"error":null,"members":`+noPage+`}`),
		read("resolveDeviceGroupTargets", `(groupToken: "EntityGroup-1", limit: 10)`,
			`{"rejected":true,"code":"GROUP_NOT_FOUND","reason":"entity group \"EntityGroup-1\" does not exist","deviceTokens":[],"nextCursor":null,"resolvedVersion":null}`),
		read("currentFenceSetVersion", "", "0"),
		read("currentGeoFenceSet", "", `{"version":0,"fences":`+noPage+`}`),
		read("geoFenceSetSnapshot", `(version: 1)`, "!NOT_FOUND no version 1"),
		read("entityAttributes", `(criteria: {pageNumber: 1, pageSize: 10})`, noPage),
		read("deviceClaim", `(deviceToken: "d")`, "null"),
		read("artifacts", "", "[]"),
		write("deleteArtifact", `(token: "fw")`, `!NOT_FOUND "fw"`),
		read("lwm2mRegistrations", `(deviceTokens: ["d"])`, ""), // nothing is registered here: TestLwm2mRegistrations shows that a stranger gets nothing
		{kind: "query", name: "deviceSnippets", needs: model.DeviceWrite, args: `(deviceToken: "d", credentialToken: "k", host: "gateway.lan")`, stranger: `!NOT_FOUND "d"`},
		{kind: "query", name: "alarmsById", needs: model.AlarmRead, args: `(ids: ["<Alarm>"])`, stranger: "[]"},
		{kind: "query", name: "alarmsByToken", needs: model.AlarmRead, args: `(tokens: ["<alarm>"])`, stranger: "[]"},
		{kind: "query", name: "alarms", needs: model.AlarmRead, args: `(criteria: {pageNumber: 1, pageSize: 10})`, stranger: noPage},
		{kind: "query", name: "alarmHistory", needs: model.AlarmRead, args: `(alarmToken: "<alarm>", pageNumber: 1, pageSize: 10)`, stranger: noPage},
		{kind: "subscription", name: "alarmStream", needs: model.AlarmRead},
		{kind: "query", name: "auditEvents", needs: model.AuditRead, args: `(criteria: {pageNumber: 1, pageSize: 10})`},
	}, creates, []walkOp{
		write("sendTestEvent", `(deviceToken: "d", event: "{}")`, `!NOT_FOUND "d"`),
		write("createDevices", `(request: {deviceTypeToken: "t", count: 2, tokenTemplate: "n{n}"})`, `!INVALID_INPUT "t"`),
		write("createEntityRelationships", `(requests: [{token: "many", sourceType: "device", source: "d", targetType: "asset", target: "Asset-1", relationshipType: "assigned"}])`,
			`!INVALID_INPUT "d"`),
	}, updates, []walkOp{
		write("updateDeviceCredential", `(token: "k", request: {metadata: "1"})`, `!NOT_FOUND "k"`),
		write("renameDeviceProfile", `(token: "q", newToken: "q2")`, `!NOT_FOUND "q"`),
		write("publishDeviceProfile", `(token: "p")`, `!NOT_FOUND "p"`),
		write("rollbackDeviceProfile", `(token: "p", version: 1)`, `!NOT_FOUND "p"`),
		write("setFacetKey", `(request: {memberType: "device", key: "floor", valueType: "LONG"})`, ""),
		write("deleteFacetKey", `(memberType: "device", key: "gone")`, "false"),
		write("publishEntityGroup", `(token: "EntityGroup-1")`, `!NOT_FOUND "EntityGroup-1"`),
		write("rollbackEntityGroup", `(token: "EntityGroup-1", version: 1)`, `!NOT_FOUND "EntityGroup-1"`),
		write("removeEntityRelationships", `(tokens: ["many"])`, "false"),
		write("setEntityAttribute", `(request: {entityType: "device", entity: "d", scope: "SHARED", attrKey: "k", valueType: "LONG", value: "5"})`, `!INVALID_INPUT "d"`),
		write("deleteEntityAttribute", `(entityType: "device", entity: "d", scope: "SHARED", attrKey: "k")`, "false"),
		write("issueAccessToken", `(request: {deviceToken: "d"})`, `!NOT_FOUND "d"`),
		write("initiateDeviceClaim", `(request: {deviceToken: "d", claimSecret: "printed"})`, `!INVALID_INPUT "d"`),
		write("claimDevice", `(request: {deviceToken: "d", claimSecret: "printed", customerToken: "Customer-1", relationshipType: "assigned"})`, `!INVALID_INPUT "Customer-1"`),
		write("cancelDeviceClaim", `(deviceToken: "gone")`, "false"),
		alarmVerb("acknowledgeAlarm", `(token: "<alarm>")`, `!NOT_FOUND "<alarm>"`),
		alarmVerb("clearAlarm", `(token: "<alarm>")`, `!NOT_FOUND "<alarm>"`),
		alarmVerb("acknowledgeAlarms", `(tokens: ["<alarm>"])`, `{"acknowledged":[],"refusals":[{"token":"<alarm>","code":"ALARM_NOT_FOUND","reason":"alarm \"<alarm>\" does not exist"}]}`),
		alarmVerb("clearAlarms", `(tokens: ["<alarm>"])`, `{"cleared":[],"refusals":[{"token":"<alarm>","code":"ALARM_NOT_FOUND","reason":"alarm \"<alarm>\" does not exist"}]}`),
		write("deleteDevices", `(tokens: ["n1", "n2"])`, `!NOT_FOUND "n1"`),
	}, deletes)
}

// walkTable has a row for every operation, in the order in which the owner calls the mutations.
var walkTable = map[string][]walkOp{
	"event-sources": {
		{kind: "query", name: "_empty", anonymous: true},
		{kind: "mutation", name: "_empty", anonymous: true},
	},
	"user-management": {
		{kind: "query", name: "ping", anonymous: true},
		{kind: "query", name: "tenant", stranger: globexTenant},
		{kind: "query", name: "tenantGovernance"},
		{kind: "query", name: "tenantTokens", needs: model.TenantRead, noTenant: true, stranger: "!FORBIDDEN forbidden: tenant:read is required"},
		{kind: "query", name: "me", stranger: `{"email":"eve@example.org","firstName":null,"lastName":null}`},
		{kind: "query", name: "identityMemberships", anonymous: true, args: `(identityToken: "<identity>")`},
		{kind: "query", name: "functionalAreas"},
		{kind: "query", name: "tokenMasks"},
		{kind: "mutation", name: "login", anonymous: true, args: `(email: "ada@example.org", password: "wrong")`, stranger: "!INVALID_INPUT invalid credentials",
			owner: "invalid credentials"},
		{kind: "mutation", name: "selectTenant", anonymous: true, args: `(identityToken: "<identity>", tenant: "globex")`,
			stranger: "!INVALID_INPUT invalid credentials", owner: "invalid credentials"},
		{kind: "mutation", name: "refresh", anonymous: true, args: `(refreshToken: "<identity>")`, stranger: "!INVALID_INPUT invalid or expired token",
			owner: "invalid or expired token"},
		{kind: "mutation", name: "signOut", anonymous: true, args: `(refreshToken: "<identity>")`, stranger: "!INVALID_INPUT invalid or expired token",
			owner: "invalid or expired token"},
		{kind: "mutation", name: "setTenantBranding", needs: model.BrandingWrite, args: `(input: {title: "new"})`},
		{kind: "mutation", name: "setTenantLogo", needs: model.BrandingWrite, args: `(logo: null)`},
		{kind: "mutation", name: "setTenantBasemap", needs: model.BasemapWrite, args: `(input: {zoom: 3})`},
		{kind: "mutation", name: "updateProfile", args: `(request: {firstName: "New"})`, stranger: `{"email":"eve@example.org","firstName":"New","lastName":null}`},
	},
	"user-management-admin":    walkAdmin(),
	"user-management-settings": walkSettings(),
	"ai-inference-admin":       walkInference(),
	"ai-inference": {
		{kind: "query", name: "aiInferenceInfo", anonymous: true},
		{kind: "mutation", name: "inferRuleCandidate", needs: model.AIInfer, args: `(request: {prompt: "p"})`,
			stranger: "!UNAVAILABLE unavailable: no AI provider is active for the tenant", owner: "unavailable: no AI provider is active for the tenant"},
	},
	"device-management": walkRegistry(),
	"event-management": {
		events("events", model.EventRead),
		events("locationEvents", model.LocationRead),
		events("measurementEvents", model.EventRead),
		events("alertEvents", model.EventRead),
		{kind: "query", name: "bucketedMeasurements", needs: model.EventRead, args: `(criteria: {deviceToken: "d", intervalSeconds: 60})`, stranger: "[]"},
		{kind: "query", name: "ingestLedger", needs: model.EventRead, args: `(criteria: {})`, stranger: "[]"},
		{kind: "mutation", name: "_empty", anonymous: true},
		{kind: "subscription", name: "measurementStream", needs: model.EventRead},
		{kind: "query", name: "messageTrace", needs: model.EventRead, args: `(criteria: {pageNumber: 1, pageSize: 10, deviceToken: "d"})`, stranger: `!NOT_FOUND "d"`},
		{kind: "query", name: "message", needs: model.EventRead, args: `(offset: "x")`, stranger: `!INVALID_INPUT is no offset of the log`, owner: `offset: "x" is no offset of the log`},
		{kind: "query", name: "ingestRates", needs: model.EventRead, args: `(minutes: 60)`, stranger: "[]", moves: true},
		{kind: "subscription", name: "messageStream", needs: model.EventRead},
	},
	"device-state": {
		state("deviceStates", `(criteria: {pageNumber: 1, pageSize: 10})`, noPage),
		state("deviceStatesByDeviceToken", `(deviceTokens: ["d"])`, "[]"),
		state("deviceStatesByExternalId", `(externalIds: ["sn/1"])`, "[]"),
		state("assertedDeviceStates", `(source: "mqtt1", activeOnly: false, pageSize: 10)`, "[]"),
		state("latestMeasurements", `(deviceToken: "d")`, "[]"),
		{kind: "query", name: "latestLocation", needs: model.LocationRead, args: `(deviceToken: "d")`, stranger: "null"},
		{kind: "query", name: "latestLocations", needs: model.LocationRead, args: `(deviceTokens: ["d"])`, stranger: "[]"},
		{kind: "mutation", name: "demoteAssertedPresence", needs: model.StateDemote, args: `(source: "mqtt1", limit: 10, reason: "a source that is gone")`,
			stranger: `{"scanned":0,"demoted":0,"skipped":0,"lastId":null}`},
	},
	"dashboard-management": {
		dashboards("query", "dashboard", model.DashboardRead, `(token: "main")`, "null"),
		dashboards("query", "dashboards", model.DashboardRead, `(criteria: {pageNumber: 1, pageSize: 10})`, noPage),
		dashboards("query", "dashboardVersions", model.DashboardRead, `(token: "main")`, "[]"),
		dashboards("mutation", "createDashboard", model.DashboardWrite, `(request: {token: "other", definition: "{}"})`, ""),
		dashboards("mutation", "updateDashboard", model.DashboardWrite, `(token: "main", request: {name: "new"})`, `!NOT_FOUND "main"`),
		dashboards("mutation", "publishDashboard", model.DashboardWrite, `(token: "main")`, `!NOT_FOUND "main"`),
		dashboards("mutation", "rollbackDashboard", model.DashboardWrite, `(token: "main", version: 1)`, `!NOT_FOUND "main"`),
		dashboards("mutation", "deleteDashboard", model.DashboardWrite, `(token: "main")`, "false"),
	},
	"outbound-connectors": {
		{kind: "query", name: "outboundConnectorsInfo", anonymous: true},
		dashboards("query", "connector", model.ConnectorRead, `(token: "main")`, "null"),
		dashboards("query", "connectors", model.ConnectorRead, `(criteria: {pageNumber: 1, pageSize: 10})`, noPage),
		dashboards("query", "connectorVersions", model.ConnectorRead, `(token: "main")`, "[]"),
		dashboards("query", "connectorTypes", model.ConnectorRead, "", ""),
		dashboards("query", "connectorTypeDescriptions", model.ConnectorRead, "", ""),
		dashboards("query", "httpSecrets", model.ConnectorRead, "", "[]"),
		dashboards("query", "deadLetters", model.ConnectorRead, `(criteria: {pageNumber: 1, pageSize: 10})`, noPage),
		dashboards("query", "deadLetter", model.ConnectorRead, `(id: "1")`, "null"),
		dashboards("query", "deliveries", model.ConnectorRead, "", ""), // nothing waits here: TestNoSecretLeaves and the outbox's own tests have rows
		dashboards("mutation", "createConnector", model.ConnectorWrite, `(request: {token: "other", type: "mqtt", config: "{\"urls\":[\"mqtt://b.example.com:1883\"],\"topic\":\"t\"}"})`, ""),
		dashboards("mutation", "updateConnector", model.ConnectorWrite, `(token: "main", request: {name: "new"})`, `!NOT_FOUND "main"`),
		dashboards("mutation", "publishConnector", model.ConnectorWrite, `(token: "main")`, `!NOT_FOUND "main"`),
		dashboards("mutation", "rollbackConnector", model.ConnectorWrite, `(token: "main", version: 1)`, `!NOT_FOUND "main"`),
		dashboards("mutation", "testConnector", model.ConnectorWrite, `(token: "main")`, `!NOT_FOUND "main"`),
		dashboards("mutation", "renameConnector", model.ConnectorWrite, `(token: "main", newToken: "moved")`, `!NOT_FOUND "main"`),
		dashboards("mutation", "setHttpSecret", model.ConnectorWrite, `(token: "hook", value: "v", hosts: ["hooks.example.com"])`, ""),
		dashboards("mutation", "resendDeadLetters", model.ConnectorWrite, `(ids: ["999999"])`, ""),
		dashboards("mutation", "discardDeadLetters", model.ConnectorWrite, `(ids: ["999999"])`, ""),
		dashboards("mutation", "deleteHttpSecret", model.ConnectorWrite, `(token: "main")`, "false"),
		dashboards("mutation", "deleteConnector", model.ConnectorWrite, `(token: "moved")`, "false"),
	},
	"notification-management": {
		{kind: "query", name: "notificationChannelTypes", anonymous: true},
		dashboards("query", "notificationChannelsById", model.NotifyRead, `(ids: ["1"])`, "[]"),
		dashboards("query", "notificationChannelsByToken", model.NotifyRead, `(tokens: ["main"])`, "[]"),
		dashboards("query", "notificationChannels", model.NotifyRead, `(criteria: {pageNumber: 1, pageSize: 10})`, noPage),
		dashboards("query", "notificationPoliciesById", model.NotifyRead, `(ids: ["1"])`, "[]"),
		dashboards("query", "notificationPoliciesByToken", model.NotifyRead, `(tokens: ["main"])`, "[]"),
		dashboards("query", "notificationPolicies", model.NotifyRead, `(criteria: {pageNumber: 1, pageSize: 10})`, noPage),
		dashboards("query", "notificationMutesById", model.NotifyRead, `(ids: ["1"])`, "[]"),
		dashboards("query", "notificationMutesByToken", model.NotifyRead, `(tokens: ["main"])`, "[]"),
		dashboards("query", "notificationMutes", model.NotifyRead, `(criteria: {pageNumber: 1, pageSize: 10})`, noPage),
		dashboards("query", "notificationStatesByAlarmToken", model.NotifyRead, `(alarmTokens: ["<alarm>"])`, "[]"),
		dashboards("query", "notificationStates", model.NotifyRead, `(criteria: {pageNumber: 1, pageSize: 10})`, noPage),
		dashboards("mutation", "createNotificationChannel", model.NotifyWrite, `(request: {token: "other", channelType: "webhook", enabled: true, config: "{\"url\":\"https://h.example.com\"}"})`, ""),
		dashboards("mutation", "updateNotificationChannel", model.NotifyWrite, `(token: "main", request: {name: "new"})`, `!NOT_FOUND "main"`),
		dashboards("mutation", "testNotificationChannel", model.NotifyWrite, `(token: "main")`, `!NOT_FOUND "main"`),
		dashboards("mutation", "createNotificationPolicy", model.NotifyWrite, `(request: {token: "other", enabled: true, rules: []})`, ""),
		dashboards("mutation", "updateNotificationPolicy", model.NotifyWrite, `(token: "main", request: {name: "new"})`, `!NOT_FOUND "main"`),
		dashboards("mutation", "createNotificationMute", model.NotifyWrite, `(request: {token: "other", until: "2100-01-01T00:00:00Z"})`, ""),
		dashboards("mutation", "updateNotificationMute", model.NotifyWrite, `(token: "main", request: {reason: "new"})`, `!NOT_FOUND "main"`),
		dashboards("mutation", "renameNotificationChannel", model.NotifyWrite, `(token: "main", newToken: "moved")`, `!NOT_FOUND "main"`),
		dashboards("mutation", "deleteNotificationMute", model.NotifyWrite, `(token: "main")`, "false"),
		dashboards("mutation", "deleteNotificationPolicy", model.NotifyWrite, `(token: "main")`, "false"),
		dashboards("mutation", "deleteNotificationChannel", model.NotifyWrite, `(token: "moved")`, "false"),
	},
	"command-delivery": {
		{kind: "query", name: "commandsById", needs: model.CommandRead, args: `(ids: ["1"])`, stranger: "[]"},
		{kind: "query", name: "commandsByToken", needs: model.CommandRead, args: `(tokens: ["held"])`, stranger: "[]"},
		{kind: "query", name: "commands", needs: model.CommandRead, args: `(criteria: {pageNumber: 1, pageSize: 10})`, stranger: noPage},
		{kind: "query", name: "commandBatchesById", needs: model.CommandRead, args: `(ids: ["1"])`, stranger: "[]"},
		{kind: "query", name: "commandBatchesByToken", needs: model.CommandRead, args: `(tokens: ["many"])`, stranger: "[]"},
		{kind: "query", name: "commandBatches", needs: model.CommandRead, args: `(criteria: {pageNumber: 1, pageSize: 10})`, stranger: noPage},
		{kind: "query", name: "drainableCommands", needs: model.CommandClaim, args: `(deviceToken: "d")`, stranger: "!FORBIDDEN command:claim"},
		{kind: "mutation", name: "createCommand", needs: model.CommandWrite, args: `(request: {token: "open", deviceToken: "d", name: "reboot"})`,
			stranger: `{"command":null,"rejection":{"code":"DEVICE_NOT_FOUND","reason":"there is no device \"d\""}}`},
		{kind: "mutation", name: "createCommandBatch", needs: model.CommandWrite, args: `(request: {token: "all", name: "reboot", deviceTokens: ["d"], allowPartial: false})`,
			stranger: `{"batch":null,"rejection":{"code":"BATCH_PARTIAL_REFUSED","reason":"1 of 1 devices do not take the command, and allowPartial is false","resolved":1,` +
				`"refusals":[{"deviceToken":"d","code":"DEVICE_NOT_FOUND","reason":"there is no device \"d\""}],"refusalCounts":[{"code":"DEVICE_NOT_FOUND","count":1}]}}`},
		{kind: "mutation", name: "resumeCommandBatch", needs: model.CommandWrite, args: `(token: "many")`, stranger: `!NOT_FOUND "many"`},
		{kind: "mutation", name: "cancelCommandBatch", needs: model.CommandWrite, args: `(token: "many")`, stranger: `!NOT_FOUND "many"`},
		{kind: "mutation", name: "cancelCommand", needs: model.CommandWrite, args: `(token: "held")`, stranger: `!NOT_FOUND "held"`},
		{kind: "mutation", name: "markCommandSent", needs: model.CommandClaim, args: `(token: "held")`, stranger: "!FORBIDDEN command:claim"},
		{kind: "mutation", name: "parkCommand", needs: model.CommandPark, args: `(token: "held", dispatchNonce: "n")`, stranger: "!FORBIDDEN command:park"},
		{kind: "mutation", name: "releaseHeldCommands", needs: model.CommandWake, args: `(deviceToken: "d")`, stranger: "!FORBIDDEN command:wake"},
		{kind: "subscription", name: "commandStream", needs: model.CommandRead},
	},
	"event-processing": {
		{kind: "query", name: "eventProcessingInfo", anonymous: true},
		{kind: "query", name: "ruleVocabulary", needs: model.DeviceRead},
		{kind: "query", name: "validateDetectionRules", needs: model.DeviceRead, args: `(rules: [])`},
		{kind: "query", name: "compileCanvas", needs: model.DeviceRead, args: `(graph: "{}", profileToken: "p")`},
		{kind: "query", name: "canvasFromRule", needs: model.DeviceRead, args: `(definition: "{}", profileToken: "p")`},
		{kind: "query", name: "ruleHealth", needs: model.DeviceRead, args: `(profileToken: "p")`, stranger: "[]"},
		{kind: "query", name: "previewRule", needs: model.DeviceRead, args: `(input: {profileToken: "p", ruleDefinition: "{\"name\":\"n\",\"type\":\"connectivity\"}", start: "2026-01-01T00:00:00Z", end: "2026-01-01T01:00:00Z"})`,
			stranger: previewRefused},
		{kind: "query", name: "detections", needs: model.DeviceRead, args: `(criteria: {pageNumber: 1, pageSize: 10})`, stranger: noPage},
		{kind: "mutation", name: "draftDetectionRuleFromText", needs: model.DeviceWrite, args: `(input: {text: "warn when it is hot", profileToken: "p"})`},
		{kind: "subscription", name: "detectionStream", needs: model.DeviceRead, args: `(profileToken: "p")`},
	},
}

// previewRefused is the answer to a preview over a profile that the tenant does not have.
const previewRefused = `{"ok":false,"firings":[],"stats":{"eventsScanned":0,"firingCount":0,"evalErrors":0,"wallMs":0},"degraded":null,` +
	`"diagnostics":[{"nodeId":null,"severity":"error","code":null,"params":[],"message":"device profile p does not exist"}],"reads":null}`

// globexTenant is the tenant globex as it was made: everything of its look is the instance's.
const globexTenant = `{"token":"globex","name":null,"description":null,` +
	`"branding":{"title":"Weir","logo":null,"logoMaxHeight":28,"primary":null,"background":null,"foreground":null,"accent":null,"updatedAt":null},` +
	`"brandingOverride":{"title":null,"logo":null,"logoMaxHeight":null,"primary":null,"background":null,"foreground":null,"accent":null,"updatedAt":null},` +
	`"basemap":{"tileUrl":"https://tile.openstreetmap.org/{z}/{x}/{y}.png","attribution":"© \u003ca href=\"https://www.openstreetmap.org/copyright\"\u003eOpenStreetMap\u003c/a\u003e contributors","centerLat":null,"centerLon":null,"zoom":null},` +
	`"basemapOverride":{"tileUrl":null,"attribution":null,"centerLat":null,"centerLon":null,"zoom":null},"locale":null,"localeOverride":null}`

// dashboards is an operation of dashboard-management or outbound-connectors.
func dashboards(kind, name string, needs model.Authority, args, stranger string) walkOp {
	return walkOp{kind: kind, name: name, needs: needs, args: args, stranger: stranger}
}

// notListed are the fields of a type that lists refuse.
var notListed = map[string]string{"Dashboard": "definition"}

func makeDir(path string) error { return os.MkdirAll(path, 0o750) }

// furnishAcme makes a row of every kind, with events and live state, each holding what no other tenant may ever read.
func (w *walk) furnishAcme(t *testing.T) {
	t.Helper()
	do := func(query string, vars map[string]any) {
		t.Helper()
		if r := w.ask(t, "device-management", caller{token: w.own}, query, vars); len(r.Errors) > 0 {
			t.Fatalf("%s: %s", query, r.raw)
		}
	}
	do(fmt.Sprintf(`mutation { p: createDeviceProfile(request: {token: "p", name: %[1]q, location: {expectedAccuracyMeters: 3}}) { id }
		q: createDeviceProfile(request: {token: "q", name: %[1]q}) { id }
		t: createDeviceType(request: {token: "t", profileToken: "p", name: %[1]q, manufacturer: %[1]q}) { id }
		u: createDeviceType(request: {token: "u", name: %[1]q}) { id }
		m: createMetricDefinition(request: {token: "m", deviceProfileToken: "p", metricKey: "temp", dataType: "DOUBLE", name: %[1]q, unit: %[1]q}) { id } }`, onlyAcme), nil)
	do(fmt.Sprintf(`mutation { c: createCommandDefinition(request: {token: "cmd", deviceProfileToken: "p", commandKey: "reboot", name: %[1]q}) { id }
		f: setFacetKey(request: {memberType: "device", key: "gone", valueType: "STRING", label: %[1]q}) { id } }`, onlyAcme), nil)
	do(fmt.Sprintf(`mutation ($rule: String!) { r: createDetectionRule(request: {token: "r", deviceProfileToken: "p", definition: $rule, enabled: true, name: %[1]q}) { id }
		d: createDevice(request: {token: "d", deviceTypeToken: "t", externalId: "sn/1", name: %[1]q}) { id }
		g: createDevice(request: {token: "gone", deviceTypeToken: "t", name: %[1]q}) { id }
		k: createDeviceCredential(request: {token: "k", deviceToken: "d", credentialType: "ACCESS_TOKEN", credentialId: "%[1]s-id", enabled: true, metadata: "\"%[1]s\""}) { id }
		v: publishDeviceProfile(token: "p", label: %[1]q) { version } }`, onlyAcme), map[string]any{"rule": strings.NewReplacer(`"hot"`, `"`+onlyAcme+`"`,
		`"when"`, `"severity":"major","actions":[{"type":"raiseAlarm","raiseAlarm":{}}],"when"`).Replace(hotRule)})
	if r := w.ask(t, "dashboard-management", caller{token: w.own}, fmt.Sprintf(`mutation { d: createDashboard(request: {token: "main", name: %[1]q, definition: "{\"of\":\"%[1]s\"}"}) { id }
		v: publishDashboard(token: "main", label: %[1]q) { version } }`, onlyAcme), nil); len(r.Errors) > 0 {
		t.Fatal(r.raw)
	}
	if r := w.ask(t, "outbound-connectors", caller{token: w.own}, fmt.Sprintf(`mutation {
		c: createConnector(request: {token: "main", name: %[1]q, type: "mqtt", config: "{\"urls\":[\"mqtt://127.0.0.1:1\"],\"topic\":\"%[1]s\"}", secret: %[1]q}) { id }
		v: publishConnector(token: "main", label: %[1]q) { version }
		s: setHttpSecret(token: "main", value: %[1]q, hosts: ["hooks.example.com"]) { token } }`, onlyAcme), nil); len(r.Errors) > 0 {
		t.Fatal(r.raw)
	}
	if r := w.ask(t, "notification-management", caller{token: w.own}, fmt.Sprintf(`mutation {
		c: createNotificationChannel(request: {token: "main", name: %[1]q, channelType: "webhook", enabled: true, config: "{\"url\":\"http://127.0.0.1:1/%[1]s\"}", secret: %[1]q}) { id }
		p: createNotificationPolicy(request: {token: "main", name: %[1]q, enabled: true, rules: [{severity: "*", channelToken: "main", recipients: "[\"%[1]s\"]"}]}) { id }
		m: createNotificationMute(request: {token: "main", reason: %[1]q, until: "2100-01-01T00:00:00Z"}) { id } }`, onlyAcme), nil); len(r.Errors) > 0 {
		t.Fatal(r.raw)
	}
	if r := w.ask(t, "command-delivery", caller{token: w.own}, fmt.Sprintf(`mutation { c: createCommand(request: {token: "held", deviceToken: "d", name: "reboot", payload: "{\"of\":\"%[1]s\"}"}) { command { id } }
		b: createCommandBatch(request: {token: "many", name: "reboot", payload: "{\"of\":\"%[1]s\"}", deviceTokens: ["d"], allowPartial: false}) { batch { id } } }`, onlyAcme), nil); len(r.Errors) > 0 || strings.Contains(r.raw, ":null") {
		t.Fatal(r.raw)
	}
	w.putArtifact(t)
	c, err := testweir.DialMQTT(w.MQTT, "weir", walkTenant, "d", onlyAcme+"-id")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, body := range []string{
		`{"eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"31.5","` + onlyAcme + `":"1"}}]}}`,
		`{"eventType":"Location","payload":{"entries":[{"latitude":"47.5","longitude":"8.25"}]}}`,
		`{"eventType":"Alert","payload":{"entries":[{"type":"` + onlyAcme + `","message":"` + onlyAcme + `"}]}}`,
	} {
		if err := c.Publish("weir/acme/devices/d/events", 1, false, []byte(body)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Puback(); err != nil {
			t.Fatal(err)
		}
	}
	c.Close() // and its end is waited for below: nothing of acme moves by itself afterwards
	do(fmt.Sprintf(`mutation { a: setEntityAttribute(request: {entityType: "device", entity: "d", scope: "SERVER", attrKey: %[1]q, valueType: "STRING", value: %[1]q}) { id } }`, onlyAcme), nil)
	do(`mutation { a: initiateDeviceClaim(request: {deviceToken: "d", claimSecret: "x"}) { id } b: initiateDeviceClaim(request: {deviceToken: "gone", claimSecret: "x"}) { id } }`, nil)
	w.ids = map[string]string{}
	for _, q := range seedDescribed(onlyAcme) {
		do(q, nil)
	}
	do(fmt.Sprintf(`mutation { publishEntityGroup(token: "EntityGroup-1", label: %q) { version } }`, onlyAcme), nil)
	for _, kind := range described() {
		typ := kind.Info().Type
		ops := fmt.Sprintf("%sByToken(tokens: [%q])", kind.Info().Plural, walkRow(typ))
		var out struct{ X []struct{ ID string } }
		w.Query("device-management", w.own, `{ x: `+ops+` { id } }`, nil, &out)
		if len(out.X) != 1 {
			t.Fatalf("%s: %v", typ, out)
		}
		w.ids[typ] = out.X[0].ID
	}
	w.settled(t)
	var out struct {
		Alarms struct{ Results []struct{ ID, Token string } }
	}
	w.Query("device-management", w.own, `{ alarms(criteria: {pageNumber: 1, pageSize: 10}) { results { id token } } }`, nil, &out)
	if len(out.Alarms.Results) != 1 {
		t.Fatalf("alarms: %v", out)
	}
	w.ids["Alarm"], w.ids["alarm"] = out.Alarms.Results[0].ID, out.Alarms.Results[0].Token
}

// putArtifact gives acme an artifact.
func (w *walk) putArtifact(t testing.TB) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, w.API+"/api/device-management/artifacts/fw?name="+onlyAcme, strings.NewReader(onlyAcme))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.own)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("PUT of an artifact: %d", resp.StatusCode)
	}
}

// settled waits until everything that was acknowledged is applied, and the end of the connection, too.
func (w *walk) settled(t testing.TB) {
	t.Helper()
	poll.Until(t, "the events and the presence of d", func() error {
		var out struct {
			DeviceStatesByDeviceToken []struct{ PresenceSource, LastDisconnectTime string }
		}
		w.Query("device-state", w.own, `{ deviceStatesByDeviceToken(deviceTokens: ["d"]) { presenceSource lastDisconnectTime } }`, nil, &out)
		if len(out.DeviceStatesByDeviceToken) != 1 || out.DeviceStatesByDeviceToken[0].PresenceSource != "ASSERTED" ||
			out.DeviceStatesByDeviceToken[0].LastDisconnectTime == "" {
			return fmt.Errorf("%v", out)
		}
		var ev struct {
			AlertEvents struct{ Pagination struct{ TotalRecords int } }
		}
		w.Query("event-management", w.own, `{ alertEvents(criteria: {pageNumber: 1, pageSize: 1}) { pagination { totalRecords } } }`, nil, &ev)
		if ev.AlertEvents.Pagination.TotalRecords != 1 {
			return errors.New("the alert is not there")
		}
		return nil
	})
}

// everythingOf is all that a tenant's administrator can read of the registry and of events.
func (w *walk) everythingOf(t testing.TB, token string) string {
	t.Helper()
	var all strings.Builder
	for _, area := range []string{"device-management", "event-management", "device-state", "event-processing", "dashboard-management"} {
		for _, op := range walkTable[area] {
			if op.kind != "query" || strings.HasSuffix(op.name, "ById") || op.anonymous || op.name == "ingestLedger" || op.owner != "" { // what is refused reads nothing
				continue
			}
			r := w.ask(t, area, caller{token: token}, w.document(area, op), nil)
			if r.status != http.StatusOK || len(r.Errors) > 0 {
				t.Fatalf("%s: %s", op.name, r.raw)
			}
			fmt.Fprintln(&all, op.name, r.raw)
		}
	}
	return all.String()
}
