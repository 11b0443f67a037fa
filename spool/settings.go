package spool

import "weir/internal/setting"

// Capacity are the keys of what the log may hold, in the section ingest.
type Capacity struct {
	MaxBytes   setting.Size `yaml:"spool_max_bytes" default:"1GiB" min:"16MiB" doc:"Maximum bytes that may wait in the durable log."`
	MaxRecords int64        `yaml:"spool_max_messages" default:"10000000" min:"10000" zero:"default" doc:"Maximum number of messages that may wait in the durable log."`
}

// CommitSettings are the key of the committer, in the section spool.
type CommitSettings struct {
	CommitInterval setting.Interval `yaml:"commit_interval" default:"auto" doc:"How long a commit waits for more messages. auto: only while senders can add some, at most half a flush where a flush takes over 5 ms, otherwise 3 ms; a longer duration means less wear and more latency."`
}
