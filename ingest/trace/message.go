package trace

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"weir/ingest"
	"weir/model"
	"weir/spool"
	"weir/store"
)

// errFound ends a walk through the log.
var errFound = errors.New("found")

// Message returns the record of a tenant at an offset of the log, nil where the log does not hold one, or no longer.
func (tr Tracer) Message(ctx context.Context, tenant string, at model.Offset) (found *model.Record, err error) {
	release := tr.Log.HoldTrim()
	defer release()
	if first, last := tr.Log.Bounds(); at < first || at > last {
		return nil, nil
	}
	err = ingest.LogBatches(ctx, tr.Log, at, func(b *spool.Batch) error {
		if at >= b.First && at < b.First+model.Offset(len(b.Records)) {
			r, err := model.DecodeRecord(b.Records[at-b.First].Data)
			if err != nil {
				return err
			}
			if ingest.Counted(r.Kind) && r.Account == tenant && tenant != "" {
				found = r
			}
		}
		return errFound
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return found, err
}

// Outcome says what became of a record that the log still holds.
func (tr Tracer) Outcome(ctx context.Context, r *model.Record, at model.Offset, tenantID, device int64) (Traced, error) {
	when := r.Received.Wall.Time()
	report, err := tr.Trace(ctx, Query{Tenant: r.Account, Device: r.Device, Since: when.Truncate(time.Microsecond), Until: when}, tenantID, device)
	if err != nil {
		return Traced{}, err
	}
	for _, m := range report.Messages {
		if m.Offset == at {
			return m, nil
		}
	}
	return Traced{Received: when, Offset: at, Transport: r.Transport, Outcome: OutcomeUnknown, InLog: true}, nil
}

// The bounds of what Edges looks at and answers.
const (
	maxEdgesLooked = 10_000
	maxEdges       = 100
)

// Edges are those of a device that a record caused, oldest first: at most 100, of the newest 10,000 that its times allow. A time that
// passed is no record's, nor is an edge of an anchor found here.
func (tr Tracer) Edges(ctx context.Context, r *model.Record, at model.Offset, tenantID, device int64) (found []model.Edge, err error) {
	if device == 0 {
		return nil, nil
	}
	received := r.Received.Wall.Micros()
	page := store.Page{Number: 1, Size: store.MaxPageSize}
	f := store.DetectionFilter{TenantID: tenantID, Device: device, From: received - micros(tr.MaxAge), To: received + micros(tr.MaxFutureSkew)}
	err = tr.Store.Read(ctx, func(tx store.Tx) error {
		for looked := 0; looked < maxEdgesLooked; looked += page.Size {
			edges, err := store.Detections(tx, f, page)
			if err != nil {
				return err
			}
			for i := range edges {
				e := &edges[i].Edge
				if e.ID.Offset == at && e.Received.Micros() == received && len(found) < maxEdges {
					found = append(found, *e)
				}
			}
			if len(edges) < page.Size {
				return nil
			}
			last := &edges[len(edges)-1]
			f.Before = &store.DetectionPosition{Occurred: last.Occurred, Row: last.Row}
		}
		return nil
	})
	slices.Reverse(found)
	return found, err
}

// Event is a message as an ingest event in JSON, without its identifier and its times: sent again, it is one of now. It is empty for
// what is no event of readings.
func Event(m *model.Message) string {
	if m == nil {
		return ""
	}
	var entries []any
	switch m.Type {
	case model.MeasurementEvent:
		entries = measurementEntries(m.Measurements)
	case model.LocationEvent:
		for _, l := range m.Locations {
			entry := map[string]any{}
			for name, v := range map[string]float64{"latitude": l.Latitude, "longitude": l.Longitude, "elevation": l.Elevation, "accuracy": l.Accuracy, "speed": l.Speed, "heading": l.Heading} {
				if !math.IsNaN(v) {
					entry[name] = text(v)
				}
			}
			entries = append(entries, entry)
		}
	case model.AlertEvent:
		for _, a := range m.Alerts {
			entry := map[string]any{"type": a.Type, "level": a.Level}
			if a.Message != "" {
				entry["message"] = a.Message
			}
			if a.Source != "" {
				entry["source"] = a.Source
			}
			entries = append(entries, entry)
		}
	}
	if len(entries) == 0 {
		return ""
	}
	b, err := json.Marshal(map[string]any{"eventType": m.Type.String(), "payload": map[string]any{"entries": entries}})
	if err != nil { // plain values
		return ""
	}
	return string(b)
}

func measurementEntries(all []model.Reading) (entries []any) {
	for i := 0; i < len(all); {
		values := map[string]string{}
		entry := all[i].Entry
		for ; i < len(all) && all[i].Entry == entry; i++ {
			values[all[i].Metric] = text(all[i].Value)
		}
		entries = append(entries, map[string]any{"measurements": values})
	}
	return entries
}

// text is a number as ingest events have it.
func text(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
