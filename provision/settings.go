package provision

// ProfileSettings are the keys of provisioning, in the section limits.
type ProfileSettings struct {
	//limit:what provisioning profiles of a tenant
	//limit:chapter What is kept
	//limit:bound {}
	//limit:met weir_registry_refused_changes_total{cause="rows"}
	//limit:then LIMIT_EXCEEDED, with the key
	//limit:cost of the bytes of the tenant's rows
	ProfilesPerTenant int64 `yaml:"provisioning_profiles_per_tenant" default:"1000" zero:"default" doc:"Maximum number of provisioning profiles of a tenant." reload:"yes"`
}
