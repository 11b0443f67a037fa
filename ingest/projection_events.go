package ingest

import (
	"context"

	"weir/model"
	"weir/store"
)

// eventProjection keeps the locations and alerts of stored messages as rows, unique by offset and index.
type eventProjection struct{ ProjectionBase }

// Record implements Projection.
func (eventProjection) Record(_ context.Context, e *Event, out *Effects) error {
	if !e.Stored() {
		return nil
	}
	switch m := e.Record.Message; m.Type {
	case model.LocationEvent:
		for i := range m.Locations {
			row := eventRow(e, i)
			row.Location = m.Locations[i]
			out.Step(func(tx store.Tx) error { return store.InsertLocation(tx, row) })
		}
	case model.AlertEvent:
		for i := range m.Alerts {
			row := eventRow(e, i)
			row.Alert = m.Alerts[i]
			out.Step(func(tx store.Tx) error { return store.InsertAlert(tx, row) })
		}
	}
	return nil
}

// eventRow is the row of an entry of a message.
func eventRow(e *Event, i int) *store.EventRow {
	r := e.Record
	return &store.EventRow{TenantID: e.TenantID, Device: e.DeviceID, DeviceToken: r.Device, Type: r.Message.Type, Offset: e.At.Offset, Index: uint32(i),
		Source: r.Source, AltID: r.Message.AltID, Occurred: e.Occurred[i], Received: r.Received.Wall.Micros()}
}
