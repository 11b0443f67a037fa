package registry

// DeviceSettings are the keys of the registry, in the section limits.
type DeviceSettings struct {
	DevicesPerTenant  int64 `yaml:"devices_per_tenant" default:"100000" zero:"default" doc:"Maximum number of devices of a tenant." reload:"yes"`
	TypesPerTenant    int64 `yaml:"device_types_per_tenant" default:"1000" zero:"default" doc:"Maximum number of device types of a tenant." reload:"yes"`
	ProfilesPerTenant int64 `yaml:"device_profiles_per_tenant" default:"1000" zero:"default" doc:"Maximum number of device profiles of a tenant." reload:"yes"`

	AssetsPerTenant      int64 `yaml:"assets_per_tenant" default:"100000" zero:"default" doc:"Maximum number of assets of a tenant." reload:"yes"`
	CustomersPerTenant   int64 `yaml:"customers_per_tenant" default:"100000" zero:"default" doc:"Maximum number of customers of a tenant." reload:"yes"`
	AreasPerTenant       int64 `yaml:"areas_per_tenant" default:"100000" zero:"default" doc:"Maximum number of areas of a tenant." reload:"yes"`
	EntityTypesPerTenant int64 `yaml:"entity_types_per_tenant" default:"1000" zero:"default" doc:"Maximum number of asset types of a tenant, of its customer types and of its area types, each." reload:"yes"`
	FacetKeysPerTenant   int64 `yaml:"facet_keys_per_tenant" default:"1000" zero:"default" doc:"Maximum number of facet keys of a tenant." reload:"yes"`

	DashboardsPerTenant int64 `yaml:"dashboards_per_tenant" default:"1000" zero:"default" doc:"Maximum number of dashboards of a tenant." reload:"yes"`
}
