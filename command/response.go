package command

import (
	"weir/model"
	"weir/store"
)

// Response is the answer of a device to a command.
type Response struct {
	TenantID int64
	DeviceID int64  // of the topic or the credential: it must own the command
	Token    string // commandToken
	Nonce    string // dispatchNonce; "" for none
	Success  bool
	Payload  *string     // any JSON value as text; text that is no JSON is a JSON string by now
	Error    *string     // kept when Success is false only
	At       model.Nanos // receive time of its record
	Again    bool        // it was tried before: that there is no such command is counted once
}

// Answered is what an answer did.
type Answered uint8

// What an answer can do. All but Moved change nothing.
const (
	Moved    Answered = iota // the command is SUCCESSFUL or FAILED
	NoSuch                   // there is no such command
	NotOwner                 // it is another device's
	BadNonce                 // the nonce is missing where it is required, or is of no dispatch that may still be answered
	TooLate                  // the command is final
	NotSent                  // the command was never dispatched
	answers                  // how many there are
)

// String returns the outcome as metrics label it.
func (a Answered) String() string {
	return [...]string{"moved", "unknown", "not_owner", "bad_nonce", "final", "not_sent"}[a]
}

// Answerer moves the command of an answer, in the transaction that stores the answer as an event: a compare-and-set on token, nonce
// and state, so that a replay of the log changes nothing. NoSuch is no error: the caller tries again later, in a transaction of its
// own, and never while it applies the log.
type Answerer interface {
	Answer(tx store.Tx, r Response) (Answered, error)
}
