package series

// Settings are the keys of the readings in memory, in the section limits.
type Settings struct {
	//limit:what series
	//limit:chapter What is kept
	//limit:bound {} of a device, {limits.series_per_tenant} of a tenant
	//limit:keys limits.series_per_tenant
	//limit:level weir_series_head_series
	//limit:met weir_series_refused_messages_total
	//limit:then a dead letter `series_limit`
	//limit:cost at most 512 bytes each while it is active
	SeriesPerDevice int `yaml:"series_per_device" default:"256" zero:"default" doc:"Maximum number of metrics of one device."`
	SeriesPerTenant int `yaml:"series_per_tenant" default:"100000" zero:"default" doc:"Maximum number of metrics of all devices of a tenant."`
}
