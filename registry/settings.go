package registry

// DeviceSettings are the keys of the registry, in the section limits.
type DeviceSettings struct {
	//limit:what devices of a tenant
	//limit:chapter What is kept
	//limit:bound {}
	//limit:met weir_registry_refused_changes_total{cause="rows"}
	//limit:then LIMIT_EXCEEDED, with the key
	//limit:cost some hundred bytes each
	DevicesPerTenant int64 `yaml:"devices_per_tenant" default:"100000" zero:"default" doc:"Maximum number of devices of a tenant." reload:"yes"`

	//limit:what device types, and device profiles, of a tenant
	//limit:chapter What is kept
	//limit:bound {} of each
	//limit:keys limits.device_profiles_per_tenant
	//limit:met weir_registry_refused_changes_total{cause="rows"}
	//limit:then LIMIT_EXCEEDED, with the key
	//limit:cost of the bytes of the tenant's rows
	TypesPerTenant    int64 `yaml:"device_types_per_tenant" default:"1000" zero:"default" doc:"Maximum number of device types of a tenant." reload:"yes"`
	ProfilesPerTenant int64 `yaml:"device_profiles_per_tenant" default:"1000" zero:"default" doc:"Maximum number of device profiles of a tenant." reload:"yes"`

	//limit:what assets, customers and areas of a tenant
	//limit:chapter What is kept
	//limit:bound {} of each
	//limit:keys limits.customers_per_tenant limits.areas_per_tenant
	//limit:met weir_registry_refused_changes_total{cause="rows"}
	//limit:then LIMIT_EXCEEDED, with the key
	//limit:cost of the bytes of the tenant's rows
	AssetsPerTenant    int64 `yaml:"assets_per_tenant" default:"100000" zero:"default" doc:"Maximum number of assets of a tenant." reload:"yes"`
	CustomersPerTenant int64 `yaml:"customers_per_tenant" default:"100000" zero:"default" doc:"Maximum number of customers of a tenant." reload:"yes"`
	AreasPerTenant     int64 `yaml:"areas_per_tenant" default:"100000" zero:"default" doc:"Maximum number of areas of a tenant." reload:"yes"`

	//limit:what asset types, customer types, and area types, of a tenant
	//limit:chapter What is kept
	//limit:bound {} of each
	//limit:met weir_registry_refused_changes_total{cause="rows"}
	//limit:then LIMIT_EXCEEDED, with the key
	//limit:cost of the bytes of the tenant's rows
	EntityTypesPerTenant int64 `yaml:"entity_types_per_tenant" default:"1000" zero:"default" doc:"Maximum number of asset types of a tenant, of its customer types and of its area types, each." reload:"yes"`

	//limit:what facet keys of a tenant
	//limit:chapter What is kept
	//limit:bound {}, 1,000 values each
	//limit:met weir_registry_refused_changes_total{cause="rows"}
	//limit:then LIMIT_EXCEEDED, with the key
	//limit:cost of the bytes of the tenant's rows
	FacetKeysPerTenant int64 `yaml:"facet_keys_per_tenant" default:"1000" zero:"default" doc:"Maximum number of facet keys of a tenant." reload:"yes"`

	//limit:what entity groups of a tenant
	//limit:chapter What is kept
	//limit:bound {}, a selector 32 comparisons and cost 100
	//limit:met weir_registry_refused_changes_total{cause="rows"}
	//limit:then LIMIT_EXCEEDED, with the key; a selector INVALID_INPUT
	//limit:cost of the bytes of the tenant's rows
	GroupsPerTenant int64 `yaml:"groups_per_tenant" default:"1000" zero:"default" doc:"Maximum number of entity groups of a tenant." reload:"yes"`

	//limit:what selectors of a tenant in use
	//limit:chapter What is kept
	//limit:bound {}
	//limit:met weir_registry_refused_changes_total{cause="rows"}
	//limit:then publish and rollback are refused with LIMIT_EXCEEDED, with the key
	SelectorsPerTenant int64 `yaml:"selectors_per_tenant" default:"64" zero:"default" doc:"Maximum number of selectors of a tenant in use: of active versions of groups, and of versions that rules of active profile versions are scoped to." reload:"yes"`

	//limit:what relationships of a device
	//limit:chapter What is kept
	//limit:bound {}, of these {limits.tracked_relationships_per_device} tracked; a type with those of more than 10,000 devices does not
	//limit:bound become tracked, or untracked, at once
	//limit:keys limits.tracked_relationships_per_device
	//limit:met weir_registry_refused_changes_total{cause="rows"}
	//limit:then LIMIT_EXCEEDED, with the key
	//limit:cost of the bytes of the tenant's rows
	RelationshipsPerDevice int64 `yaml:"relationships_per_device" default:"256" zero:"default" doc:"Maximum number of relationships of a device: those that begin at it, and its memberships in static groups." reload:"yes"`
	TrackedPerDevice       int64 `yaml:"tracked_relationships_per_device" default:"32" zero:"default" doc:"Maximum number of relationships of tracked types that begin at a device." reload:"yes"`

	//limit:what attributes of an entity
	//limit:chapter What is kept
	//limit:bound {} over all scopes, a value 16 KiB
	//limit:met weir_registry_refused_changes_total{cause="rows"}
	//limit:then LIMIT_EXCEEDED, with the key
	//limit:cost of the bytes of the tenant's rows
	AttributesPerEntity int64 `yaml:"attributes_per_entity" default:"256" zero:"default" doc:"Maximum number of attributes of a device or another entity, over all scopes." reload:"yes"`
}
