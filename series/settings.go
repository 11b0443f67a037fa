package series

// Settings are the keys of the readings in memory, in the section limits.
type Settings struct {
	SeriesPerDevice int `yaml:"series_per_device" default:"256" zero:"default" doc:"Maximum number of metrics of one device."`
	SeriesPerTenant int `yaml:"series_per_tenant" default:"100000" zero:"default" doc:"Maximum number of metrics of all devices of a tenant."`
}
