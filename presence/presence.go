// Package presence folds what is known of a device's connection into its state (Fold), and tracks the connections of an event
// source (Tracker). Fold is pure: no clock, no store. The
// applier calls it for every presence record, so that live and replay agree.
//
// A device is INFERRED, active while its events arrive, until the first authoritative transition of a transport makes it
// ASSERTED: from then on only connects and disconnects count. Only a demotion returns it.
package presence

import "weir/model"

// State is a device's presence as it is stored. The zero State is a device that was never heard of. Times are in the
// stored precision, so that a state read back orders claims exactly as the one in memory; 0 is "never".
type State struct {
	Active       bool
	Asserted     bool   // presence source ASSERTED, else INFERRED
	Source       string // id of the event source that last moved the state
	Session      uint64 // of the last accepted claim; 0 before the first
	PresenceTime model.Micros

	LastConnect    model.Micros
	LastDisconnect model.Micros
}

// Claim is what a source says about a device.
type Claim struct {
	model.Presence
	Source string // event source id
}

// Fold applies a claim. changed is false when the claim lost against what is known, and the state is then unchanged.
func Fold(s State, c Claim) (next State, changed bool) {
	if !wins(s, c) {
		return s, false
	}
	next, at := s, c.Occurred.Micros()
	switch c.State {
	case model.Connected:
		next.Active, next.LastConnect = true, at
	case model.Disconnected:
		next.Active, next.LastDisconnect = false, at
	case model.Demoted:
		// The active flag and the times stay as they are: the device is only judged by its activity from here on.
		next.Asserted = false
		return next, true
	}
	next.Asserted, next.Source, next.Session, next.PresenceTime = true, c.Source, c.Session, at
	return next, true
}

// wins is the order of claims. A session is one connection; a later connection has the higher number, so that a
// disconnect that arrives late cannot end the connection that followed it.
func wins(s State, c Claim) bool {
	at := c.Occurred.Micros()
	later := at > s.PresenceTime
	switch c.State {
	case model.Connected, model.Disconnected:
	case model.Demoted:
		return s.Asserted && c.Session == s.Session && later
	default:
		return false
	}
	switch {
	case c.Session > s.Session:
		return true
	case c.Session == s.Session:
		return later || at == s.PresenceTime && s.Active && c.State == model.Disconnected
	}
	// A lower session is a source that lost count of its numbers; it must name the session that it means to follow.
	return c.State == model.Connected && c.Expected == s.Session && later
}
