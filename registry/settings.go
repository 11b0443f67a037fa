package registry

// DeviceSettings are the keys of the registry, in the section limits.
type DeviceSettings struct {
	DevicesPerTenant  int64 `yaml:"devices_per_tenant" default:"100000" zero:"default" doc:"Maximum number of devices of a tenant." reload:"yes"`
	TypesPerTenant    int64 `yaml:"device_types_per_tenant" default:"1000" zero:"default" doc:"Maximum number of device types of a tenant." reload:"yes"`
	ProfilesPerTenant int64 `yaml:"device_profiles_per_tenant" default:"1000" zero:"default" doc:"Maximum number of device profiles of a tenant." reload:"yes"`

	AttributesPerEntity int64 `yaml:"attributes_per_entity" default:"256" zero:"default" doc:"Maximum number of attributes of a device or another entity, over all scopes." reload:"yes"`
	DashboardsPerTenant int64 `yaml:"dashboards_per_tenant" default:"1000" zero:"default" doc:"Maximum number of dashboards of a tenant." reload:"yes"`
}
