package model

// Binding is what a verified connection may speak for: one device of one tenant, proven by one credential.
type Binding struct {
	Tenant     string
	TenantID   int64 // row id
	Device     string
	DeviceID   int64 // row id
	Credential int64 // row id
}
