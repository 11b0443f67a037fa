// Package ingest accepts messages and computes results from them. Every transport hands its messages to an Intake: it decodes
// what a device sent, verifies the credential in the body, takes the readings from the tenant's ceiling, hands the record to
// the log and, once that is on disk, answers with the outcome. An Applier reads the other end of the log: it resolves each
// record against the registry as of its offset, judges it and stores the results. DESIGN.md describes how the two fit together.
package ingest

import (
	"context"
	"net/netip"
	"time"

	"weir/internal/setting"
	"weir/model"
	"weir/store"
)

// Arrival is a message as a transport took it from the wire.
type Arrival struct {
	Transport string // Transport.Name, by which the ledger can be narrowed
	Source    string // event source id, by which the ledger balances
	Tenant    string // named by topic, path or configuration; of the token pattern
	// Topic is the device that the transport names, "" if only the body names one (HTTP).
	Topic string
	// Body holds the bytes as they came: they are measured, hashed, and sealed where they do not decode. It is read until
	// Accept returns, not after.
	Body []byte
	// Message is what a transport with a format of its own decoded from Body; nil: Body is an ingest event in JSON. Its
	// bounds and form are checked as those of a JSON event. It belongs to the intake from here on.
	Message *model.Message
	// Flat says that Body is a flat body: one JSON object of metrics and their values instead of an ingest event.
	Flat bool
	// Reports says that Body is a device report: the attributes that the device sets and removes of itself.
	Reports bool
	// Report is a device report that a transport with a format of its own decoded from Body. Its bounds are checked as those of
	// one in JSON. It belongs to the intake from here on.
	Report *model.Report
	// Answers says that Body is the answer of the device to a command.
	Answers bool
	// Answer is an answer that a transport with a format of its own decoded from Body. Its bounds are checked as those of one in
	// JSON. It belongs to the intake from here on.
	Answer *model.Response
	// Credential is what the sender presents outside a flat body, a device report or a decoded message, such as in a header. It counts like one in
	// an ingest event.
	Credential Credential
	// From is the address of the sender, the zero Addr where there is none: wrong passwords are counted by it too.
	From netip.Addr
	// Fault is what the transport found wrong outside the body, fit to be sent to the device: the message is refused as undecodable.
	Fault string
	// FaultReason is the reason of a Fault; "": ReasonUndecodable.
	FaultReason Reason
	// Conn is the device that something outside the body vouches for: a connection, a handshake, the topic of a trusted
	// source. nil: the credential in the body has to.
	Conn *model.Binding
	// ClientID, PacketID and Dup recognise a repeat of the transport; empty for HTTP. PacketID 0 says that the sender waits
	// for no answer.
	ClientID string
	PacketID uint16
	Dup      bool
	// Link is the link over which an edge relayed the message, and Number its number there: a message whose number is known of the link is
	// a repeat. "": the sender reached this instance itself.
	Link   string
	Number uint64
	// CannotRefuse says that the transport cannot express a refusal (MQTT 3.1.1, QoS 0): what does not decode is acknowledged
	// through the log as a dead letter, and what is over the ceiling is dropped and counted.
	CannotRefuse bool
	// CeilingWait is how long Accept may wait for the tenant's ceiling before it drops or refuses.
	CeilingWait time.Duration
	// HoldFor is how long the message is held unanswered while the log is full, which slows the sender; negative: as long as
	// ctx lives. When that time is over, and at 0, it is dropped where CannotRefuse is set, else refused.
	HoldFor time.Duration
	// Partial says that a series limit sets aside the readings that it keeps out, and stores the rest: the transport combined
	// several readings into the message, and one surplus reading must not lose the others.
	Partial bool
}

// Outcome is the intake's decision about a message.
type Outcome uint8

// The outcomes. A transport acknowledges Stored and Dropped, refuses Refused and leaves Withheld without an answer.
const (
	Stored   Outcome = iota // synced in the log
	Refused                 // turned away; report why to the sender
	Dropped                 // dropped and counted; the protocol cannot report it to the sender
	Withheld                // not stored and not answered: the sender resends
)

// Reason is why a message was refused, dropped or became a dead letter. The words are the ledger's; the list is open.
type Reason string

