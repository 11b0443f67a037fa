package operate

import (
	"context"
	"time"

	"weir/ingest"
)

// SourceStatus is how an event source is.
type SourceStatus struct {
	ID             string           `json:"id"`
	Transport      string           `json:"transport"`
	State          string           `json:"state"` // up, down, shut
	Since          time.Time        `json:"since"`
	Owner          string           `json:"owner,omitempty"` // node that serves it, where only one may
	Address        string           `json:"address,omitempty"`
	LastError      string           `json:"lastError,omitempty"`
	LastMessage    *time.Time       `json:"lastMessage,omitempty"`
	Connected      int64            `json:"connected"`
	Received       int64            `json:"received"`
	Refused        int64            `json:"refused"`
	Reconnects     int64            `json:"reconnects"`
	Unacknowledged int64            `json:"unacknowledged"`
	DevicesMade    int64            `json:"devicesMade"`
	Ignored        map[string]int64 `json:"ignored,omitempty"`
	Dropped        map[string]int64 `json:"dropped,omitempty"`
	Unknown        []string         `json:"unknownDevices,omitempty"`
	Notes          []string         `json:"notes,omitempty"`
}

func (o *Operator) sources(context.Context, None) ([]SourceStatus, error) {
	return sourcesOf(o.deps.Sources()), nil
}

func sourcesOf(all []ingest.SourceStatus) []SourceStatus {
	out := make([]SourceStatus, 0, len(all))
	for _, s := range all {
		line := SourceStatus{ID: s.ID, Transport: s.Kind, State: string(s.State), Since: s.Since.UTC(), Owner: s.Owner, Address: s.Address, LastError: s.LastError,
			Connected: s.Counts.Connected, Received: s.Counts.Received, Refused: s.Counts.Refused, Reconnects: s.Counts.Reconnects, Unacknowledged: s.Counts.Unacknowledged,
			DevicesMade: s.Counts.DevicesMade, Ignored: s.Ignored, Dropped: s.Dropped, Unknown: s.Unknown, Notes: s.Notes}
		if !s.LastMessage.IsZero() {
			line.LastMessage = new(s.LastMessage.UTC())
		}
		out = append(out, line)
	}
	return out
}
