package edge

import (
	"context"
	"slices"
	"sync"
	"time"

	"weir/internal/edgewire"
	"weir/model"
	"weir/presence"
)

// Bounds of the presence of the site's devices.
const (
	maxTransitions = 10_000 // that wait for a Weir above
	maxPresent     = 20_000 // devices whose state is kept
)

// transition is a transition that waits for a Weir above. Where the time of day was not known, its time follows from Boot and Mono.
type transition struct {
	edgewire.Transition
	Boot uint64 `json:"boot,string,omitempty"`
	Mono int64  `json:"mono,omitempty"`
}

// presentDevice is what was asserted of a device at the site last; a newer edge reads it.
type presentDevice struct {
	Tenant    string       `json:"tenant"`
	Device    string       `json:"device"`
	ID        int64        `json:"id"`
	Session   uint64       `json:"session,string"`
	Connected bool         `json:"connected"`
	At        model.Micros `json:"at"`
}

// savedPresence is presence in a state.
type savedPresence struct {
	Waiting []transition    `json:"waiting,omitempty"`
	Devices []presentDevice `json:"devices,omitempty"`
}

// sitePresence is the presence of the devices at a site: what waits to be told above, and for the tracker of the edge's own broker what was
// asserted last. A transition stays until a Weir above has it on disk.
type sitePresence struct {
	tenant string // whose devices are told of; "": there is nobody to tell
	lost   func() // counts a transition that a later one of its device has replaced

	mu      sync.Mutex
	waiting []transition
	devices map[int64]*presentDevice
	dirty   bool

	sent    int         // of waiting, on their way
	on      *connection // over which
	notFrom *connection // it does not know transitions
}

func newSitePresence(tenant string, s savedPresence, lost func()) *sitePresence {
	p := &sitePresence{tenant: tenant, lost: lost, waiting: s.Waiting, devices: map[int64]*presentDevice{}}
	for i := range s.Devices {
		p.devices[s.Devices[i].ID] = &s.Devices[i]
	}
	return p
}

// note takes in a transition.
func (p *sitePresence) note(tenant string, t transition) {
	if p.tenant == "" || tenant != p.tenant {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dirty = true
	if len(p.waiting) >= maxTransitions && !p.makeRoom() {
		p.lost()
		return // each device has one already: the next connection of this one says it
	}
	p.waiting = append(p.waiting, t)
}

// makeRoom removes what a later transition of the same device replaces, with the lock held. What is on its way stays.
func (p *sitePresence) makeRoom() bool {
	newest := map[string]int{}
	for i := range p.waiting {
		newest[p.waiting[i].Device] = i
	}
	kept := p.waiting[:0]
	for i, t := range p.waiting {
		if i >= p.sent && newest[t.Device] != i {
			p.lost()
			continue
		}
		kept = append(kept, t)
	}
	p.waiting = kept
	return len(p.waiting) < maxTransitions
}

// batch returns the transitions to be sent over a connection, nil for none now.
func (p *sitePresence) batch(c *connection, resolve func(*transition) time.Time) *edgewire.Presence {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on != c {
		p.on, p.sent = c, 0
	}
	if p.sent > 0 || len(p.waiting) == 0 || p.notFrom == c {
		return nil
	}
	out := &edgewire.Presence{Kind: edgewire.KindPresence}
	for i := range p.waiting[:min(len(p.waiting), edgewire.MaxTransitions)] {
		t := &p.waiting[i]
		t.Occurred, t.Boot, t.Mono = resolve(t), 0, 0
		out.Transitions = append(out.Transitions, t.Transition)
	}
	p.sent = len(out.Transitions)
	return out
}

// answered takes in the acknowledgement of a batch.
func (p *sitePresence) answered(c *connection, code byte) (known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on != c {
		return true
	}
	n := p.sent
	p.sent = 0
	switch {
	case code < 0x80:
		p.waiting = slices.Delete(p.waiting, 0, n)
		p.dirty = true
	case code == 0x99 || code == 0x87:
		p.notFrom = c
		return false
	}
	return true
}

// save is what a state has of it.
func (p *sitePresence) save() savedPresence {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dirty = false
	s := savedPresence{Waiting: slices.Clone(p.waiting)}
	for _, d := range p.devices {
		s.Devices = append(s.Devices, *d)
	}
	slices.SortFunc(s.Devices, func(a, b presentDevice) int { return int(a.ID - b.ID) })
	return s
}

// count is how many transitions wait.
func (p *sitePresence) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting)
}

