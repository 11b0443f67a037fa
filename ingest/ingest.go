// Package ingest is the one way in. A Intake stands behind every door: it decodes what a device sent, verifies the
// credential in the body, takes the readings from the tenant's ceiling, hands the record to the log and, once that is on
// disk, says how it ended. An Applier stands on the other side of the log: it resolves each record against the registry as
// of its place, judges it and keeps the results. DESIGN.md tells how the two fit together.
package ingest

import (
	"time"

	"weir/model"
)

// Arrival is a message as a door took it from the wire.
type Arrival struct {
	Transport string // transport, the ledger's key
	Source    string // event source id
	Tenant    string // named by topic or path; of the token pattern
	// Topic is the device that the transport names (MQTT), "" where only the body can (HTTP).
	Topic string
	// Body is looked at until Accept returns, not after.
	Body []byte
	// Conn is the verified connection, nil where the transport authenticates nobody (HTTP).
	Conn *model.Binding
	// ClientID, PacketID and Dup recognise a repeat of the transport; empty for HTTP.
	ClientID string
	PacketID uint16
	Dup      bool
	// Mute says that the transport cannot express a refusal (MQTT 3.1.1, QoS 0): what does not decode is acknowledged
	// through the log as a dead letter, and what is over the ceiling is dropped and counted.
	CannotRefuse bool
	// Patience is how long Accept may wait for room under the tenant's ceiling before it drops or refuses.
	CeilingWait time.Duration
}

// Outcome is how a message ended at the gate.
type Outcome uint8

// The fates. A door acknowledges Stored and Dropped, refuses Refused and leaves Withheld without an answer.
const (
	Stored   Outcome = iota // synced in the log
	Refused                 // turned away; tell the sender why
	Dropped                 // lost by rule and counted; the sender cannot be told
	Withheld                // not stored and not answered: the sender resends
)

// Reason is why a message was refused, dropped or became a dead letter. The words are the ledger's; the list is open.
type Reason string

// Reasons of the gate and of the applier.
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
	ReasonUnauthenticated Reason = "strangers"       // the bucket of those who verify as nobody
	ReasonDisabledTenant  Reason = "tenant-disabled"

	ReasonBadTime        Reason = "bad-time"
	ReasonUnknownTenant  Reason = "unknown-tenant"
	ReasonUnknownDevice  Reason = "unknown-device"
	ReasonBadCredential  Reason = "bad-credential"
	ReasonInvalidValue   Reason = "invalid-value"
	ReasonSeriesLimit    Reason = "series_limit"
	ReasonNoRelationship Reason = "no-relationships" // relationships do not exist yet
)

// Answer is what the gate says of an arrival.
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
