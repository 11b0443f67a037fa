package model

// Binding is the identity of a verified connection: one device of one tenant, proven by one credential.
type Binding struct {
	Tenant     string
	TenantID   int64 // row id
	Device     string
	DeviceID   int64 // row id
	Credential int64 // row id
}