// Reasons of the intake and of the applier.
const (
	ReasonNone            Reason = ""
	ReasonUndecodable     Reason = "undecodable"
	ReasonTooManyReadings Reason = "too-many-readings"
	ReasonCeiling         Reason = "ceiling"
	ReasonBackpressure    Reason = "backpressure"
	ReasonNotAuthorized   Reason = "not-authorized"
	ReasonTooLarge        Reason = "too-large"
	ReasonUnavailable     Reason = "log-unavailable" // the hand-over to the log failed
	ReasonNoConsumer      Reason = "no-consumer"     // a topic that nothing reads yet
	ReasonThrottled       Reason = "throttled"       // the user name waits after wrong passwords: the credential was not looked at
	ReasonBusy            Reason = "busy"            // too many credentials are being checked
	ReasonUnauthenticated Reason = "unauthenticated" // over the ceiling that all unauthenticated senders share
	ReasonDisabledTenant  Reason = "tenant-disabled"

	ReasonBadTime       Reason = "bad-time"
	ReasonUnknownTenant Reason = "unknown-tenant"
	ReasonUnknownDevice Reason = "unknown-device"
	ReasonBadCredential Reason = "bad-credential"
	ReasonInvalidValue  Reason = "invalid-value"
	ReasonOutOfRange    Reason = "out-of-range" // in the ledger only: of the readings of stored messages that have a mark
	ReasonSeriesLimit   Reason = "series_limit"
	ReasonOverLimit     Reason = "over-limit"       // the registry has as many rows as it may, or no room for more
	ReasonRelationship  Reason = "bad-relationship" // what it relates to, or its type, does not exist or cannot be related
	ReasonReport        Reason = "device-report"    // in the ledger only: of device reports that are stored

	// ReasonNoBirth is that of a message of Sparkplug whose metrics no birth names.
	ReasonNoBirth Reason = "no-birth"

	// Of dead letters of answers that moved no command: the ledger counts the messages as stored.
	ReasonUnprocessable Reason = "unprocessable"
	ReasonExhausted     Reason = "exhausted"
)

// Answer is how the intake answers an arrival.
type Answer struct {
	Outcome Outcome
	Reason  Reason
	// Text is one English line for the sender; it reveals no tenant, device or credential.
	Text string
	// RetryAfter is in whole seconds, 0 when the transport should give none.
	RetryAfter int
	// Offset of the record when Outcome is Stored.
	Offset model.Offset
}

// Names of the transports that Weir has, as the ledger keeps them.
const (
	TransportMQTT = "mqtt"
	TransportHTTP = "http"
	// TransportExternalMQTT reads brokers of others.
	TransportExternalMQTT = "external-mqtt"
	// TransportSparkplug is a host application of Sparkplug B at brokers of others.
	TransportSparkplug = "sparkplug"
	// TransportLwM2M is LwM2M over CoAP and DTLS.
	TransportLwM2M = "lwm2m"
	// TransportUplink is what edges relay.
	TransportUplink = "uplink"
	// TransportAPI is that of presence records that no transport brings: an operation of the API, or the backstop of presence, asks for
	// them. No message comes through it.
	TransportAPI = "api"
	// TransportConsole is that of test messages that a user sends through the API, and their event source.
	TransportConsole = "console"
	// TransportResend is the transport of dead letters that are sent again, and their event source: the ledger balances by source.
	TransportResend = "resend"
)

// Transport is one way for messages to come in. app builds it from the transport's own Config, starts it last and stops
// it first. A transport decodes what its peers send, hands it over as an Arrival and reports the answer in its own words;
// no transport imports another.
type Transport interface {
	// Name is the transport's key in the ledger.
	Name() string
	// Run serves until ctx ends. An error stops the instance.
	Run(ctx context.Context) error
	// Close accepts no new peers, notifies the connected ones if the protocol can, and returns when every accepted message is
	// answered. When ctx ends first it drops the rest and returns the error of ctx.
	Close(ctx context.Context) error
	// Drop ends the connections of the bindings for which f returns true: their credential, device or tenant has changed.
	Drop(f func(model.Binding) bool)
	// Sources returns the event sources that the transport serves.
	Sources() []SourceStatus
}

// SourceState says whether an event source can hear its devices.
type SourceState string

// The states of a source.
const (
	SourceDown SourceState = "down" // not started, or its link is cut
	SourceUp   SourceState = "up"
	SourceShut SourceState = "shut" // closed on purpose
	// SourceStandby is the state of a source that another node reads.
	SourceStandby SourceState = "standby"
)

// SourceStatus is what a transport reports about one event source.
type SourceStatus struct {
	ID    string // as in records and chunks: mqtt1
	Kind  string // the transport's name
	State SourceState
	Since time.Time // of State
	// Owner is the node that serves the source, where only one node may; "" where every node does.
	Owner       string
	LastError   string
	LastMessage time.Time // zero: none since the start
	Counts      SourceCounts
	// What a source that Weir connects to reports besides.
	Address string           // of the broker, without credentials
	Ignored map[string]int64 // packets that were never meant for this source, by reason
	Dropped map[string]int64 // by reason
	Unknown []string         // external ids that no device has, the first 100 since the start
	Notes   []string         // what is wrong or unusual now, a sentence each
}

// SourceCounts are counted since the start.
type SourceCounts struct {
	Connected int64 // peers at this moment
	Received  int64 // packets that were parsed
	Ignored   int64 // packets that were never meant for this source
	Refused   int64 // peers and packets that were turned away
	// Of a source that Weir connects to:
	Reconnects     int64
	Unacknowledged int64 // packets that the broker waits for, at this moment
	DevicesMade    int64
}

// AuthSettings are the intake's key in the section auth.
type AuthSettings struct {
	DeviceAuth DeviceAuthMode `yaml:"device_auth_mode" default:"required" enum:"required optional disabled" doc:"Credential in an event: required, optional (verified when present) or disabled (not verified)." reload:"yes"`
}

