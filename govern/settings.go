package govern

import "weir/internal/setting"

// Settings are the keys of the platform's defaults, in the section governance.
type Settings struct {
	IngestMessagesPerSecond float64      `yaml:"ingest_messages_per_second" default:"1000" zero:"default" doc:"Readings per second and tenant." reload:"yes"`
	IngestBurst             int64        `yaml:"ingest_burst" default:"2000" zero:"default" doc:"Maximum burst of readings of a tenant; at least 256 apply." reload:"yes"`
	ShedPriority            int64        `yaml:"shed_priority" default:"30" min:"1" max:"100" zero:"default" doc:"1..100; priority of a tenant when load is shed." reload:"yes"`
	RegistryBytes           setting.Size `yaml:"registry_bytes" default:"64MiB" min:"1KiB" zero:"default" doc:"Bytes that the devices, types, profiles, versions and other rows which a tenant makes may take." reload:"yes"`

	AIInferenceRequestsPerMinute float64 `yaml:"ai_inference_requests_per_minute" default:"30" zero:"default" doc:"Requests to AI providers per minute and tenant." reload:"yes"`
	AIInferenceBurst             int64   `yaml:"ai_inference_burst" default:"15" zero:"default" doc:"Maximum burst of requests to AI providers of a tenant." reload:"yes"`

	HeldCommandCeiling int64 `yaml:"held_command_ceiling" default:"10000" min:"100" max:"2147483647" zero:"default" doc:"Maximum number of undelivered commands (QUEUED, HELD, PARKED) of a tenant." reload:"yes"`

	GeoFenceCeiling         int64 `yaml:"geofence_ceiling" default:"100" min:"1" max:"1000" zero:"default" doc:"Maximum number of geofences of a tenant." reload:"yes"`
	GeoFencePositionCeiling int64 `yaml:"geofence_position_ceiling" default:"512" min:"4" max:"4096" zero:"default" doc:"Maximum number of positions of a geofence over all its rings, the closing ones counted." reload:"yes"`
	GeoFencePositionBudget  int64 `yaml:"geofence_position_budget" default:"51200" min:"4" max:"2147483647" zero:"default" doc:"Maximum number of positions of all geofences of a tenant." reload:"yes"`

	ManualFloor int `yaml:"manual_floor" min:"0" max:"3" doc:"0..3: the shedding level that the operator sets." reload:"yes"`
}
