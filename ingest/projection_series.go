package ingest

import (
	"context"
	"encoding/json"
	"fmt"

	"weir/command"
	"weir/internal/faults"
	"weir/model"
	"weir/rules"
	"weir/series"
	"weir/store"
	"weir/store/outbox"
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
	// The common case needs no closure: memory knows the series of the device.
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
	m := e.kept()
	if m == nil {
		return nil
	}
	switch m.Type {
	case model.MeasurementEvent:
		// The memory is used again for each record.
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
			s.series.PutLocation(&store.LatestLocation{
				Device:      e.DeviceID,
				TenantID:    e.TenantID,
				DeviceToken: e.Record.Device,
				Location:    m.Locations[i],
				Occurred:    e.Occurred[i],
				Updated:     e.Record.Received.Wall.Micros(),
			}, e.At.Offset)
		}
	}
	return nil
}

// point is one reading of a message.
func point(e *Event, i int) series.Point {
	r := e.Record
	v := &r.Message.Measurements[i]
	p := series.Point{
		TenantID:    e.TenantID,
		Device:      e.DeviceID,
		DeviceToken: r.Device,
		Metric:      v.Metric,
		Source:      r.Source,
		Occurred:    e.Occurred[i],
		Received:    r.Received.Wall.Micros(),
		Offset:      e.At.Offset,
		Index:       uint32(i),
		Value:       v.Value,
		AltID:       r.Message.AltID,
		Mark:        v.Mark,
		Anchors:     e.anchorSet(),
	}
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

// eventProjection keeps the locations, alerts and new relationships of stored messages, and the answers to commands, as rows, unique by
// offset and index.
type eventProjection struct {
	ProjectionBase
	answers command.Answerer // nil: there are no commands
	ordered func()           // is called when an order was written; nil: nothing is
	dead    *deadLetterProjection
}

// Record implements Projection.
func (p *eventProjection) Record(_ context.Context, e *Event, out *Effects) error {
	if e.stored && e.Record.Response != nil {
		p.answer(e, out)
		return nil
	}
	m := e.kept()
	if m == nil {
		return nil
	}
	switch m.Type {
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
	case model.NewRelationship:
		row := eventRow(e, 0)
		out.Step(func(tx store.Tx) error { return store.InsertRelationship(tx, row) })
	}
	return nil
}

// answer keeps an answer to a command, and moves the command in the same transaction: once, for a replay finds the event.
func (p *eventProjection) answer(e *Event, out *Effects) {
	row := eventRow(e, 0)
	r := e.Record
	at := e.At
	row.Response = *r.Response
	out.Step(func(tx store.Tx) error {
		fresh, err := store.InsertResponse(tx, row)
		if err != nil || !fresh || p.answers == nil {
			return err
		}
		did, err := p.answers.Answer(tx, command.Response{
			TenantID: row.TenantID,
			DeviceID: row.Device,
			Token:    row.Response.Command,
			Nonce:    row.Response.Nonce,
			Success:  row.Response.Success,
			Payload:  textOrNil(row.Response.Payload),
			Error:    textOrNil(row.Response.Error),
			At:       r.Received.Wall,
		})
		if err != nil {
			return err
		}
		switch did {
		case command.NoSuch:
			return p.retryAnswer(tx, row, r, at)
		case command.BadNonce:
			return p.dead.unanswered(tx, r, at, ReasonUnprocessable, "the dispatchNonce is missing, or is of no dispatch of the command that may still be answered")
		}
		return nil
	})
}

// retryAnswer orders that an answer is tried again whose command is not there: it may be that of a commit that a power cut took back, or come later.
func (p *eventProjection) retryAnswer(tx store.Tx, row *store.EventRow, r *model.Record, at rules.Position) error {
	key := fmt.Sprintf("%s/%d/%d", outbox.Answer, at.Epoch, at.Offset)
	body, err := json.Marshal(model.Dispatch{
		Kind:     outbox.Answer,
		Tenant:   r.Account,
		Device:   r.Device,
		Occurred: row.Occurred.String(),
		Key:      key,
		Answer: &model.DispatchAnswer{
			Command:  row.Response.Command,
			Nonce:    row.Response.Nonce,
			Success:  row.Response.Success,
			Payload:  row.Response.Payload,
			Error:    row.Response.Error,
			Source:   r.Source,
			Epoch:    at.Epoch,
			Received: r.Received.Wall,
		},
	})
	if err != nil {
		return err
	}
	if p.ordered != nil {
		tx.OnCommit(p.ordered)
	}
	return outbox.Add(tx, &model.Order{
		Edge:     model.EdgeID{Offset: at.Offset},
		TenantID: row.TenantID,
		Key:      key,
		Kind:     outbox.Answer,
		DeviceID: row.Device,
		Occurred: row.Occurred,
		Received: r.Received.Wall,
		Body:     body,
	})
}

// textOrNil is a text that may be absent.
func textOrNil(text string) *string {
	if text == "" {
		return nil
	}
	return &text
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
	row := &store.EventRow{
		TenantID:    e.TenantID,
		Device:      e.DeviceID,
		DeviceToken: r.Device,
		Type:        model.CommandResponse,
		Offset:      e.At.Offset,
		Index:       uint32(i),
		Source:      r.Source,
		Anchors:     e.anchorSet(),
		Occurred:    e.Occurred[i],
		Received:    r.Received.Wall.Micros(),
	}
	if r.Message != nil {
		row.Type, row.AltID = r.Message.Type, r.Message.AltID
	}
	return row
}
