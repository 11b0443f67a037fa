package provision

// ProfileSettings are the keys of provisioning, in the section limits.
type ProfileSettings struct {
	ProfilesPerTenant int64 `yaml:"provisioning_profiles_per_tenant" default:"1000" zero:"default" doc:"Maximum number of provisioning profiles of a tenant." reload:"yes"`
}
