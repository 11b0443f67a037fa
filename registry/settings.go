package registry

// DeviceSettings are the keys of the registry, in the section limits.
type DeviceSettings struct {
	DevicesPerTenant  int64 `yaml:"devices_per_tenant" default:"100000" zero:"default" doc:"Maximum number of devices of a tenant." reload:"yes"`
	TypesPerTenant    int64 `yaml:"device_types_per_tenant" default:"1000" zero:"default" doc:"Maximum number of device types of a tenant." reload:"yes"`
	ProfilesPerTenant int64 `yaml:"device_profiles_per_tenant" default:"1000" zero:"default" doc:"Maximum number of device profiles of a tenant." reload:"yes"`

	AssetsPerTenant        int64 `yaml:"assets_per_tenant" default:"100000" zero:"default" doc:"Maximum number of assets of a tenant." reload:"yes"`
	CustomersPerTenant     int64 `yaml:"customers_per_tenant" default:"100000" zero:"default" doc:"Maximum number of customers of a tenant." reload:"yes"`
	AreasPerTenant         int64 `yaml:"areas_per_tenant" default:"100000" zero:"default" doc:"Maximum number of areas of a tenant." reload:"yes"`
	EntityTypesPerTenant   int64 `yaml:"entity_types_per_tenant" default:"1000" zero:"default" doc:"Maximum number of asset types of a tenant, of its customer types and of its area types, each." reload:"yes"`
	FacetKeysPerTenant     int64 `yaml:"facet_keys_per_tenant" default:"1000" zero:"default" doc:"Maximum number of facet keys of a tenant." reload:"yes"`
	GroupsPerTenant        int64 `yaml:"groups_per_tenant" default:"1000" zero:"default" doc:"Maximum number of entity groups of a tenant." reload:"yes"`
	SelectorsPerTenant     int64 `yaml:"selectors_per_tenant" default:"64" zero:"default" doc:"Maximum number of selectors of a tenant in use: of active versions of groups, and of versions that rules of active profile versions are scoped to." reload:"yes"`
	RelationshipsPerDevice int64 `yaml:"relationships_per_device" default:"256" zero:"default" doc:"Maximum number of relationships of a device: those that begin at it, and its memberships in static groups." reload:"yes"`
	TrackedPerDevice       int64 `yaml:"tracked_relationships_per_device" default:"32" zero:"default" doc:"Maximum number of relationships of tracked types that begin at a device." reload:"yes"`

	AttributesPerEntity int64 `yaml:"attributes_per_entity" default:"256" zero:"default" doc:"Maximum number of attributes of a device or another entity, over all scopes." reload:"yes"`
	DashboardsPerTenant int64 `yaml:"dashboards_per_tenant" default:"1000" zero:"default" doc:"Maximum number of dashboards of a tenant." reload:"yes"`
}
