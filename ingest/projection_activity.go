package ingest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"weir/model"
	"weir/store"
)

// activityProjection keeps when each device was last heard. What the store does not know yet waits in memory.
type activityProjection struct {
	ProjectionBase
	mu     sync.Mutex                   // queries are rare
	open   map[int64]*store.DeviceState // by device row id; only the columns of activity count
	frozen map[int64]*store.DeviceState
}

func newActivityProjection() *activityProjection {
	return &activityProjection{open: map[int64]*store.DeviceState{}}
}

// Record implements Projection: it notes that a message of the device arrived.
func (a *activityProjection) Record(_ context.Context, e *Event, _ *Effects) error {
	if !e.Stored() {
		return nil
	}
	at := e.Record.Received.Wall.Micros()
	a.mu.Lock()
	defer a.mu.Unlock()
	// The newest stamp wins; records that were held up arrive late.
	d := a.open[e.DeviceID]
	if d == nil {
		d = &store.DeviceState{TenantID: e.TenantID, DeviceID: e.DeviceID, CreatedAt: at}
		a.open[e.DeviceID] = d
	}
	d.ActivitySource, d.LastActivity, d.HasActivity = e.Record.Source, max(d.LastActivity, at), true
	d.UpdatedAt, d.ActivityListen = max(d.UpdatedAt, at), int64(e.At.Listening)
	return nil
}

// RemoveDevice implements Projection. The row is the presence projection's to delete.
func (a *activityProjection) RemoveDevice(_ context.Context, e *Event, _ *Effects) error {
	a.mu.Lock()
	delete(a.open, e.DeviceID)
	delete(a.frozen, e.DeviceID)
	a.mu.Unlock()
	return nil
}

// Freeze implements Projection.
func (a *activityProjection) Freeze(Checkpoint) {
	a.mu.Lock()
	a.frozen, a.open = a.open, map[int64]*store.DeviceState{}
	a.mu.Unlock()
}

// Write implements Projection. The rows bear no generation: a replay of what came before the checkpoint comes to the same
// columns.
func (a *activityProjection) Write(_ context.Context, write WriteFunc) error {
	return inSlices(write, a.rows(), store.PutActivity)
}

// rows returns the frozen rows in one order.
func (a *activityProjection) rows() []*store.DeviceState {
	a.mu.Lock()
	defer a.mu.Unlock()
	rows := make([]*store.DeviceState, 0, len(a.frozen))
	for _, d := range a.frozen {
		rows = append(rows, d)
	}
	slices.SortFunc(rows, func(x, y *store.DeviceState) int { return cmp.Compare(x.DeviceID, y.DeviceID) })
	return rows
}

// Release implements Projection.
func (a *activityProjection) Release(context.Context, WriteFunc) error {
	a.mu.Lock()
	a.frozen = nil
	a.mu.Unlock()
	return nil
}

// some returns what is known of devices of a tenant by their row ids: what memory knows laid over the stored rows.
func (a *activityProjection) some(ctx context.Context, st store.Store, tenantID int64, devices []int64) (map[int64]*store.DeviceState, error) {
	var rows map[int64]*store.DeviceState
	err := st.Read(ctx, func(tx store.Tx) (err error) {
		rows, err = store.DeviceStatesOf(tx, devices)
		return err
	})
	if err != nil {
		return nil, err
	}
	// Device ids of other tenants are left out.
	found := make(map[int64]*store.DeviceState, len(rows))
	for _, id := range devices {
		row := rows[id]
		if row != nil && row.TenantID != tenantID {
			continue
		}
		if row = a.overlay(tenantID, id, row); row != nil {
			found[id] = row
		}
	}
	return found, nil
}

// states returns the states of a tenant's devices in order of device row ids.
func (a *activityProjection) states(ctx context.Context, st store.Store, tenantID int64) ([]*store.DeviceState, error) {
	// Memory first: what is written in between is found in the store.
	fresh := a.devices(tenantID)
	var rows []*store.DeviceState
	err := st.Read(ctx, func(tx store.Tx) (err error) {
		rows, err = store.DeviceStates(tx, tenantID)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, r := range rows {
		delete(fresh, r.DeviceID)
		rows[i] = a.overlay(tenantID, r.DeviceID, r)
	}
	for id := range fresh {
		if r := a.overlay(tenantID, id, nil); r != nil {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(x, y *store.DeviceState) int { return cmp.Compare(x.DeviceID, y.DeviceID) })
	return rows, nil
}

// overlay lays what is not yet written over a row; nil rows are made when there is something to say.
func (a *activityProjection) overlay(tenant, device int64, row *store.DeviceState) *store.DeviceState {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range []map[int64]*store.DeviceState{a.frozen, a.open} {
		d := m[device]
		if d == nil || d.TenantID != tenant {
			continue
		}
		if row == nil {
			row = &store.DeviceState{TenantID: tenant, DeviceID: device, CreatedAt: d.CreatedAt}
		}
		row.ActivitySource = d.ActivitySource
		row.LastActivity, row.HasActivity, row.ActivityListen = max(row.LastActivity, d.LastActivity), true, max(row.ActivityListen, d.ActivityListen)
		row.UpdatedAt = max(row.UpdatedAt, d.UpdatedAt)
	}
	return row
}

// devices returns the devices of a tenant of which only memory knows that they were heard.
func (a *activityProjection) devices(tenant int64) map[int64]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[int64]bool{}
	for _, m := range []map[int64]*store.DeviceState{a.frozen, a.open} {
		for id, d := range m {
			if d.TenantID == tenant {
				out[id] = true
			}
		}
	}
	return out
}

// Active reports whether a device counts as present: what its transport says, else whether it was heard in the last
// stretch of listening time.
func Active(d *store.DeviceState, now int64, silence time.Duration) bool {
	if d.Asserted {
		return d.State == model.Connected
	}
	return d.HasActivity && now-d.ActivityListen < int64(silence)
}
