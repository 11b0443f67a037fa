package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"weir/command"
	"weir/internal/edgewire"
)

// edgeCarrier is the name by which dispatches through edges are stored.
const edgeCarrier = "uplink"

// Bounds of commands through an edge.
const (
	maxEdgeDevices  = 10_000           // devices at a site that take commands
	maxEdgeInFlight = 64               // commands that an edge has and has not said how they ended
	edgeUnconfirmed = 60 * time.Second // after that a command that an edge has counts as lost
)

// edgeCommands brings commands to devices at sites: it is the broker as a command.Carrier, beside commands. An edge says which devices at its site
// take commands now; such a device is reached through the connection that said so last. The edge hands a command on and says how it ended; where it
// does not know the device any more, or its connection ends before, the command is lost, and so HELD until the device is there again.
type edgeCommands struct {
	d     *devices
	desk  command.Desk
	calls calls

	mu      sync.Mutex
	through map[int64]*conn // by device
	sites   map[*conn]*siteOf
}

// siteOf is the site of a connection.
type siteOf struct {
	names    map[string]int64 // devices that take commands, by the name that the edge uses
	devices  map[int64]string // the same the other way
	offered  map[int64]bool
	claiming int
	sent     map[string]command.Dispatch // by nonce
}

// EdgeCommands returns the broker as a carrier of commands to devices at sites; nil when Deps.Desk or Deps.Edges is.
func (b *Broker) EdgeCommands() command.Carrier {
	if b.devices.edgeCommands == nil {
		return nil
	}
	return b.devices.edgeCommands
}

// deliveredOr calls lost where a document did not arrive.
func deliveredOr(lost func()) func(command.End, string) {
	return func(how command.End, _ string) {
		if how != command.Acknowledged {
			lost()
		}
	}
}

// Traits implements command.Carrier.
func (m *edgeCommands) Traits() command.Traits {
	return command.Traits{Name: edgeCarrier, Unacknowledged: edgeUnconfirmed, Connected: true}
}

// Rhythm implements command.Carrier: whether a device behind an edge sleeps is not known.
func (m *edgeCommands) Rhythm(int64) (time.Duration, bool) { return 0, false }

// Reach implements command.Carrier.
func (m *edgeCommands) Reach(device int64) command.Reach {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.through[device] != nil {
		return command.Present
	}
	return command.Unknown
}

// Offer implements command.Carrier.
func (m *edgeCommands) Offer(device int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.through[device]
	if c == nil {
		return false
	}
	m.sites[c].offered[device] = true
	m.claim(c)
	return true
}

// claim asks the desk for the commands of devices that were offered, as far as the edge takes more. It needs the lock.
func (m *edgeCommands) claim(c *conn) {
	s := m.sites[c]
	for device := range s.offered {
		if s.claiming+len(s.sent) >= maxEdgeInFlight {
			return
		}
		delete(s.offered, device)
		s.claiming++
		m.calls.add(func() {
			m.desk.Claim(device, edgeCarrier, func(d command.Dispatch, ok bool) { m.claimed(c, d, ok) })
		})
	}
}

// claimed sends a claimed command to the edge.
func (m *edgeCommands) claimed(c *conn, d command.Dispatch, ok bool) {
	m.mu.Lock()
	s := m.sites[c]
	if s != nil {
		s.claiming--
	}
	if !ok {
		if s != nil {
			m.claim(c)
		}
		m.mu.Unlock()
		return
	}
	name := ""
	if s != nil {
		name = s.devices[d.DeviceID]
	}
	if name == "" { // gone meanwhile
		m.mu.Unlock()
		m.ended(d, command.Lost, "")
		return
	}
	s.sent[d.Nonce] = d
	m.mu.Unlock()
	document := &edgewire.Command{Kind: edgewire.KindCommand, Device: name, Nonce: d.Nonce, Body: d.Body()}
	if d.Expires > 0 {
		at := d.Expires.Time().UTC()
		document.Expires = &at
	}
	if !m.d.tellEdge(c, document, func() { m.end(c, d.Nonce, command.Lost, "") }) {
		m.end(c, d.Nonce, command.Lost, "")
	}
}

