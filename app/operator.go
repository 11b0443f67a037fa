package app

import "weir/model"

// Operator is what whoever holds the data directory may do with an instance, running or not. On a running one it is
// reached over the unix socket (Client); on one that stands still it works on the store under the lock.
type Operator interface {
	AdminOperator
	TenantOperator
	DeviceOperator
	DeviceImporter
	DeviceTokens
	SiteOperator
	Close() error
}

// local is the principal of whoever holds the data directory.
func local() *model.Principal { return &model.Principal{Kind: model.LocalOperator, Subject: "local"} }
