package app

// examples are the documents that the explorer of each area begins with: each answers something on an instance that has a
// device, for any member of a tenant.
var examples = map[string]string{
	"user-management": `{
  me { email firstName lastName }
  tenant { token name }
  functionalAreas
}
`,
	"user-management-admin": `{
  tenants { token name enabled tier { token } }
  roles { scope token authorities }
}
`,
	"user-management-settings": `{
  settings { key value overridden updatedBy }
}
`,
	"device-management": `{
  devices(criteria: {pageNumber: 1, pageSize: 10}) {
    results { token name deviceType { token } }
    pagination { totalRecords }
  }
}
`,
	"event-management": `{
  measurementEvents(criteria: {pageNumber: 1, pageSize: 10}) {
    results { deviceToken occurredTime name value unit }
    pagination { totalRecords }
  }
}
`,
	"device-state": `{
  deviceStates(criteria: {pageNumber: 1, pageSize: 10}) {
    results { deviceToken active lastActivityTime }
    pagination { totalRecords }
  }
}
`,
	"event-processing": `# Live: subscription { detectionStream(profileToken: "device") { ruleToken edge series value } }
query {
  detections(criteria: {pageNumber: 1, pageSize: 10}) {
    results { occurredTime deviceToken ruleToken severity edge value }
    pagination { totalRecords }
  }
}
`,
	"command-delivery": `# Live: subscription { commandStream(deviceToken: "device") { token name status deliveredTime responsePayload error } }
query {
  commands(criteria: {pageNumber: 1, pageSize: 10}) {
    results { token deviceToken name status queuedTime sentTime respondedTime }
    pagination { totalRecords }
  }
}
`,
	"dashboard-management": `{
  dashboards(criteria: {pageNumber: 1, pageSize: 10}) {
    results { token name description updatedAt }
    pagination { totalRecords }
  }
}
`,
	"outbound-connectors": `{
  connectors(criteria: {pageNumber: 1, pageSize: 10}) {
    results { token type config hasSecret updatedAt }
    pagination { totalRecords }
  }
  connectorTypes
  httpSecrets { token hosts use }
}
`,
	"notification-management": `{
  notificationPolicies(criteria: {pageNumber: 1, pageSize: 10}) {
    results { token enabled rules { severity recipients channel { token channelType enabled } } }
    pagination { totalRecords }
  }
  notificationStates(criteria: {pageNumber: 1, pageSize: 10}) {
    results { alarmToken alarmKey severity lastNotifiedAt notifyCount escalationLevel }
  }
}
`,
	"ai-inference": `{
  aiInferenceInfo { area }
}
`,
	"ai-inference-admin": `{
  aiProviders(criteria: {pageNumber: 1, pageSize: 10}) {
    results { token kind endpoint model enabled hasSecret }
    pagination { totalRecords }
  }
  aiProviderTierGrants { tier provider { token } isDefault }
}
`,
	"event-sources": `{
  _empty
}
`,
}