func (m *edgeCommands) ended(d command.Dispatch, how command.End, why string) {
	m.calls.add(func() {
		m.desk.Ended(command.Receipt{DeviceID: d.DeviceID, Token: d.Token, Nonce: d.Nonce, Carrier: edgeCarrier, End: how, Text: why})
	})
}

// end reports how a command ended, once.
func (m *edgeCommands) end(c *conn, nonce string, how command.End, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sites[c]
	if s == nil {
		return
	}
	d, ok := s.sent[nonce]
	if !ok {
		return
	}
	delete(s.sent, nonce)
	m.ended(d, how, why)
	m.claim(c)
}

// delivered takes in how a command ended.
func (m *edgeCommands) delivered(c *conn, d *edgewire.Delivered) {
	how := command.Lost
	switch d.End {
	case edgewire.EndAcknowledged:
		how = command.Acknowledged
	case edgewire.EndUnconfirmed:
		how = command.Unconfirmed
	case edgewire.EndUnwritten:
		how = command.Unwritten
	case edgewire.EndUndeliverable:
		how = command.Undeliverable
	}
	m.end(c, d.Nonce, how, d.Text)
}

// listening takes in which devices at a site take commands. One for which the edge may not speak, or that there is not, takes none.
func (m *edgeCommands) listening(c *conn, l *edgewire.Listening) {
	var begun []int64
	found := map[string]int64{}
	for _, name := range l.Begin {
		b, err := m.d.b.deps.Edges.Behind(c.ctx, c.binding, name)
		switch {
		case errors.Is(err, context.Canceled):
			return
		case err != nil && !errors.Is(err, ErrNotBehind):
			m.d.b.log.Warn("a device at a site cannot be looked up: it gets no commands until its edge connects again", "device", name, "error", err)
		case err == nil && b.DeviceID != 0:
			found[name] = b.DeviceID
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.ctx.Err() != nil { // its end is done with
		return
	}
	s := m.sites[c]
	if s == nil {
		s = &siteOf{names: map[string]int64{}, devices: map[int64]string{}, offered: map[int64]bool{}, sent: map[string]command.Dispatch{}}
		m.sites[c] = s
	}
	if l.All {
		for name := range s.names {
			if _, stays := found[name]; !stays {
				m.forget(c, s, name)
			}
		}
	}
	for _, name := range l.End {
		m.forget(c, s, name)
	}
	for name, device := range found {
		if _, again := s.names[name]; !again && len(s.names) >= maxEdgeDevices {
			continue
		}
		s.names[name], s.devices[device] = device, name
		m.through[device] = c
		begun = append(begun, device)
	}
	m.d.b.metrics.edgeListeners.Set(float64(len(m.through)))
	m.calls.add(func() {
		for _, device := range begun {
			m.desk.Reachable(device)
		}
	})
}

// forget notes that a device takes no commands any more. It needs the lock.
func (m *edgeCommands) forget(c *conn, s *siteOf, name string) {
	device, ok := s.names[name]
	if !ok {
		return
	}
	delete(s.names, name)
	if s.devices[device] != name { // another name of the same device
		return
	}
	delete(s.devices, device)
	delete(s.offered, device)
	if m.through[device] == c {
		delete(m.through, device)
	}
}

// left notes that a connection has ended.
func (m *edgeCommands) left(c *conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sites[c]
	if s == nil {
		return
	}
	for name := range s.names {
		m.forget(c, s, name)
	}
	for _, d := range s.sent {
		m.ended(d, command.Lost, "")
	}
	delete(m.sites, c)
	m.d.b.metrics.edgeListeners.Set(float64(len(m.through)))
}
