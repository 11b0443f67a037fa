package app_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"weir/app"
	"weir/config"
	"weir/internal/test/keylimit"
	"weir/internal/test/made"
	"weir/operate"
)

// bounded is something that grows with what comes from outside, and where it ends.
type bounded struct {
	what, bound string
	keys        []string // of the configuration
	level, met  []string // metrics: how much there is, and how often the bound was met
	then        string   // what happens at the bound
	cost        string
}

// chapter is a part of the page.
type chapter struct {
	title string
	rows  []bounded
}

// evicts is what a full HTTP listener does.
const evicts = "a new one evicts another: of the source address (IPv4 address, IPv6 /64) with the most connections, the one whose last finished request is longest ago. One whose request is being handled stays; while all are, further ones wait in the system's queue. Half full: idle ones are closed after 10 s"

// fixed are the chapters with the limits that have no key of their own, and those that are shares of limits.memory. What has a key is
// declared beside it, see package keylimit.
var fixed = []chapter{
	{"What devices send", []bounded{
		{"readings of a message", "256", nil, nil, metrics(`weir_ingest_refused_messages_total{reason="too-many-readings"}`),
			"the whole message is refused: HTTP 400; MQTT 5 0x99; MQTT 3.1.1 acknowledged, a dead letter", ""},
		{"an MQTT packet", "1 MiB; a CONNECT 64 KiB", nil, nil, metrics(`weir_broker_disconnects_total{cause="packet-too-large"}`), "the connection ends, MQTT 5 gets 0x95", "grows with what has arrived"},
		{"packets, and bodies, over 64 KiB being read", "32 of each; fewer where memory is small", keys("limits.memory"), metrics("weir_broker_large_packets", "weir_broker_max_large_packets", "weir_httpingest_large_bodies", "weir_httpingest_max_large_bodies"),
			metrics("weir_broker_large_packet_waits_total", "weir_httpingest_large_body_waits_total", `weir_broker_disconnects_total{cause="stalled-packet"}`, "weir_httpingest_large_bodies_stopped_total"), "others wait to be read; while they do, one of which nothing arrives for a second, or less than 8 KiB a second, is stopped and its connection closed", "1 MiB each, of `large bodies`"},
		{"of one tenant (MQTT), of all clients of open topics, of one source address (HTTP)", "a quarter of them", nil, metrics("weir_broker_large_packets", "weir_httpingest_large_bodies"), metrics("weir_broker_large_packet_waits_total", "weir_httpingest_large_body_waits_total"), "its further ones wait, those of others do not", ""},
		{"messages of unauthenticated senders", "100 a second, 1 MiB a second, all of them together", nil, metrics("weir_govern_unknown_tenant_buckets"), metrics("weir_govern_unauthenticated_refused_total", `weir_ingest_refused_messages_total{reason="unauthenticated"}`),
			"HTTP 429, `Retry-After: 1`; MQTT 5 0x97", "1,024 names have their own bucket, all others share one"},
		{"copies of refused bodies for the rejected-payload buffer", "4 KiB each, 20 a second, 100 at once", nil, nil, metrics("weir_ingest_refused_copies_dropped_total"), "the copy is dropped; its sender received the refusal", "400 KiB at worst"},
	}},
	{"Sparkplug", []bounded{
		{"a message", "1 MiB, 16,384 metrics, 128 characters of a name, 8 templates within one another", nil, nil, metrics("weir_sparkplug_decode_errors_total"), "a dead letter, and the node is asked for its births; beyond 1 MiB the connection ends", ""},
		{"messages between the connection and what judges them", "4,096 and 8 MiB of a source", nil, metrics("weir_sparkplug_queued_messages"), metrics("weir_sparkplug_queue_waits_total"), "the connection is not read, which slows the broker", "8 MiB"},
		{"messages that wait for a birth", "256 and 1 MiB of a node, 16 MiB of a source", nil, metrics("weir_sparkplug_held_bytes"), metrics("weir_sparkplug_no_birth_total"), "a dead letter `no-birth`", "16 MiB"},
		{"nodes of a source; devices of a node", "10,000; 1,000", nil, metrics(`weir_sparkplug_nodes{state="online"}`, `weir_sparkplug_nodes{state="offline"}`, `weir_sparkplug_nodes{state="owing"}`), metrics("weir_sparkplug_too_many_total"), "the node that has been offline for longest is forgotten; while none is, further ones are not followed", "about 100 bytes for each metric of a birth"},
		{"texts of a node or device that are attributes", "500, 4 KiB each, once in 10 s", nil, nil, metrics(`weir_sparkplug_metrics_skipped_total{why="too-many"}`, `weir_sparkplug_metrics_skipped_total{why="too-large"}`), "not stored", "what waits to be reported"},
	}},
	{"The durable log", []bounded{
		{"runway", "30 s until the log is full, as the last ten seconds went", nil, metrics("weir_ingest_runway_seconds", `weir_ingest_backpressure_cause{cause="runway"}`), metrics("weir_eventsources_total_msg_backpressured"), "as bytes at 90 %, until it is 60 s or the applier has caught up", ""},
		{"lag of the applier: what a new message would wait for it", "2 s; 250 ms while some tenant costs the applier less than half of an equal share", nil, metrics("weir_eventprocessing_detect_lag_seconds", `weir_ingest_slowed_delay_seconds{reason="lag"}`), metrics(`weir_ingest_slowed_messages_total{reason="lag"}`),
			"tenants that cost at least half of an equal share are slowed: each acknowledgement waits until its turn at 1.25 times (at the bound) to half of the rate at which the tenant's readings are applied, at most 250 ms for each of its readings and 2 s; nothing is refused. The lag settles at twice the bound. While nothing is applied for 5 s, none is slowed", ""},
		{"bytes not yet synced", "8 MiB; less where memory is small", keys("limits.memory"), metrics("weir_spool_unsynced_bytes", "weir_spool_max_unsynced_bytes"), metrics("weir_spool_blocked_appends_total"), "the transport stops reading its connection, which slows the sender", "of `unsynced appends`"},
		{"batches for the applier in memory", "8 MiB; less where memory is small", keys("limits.memory"), metrics("weir_spool_tail_bytes"), metrics(`weir_spool_batches_read_total{from="disk"}`), "older batches are read from the disk", "of `log tail`"},
		{"one record; one append", "1 MiB + 64 KiB; twice that and 1,000 records", nil, nil, metrics(`weir_spool_refused_appends_total{reason="too_large"}`), "refused; transports refuse earlier", ""},
		{"metadata changes", "16 MiB of the log are reserved for them; a record is at most 1 MiB, a change 16 of them", nil, nil, nil, "the change is refused with LIMIT_EXCEEDED", "disk"},
	}},
	{"Connections", []bounded{
		{"MQTT connections of one device, by client ids", "1,000", nil, nil, metrics(`weir_broker_refused_connects_total{reason="busy"}`), "CONNACK 0x89, for 3.1.1 return code 3", ""},
		{"connections without a CONNECT", "1,024, 10 s each", nil, metrics("weir_broker_handshakes"), metrics(`weir_broker_refused_connects_total{reason="handshakes"}`), "the oldest is closed", "64 KiB each at worst"},
		{"silence of an MQTT connection", "one and a half times its keep-alive: in MQTT 5 of at most 600 s, which the CONNACK announces; in 3.1.1 the client's own, 0 for none; a packet that has begun 15 min", nil, nil, metrics(`weir_broker_disconnects_total{cause="keep-alive-timeout"}`), "the connection ends, its will is published, MQTT 5 gets 0x8D; without a keep-alive TCP finds that the other end is gone, within minutes", ""},
		{"connections of devices that get their credential", "100, 60 s each", nil, metrics("weir_broker_provisioning_connections"), metrics(`weir_broker_refused_connects_total{reason="busy"}`), "CONNACK 0x89, for 3.1.1 return code 3", "as other MQTT connections"},
		{"publishes in flight", "256 of a connection", nil, metrics("weir_broker_pending_acks"), metrics(`weir_broker_disconnects_total{cause="receive-maximum-exceeded"}`), "MQTT 5: the connection ends with 0x93; MQTT 3.1.1: not read until there is room", "the messages themselves count as unsynced"},
		{"packets that a client does not read", "64 packets or 10 s", nil, nil, metrics(`weir_broker_disconnects_total{cause="slow-reader"}`), "the connection ends", "2 KiB and 64 packets"},
		{"sessions of disconnected clients", "10,000, 12 h", nil, metrics("weir_broker_kept_sessions"), metrics("weir_broker_kept_sessions_evicted_total"), "the one that was left first is evicted", "about 300 bytes and its will each"},
		{"connections of HTTP ingest", "4,096; fewer where memory is small", keys("limits.memory"), metrics("weir_httpingest_connections", "weir_httpingest_max_connections"), metrics(`weir_httpingest_connections_closed_total{reason="full"}`, `weir_httpingest_connections_closed_total{reason="idle"}`, "weir_httpingest_connection_waits_total"), evicts, "20 KiB each, of `HTTP connections`"},
		{"messages of an external source in decode", "105: 5 decoders and 20 messages that wait for each", nil, metrics("weir_source_decode_queue"), nil, "the broker is not read: what it has sent stays unacknowledged", "of what the broker sends, at most 1 MiB each"},
		{"a packet of an external broker", "1 MiB", nil, metrics("weir_source_connected"), metrics("weir_source_reconnects_total"), "the connection ends, and is made again", ""},
		{"commands of an external source that wait for the acknowledgement of its broker", "32, 30 s each", nil, nil, metrics(`weir_source_commands_total{outcome="lost",source="plant"}`), "the others wait; one without an acknowledgement is sent again", "a packet"},
		{"commands that wait for a value of an external source", "10,000", nil, metrics("weir_source_commands_waiting"), metrics(`weir_source_commands_total{outcome="refused",source="plant"}`), "those whose life is over make room; else the command is FAILED", "about 500 bytes each"},
		{"devices behind external sources that commands can reach", "100,000", nil, metrics("weir_source_command_devices"), nil, "those that were not heard for longest are forgotten: their commands are HELD until they are heard again", "about 300 bytes each"},
		{"external ids whose device is remembered", "50,000", nil, metrics("weir_registry_adopted_ids"), nil, "the least recently used is looked up again", "about 300 bytes each"},
		{"values of a payload that a mapping decodes", "4,096, nested 8 deep; 64 texts as attributes", nil, metrics("weir_source_received_total"), metrics("weir_eventsources_total_msg_failed_decode"), "with more values a dead letter `undecodable`; deeper ones and further texts are left out", ""},
		{"connections of the API", "2,048; fewer where memory is small; headers 32 KiB within 10 s", keys("limits.memory"), metrics("weir_http_connections", "weir_http_max_connections"), metrics(`weir_http_connections_closed_total{reason="full"}`, `weir_http_connections_closed_total{reason="idle"}`, "weir_http_connection_waits_total"), "as those of HTTP ingest; a WebSocket is being handled once it has signed in", "20 KiB each, of `API connections`"},
		{"requests for commands over HTTP that wait", "1,000, one of a device", nil, metrics("weir_httpingest_polls", "weir_httpingest_max_polls"), metrics(`weir_httpingest_requests_total{code="429"}`), "refused with 429, `Retry-After: 1`; a newer one of a device ends the older", "20 KiB each, of `HTTP connections`"},
		{"devices remembered that fetch their commands", "100,000", nil, metrics("weir_httpingest_polling_devices"), nil, "those that have not asked for longest are forgotten until they ask again", "50 bytes each"},
		{"requests of an LwM2M device", "20 a second, 100 at once; 16 wait, with its notifications", nil, nil, metrics(`weir_lwm2m_messages_total{kind="rate"}`, `weir_lwm2m_messages_total{kind="busy"}`), "4.29; what has no room is not answered, and the device sends it again", ""},
		{"LwM2M bootstrap", "1,000 sessions, silent for 1 min; 3 min for a bootstrap; 4 keys of a device", nil, metrics("weir_lwm2m_bootstrap_sessions"), metrics(`weir_lwm2m_bootstrap_total{outcome="failed"}`), "no handshake begins; the session ends; the oldest key that was never used is removed", "some 80 KiB each"},
		{"commands without PUBACK on a connection", "64, or the client's receive maximum", nil, metrics("weir_broker_command_listeners"), nil, "none is claimed before there is room; one that is not acknowledged within 30 s is HELD", ""},
		{"what a device may read of itself: its `SHARED` attributes", "64 KiB; one set of a connection on its way", nil, metrics("weir_broker_attribute_listeners"), metrics("weir_broker_attribute_sets_too_large_total"),
			"a larger set is named by its revision and not sent; changes that come before the PUBACK are one. Sets are read 16 at a time, one read after the other", "64 KiB until it is written"},
		{"an answer to a command", "64 KiB of payload, 4 KiB of error", nil, nil, metrics("weir_eventsources_total_msg_failed_decode"), "refused as undecodable", ""},
		{"the rate of an HTTP body, of ingest and API", "5,000 bytes or all of it within 20 s, then 5,000 in each 10 s", nil, nil, metrics(`weir_httpingest_connections_closed_total{reason="slow-body"}`, `weir_http_connections_closed_total{reason="slow-body"}`), "the connection is closed", ""},
		{"connections of the metrics listener", "64, of which 4 are answered at a time", nil, metrics("weir_metrics_connections", "weir_metrics_max_connections"), metrics(`weir_metrics_connections_closed_total{reason="full"}`, "weir_metrics_connection_waits_total"), "as those of HTTP ingest; 503 beyond the 4", ""},
		{"connections of the operator's socket", "64", nil, metrics("weir_socket_connections", "weir_socket_max_connections"), metrics(`weir_socket_connections_closed_total{reason="full"}`, "weir_socket_connection_waits_total"), "as those of HTTP ingest", ""},
		{"open files", "that of the system", nil, metrics("process_open_fds", "process_max_fds"), metrics("weir_broker_accept_errors_total"), "accepting pauses", ""},
	}},
	{"The API and the operator", []bounded{
		{"WebSocket connections", "1,000, 16 of an identity, 32 subscriptions each, 128 of an identity", keys("limits.memory"), metrics("weir_graphql_websocket_connections", "weir_graphql_max_websocket_connections", "weir_graphql_websocket_operations"),
			metrics(`weir_graphql_websocket_refused_total{limit="instance"}`, `weir_graphql_websocket_refused_total{limit="identity"}`, `weir_graphql_websocket_refused_total{limit="subscriptions"}`), "refused: 503, close code, or LIMIT_EXCEEDED", "of `API connections`"},
		{"of them, without a connection_init", "a quarter, 10 s each, messages 64 KiB", nil, metrics("weir_graphql_websocket_pending"), metrics(`weir_graphql_websocket_refused_total{limit="pending"}`), "the oldest is closed", ""},
		{"of them, without a token", "a half, 16 of an address, messages 64 KiB", nil, metrics("weir_graphql_websocket_connections"), metrics(`weir_graphql_websocket_refused_total{limit="unauthenticated"}`), "close code 1013", ""},
		{"values that a subscriber has not fetched", "256 and one batch", nil, metrics(`weir_stream_subscribers{stream="detections"}`, `weir_stream_subscribers{stream="measurements"}`), metrics(`weir_stream_slow_subscribers_total{stream="detections"}`, `weir_stream_slow_subscribers_total{stream="measurements"}`, "weir_graphql_websocket_slow_subscribers_total"), "the subscription ends and says why", "values are shared"},
		{"bodies of GraphQL that are read and run", "64 MiB, one 4 MiB, without a token 64 KiB; less where memory is small", keys("limits.memory"), metrics("weir_graphql_pending_bytes", "weir_graphql_max_pending_bytes"), metrics("weir_graphql_pending_refused_total"), "others wait 10 s, then 503, `Retry-After: 1`; a larger one is refused with LIMIT_EXCEEDED", "grows with what has arrived, of `GraphQL requests`"},
		{"of them, over 4 KiB being read", "an eighth of it, 64 KiB each; a quarter of these of one tenant, a quarter without a token", keys("limits.memory"), metrics("weir_graphql_medium_bodies", "weir_graphql_max_medium_bodies"), metrics("weir_graphql_pending_refused_total", "weir_graphql_bodies_stopped_total"), "others wait; while they do, one of which nothing arrives for a second, or less than 8 KiB a second, is stopped and its connection closed", "64 KiB each"},
		{"of them, over 64 KiB being read and run", "half of it, 4 MiB each, at least one; a quarter of these of one tenant", keys("limits.memory"), metrics("weir_graphql_large_bodies", "weir_graphql_max_large_bodies"), metrics("weir_graphql_pending_refused_total", "weir_graphql_bodies_stopped_total"), "likewise", "4 MiB each"},
		{"answers of GraphQL", "one 32 MiB, all together an eighth of `GraphQL results`", keys("limits.memory"), metrics("weir_graphql_result_bytes", "weir_graphql_max_result_bytes"), metrics("weir_graphql_results_refused_total"), "LIMIT_EXCEEDED for the one, UNAVAILABLE for all together", "of `GraphQL results`"},
		{"prepared documents", "16 MiB; less where memory is small", keys("limits.memory"), metrics("weir_graphql_document_cache_bytes", "weir_graphql_max_document_cache_bytes"), metrics("weir_graphql_document_cache_evictions_total"), "the least recently used go", "of `GraphQL documents`"},
		{"bodies of commands over 64 KiB", "64 MiB (a site file), else 16 MiB; less where memory is small", keys("limits.memory"), metrics("weir_socket_command_bytes", "weir_socket_max_command_bytes"), metrics("weir_socket_command_waits_total"), "others wait; larger ones are refused with LIMIT_EXCEEDED", "of `commands`"},
		{"traces of a device's messages through the API", "2 at a time, over 7 days and 100,000 messages at most", nil, nil, nil, "refused: THROTTLED, a longer span and more messages LIMIT_EXCEEDED", "of the reads of the database"},
		{"rounds of checks through the API", "one at a time, shown for 10 s", nil, nil, nil, "others wait for what it finds; none is refused", ""},
		{"lines of the log in memory", "5,000, 1 MiB; 2 KiB of a message and of its attributes; 32 components with a level of their own", nil, metrics("weir_log_kept_lines", "weir_log_kept_bytes"), nil, "the oldest are dropped; `instanceLog` says how many were missed", "1 MiB"},
		{"rates of the last hour", "20,000 counts of a tenant at a transport in 10 s, all tenants together", nil, metrics("weir_ingest_rates_counts"), metrics("weir_ingest_rates_left_out_total"), "the oldest 10 s are forgotten; where one span alone has so many, further tenants are not counted in it", "about 100 bytes each"},
		{"unauthenticated senders that are shown", "200", nil, metrics("weir_ingest_unproven_senders"), metrics("weir_ingest_unproven_senders_evicted_total"), "the one that was seen least recently is forgotten", "at most 1 KiB each"},
		{"download links of backups", "16, one minute each; 2 downloads at once", nil, metrics("weir_backup_links"), nil, "the oldest link ends; a further download: 503, `Retry-After: 30`", "some hundred bytes each"},
		{"watchers of message outcomes", "64, of one tenant 16, 256 messages each", nil, metrics("weir_tail_watchers"), metrics("weir_tail_dropped_messages_total"), "LIMIT_EXCEEDED; messages are dropped and their number is shown", "some KiB each"},
		{"password hashes", "2 at a time; 32 and 256 wait; 5 a second for credentials in messages that prove nothing; after a wrong password of a device its slot rests three times as long as the hash took", nil, metrics(`weir_auth_password_hash_waiting{lane="api"}`, `weir_auth_password_hash_waiting{lane="transport"}`), metrics(`weir_auth_password_hash_refused_total{lane="api"}`, `weir_auth_password_hash_refused_total{lane="transport"}`), "refused as busy", "19 MiB each"},
		{"requests of devices that get their credential", "10 a minute of a source address, 10 a minute with a key and its secret; 5 password hashes a second for secrets that were not right before; 32,768 addresses, 16,384 keys and 4,096 secrets are remembered; a body 64 KiB", nil, nil, metrics(`weir_provisioning_requests_total{outcome="address"}`, `weir_provisioning_requests_total{outcome="key-rate"}`, `weir_provisioning_requests_total{outcome="hashes"}`), "HTTP 429 with `Retry-After`, MQTT busy", "about 200 bytes an address"},
		{"attempts to claim a device", "10 wrong secrets", nil, nil, metrics(`weir_device_claims_total{outcome="closed"}`), "the claim is closed", ""},
		{"names with failed passwords", "32,768, 10 min", nil, metrics("weir_auth_backoff_entries"), nil, "the least recent is evicted", "about 100 bytes each"},
		{"verified credentials in the cache", "32,768, 10 min", nil, metrics("weir_auth_device_credentials_cached"), nil, "the least recent is evicted", "about 200 bytes each"},
		{"sessions of an identity in a tenant", "64", nil, nil, metrics("weir_auth_sessions_evicted_total"), "the oldest ends", "disk"},
		{"sessions ended by a sign-out whose tokens have not expired", "16,384", nil, metrics("weir_auth_max_ended_sessions"), metrics("weir_auth_ended_sessions_forgotten_total"), "the first to have ended is forgotten: its tokens count until they expire", "about 100 bytes each"},
		{"a YAML document (configuration, site file)", "64 levels, 4,096 keys in one mapping, 2,000,000 values", nil, nil, nil, "refused with the line", "of the request"},
		{"a canvas of a rule", "256 KiB, 100 nodes, 200 edges, nested 64 deep; an expression with its computes 8,192 characters, all of them 64 KiB", nil, nil, nil, "refused with a diagnostic; after 100 of them the rest are left out", "of the request"},
		{"how a tenant is shown", "a logo of 256 KiB, a title of 64 and an attribution of 512 characters, addresses of 2,048", nil, nil, nil, "refused with INVALID_INPUT, an image that is sent over HTTP with 413", "of the bytes of the tenant's rows"},
		{"a setting of the instance", "64 KiB", nil, nil, nil, "refused with LIMIT_EXCEEDED", "disk"},
		{"AI providers of the instance", "1,000; params of 16 KiB, a secret 4 KiB", nil, nil, metrics(`weir_registry_refused_changes_total{cause="rows"}`), "LIMIT_EXCEEDED; longer values INVALID_INPUT", "disk"},
		{"writes that wait for the database", "1,024", nil, metrics("weir_store_queued_writes"), nil, "the next caller waits", ""},
		{"reads of the database for queries", "4 at a time; long ones, from 1,000 rows or pieces of rows on, 2 of these; of one tenant 2, long ones included", nil, metrics("weir_store_readers_in_use", `weir_store_waiting_reads{class="queries"}`, `weir_store_waiting_reads{class="scans"}`, "weir_store_tenant_waiting_reads", "weir_series_long_queries_total"), metrics(`weir_store_reads_refused_total{class="queries"}`, `weir_store_reads_refused_total{class="scans"}`), "others wait until their request times out (`WEIR_GRAPHQL_MAX_TIME`); the applier and devices do not", "of `store cache`"},
		{"reads of the database for credentials and presence", "2 at a time", nil, metrics(`weir_store_waiting_reads{class="devices"}`), metrics(`weir_store_reads_refused_total{class="devices"}`), "others wait until their connection times out; no query delays them", "of `store cache`"},
		{"reads of the whole database: backup, recount of the ledger, check", "2 at a time", nil, metrics(`weir_store_waiting_reads{class="bulk"}`), metrics(`weir_store_reads_refused_total{class="bulk"}`), "others wait until the command ends", "of `store cache`"},
	}},
	{"What is kept", []bounded{
		{"definitions of a device profile", "1,000 metrics, 500 commands, 500 rules", nil, nil, metrics(`weir_registry_refused_changes_total{cause="rows"}`), "refused with LIMIT_EXCEEDED", "of the bytes of the tenant's rows"},
		{"versions of a tenant's set of geofences", "1,000", nil, nil, metrics("weir_registry_geofence_rows_removed_total"), "a change removes the geometries that are in none of the newest versions", "of the bytes of the tenant's rows"},
		{"versions of a device profile, of an entity group, and of a dashboard", "100", nil, nil, metrics("weir_registry_versions_removed_total", "weir_dashboard_versions_removed_total"), "a publish removes the oldest version that is not the effective one, and that no rule is scoped to", "of the bytes of the tenant's rows"},
		{"bytes of rows that a change through the API writes", "512 KiB besides the largest row", nil, nil, metrics(`weir_registry_refused_changes_total{cause="size"}`), "refused with LIMIT_EXCEEDED", "a sync of the disk takes as long as it takes to write them, and acknowledgements wait behind it"},
		{"bytes of rows that the changes of a tenant through the API write", "512 KiB a second, 1 MiB at once", nil, nil, metrics(`weir_registry_refused_changes_total{cause="rate"}`), "a change waits up to 5 s, beyond it is refused with THROTTLED", "as above"},
		{"metadata that messages are judged by, of all tenants: devices, types, published profiles, what devices belong to", "6 % of the memory, at least 2 MiB: about 10,000 devices", keys("limits.memory"), metrics(`weir_memory_budget_bytes{part="metadata"}`, `weir_memory_held_bytes{part="metadata"}`), metrics(`weir_registry_refused_changes_total{cause="metadata"}`), "what adds to it is refused with LIMIT_EXCEEDED, with the key; once three quarters are taken, a tenant that has more than its share (as much as each other one, and one to come) is refused; what replaces counts as an addition; deletes work", "about 170 bytes a device, of `metadata`"},
		{"devices of a batch of commands", "10,000; 100 samples of each refusal are kept", keys(), metrics("weir_commanddelivery_queue"), metrics("weir_commanddelivery_rejected_total"), "`BATCH_TOO_LARGE`", "–"},
		{"payload and metadata of a command", "64 KiB each", keys(), metrics("weir_commanddelivery_open"), metrics("weir_commanddelivery_rejected_total"), "`COMMAND_REJECTED`", "disk"},
		{"dispatches of a device without an acknowledgement", "1; after 5 s the next command leaves", keys(), metrics("weir_commanddelivery_queue"), metrics("weir_commanddelivery_stranded_recovered_total"), "the others wait", "about 100 bytes for each device with one"},
		{"numbers of edges kept for deduplication", "2,112 ranges of each log of an edge, of 4,096 logs; 65,536 beyond the first 64 of each together", nil, metrics("weir_uplink_links", "weir_uplink_ranges"), metrics("weir_ingest_repeat_clients_evicted_total"), "of a log the oldest hole is closed; the log that was heard least recently is forgotten", "16 bytes a range"},
		{"messages in flight of an edge", "4,096, the Receive Maximum of its connection", nil, metrics("weir_broker_pending_acks"), metrics(`weir_broker_disconnects_total{cause="receive-maximum-exceeded"}`), "an edge keeps to it; another client's connection ends", "in the buffers of the connection and the log"},
		{"hellos and states of an edge", "8 at once, then one a second; documents 256 KiB, 64 waiting", nil, metrics("weir_uplink_documents_total"), metrics(`weir_uplink_documents_total{outcome="too-fast"}`), "PUBACK 0x97; while 64 documents wait the edge is not read", "of the connection"},
		{"installations of an edge", "16 of a device", nil, nil, metrics(`weir_uplink_findings_total{finding="EdgeReplaced"}`), "the one that was heard least recently is forgotten", "a row, of at most 10 KiB"},
		{"a file that was carried from an edge", "one at a time; frames of at most 1.4 MiB, 16,384 messages each, 64 epochs", nil, metrics(`weir_uplink_imports_total{outcome="taken"}`), metrics(`weir_uplink_imports_total{outcome="refused"}`),
			"another one is refused with CONFLICT; a file beyond a bound is refused whole", "one frame, at most 4 MiB"},
		{"numbers of an installation that were carried by hand", "64 ranges of each of 16 epochs", nil, nil, metrics("weir_uplink_imports_total"), "the lowest ranges are left out: the edge sends these again, as duplicates", "of its row"},
		{"devices of an edge that take commands", "10,000; 64 commands that the edge has, 60 s each", nil, metrics("weir_uplink_command_listeners"), nil, "further devices take none through it; further commands wait; one without an answer is HELD", "about 200 bytes a device"},
		{"repeats of MQTT clients", "the last 1,024 of each, 16 MiB; less where memory is small", keys("limits.memory"), metrics("weir_ingest_repeat_clients"), metrics("weir_ingest_repeat_clients_evicted_total"), "the least recently active client is evicted", "8 bytes each, of `repeats`"},
		{"attempts at other systems that were made, and whose end is not stored", "1,024, and those under way", nil, metrics("weir_actions_ends_to_be_stored"), metrics("weir_actions_unrecorded_total"), "no attempt begins; ends that cannot be stored are tried again every second", "an order each"},
		{"connections to other systems that are kept, of all tenants", "256, 2 min without a use", nil, metrics("weir_connectors_connections"), nil, "the one that is idle for the longest time is closed", "about 40 KiB each"},
		{"packets of an MQTT broker that a connector publishes to", "16 KiB", nil, nil, metrics(`weir_connectors_dispatch_total{action="publish",outcome="retry"}`), "the connection is closed", ""},
		{"tests of connectors of a tenant", "6 a minute, 10 s each", nil, metrics(`weir_connectors_dispatch_total{action="test",outcome="sent"}`), nil, "THROTTLED", "6 times of the minute for each tenant that tests"},
		{"messages out of Weir for a tenant", "100 a second, 200 at once; its tier and itself may say otherwise", nil, nil, metrics("weir_govern_outbound_waits_total"), "they wait for their turn in the outbox; commands do not take of it", "a bucket for each tenant"},
		{"dead letters of unauthenticated senders", "16 MiB", nil, metrics("weir_dead_letters"), metrics("weir_dead_letters_trimmed_total"), "the oldest are removed", "disk"},
		{"memory of the instance", "nine tenths of the container's or half of the machine's, at most 4 GiB, at least 64 MiB", keys("limits.memory"), metrics("weir_memory_limit_bytes", `weir_memory_budget_bytes{part="head"}`, `weir_memory_held_bytes{part="head"}`), nil, "divided among caches and queues; the Go runtime collects more often; with less than 64 MiB the start is refused (exit 3)", ""},
	}},
}

