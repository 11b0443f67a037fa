package spool

import "weir/internal/setting"

// Capacity are the keys of what the log may hold, in the section ingest.
type Capacity struct {
	MaxBytes   setting.Size `yaml:"spool_max_bytes" default:"1GiB" min:"16MiB" doc:"Maximum bytes that may wait in the durable log."`
	MaxRecords int64        `yaml:"spool_max_messages" default:"10000000" min:"10000" zero:"default" doc:"Maximum number of messages that may wait in the durable log."`
}

// CommitSettings are the key of the committer, in the section spool.
type CommitSettings struct {
	CommitInterval setting.Interval `yaml:"commit_interval" default:"auto" doc:"auto: only while more is about to come, at most half a flush where a flush takes over 5 ms, else 3 ms; or a duration that trades latency for wear."`
}
