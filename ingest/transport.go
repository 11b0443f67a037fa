package ingest

import (
	"context"
	"time"

	"weir/model"
)

// Names of the transports that Weir has, as the ledger keeps them.
const (
	TransportMQTT = "mqtt"
	TransportHTTP = "http"
)

// Transport is one way for messages to come in. app builds it from the transport's own Config, starts it last and stops
// it first. A transport decodes what its peers send, hands it over as an Arrival and reports the answer in its own words;
// no transport imports another.
type Transport interface {
	// Name is the transport's key in the ledger.
	Name() string
	// Run serves until ctx ends. An error stops the instance.
	Run(ctx context.Context) error
	// Close takes no new peers, notifies those that are there where the protocol can, and returns once everything that was
	// accepted is answered. When ctx ends first it drops what is left and returns the error of ctx.
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
}

// SourceCounts are counted since the start.
type SourceCounts struct {
	Connected int64 // peers at this moment
	Received  int64 // packets that were parsed
	Ignored   int64 // packets that were never meant for this source
	Refused   int64 // peers and packets that were turned away
}
