package govern

import "weir/internal/setting"

// Settings are the keys of the platform's defaults, in the section governance.
type Settings struct {
	IngestMessagesPerSecond float64      `yaml:"ingest_messages_per_second" default:"1000" zero:"default" doc:"Readings per second and tenant." reload:"yes"`
	IngestBurst             int64        `yaml:"ingest_burst" default:"2000" zero:"default" doc:"Maximum burst of readings of a tenant; at least 256 apply." reload:"yes"`
	ShedPriority            int64        `yaml:"shed_priority" default:"30" min:"1" max:"100" zero:"default" doc:"1..100; priority of a tenant when load is shed." reload:"yes"`
	RegistryBytes           setting.Size `yaml:"registry_bytes" default:"64MiB" min:"1KiB" zero:"default" doc:"Bytes that the devices, types, profiles, versions and other rows which a tenant makes may take." reload:"yes"`
	ManualFloor             int          `yaml:"manual_floor" min:"0" max:"3" doc:"0..3: the shedding level that the operator sets." reload:"yes"`
}
