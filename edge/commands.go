package edge

import (
	"maps"
	"slices"
	"sync"
	"time"

	"weir/command"
	"weir/internal/edgewire"
	"weir/internal/mqttclient"
)

// HandOn sends a command to a client at the site that takes the commands of a device; broker.Broker.HandOn is one.
type HandOn func(tenant, device string, body []byte, expires time.Time, ended func(how command.End, why string)) bool

// listeners are the devices at the site that take commands now, and what of that a Weir above does not know yet.
type listeners struct {
	mu      sync.Mutex
	now     map[string]bool
	changed map[string]bool // since the Weir above was notified last
	handOn  HandOn
}

// HandOnBy sets what brings commands to the clients of the site. Without it no command is handed on.
func (e *Edge) HandOnBy(h HandOn) {
	e.listeners.mu.Lock()
	defer e.listeners.mu.Unlock()
	e.listeners.handOn = h
}

// Listening notes that a device begins or ceases to take commands. Those of another tenant than that of the uplink get none.
func (e *Edge) Listening(tenant, device string, listens bool) {
	if own, _, ok := cutTenant(e.cfg.Uplink.Username); !ok || tenant != own || !e.cfg.Commands {
		return
	}
	l := &e.listeners
	l.mu.Lock()
	defer l.mu.Unlock()
	if listens {
		l.now[device] = true
	} else {
		delete(l.now, device)
	}
	l.changed[device] = true
	e.metrics.listeners.Set(float64(len(l.now)))
	e.forward.hint()
}

// take returns what a Weir above is to be notified of: all of it, or what has changed.
func (l *listeners) take(all bool) (out []*edgewire.Listening) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if all {
		clear(l.changed)
		for device := range l.now {
			l.changed[device] = true
		}
		out = append(out, &edgewire.Listening{Kind: edgewire.KindListening, All: true})
	}
	for _, device := range slices.Sorted(maps.Keys(l.changed)) {
		if len(out) == 0 || len(out[len(out)-1].Begin)+len(out[len(out)-1].End) >= edgewire.MaxDevices {
			out = append(out, &edgewire.Listening{Kind: edgewire.KindListening})
		}
		d := out[len(out)-1]
		if l.now[device] {
			d.Begin = append(d.Begin, device)
		} else {
			d.End = append(d.End, device)
		}
	}
	clear(l.changed)
	return out
}

// notify says which devices take commands.
func (e *Edge) notify(c *connection, all bool) {
	up, _, ok := e.topics()
	if !ok || !c.weir || !e.cfg.Commands {
		return
	}
	for _, d := range e.listeners.take(all) {
		_ = say(c, up, d, func(byte) {}) // the next connection says all of it
	}
}

// heard looks at what a Weir above has delivered.
func (e *Edge) heard(c *connection, m mqttclient.Incoming) {
	document, err := edgewire.ParseDown(m.Payload)
	if err != nil {
		e.log.Debug("what the Weir above says is not known to this edge", "topic", m.Topic, "error", err)
		return
	}
	switch document := document.(type) {
	case *edgewire.Command:
		e.command(c, document)
	case *edgewire.Devices:
		e.gathers(c, document)
		e.heardDevices(c, document)
	case *edgewire.Site:
		e.heardSite(c, document)
	case *edgewire.Framed:
		e.forward.heardFrame(c, document)
	case *edgewire.Changed:
		e.changedAbove()
	}
}

// command hands a command on.
func (e *Edge) command(c *connection, d *edgewire.Command) {
	tenant, _, _ := cutTenant(e.cfg.Uplink.Username)
	up, _, _ := e.topics()
	ended := func(how command.End, why string) {
		end := edgewire.Delivered{Kind: edgewire.KindDelivered, Nonce: d.Nonce, End: edgewire.EndAbsent, Text: why}
		switch how {
		case command.Acknowledged:
			end.End = edgewire.EndAcknowledged
		case command.Unconfirmed:
			end.End = edgewire.EndUnconfirmed
		case command.Unwritten:
			end.End = edgewire.EndUnwritten
		case command.Undeliverable:
			end.End = edgewire.EndUndeliverable
		}
		e.metrics.commands.WithLabelValues(end.End).Inc()
		_ = say(c, up, end, func(byte) {}) // with the end of the connection it counts as lost above
	}
	expires := time.Time{}
	if d.Expires != nil {
		expires = *d.Expires
	}
	now, known := e.clock.time()
	l := &e.listeners
	l.mu.Lock()
	handOn := l.handOn
	l.mu.Unlock()
	if known && d.Expires != nil && !now.Before(expires) || handOn == nil || !e.cfg.Commands || !handOn(tenant, d.Device, d.Body, expires, ended) {
		ended(command.Lost, "")
	}
}
