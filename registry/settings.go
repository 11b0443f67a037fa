package registry

// DeviceSettings are the key of devices, in the section limits.
type DeviceSettings struct {
	DevicesPerTenant int64 `yaml:"devices_per_tenant" default:"100000" zero:"default" doc:"Maximum number of devices of a tenant." reload:"yes"`
}