func keys(names ...string) []string    { return names }
func metrics(names ...string) []string { return names }

// chaptersOfLimits returns the page: in each chapter the limits of keys, in the order of the keys, then the others.
func chaptersOfLimits(t *testing.T) []chapter {
	t.Helper()
	page := slices.Clone(fixed)
	declared := keylimit.Declared(t, "..", config.Default())
	if len(declared) < 50 {
		t.Errorf("only %d limits are declared beside keys", len(declared))
	}
	ofKeys := map[string][]bounded{} // by chapter
	for _, l := range declared {
		ofKeys[l.Chapter] = append(ofKeys[l.Chapter], bounded{l.What, l.Bound, l.Keys, l.Level, l.Met, l.Then, l.Cost})
	}
	for i, c := range page {
		page[i].rows = append(ofKeys[c.title], c.rows...)
		delete(ofKeys, c.title)
	}
	for title, rows := range ofKeys {
		t.Errorf("%s: the page has no chapter %q", rows[0].what, title)
	}
	return page
}

// TestEveryLimitIsShown holds docs/limits.md against the limits that are declared beside keys and the table above, and these against a
// running instance and the configuration.
func TestEveryLimitIsShown(t *testing.T) {
	t.Parallel()
	in := runInstanceSet(t, app.Options{}, aSource)
	resp, err := http.Get("http://" + in.Listeners().At(operate.MetricsListener) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	scraped, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for line := range strings.Lines(string(scraped)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if i := strings.LastIndex(line, "} "); i > 0 {
			name = line[:i+1]
		}
		bare, _, _ := strings.Cut(name, "{")
		shown[name], shown[bare] = true, true
	}
	reference, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	page := chaptersOfLimits(t)
	for _, c := range page {
		for _, r := range c.rows {
			for _, m := range append(append([]string{}, r.level...), r.met...) {
				if !shown[m] {
					t.Errorf("%s: no metric %s is scraped", r.what, m)
				}
			}
			for _, k := range r.keys {
				if !strings.Contains(string(reference), "| `"+k+"` |") {
					t.Errorf("%s: the configuration has no key %s", r.what, k)
				}
			}
			if r.then == "" || r.bound == "" || len(r.level)+len(r.met)+len(r.keys) == 0 && !strings.Contains(r.then, "refused") {
				t.Errorf("%s is incomplete", r.what)
			}
		}
	}
	made.Part(t, "../docs/limits.md", "", limitsTables(page), "make generate")
}

func limitsTables(page []chapter) string {
	var b strings.Builder
	code := func(names []string) string {
		if len(names) == 0 {
			return "–"
		}
		return "`" + strings.Join(names, "`, `") + "`"
	}
	for _, c := range page {
		fmt.Fprintf(&b, "\n## %s\n\n| what | bound | key | how much there is | how often it was met | at the bound | it costs |\n|---|---|---|---|---|---|---|\n", c.title)
		for _, r := range c.rows {
			cost := r.cost
			if cost == "" {
				cost = "–"
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", r.what, r.bound, code(r.keys), code(r.level), code(r.met), r.then, cost)
		}
	}
	return b.String() + "\n"
}
