package ingest

import (
	"context"

	"weir/model"
	"weir/presence"
	"weir/store"
)

// presenceProjection keeps what sources assert of the presence of devices: the state of each device, and a row for each
// transition that changed it.
type presenceProjection struct {
	ProjectionBase
	store store.Store
	retry *retrier
	// folded are the states that this process has folded since the checkpoint; the store holds them once the batch is
	// committed.
	folded map[int64]*store.DeviceState
}

func newPresenceProjection(st store.Store, retry *retrier) *presenceProjection {
	return &presenceProjection{store: st, retry: retry, folded: map[int64]*store.DeviceState{}}
}

// Transition is a presence record that changes the state of its device.
type Transition struct {
	Row   *store.EventRow
	State *store.DeviceState // that follows; nil in a replay, when both are stored already
}

// transition returns what a presence record changes, nil for nothing. Whether it counts is decided against the stored
// state. A replay finds its own work there: the row that it wrote the first time says that the record counted.
func (p *presenceProjection) transition(ctx context.Context, e *Event) (*Transition, error) {
	r := e.Record
	row := &store.EventRow{
		TenantID:    e.TenantID,
		Device:      e.DeviceID,
		DeviceToken: r.Device,
		Type:        model.StateChange,
		Offset:      e.At.Offset,
		Source:      r.Source,
		Occurred:    r.Presence.Occurred.Micros(),
		Received:    r.Received.Wall.Micros(),
		State:       store.StateChange{State: r.Presence.State, Reason: r.Presence.Reason, Session: r.Presence.Session},
	}
	// Several transitions of a device may lie in one batch, before any is stored.
	have := p.folded[e.DeviceID]
	if have == nil {
		var known bool
		var err error
		if have, known, err = p.read(ctx, row); err != nil {
			return nil, err
		}
		if known {
			return &Transition{Row: row}, nil
		}
	}
	next := fold(have, row, r)
	if next == nil {
		return nil, nil
	}
	return &Transition{Row: row, State: next}, nil
}

// read returns the stored state of a device, an empty one for none, and whether the row of the transition is stored.
func (p *presenceProjection) read(ctx context.Context, row *store.EventRow) (have *store.DeviceState, known bool, err error) {
	err = p.retry.until(ctx, "the state of a device cannot be read", func() error {
		return p.store.Read(ctx, func(tx store.Tx) (err error) {
			if have, err = store.GetDeviceState(tx, row.Device); err != nil {
				return err
			}
			known, err = store.HasRowEvent(tx, row.Offset, row.Index)
			return err
		})
	})
	if have == nil {
		have = &store.DeviceState{TenantID: row.TenantID, DeviceID: row.Device}
	}
	return have, known, err
}

// fold returns the state that follows from a claim, nil when it changes nothing.
func fold(have *store.DeviceState, row *store.EventRow, r *model.Record) *store.DeviceState {
	s, changed := presence.Fold(presenceOf(have), presence.Claim{Presence: *r.Presence, Source: r.Source})
	if !changed {
		return nil
	}
	// A copy: the state may be in use by the store until the commit.
	next := *have
	next.CreatedAt, next.UpdatedAt, next.Source, next.Asserted, next.State, next.Session = row.Received, row.Received, s.Source, s.Asserted, r.Presence.State, s.Session
	next.PresenceTime, next.HasPresence, next.LastConnect, next.LastDisconnect = s.PresenceTime, true, s.LastConnect, s.LastDisconnect
	if r.Presence.State == model.Demoted {
		next.State = have.State // the active flag stays as it was
	}
	return &next
}

func presenceOf(d *store.DeviceState) presence.State {
	return presence.State{
		Active:         d.State == model.Connected,
		Asserted:       d.Asserted,
		Source:         d.Source,
		Session:        d.Session,
		PresenceTime:   d.PresenceTime,
		LastConnect:    d.LastConnect,
		LastDisconnect: d.LastDisconnect,
	}
}

// Record implements Projection.
func (p *presenceProjection) Record(_ context.Context, e *Event, out *Effects) error {
	t := e.Transition
	if t == nil || t.State == nil {
		return nil
	}
	// The store has it only after the commit.
	p.folded[e.DeviceID] = t.State
	out.Step(func(tx store.Tx) error { return store.PutPresence(tx, t.State) })
	out.Step(func(tx store.Tx) error { return store.InsertStateChange(tx, t.Row) })
	return nil
}

// RemoveDevice implements Projection. The row holds the activity of the device, too.
func (p *presenceProjection) RemoveDevice(_ context.Context, e *Event, out *Effects) error {
	device := e.DeviceID
	delete(p.folded, device)
	out.Step(func(tx store.Tx) error { return store.DeleteDeviceState(tx, device) })
	return nil
}

// Freeze implements Projection.
func (p *presenceProjection) Freeze(Checkpoint) { clear(p.folded) }
