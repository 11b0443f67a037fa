package ingest

import (
	"cmp"
	"slices"
	"sync"

	"weir/model"
	"weir/store"
)

// activities is when each device was last heard, as far as the store does not know it yet. It is written with the head.
type activities struct {
	mu     sync.Mutex                   // whoever looks is rare
	open   map[int64]*store.DeviceState // by device row id; only the columns of activity count
	frozen map[int64]*store.DeviceState
}

func newActivities() *activities { return &activities{open: map[int64]*store.DeviceState{}} }

// touch notes that an event of the device arrived.
func (a *activities) touch(tenant, device int64, source string, at model.Micros, listening int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.open[device]
	if d == nil {
		d = &store.DeviceState{TenantID: tenant, DeviceID: device, CreatedAt: at}
		a.open[device] = d
	}
	d.ActivitySource, d.LastActivity, d.HasActivity, d.UpdatedAt, d.ActivityListen = source, max(d.LastActivity, at), true, max(d.UpdatedAt, at), listening
}

// forget drops a device that is gone.
func (a *activities) forget(device int64) {
	a.mu.Lock()
	delete(a.open, device)
	delete(a.frozen, device)
	a.mu.Unlock()
}

func (a *activities) freeze() {
	a.mu.Lock()
	a.frozen, a.open = a.open, map[int64]*store.DeviceState{}
	a.mu.Unlock()
}

// rows returns the frozen rows in one order.
func (a *activities) rows() []*store.DeviceState {
	a.mu.Lock()
	defer a.mu.Unlock()
	rows := make([]*store.DeviceState, 0, len(a.frozen))
	for _, d := range a.frozen {
		rows = append(rows, d)
	}
	slices.SortFunc(rows, func(x, y *store.DeviceState) int { return cmp.Compare(x.DeviceID, y.DeviceID) })
	return rows
}

func (a *activities) release() {
	a.mu.Lock()
	a.frozen = nil
	a.mu.Unlock()
}

// overlay lays what is not yet written over a row; nil rows are made when there is something to say.
func (a *activities) overlay(tenant, device int64, row *store.DeviceState) *store.DeviceState {
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
func (a *activities) devices(tenant int64) map[int64]bool {
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
