package registry

import (
	"context"
	"sync/atomic"

	"weir/internal/edgewire"
	"weir/model"
	"weir/store"
	"weir/store/installs"
)

// Bounds of a page of devices for an edge.
const (
	devicesPerPage   = 500
	syncedBytes      = edgewire.MaxDocument / 2 // about, of a page
	syncedCredential = 256                      // bytes of one, about
	syncedEach       = 64                       // credentials of a device
)

// edgeChanges is called after a change of devices or credentials of a tenant.
type edgeChanges struct {
	f atomic.Pointer[func(tenantID int64)]
}

// OnSynced has f called after each change of what edges of a tenant know of its devices. f must not block.
func (es *Edges) OnSynced(f func(tenantID int64)) { es.synced.f.Store(&f) }

// synced notes such a change.
func (e *edgeChanges) after(c *store.Change) {
	tenant := c.By.TenantID
	c.OnCommit(func() {
		if f := e.f.Load(); f != nil {
			(*f)(tenant)
		}
	})
}

// DevicesFor returns devices for which an edge speaks, in the order of their tokens from behind after on, with their enabled credentials as they are
// stored. next is where the next page begins, "" for the last one. The error is ErrNoEdge or a fault of the store.
func (es *Edges) DevicesFor(ctx context.Context, edge model.Binding, after string) (out []edgewire.Device, next string, err error) {
	s, err := es.scopeOf(ctx, edge)
	if err != nil {
		return nil, "", err
	}
	if !s.edge {
		return nil, "", ErrNoEdge
	}
	err = store.Read(ctx, es.waiting, func(tx store.Tx) error {
		// The read may be tried again.
		out, next = nil, ""
		all, err := installs.Devices(tx, edge.TenantID, after, devicesPerPage)
		if err != nil {
			return err
		}
		bytes := 0
		for i, d := range all {
			// End the page before it is too large for one document.
			if bytes > syncedBytes {
				next = all[i-1].Token
				return nil
			}
			// Devices of others are passed over and nothing of them is sent.
			in, err := es.isMember(tx, edge.TenantID, &s, d.ID)
			if err != nil {
				return err
			}
			if !in {
				continue
			}
			one := edgewire.Device{ID: d.ID, Token: d.Token}
			credentials, err := installs.Credentials(tx, d.ID, syncedEach)
			if err != nil {
				return err
			}
			for _, c := range credentials {
				one.Credentials = append(one.Credentials, edgewire.Credential{
					ID:       c.ID,
					Type:     c.Type,
					IDHash:   c.IDHash,
					Password: c.Password,
					Expires:  c.Expires,
				})
			}
			bytes += syncedCredential * (1 + len(credentials))
			out = append(out, one)
		}
		if len(all) == devicesPerPage {
			next = all[len(all)-1].Token
		}
		return nil
	})
	return out, next, err
}

// isMember reports whether a device is in the scope of an edge.
func (es *Edges) isMember(tx store.Tx, tenantID int64, s *edgeScope, device int64) (bool, error) {
	if s.all {
		return true, nil
	}
	for _, group := range s.groups {
		rows, err := es.devices.Table.Select(tx, tenantID, "id", store.Eq("id", device), es.groups.inGroup(group))
		if err != nil || len(rows) > 0 {
			return len(rows) > 0, err
		}
	}
	return false, nil
}

// EdgeScope is for which devices an edge speaks, as one transaction sees it.
type EdgeScope struct {
	All    bool                             // all of the tenant
	Speaks func(device int64) (bool, error) // by row id
	Active map[int64]*Snapshot              // the effective versions of the tenant's profiles, by row id
}

// ScopeOf returns the scope of an edge. The error is ErrNoEdge or a fault of the store.
func (es *Edges) ScopeOf(tx store.Tx, edge model.Binding) (*EdgeScope, error) {
	s := edgeScope{}
	if err := es.readScope(tx, edge, &s); err != nil {
		return nil, err
	}
	if !s.edge {
		return nil, ErrNoEdge
	}
	// With the profiles of the same snapshot, so that scope and rules fit.
	active, err := es.profiles.versions.Effective(tx, edge.TenantID)
	if err != nil {
		return nil, err
	}
	return &EdgeScope{All: s.all, Active: active, Speaks: func(device int64) (bool, error) { return es.isMember(tx, edge.TenantID, &s, device) }}, nil
}
