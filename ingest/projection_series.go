package ingest

import (
	"context"

	"weir/internal/faults"
	"weir/model"
	"weir/series"
	"weir/store"
)

// seriesProjection keeps the readings of stored messages, packed per series, and what is last known of devices.
type seriesProjection struct {
	ProjectionBase
	series *series.Series
	retry  *retrier
	frozen *series.Frozen
	gen    uint64
	points []series.Point // memory for those of one record
}

// admits reports whether all readings of a message may be kept, before the first series is opened: all or none.
func (s *seriesProjection) admits(ctx context.Context, tenant, device int64, m *model.Message) (bool, error) {
	if len(m.Measurements) == 0 {
		return true, nil
	}
	if fits, err := s.series.Admit(ctx, tenant, device, m.Measurements); err == nil {
		return fits, nil
	}
	return s.admitsAtLast(ctx, tenant, device, m)
}

// admitsAtLast asks until the store answers.
func (s *seriesProjection) admitsAtLast(ctx context.Context, tenant, device int64, m *model.Message) (fits bool, err error) {
	err = s.retry.until(ctx, "the series of a device cannot be read", func() (err error) {
		fits, err = s.series.Admit(ctx, tenant, device, m.Measurements)
		return err
	})
	return fits, err
}

// Record implements Projection.
func (s *seriesProjection) Record(ctx context.Context, e *Event, out *Effects) error {
	if !e.Stored() {
		return nil
	}
	m := e.Record.Message
	switch m.Type {
	case model.MeasurementEvent:
		s.points = s.points[:0]
		for i := range m.Measurements {
			s.points = append(s.points, point(e, i))
		}
		if err := s.series.Put(ctx, s.points); err != nil {
			return err // the device was read by admits; nothing is left that could fail
		}
		out.Readings(s.points)
	case model.LocationEvent:
		for i := range m.Locations {
			s.series.PutLocation(&store.LatestLocation{Device: e.DeviceID, TenantID: e.TenantID, DeviceToken: e.Record.Device, Location: m.Locations[i],
				Occurred: e.Occurred[i], Updated: e.Record.Received.Wall.Micros()}, e.At.Offset)
		}
	}
	return nil
}

// point is one reading of a message.
func point(e *Event, i int) series.Point {
	r := e.Record
	v := &r.Message.Measurements[i]
	p := series.Point{TenantID: e.TenantID, Device: e.DeviceID, DeviceToken: r.Device, Metric: v.Metric, Source: r.Source,
		Occurred: e.Occurred[i], Received: r.Received.Wall.Micros(), Offset: e.At.Offset, Index: uint32(i), Value: v.Value, AltID: r.Message.AltID,
		Mark: v.Mark, Anchors: e.anchorSet()}
	if e.profile != nil {
		if d := e.profile.Metrics[v.Metric]; d != nil {
			p.Unit, p.DataType = d.Unit, d.DataType
		}
	}
	return p
}

// RemoveDevice implements Projection.
func (s *seriesProjection) RemoveDevice(ctx context.Context, e *Event, _ *Effects) error {
	return s.retry.until(ctx, "the series of a device cannot be read", func() error {
		return s.series.RemoveDevice(ctx, e.TenantID, e.DeviceID)
	})
}

// PendingBytes implements Pending.
func (s *seriesProjection) PendingBytes() int64 { return s.series.Bytes() }

// Freeze implements Projection.
func (s *seriesProjection) Freeze(at Checkpoint) {
	s.frozen, s.gen = s.series.Freeze(at.Offset), at.Generation
}

// Write implements Projection.
func (s *seriesProjection) Write(ctx context.Context, write WriteFunc) error {
	if err := s.frozen.Write(ctx, s.gen, write); err != nil {
		return err
	}
	faults.Point("head.series")
	return nil
}

// Publish implements Projection.
func (s *seriesProjection) Publish(tx store.Tx) error { return s.frozen.Publish(tx) }

// Release implements Projection.
func (s *seriesProjection) Release(context.Context, WriteFunc) error {
	s.frozen.Release()
	s.frozen = nil
	return nil
}

// admitted returns the readings that the series limits admit.
func (s *seriesProjection) admitted(ctx context.Context, tenant, device int64, all []model.Reading) (fit []model.Reading, err error) {
	err = s.retry.until(ctx, "the series of a device cannot be read", func() (err error) {
		fit, err = s.series.AdmitPart(ctx, tenant, device, all)
		return err
	})
	return fit, err
}

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

// anchorSet is the number of the anchors of a stored event, 0 for none.
func (e *Event) anchorSet() int64 {
	if e.anchors == nil {
		return 0
	}
	return e.anchors.Number
}

// eventRow is the row of an entry of a message.
func eventRow(e *Event, i int) *store.EventRow {
	r := e.Record
	return &store.EventRow{TenantID: e.TenantID, Device: e.DeviceID, DeviceToken: r.Device, Type: r.Message.Type, Offset: e.At.Offset, Index: uint32(i),
		Source: r.Source, AltID: r.Message.AltID, Anchors: e.anchorSet(), Occurred: e.Occurred[i], Received: r.Received.Wall.Micros()}
}
