package command

import (
	"encoding/json"
	"time"

	"weir/model"
)

// Carrier is a transport that takes commands to devices. The service calls its methods from any goroutine; they must not block, and may
// call the Desk. Devices are row ids.
//
// The life of a packet, seen by a carrier:
//
//	Reachable ──► Offer ──► Claim ──► Dispatch ──► Ended
//
// A Taker may get the Dispatch of a new command without these. The carrier reports that a device is Reachable. When a command waits for it the service Offers the device; the carrier Claims
// when the connection can take a packet, not before, so that what waits is a device and never a packet. The Dispatch that it gets
// is committed and must be sent, or its end must be reported as Lost. Every Dispatch gets exactly one Ended; a crash of the process
// is an end that the service finds by itself.
type Carrier interface {
	// Traits are constant.
	Traits() Traits
	// Reach says how a device can be reached through the carrier now.
	Reach(device int64) Reach
	// Offer says that the device has a command to take: the carrier calls Desk.Claim for it as soon as it can take a packet, or at
	// once. It returns false when the carrier cannot reach the device any more. An offer is repeated; one that is not taken
	// needs no answer.
	Offer(device int64) bool
	// Rhythm returns when a device that sleeps is expected back, at the latest. asleep is false for one that does not sleep, or that
	// is unknown.
	Rhythm(device int64) (back time.Duration, asleep bool)
}

// Taker is a Carrier to which a command may come unasked. A command that is made while its device is there and has no other one that waits or
// is on its way needs no transaction for its claim: the one that makes it dispatches it, and the carrier takes it after the commit. The
// receipts of a Taker name their dispatch (Receipt.Nonce): one of all dispatches could be older than this one.
type Taker interface {
	Carrier
	// Ready reports whether the device can be sent a packet now: whether the carrier would claim one at once if it were offered the device.
	Ready(device int64) bool
	// Take is as the done of a Claim that has found a command: what cannot be sent any more ends as Lost.
	Take(Dispatch)
}

// Follower is a Carrier with exchanges that take long: it reports their progress, and is notified of their end.
type Follower interface {
	Carrier
	// Over says that a dispatch whose progress was reported is one no more, whatever ended it: an answer, a cancel, the life of the command. It must not block.
	Over(device int64, token, nonce string)
}

// Traits are what is constant of a carrier.
type Traits struct {
	// Name is stored with a dispatch that the carrier owes the end of, and is frozen: mqtt, http, sparkplug, lwm2m, external-mqtt.
	Name string
	// Sources are the event sources of the carrier: a device whose state was last moved by one of them, and that no carrier can
	// reach now, is the carrier's.
	Sources []string
	// Unacknowledged is how long a dispatch may be without its end until it counts as Lost; 0: until the carrier reports it.
	Unacknowledged time.Duration
	// Connected says that a dispatch ends with its connection, and so with a restart of Weir: what was sent before it and has no end
	// is Lost.
	Connected bool
	// Never says that the carrier cannot deliver a command to any of its devices: they are FAILED, undeliverable.
	Never bool
	// Holds says that commands of absent devices are HELD whatever the presence gate is set to: a device that polls finds them.
	Holds bool
	// ByAnswer says that a device takes the next command only when it has answered the one before: no acknowledgement makes room.
	ByAnswer bool
}

// Reach is how a device can be reached through a carrier.
type Reach uint8

// The ways.
const (
	Unknown Reach = iota // the carrier does not have the device; another may
	Absent               // the carrier's, and not there: its commands are HELD
	Present              // it can be offered a command
	Asleep               // there, and asleep: its commands are PARKED after a try
)

// Desk is what a carrier may ask of the service. No method blocks; all are safe for concurrent use.
type Desk interface {
	// Reachable reports that a device can be reached again: a connection, a subscription, a check-in, a poll, a link that is up. Its
	// HELD commands are queued again, its PARKED ones may be claimed, and the device is offered when there is anything. It
	// is cheap for a device without commands.
	Reachable(device int64)
	// Claim asks for the next command of a device, and calls done exactly once: with the command after the commit of its claim
	// survives a power cut, or with ok false when there is none to send now (there is none, one is on its way and not yet
	// acknowledged, or another claim of this device is under way). After false the service offers the device again when there is
	// one. done must not block. Claims, ends and answers of many devices share a commit.
	Claim(device int64, carrier string, done func(d Dispatch, ok bool))
	// Ended reports how a dispatch ended.
	Ended(Receipt)
	// Progress reports how far a dispatch is whose exchange takes long, and that it does: it does not count as stranded then.
	Progress(Progress)
}

// Progress is how far a dispatch is.
type Progress struct {
	DeviceID int64
	Token    string // of the command
	Nonce    string // of the dispatch
	Carrier  string
	Text     string // such as model.ProgressTransferring
	// Done is called exactly once, unless the service stops before: after the commit, with whether the dispatch is still one that is on its
	// way. It must not block.
	Done func(live bool)
}

// Dispatch is one try to bring a command to its device.
type Dispatch struct {
	TenantID int64
	DeviceID int64
	Device   string // token
	Token    string // of the command
	Name     string
	Payload  *string      // a JSON object; nil: none
	Nonce    string       // of this dispatch
	Expires  model.Micros // a dispatch that has not left by then ends as Lost: the life of the command is over
}

// Body returns the message as it goes to the device, JSON: token, deviceToken, name, dispatchNonce and, where there is one, payload.
func (d Dispatch) Body() []byte {
	m := struct {
		Token   string          `json:"token"`
		Device  string          `json:"deviceToken"`
		Name    string          `json:"name"`
		Nonce   string          `json:"dispatchNonce"`
		Payload json.RawMessage `json:"payload,omitempty"`
	}{Token: d.Token, Device: d.Device, Name: d.Name, Nonce: d.Nonce}
	if d.Payload != nil {
		m.Payload = json.RawMessage(*d.Payload)
	}
	body, err := json.Marshal(m)
	if err != nil { // the payload was checked when the command was made
		m.Payload = nil
		body, _ = json.Marshal(m)
	}
	return body
}

// Receipt is how a dispatch ended.
type Receipt struct {
	DeviceID int64
	// Token names the command. With Nonce "" the receipt is of its present dispatch, with both "" of every dispatch to the device that
	// the carrier owes an end: a poll that does not name what the one before it took.
	Token   string
	Nonce   string
	Carrier string
	End     End
	Text    string // of Undeliverable: why
}

// blanket reports whether a receipt is of every dispatch to its device.
func (r *Receipt) blanket() bool { return r.Token == "" && r.Nonce == "" }

// End is how a dispatch ended.
type End uint8

// The ends.
const (
	// Acknowledged: the device has the packet. The command stays SENT with its deliveredTime.
	Acknowledged End = iota
	// Unconfirmed: written, and nothing will say whether it arrived (QoS 0). The command stays SENT.
	Unconfirmed
	// Lost: the connection ended, or was gone, before the acknowledgement. HELD; the next dispatch has the same token and a new nonce.
	Lost
	// Unwritten: the packet could not be written although the device is there. QUEUED again, FAILED after five in a row.
	Unwritten
	// Slept: the device sleeps. PARKED.
	Slept
	// Undeliverable: it can never be delivered. FAILED with the text.
	Undeliverable
)
