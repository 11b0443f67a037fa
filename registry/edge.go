package registry

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
	"weir/store"
	"weir/store/entity"
)

// Edge says that a device is an edge: a Weir at a site that forwards what the site's devices send. With the device's credential it may
// publish for the devices in its scope. Several rows of one device add up.
type Edge struct {
	store.Row
	Token       string  `store:"token,token" gql:"token"`
	Name        *string `store:"name,clear,max=128" gql:"name"`
	Description *string `store:"description,clear,max=1024" gql:"description"`
	DeviceID    int64   `store:"device_id,required,ref=devices,parent,filter=device" gql:"deviceToken"`
	// GroupID is for whose devices it may speak; nil: for all of the tenant.
	GroupID *int64 `store:"group_id,clear,ref=entity_groups,filter=group" gql:"groupToken"`
	// TypeID is the type of devices that are made where a message names one that there is not; nil: none is made.
	TypeID   *int64  `store:"auto_register_type_id,clear,ref=device_types" gql:"autoRegisterTypeToken"`
	Enabled  bool    `store:"enabled,required,filter" gql:"enabled"`
	Metadata *string `store:"metadata,clear,json,max=65536" gql:"metadata"`
}

// Edges are the edges of all tenants: for whom they speak, what they have said, and what they are told.
type Edges struct {
	*entity.Kind[Edge]
	access
	vault     *store.Vault           // nil: there is no carry key
	found     *prometheus.CounterVec // by finding
	scopes    *scopes
	carry     carryKeys
	synced    *edgeChanges
	devices   *entity.Kind[Device]
	adoptions *Adoptions
	types     *entity.Kind[DeviceType]
	groups    *Groups
	profiles  *Profiles
}

// describe makes the kind.
func (es *Edges) describe(b entity.Base) {
	es.Kind = entity.New(b, entity.Desc[Edge]{
		Kind:    "edge",
		Type:    "Edge",
		Plural:  "edges",
		Area:    area,
		Table:   "edges_of_sites",
		Read:    mayRead,
		Write:   mayWrite,
		Check:   es.check,
		Changed: es.changed,
	})
}

// check refuses a group of anything but devices.
func (es *Edges) check(tx store.Tx, e *Edge, _ store.Changed) error {
	if e.GroupID == nil {
		return nil
	}
	groups, err := es.groups.Table.By(tx, e.TenantID, "id", *e.GroupID)
	if err == nil && len(groups) == 1 && groups[0].MemberType != EntityDevice {
		return model.Invalid("groupToken", "is a group of %s, not of devices", groups[0].MemberType)
	}
	return err
}

func (es *Edges) changed(c *store.Change, _, _ *Edge) error {
	c.OnCommit(es.scopes.forget)
	es.synced.after(c)
	return nil
}

// ErrNoEdge says that a device is no edge, or that none of its rows is enabled.
var ErrNoEdge = errors.New("registry: the device is no edge")

// ErrOutOfScope says that an edge may not speak for a device.
var ErrOutOfScope = errors.New("registry: the edge does not speak for the device")

// Bounds of what is remembered of edges.
const (
	scopeFor    = 5 * time.Second // how long a membership of a group, and the rows of an edge, are believed
	maxInScopes = 50_000
)

// scopes remembers the edges and which members of their groups have spoken.
type scopes struct {
	mu      sync.Mutex
	edges   map[int64]edgeScope // by the row id of the device
	members map[[2]int64]time.Time
	all     map[int64]bool // row ids of the devices that are edges, of all tenants; nil: to be read
	changes uint64
}

// edgeScope is for whom a device may speak, by its enabled rows.
type edgeScope struct {
	edge   bool     // there is an enabled row
	all    bool     // for all devices of the tenant
	typ    string   // token of the type that new devices get; "": none is made
	groups []string // tokens
	until  time.Time
}

func newScopes() *scopes {
	return &scopes{edges: map[int64]edgeScope{}, members: map[[2]int64]time.Time{}}
}

// forget forgets everything: an edge has changed.
func (s *scopes) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	s.all = nil
	clear(s.edges)
	clear(s.members)
}

// IsEdge reports whether a device is an edge. It reads the store after a change of an edge only: each connection asks.
func (es *Edges) IsEdge(ctx context.Context, device model.Binding) (bool, error) {
	s := es.scopes
	s.mu.Lock()
	all, began := s.all, s.changes
	s.mu.Unlock()
	if all != nil {
		return all[device.DeviceID], nil
	}
	if err := store.Read(ctx, es.waiting, func(tx store.Tx) (err error) {
		all, err = store.EdgeDevices(tx)
		return err
	}); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes == began {
		s.all = all
	}
	return all[device.DeviceID], nil
}