func (p *sitePresence) changed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dirty
}

// asserted takes in what the edge's own broker asserts of a device.
func (p *sitePresence) asserted(b model.Binding, t *model.Presence) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dirty = true
	if t.State == model.Demoted {
		delete(p.devices, b.DeviceID)
		return
	}
	d := p.devices[b.DeviceID]
	if d == nil {
		if len(p.devices) >= maxPresent {
			return // more than an edge knows devices
		}
		d = &presentDevice{Tenant: b.Tenant, Device: b.Device, ID: b.DeviceID}
		p.devices[b.DeviceID] = d
	}
	d.Session, d.Connected, d.At = t.Session, t.State == model.Connected, t.Occurred.Micros()
}

// PresenceSession implements presence.Store.
func (p *sitePresence) PresenceSession(_ context.Context, device int64) (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.devices[device]; d != nil {
		return d.Session, nil
	}
	return 0, nil
}

// AssertedPresence implements presence.Store.
func (p *sitePresence) AssertedPresence(_ context.Context, _ string, after int64, limit int) (out []presence.Asserted, _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, d := range p.devices {
		if id > after {
			out = append(out, presence.Asserted{Binding: model.Binding{Tenant: d.Tenant, TenantID: syncTenantID, Device: d.Device, DeviceID: id}, Session: d.Session, Connected: d.Connected, At: d.At})
		}
	}
	slices.SortFunc(out, func(a, b presence.Asserted) int { return int(a.Binding.DeviceID - b.Binding.DeviceID) })
	return out[:min(len(out), limit)], nil
}

// Presence is what the edge's own broker reads of stored presence; nil where it asserts none: devices that share a password have none of
// their own, and without edge.uplink.presence nobody asks.
func (e *Edge) Presence() presence.Store {
	if !e.cfg.Uplink.Presence || !e.cfg.Synced() {
		return nil
	}
	return e.presence
}

// comesOrGoes takes in a transition of a device at the site.
func (e *Edge) comesOrGoes(b model.Binding, p *model.Presence, at *record) {
	if !e.cfg.Uplink.Presence {
		return
	}
	t := transition{Transition: edgewire.Transition{Device: b.Device, State: p.State.String(), Reason: p.Reason, Session: p.Session, Expected: p.Expected, Occurred: p.Occurred.Time().UTC()}}
	if at.doubtful {
		t.Boot, t.Mono = at.boot, at.mono
	}
	e.presence.note(b.Tenant, t)
	e.forward.hint()
}

// tellPresence sends what waits of the presence of the site's devices. The goroutine that serves the connection calls it.
func (e *Edge) tellPresence(c *connection) {
	up, _, ok := e.topics()
	if !ok || !c.weir {
		return
	}
	batch := e.presence.batch(c, func(t *transition) time.Time {
		if t.Boot == 0 {
			return t.Occurred
		}
		at, _ := e.clock.resolve(&record{doubtful: true, boot: t.Boot, mono: t.Mono})
		return at.Time().UTC()
	})
	if batch == nil {
		return
	}
	_ = say(c, up, batch, func(code byte) { // the next connection sends again what this one has lost
		if !e.presence.answered(c, code) {
			e.log.Warn("the Weir above takes no presence of the site's devices: it is of an earlier version")
		}
		if code < 0x80 {
			e.forward.hint()
		}
	})
}
