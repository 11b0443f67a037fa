// Package command brings commands to devices: it keeps them from createCommand to their end, decides when each may leave, and
// records what became of it.
//
//	command.go   a command, an order for one, and who says whether a device takes it
//	states.go    the life of a command as a pure table: state and event to state
//	carrier.go   what a transport that takes commands to devices implements, and what it may ask of the desk
//	response.go  the answer of a device
//	move.go      what an event makes of a stored command, and of its batch
//	create.go    orders, and their checks
//	batch.go     one command for many devices: pace, stop, resume, cancel
//	desk.go      what carriers ask: gathered into few transactions
//	sweep.go     what time does: ends of lives, holds, packets without an end
//	service.go   the service: what others call
//
// A command leaves Weir only after the commit that says so survives a power cut: the claim, or, where nothing is before
// a command of a caller, the one that makes it (see Taker). It writes SENT with a nonce, which
// identifies this one dispatch, so that an acknowledgement or an answer finds the dispatch that it belongs to. Commands of one
// device leave in the order of their row ids. Nothing is kept in memory but the ids of devices that have something to send.
package command

import (
	"weir/model"
	"weir/store"
)

// Command is a command as it is stored.
type Command = model.Command

// State is where a command is in its life.
type State = model.CommandState

// Order asks for a command.
type Order struct {
	TenantID int64
	// Token is the caller's idempotency key and becomes the token of the command: of the token pattern, at most 128 characters. A
	// repeat with the same device, name and payload returns the first command and makes none.
	Token    string
	Device   string // token
	Name     string // command key
	Payload  *string
	Metadata *string
	// Expires is when the command ends undelivered, 0 for the default life. ExpiresAt is the same as a caller wrote it, RFC 3339; it is
	// used where Expires is 0. Exact waives the minimum life of 60 s: a rule's command ends with its maxAge, however late it was ordered.
	Expires   model.Micros
	ExpiresAt *string
	Exact     bool
	// Sleeper says that Expires is a default that nobody wrote: for a device that sleeps, it is put off until its carrier expects
	// the device back, at most 24 h from now.
	Sleeper bool
	// Service lets the order use the part of the tenant's ceiling that is reserved for services and rules.
	Service bool
}

// Rejection says why a device does not take a command. It is data and no error: another try with the same order helps for
// HeldCeiling only. The codes are open.
type Rejection struct {
	Code   string `gql:"code"`
	Reason string `gql:"reason"`
}

// Codes of rejections. NoDevice, NotInVocabulary and BadParameters are of the Judge.
const (
	NotJSON         = "PAYLOAD_NOT_JSON"
	MetadataNotJSON = "METADATA_NOT_JSON"
	BadExpiry       = "EXPIRES_AT_INVALID"
	NoDevice        = "DEVICE_NOT_FOUND"
	TokenInUse      = "TOKEN_IN_USE"
	HeldCeiling     = "HELD_CEILING_EXCEEDED"
	Rejected        = "COMMAND_REJECTED"
	NotInVocabulary = "COMMAND_NOT_IN_VOCABULARY"
	BadParameters   = "PAYLOAD_SCHEMA_VIOLATION"
)

// Verdict is what a Judge says of one device.
type Verdict struct {
	Device    string // token
	DeviceID  int64  // 0: there is none
	Rejection        // Code "" : the device takes the command
}

// Judge says which devices of a tenant take a command with a payload (nil: without one), by the active version of their
// profiles, in the order of the argument. It is the one judgement of validateCommandEnqueue, createCommand, batches and the
// actions of rules.
type Judge func(tx store.Tx, tenant int64, devices []string, name string, payload *string) ([]Verdict, error)
