package spool

import "weir/internal/setting"

// Capacity are the keys of what the log may hold, in the section ingest.
type Capacity struct {
	//limit:what bytes not yet applied
	//limit:chapter The durable log
	//limit:bound {}, pages included
	//limit:level weir_spool_bytes weir_spool_max_bytes weir_ingest_backpressure_cause{cause="bytes"}
	//limit:met weir_eventsources_total_msg_backpressured weir_ingest_refused_messages_total{reason="backpressure"}
	//limit:met weir_spool_refused_appends_total{reason="full"}
	//limit:then from 90 % to 80 %: HTTP 503, `Retry-After: 10`; with `broker.fail_closed` QoS 1 publishes wait unacknowledged. At 100 %
	//limit:then all messages wait or are refused; nothing acknowledged is discarded
	//limit:cost disk
	//limit:what the log being filled
	//limit:chapter The durable log
	//limit:bound 50 %
	//limit:keys ingest.spool_max_messages
	//limit:level weir_spool_bytes weir_ingest_slowed_delay_seconds{reason="fill"}
	//limit:met weir_ingest_slowed_messages_total{reason="fill"}
	//limit:then as for the lag of the applier, by how full it is: as much as is applied at 65 %, half of it from 95 % on
	MaxBytes setting.Size `yaml:"spool_max_bytes" default:"1GiB" min:"16MiB" doc:"Maximum bytes that may wait in the durable log."`

	//limit:what messages not yet applied
	//limit:chapter The durable log
	//limit:bound {}
	//limit:level weir_spool_kept_records weir_spool_max_records weir_ingest_backpressure_cause{cause="records"}
	//limit:met weir_spool_refused_appends_total{reason="full"}
	//limit:then as bytes, whichever is tighter
	//limit:cost disk
	MaxRecords int64 `yaml:"spool_max_messages" default:"10000000" min:"10000" zero:"default" doc:"Maximum number of messages that may wait in the durable log."`
}

// CommitSettings are the key of the committer, in the section spool.
type CommitSettings struct {
	CommitInterval setting.Interval `yaml:"commit_interval" default:"auto" doc:"How long a commit waits for more messages. auto: only while senders can add some, at most half a flush where a flush takes over 5 ms, otherwise 3 ms; a longer duration means less wear and more latency."`
}