// HoldSettings are the intake's key in the section broker.
type HoldSettings struct {
	// FailClosed holds arrivals with HoldFor from the first refusal of the log on.
	FailClosed bool `yaml:"fail_closed" doc:"Publishes wait unacknowledged while the log refuses messages. Alias: infrastructure.messaging.mqttFailClosed." reload:"yes"`
}

// TimeSettings are the keys of event times, in the section ingest.
type TimeSettings struct {
	MaxFutureSkew time.Duration `yaml:"max_future_skew" default:"5m" doc:"An event time further after its receipt is replaced by receipt + this."`
	MaxAge        time.Duration `yaml:"max_age" default:"8784h" zero:"no" doc:"An event older than this at its receipt is a dead letter."`
}

// DedupeSettings are the keys of de-duplication, in the section ingest.
type DedupeSettings struct {
	//limit:what altIds kept for deduplication
	//limit:chapter What is kept
	//limit:bound {}, {ingest.dedupe_max_bytes}; less where memory is small
	//limit:keys ingest.dedupe_max_bytes limits.memory
	//limit:level weir_ingest_dedupe_entries weir_ingest_dedupe_span_seconds
	//limit:then the oldest are evicted; a metric shows the span covered
	//limit:cost 40 bytes each, of `altIds`
	DedupeWindow   time.Duration `yaml:"dedupe_window" default:"336h" zero:"no" doc:"How long an altId is remembered, by receive time."`
	DedupeMaxBytes setting.Size  `yaml:"dedupe_max_bytes" default:"64MiB" min:"1MiB" doc:"Maximum memory for remembered altIds."`
}

// CheckpointSettings are the keys of checkpoints, in the section spool.
type CheckpointSettings struct {
	//limit:what log since the last checkpoint
	//limit:chapter The durable log
	//limit:bound {} of records, an eighth of the log's bytes or messages, an hour, or the head's memory, whichever comes first
	//limit:keys spool.head_age
	//limit:level weir_series_head_bytes weir_series_head_readings
	//limit:met weir_ingest_checkpoints_total
	//limit:then a checkpoint is written; at most two are in memory, and the applier waits for the older one
	//limit:cost of `head`
	ReplayBytes setting.Size  `yaml:"replay_bytes" default:"64MiB" min:"64KiB" doc:"A checkpoint is written when the log after the last checkpoint is larger than this."`
	HeadAge     time.Duration `yaml:"head_age" default:"1h" zero:"no" doc:"A checkpoint is written when the oldest reading outside a checkpoint is older than this."`
}

// DiskSettings are the key of the gauge, in the section spool.
type DiskSettings struct {
	//limit:what free disk
	//limit:chapter The durable log
	//limit:bound {} stay free, on a small disk a twentieth
	//limit:level weir_disk_free_bytes weir_ingest_disk_reserve_bytes weir_ingest_backpressure_cause{cause="disk"}
	//limit:level weir_ingest_backpressure_full
	//limit:met weir_eventsources_total_msg_backpressured
	//limit:then below: as bytes at 90 %, until five quarters are free; below half of it: as 100 %, until three quarters are
	//limit:cost disk
	//limit:what rows made while the disk is nearly full
	//limit:chapter What is kept
	//limit:bound none below the disk reserve; 6 MiB of the disk, at most half of that reserve, are kept for deletes and sign-in on a full
	//limit:bound one
	//limit:level weir_disk_free_bytes
	//limit:met weir_registry_refused_changes_total{cause="disk"}
	//limit:then what makes or grows a row is refused with UNAVAILABLE; what shrinks or removes is not
	//limit:cost disk
	DiskReserve setting.Size `yaml:"disk_reserve" default:"64MiB" zero:"default" doc:"Free disk below which new messages are refused; on a disk smaller than 20 times this, a twentieth of it."`
}

// DeadLetterSettings are the keys of dead letters, in the section limits.
type DeadLetterSettings struct {
	//limit:what dead letters of a tenant
	//limit:chapter What is kept
	//limit:bound {}, {limits.dead_letter_bytes_per_tenant}, {history.dead_letter_retention}
	//limit:keys limits.dead_letter_bytes_per_tenant history.dead_letter_retention
	//limit:level weir_dead_letters
	//limit:met weir_dead_letters_trimmed_total weir_history_removed_total{kind="dead_letters"}
	//limit:then the oldest are removed; the ledger still counts them
	//limit:cost disk
	DeadLetters     int64        `yaml:"dead_letters_per_tenant" default:"100000" zero:"default" doc:"Maximum number of stored dead letters of a tenant; the oldest are removed first."`
	DeadLetterBytes setting.Size `yaml:"dead_letter_bytes_per_tenant" default:"64MiB" zero:"default" doc:"Maximum bytes of the stored dead letters of a tenant."`
}

func (s DeadLetterSettings) bound() store.DeadLetterBound {
	return store.DeadLetterBound{Rows: s.DeadLetters, Bytes: int64(s.DeadLetterBytes)}
}
