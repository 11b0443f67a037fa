package command

import "weir/model"

// event is what moves a command.
type event uint8

const (
	claim       event = iota // a carrier takes it to its device
	acknowledge              // the device has the packet
	lose                     // the packet ended without an acknowledgement
	unwrite                  // the packet could not be written
	park                     // the device sleeps
	hold                     // the device is absent
	release                  // the device is back
	refuse                   // it can never be delivered
	succeed                  // the device answered
	fail                     // the device answered that it failed
	expire                   // its life is over
	cancel                   // an operator, or the batch
	remove                   // its device is deleted
	callOff                  // an operator, or the batch, while its device is given what it needs
	events                   // how many there are
)

const (
	queued     = model.CommandQueued
	held       = model.CommandHeld
	parked     = model.CommandParked
	sent       = model.CommandSent
	successful = model.CommandSuccessful
	failed     = model.CommandFailed
	timedOut   = model.CommandTimedOut
	expired    = model.CommandExpired
	cancelled  = model.CommandCancelled
)

// moves is the life of a command. What is not here changes nothing; final states have no entry.
var moves = map[State][events]State{
	queued: {claim: sent, hold: held, refuse: failed, succeed: successful, fail: failed, expire: expired, cancel: cancelled, remove: cancelled},
	held:   {claim: sent, release: queued, refuse: failed, succeed: successful, fail: failed, expire: expired, cancel: cancelled, remove: cancelled},
	parked: {claim: sent, refuse: failed, succeed: successful, fail: failed, expire: expired, cancel: cancelled, remove: cancelled},
	sent: {acknowledge: sent, lose: held, unwrite: queued, park: parked, refuse: failed, succeed: successful, fail: failed, expire: timedOut,
		remove: cancelled, callOff: cancelled},
}

// next returns what becomes of a command, and false when the event changes nothing. A command of a batch that was called off is not
// sent again.
func next(s State, e event, calledOff bool) (State, bool) {
	to := moves[s][e]
	if to == "" {
		return s, false
	}
	if calledOff && s == sent && to.Undelivered() {
		to = cancelled
	}
	return to, true
}
