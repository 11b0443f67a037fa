package govern

import "weir/internal/setting"

// Settings are the keys of the platform's defaults, in the section governance.
type Settings struct {
	//limit:what readings of a tenant
	//limit:chapter What devices send
	//limit:bound {} a second, {governance.ingest_burst} at once, never fewer than 256 at once; its tier and itself may say otherwise
	//limit:keys governance.ingest_burst governance.shed_priority governance.manual_floor
	//limit:level weir_eventsources_total_inbound_messages
	//limit:met weir_govern_ceiling_refused_total weir_ingest_refused_messages_total{reason="ceiling"}
	//limit:then HTTP 429, `Retry-After: 1`; MQTT 5 PUBACK 0x97; MQTT 3.1.1 and QoS 0: not read for up to half of the keep-alive, at most
	//limit:then 5 min, then acknowledged, dropped and counted
	//limit:cost a bucket for each tenant
	IngestMessagesPerSecond float64 `yaml:"ingest_messages_per_second" default:"1000" zero:"default" doc:"Readings per second and tenant." reload:"yes"`
	IngestBurst             int64   `yaml:"ingest_burst" default:"2000" zero:"default" doc:"Maximum burst of readings of a tenant; at least 256 apply." reload:"yes"`
	ShedPriority            int64   `yaml:"shed_priority" default:"30" min:"1" max:"100" zero:"default" doc:"1..100; priority of a tenant when load is shed." reload:"yes"`

	//limit:what bytes of all rows that a tenant makes: devices, credentials, types, profiles and their versions, assets, customers,
	//limit:what areas, relationships, groups, attributes, geofences and the versions of their set
	//limit:chapter What is kept
	//limit:bound {} of values and 64 bytes a row; its tier and itself may say otherwise (`registryBytes`)
	//limit:met weir_registry_refused_changes_total{cause="bytes"}
	//limit:then what makes or grows a row is refused with LIMIT_EXCEEDED, with the key; what shrinks or removes is not
	//limit:cost disk, about twice as many bytes with indexes
	RegistryBytes setting.Size `yaml:"registry_bytes" default:"64MiB" min:"1KiB" zero:"default" doc:"Bytes that the devices, types, profiles, versions and other rows which a tenant makes may take." reload:"yes"`

	//limit:what requests to AI providers of a tenant
	//limit:chapter The API and the operator
	//limit:bound {} a minute, {governance.ai_inference_burst} at once; its tier and itself may say otherwise
	//limit:keys governance.ai_inference_burst
	//limit:met weir_ai_inference_calls_total{outcome="throttled"}
	//limit:then THROTTLED with `retryAfterSeconds`; a draft is `unavailable`, or ends with its last candidate
	//limit:cost a bucket for each tenant
	AIInferenceRequestsPerMinute float64 `yaml:"ai_inference_requests_per_minute" default:"30" zero:"default" doc:"Requests to AI providers per minute and tenant." reload:"yes"`
	AIInferenceBurst             int64   `yaml:"ai_inference_burst" default:"15" zero:"default" doc:"Maximum burst of requests to AI providers of a tenant." reload:"yes"`

	//limit:what undelivered commands (QUEUED, HELD, PARKED) of a tenant
	//limit:chapter What is kept
	//limit:bound {}, a fifth of them for services and rules alone
	//limit:keys commands.service_reserve
	//limit:level weir_commanddelivery_open
	//limit:met weir_commanddelivery_rejected_total
	//limit:then `HELD_CEILING_EXCEEDED`; a batch is judged as a whole
	//limit:cost about 500 bytes of disk each, and the payload
	HeldCommandCeiling int64 `yaml:"held_command_ceiling" default:"10000" min:"100" max:"2147483647" zero:"default" doc:"Maximum number of undelivered commands (QUEUED, HELD, PARKED) of a tenant." reload:"yes"`

	//limit:what geofences of a tenant
	//limit:chapter What is kept
	//limit:bound {}, with {governance.geofence_position_ceiling} positions each and {governance.geofence_position_budget} in all; its
	//limit:bound tier and itself may say otherwise; 32 KiB of one as stored, 256 KiB a request
	//limit:keys governance.geofence_position_ceiling governance.geofence_position_budget
	//limit:met weir_registry_refused_changes_total{cause="rows"}
	//limit:then a create, and an update that adds positions, is refused with LIMIT_EXCEEDED
	//limit:cost of the bytes of the tenant's rows
	GeoFenceCeiling         int64 `yaml:"geofence_ceiling" default:"100" min:"1" max:"1000" zero:"default" doc:"Maximum number of geofences of a tenant." reload:"yes"`
	GeoFencePositionCeiling int64 `yaml:"geofence_position_ceiling" default:"512" min:"4" max:"4096" zero:"default" doc:"Maximum number of positions of a geofence over all its rings, the closing ones counted." reload:"yes"`
	GeoFencePositionBudget  int64 `yaml:"geofence_position_budget" default:"51200" min:"4" max:"2147483647" zero:"default" doc:"Maximum number of positions of all geofences of a tenant." reload:"yes"`

	ManualFloor int `yaml:"manual_floor" min:"0" max:"3" doc:"0..3: the shedding level that the operator sets." reload:"yes"`
}