func (es *Edges) scopeOf(ctx context.Context, device model.Binding) (edgeScope, error) {
	s := es.scopes
	now := time.Now()
	s.mu.Lock()
	known, ok := s.edges[device.DeviceID]
	began := s.changes
	s.mu.Unlock()
	if ok && now.Before(known.until) {
		return known, nil
	}
	// Read without the lock: other connections need it.
	known = edgeScope{until: now.Add(scopeFor)}
	if err := store.Read(ctx, es.waiting, func(tx store.Tx) error { return es.readScope(tx, device, &known) }); err != nil {
		return edgeScope{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes == began {
		if len(s.edges) >= maxInScopes {
			clear(s.edges)
		}
		s.edges[device.DeviceID] = known
	}
	return known, nil
}

func (es *Edges) readScope(tx store.Tx, device model.Binding, s *edgeScope) error {
	rows, err := es.Table.By(tx, device.TenantID, "device_id", device.DeviceID)
	if err != nil {
		return err
	}
	for _, e := range rows {
		if !e.Enabled {
			continue
		}
		// Rows add up: one without a group lets the edge speak for all.
		s.edge = true
		if e.GroupID == nil {
			s.all = true
		} else {
			groups, err := es.groups.Table.By(tx, device.TenantID, "id", *e.GroupID)
			if err != nil {
				return err
			}
			for _, g := range groups {
				s.groups = append(s.groups, g.Token)
			}
		}
		if e.TypeID != nil {
			types, err := es.types.Table.By(tx, device.TenantID, "id", *e.TypeID)
			if err != nil {
				return err
			}
			for _, t := range types {
				s.typ = t.Token
			}
		}
	}
	return nil
}

// Behind returns the device of a name that an edge speaks for: the one with that token, else the one with that external id. Where the edge speaks for all devices of its tenant, makes none, and there is none
// of that name, or none could be made because of a limit, the binding has the name and no row id. The error is ErrNoEdge, ErrOutOfScope, or a
// fault of the store. A device that was made has to be a member of the group, too. A member that has left the group of an edge is out of its scope within five seconds.
func (es *Edges) Behind(ctx context.Context, edge model.Binding, device string) (model.Binding, error) {
	s, err := es.scopeOf(ctx, edge)
	if err != nil {
		return model.Binding{}, err
	}
	if !s.edge {
		return model.Binding{}, ErrNoEdge
	}
	// Find the device first, then ask whether it is in scope.
	b, _, err := es.adoptions.Adopt(ctx, Adoption{
		Tenant:     edge.Tenant,
		TenantID:   edge.TenantID,
		ExternalID: device,
		TokenFirst: true, // the events of a device may name it by its token
		Make:       s.typ != "",
		Plain:      true,
		DeviceType: s.typ,
	})
	// What an edge learns of a device that is not there depends on whether it may know all.
	switch {
	case errors.Is(err, ErrNotAdopted) && !s.all:
		return model.Binding{}, ErrOutOfScope
	case errors.Is(err, ErrNotAdopted):
		return model.Binding{Tenant: edge.Tenant, TenantID: edge.TenantID, Device: device}, nil
	case err != nil || s.all:
		return b, err
	}
	return b, es.inScope(ctx, edge, s, b)
}

// inScope refuses a device that is a member of none of the groups of an edge.
func (es *Edges) inScope(ctx context.Context, edge model.Binding, scope edgeScope, b model.Binding) error {
	s := es.scopes
	key := [2]int64{edge.DeviceID, b.DeviceID}
	now := time.Now()
	s.mu.Lock()
	until, ok := s.members[key]
	began := s.changes
	s.mu.Unlock()
	if ok && now.Before(until) {
		return nil
	}
	// A member is believed for some seconds, another answer is never remembered.
	found := false
	err := store.Read(ctx, es.waiting, func(tx store.Tx) (err error) {
		found, err = es.isMember(tx, b.TenantID, &scope, b.DeviceID)
		return err
	})
	if err != nil {
		return err
	}
	if !found {
		return ErrOutOfScope
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes == began {
		if len(s.members) >= maxInScopes {
			clear(s.members)
		}
		s.members[key] = now.Add(scopeFor)
	}
	return nil
}
