package ingest

import (
	"context"
	"fmt"
	"strings"

	"weir/model"
	"weir/presence"
	"weir/rules"
	"weir/store"
)

// presence folds a transition that a door asserts. Whether it counts is decided against the stored state; a replay meets
// its own work there, so the state change event it wrote the first time tells it that it counted.
func (a *Applier) presence(ctx context.Context, at rules.Position, r *model.Record) error {
	what, reason := a.view.resolve(r.Tenant, r.Device)
	if reason != ReasonNone || r.DeviceID != 0 && r.DeviceID != what.device.ID {
		return nil // the device went in the meantime; its state went with it
	}
	row := &store.EventRow{TenantID: what.tenant.ID, Device: what.device.ID, DeviceToken: r.Device, Type: model.StateChange, Offset: at.Offset,
		Source: r.Source, Occurred: r.Presence.Occurred.Micros(), Received: r.Received.Wall.Micros(),
		State: store.StateChange{State: r.Presence.State, Reason: r.Presence.Reason, Session: r.Presence.Session}}
	next, counts, err := a.fold(ctx, row, r)
	if err != nil || !counts {
		return err
	}
	if next != nil {
		a.transitions[next.DeviceID] = next
		a.batch.step(func(tx store.Tx) error { return store.PutPresence(tx, next) })
		a.batch.step(func(tx store.Tx) error { return store.InsertStateChange(tx, row) })
	}
	a.judge(&rules.Input{Position: at, Kind: rules.Transition, Occurred: row.Occurred,
		Device:  rules.Device{ID: what.device.ID, Type: what.device.Type, Token: r.Device},
		Profile: rules.ProfileKey{Tenant: what.tenant.ID, Profile: what.profileID}})
	return nil
}

// fold returns the state that follows, nil when it is stored already.
func (a *Applier) fold(ctx context.Context, row *store.EventRow, r *model.Record) (next *store.DeviceState, counts bool, err error) {
	var have *store.DeviceState
	var known bool
	if have = a.transitions[row.Device]; have == nil {
		err = a.insist(ctx, "the state of a device cannot be read", func() error {
			return a.Store.Read(ctx, func(tx store.Tx) (err error) {
				if have, err = store.GetDeviceState(tx, row.Device); err != nil {
					return err
				}
				known, err = store.HasRowEvent(tx, row.Offset, row.Index)
				return err
			})
		})
		if err != nil || known {
			return nil, known, err
		}
	}
	if have == nil {
		have = &store.DeviceState{TenantID: row.TenantID, DeviceID: row.Device}
	}
	s, changed := presence.Fold(presenceOf(have), presence.Claim{Presence: *r.Presence, Source: r.Source})
	if !changed {
		return nil, false, nil
	}
	n := *have
	n.CreatedAt, n.UpdatedAt, n.Source, n.Asserted, n.State, n.Session = row.Received, row.Received, s.Source, s.Asserted, r.Presence.State, s.Session
	n.PresenceTime, n.HasPresence, n.LastConnect, n.LastDisconnect = s.PresenceTime, true, s.LastConnect, s.LastDisconnect
	if r.Presence.State == model.Demoted {
		n.State = have.State // the active flag stays as it was
	}
	return &n, true, nil
}

func presenceOf(d *store.DeviceState) presence.State {
	return presence.State{Active: d.State == model.Connected, Asserted: d.Asserted, Source: d.Source, Session: d.Session,
		PresenceTime: d.PresenceTime, LastConnect: d.LastConnect, LastDisconnect: d.LastDisconnect}
}

// control puts a change of the registry in force.
func (a *Applier) control(ctx context.Context, at rules.Position, c *model.Control) error {
	if c.Sequence <= a.sequence {
		a.batch.sequence = max(a.batch.sequence, c.Sequence)
		return nil
	}
	if a.Changes != nil && c.Sequence > *a.Changes && at.Offset <= a.lastStart {
		return fmt.Errorf("%w: the log holds change %d of the registry, the database knows them up to %d", ErrStoreOlder, c.Sequence, *a.Changes)
	}
	changes, complete, err := a.parts.add(c)
	if err != nil || !complete {
		return err
	}
	for i := range changes {
		if err := a.change(ctx, at, &changes[i]); err != nil {
			return err
		}
	}
	a.sequence, a.batch.sequence = c.Sequence, c.Sequence
	a.setView(viewControlSequence, "", sequenceBody(c.Sequence), at.Offset)
	return nil
}

func (a *Applier) setView(kind model.ViewKind, key string, body []byte, from model.Offset) {
	a.batch.step(func(tx store.Tx) error { return store.SetView(tx, kind, key, body, from) })
}

// change applies one view change: first what the rules must know of the world before it, then the view.
func (a *Applier) change(ctx context.Context, at rules.Position, c *model.ViewChange) error {
	before := a.view.snapshot(c)
	a.viewMu.Lock()
	err := a.view.Set(c.Kind, c.Key, c.Body)
	a.viewMu.Unlock()
	if err != nil {
		return err
	}
	a.setView(c.Kind, c.Key, c.Body, at.Offset)
	return a.follow(ctx, at, c, before)
}

// follow tells the engine and the live results what a change means for them.
func (a *Applier) follow(ctx context.Context, at rules.Position, c *model.ViewChange, before viewBefore) error {
	switch c.Kind {
	case model.ViewProfile:
		a.installProfile(at, c.Key, before)
	case model.ViewDeviceType:
		now := a.view.types[before.id].Profile
		if before.deviceType.Profile != 0 && now != before.deviceType.Profile {
			if p := a.view.profiles[before.deviceType.Profile]; p != nil {
				if t := a.view.tenants[p.Tenant]; t != nil {
					a.Rules.Detach(at, rules.ProfileKey{Tenant: t.ID, Profile: before.deviceType.Profile}, before.id, a.emit)
				}
			}
		}
	case model.ViewDevice:
		return a.followDevice(ctx, at, c, before)
	}
	return nil
}

func (a *Applier) installProfile(at rules.Position, key string, before viewBefore) {
	id := before.id
	p := a.view.profiles[id]
	if p == nil {
		if before.profile != nil {
			if t := a.view.tenants[before.profile.Tenant]; t != nil {
				a.Rules.Remove(at, rules.ProfileKey{Tenant: t.ID, Profile: id}, a.emit)
			}
		}
		return
	}
	if t := a.view.tenants[p.Tenant]; t != nil {
		a.Rules.Install(at, rules.ProfileRef{ProfileKey: rules.ProfileKey{Tenant: t.ID, Profile: id}, TenantToken: p.Tenant, Token: p.Token,
			Version: p.Version}, p.Rules, a.emit)
	}
}

func (a *Applier) followDevice(ctx context.Context, at rules.Position, c *model.ViewChange, before viewBefore) error {
	if before.device.ID == 0 {
		return nil
	}
	if c.Body == nil {
		id := before.device.ID
		a.Rules.RemoveDevice(at, id, a.emit)
		a.activity.forget(id)
		delete(a.transitions, id)
		a.batch.step(func(tx store.Tx) error { return store.DeleteDeviceState(tx, id) })
		tenant, _, _ := strings.Cut(c.Key, "/")
		return a.insist(ctx, "the series of a device cannot be read", func() error {
			return a.Series.RemoveDevice(ctx, a.view.tenant(tenant).ID, id)
		})
	}
	if now := a.view.device(c.Key); now.Type != before.device.Type {
		a.Rules.RemoveDevice(at, now.ID, a.emit)
	}
	return nil
}
