package broker

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/command"
	"weir/model"
	"weir/registry/shared"
)

// Attributes reads what devices may read of themselves.
type Attributes interface {
	// SharedSets returns the sets of devices in the order of the argument, as they were committed last.
	SharedSets(ctx context.Context, devices ...model.Binding) ([]shared.Set, error)
}

const (
	setsTogether  = 16               // devices whose sets are read at once: at most 1 MiB
	setsReadRetry = 5 * time.Second  // after a failure to read
	setsReadLimit = 10 * time.Second // for one read
)

// attributes sends connections that subscribed what their devices may read of themselves: the whole set at the subscription and after
// each change. What waits for a connection is a note that there is something, not a packet: the set is read when the connection can take
// it, so that a slow device gets the newest one and a change costs nothing while another is on its way. The lock of the devices' pubsub
// guards it.
type attributes struct {
	d         *devices
	source    Attributes
	listeners map[int64][]*conn // that are subscribed, by device
	listening int
	waiting   []*conn // whose sets are to be read, each once
	running   bool    // a goroutine reads
	work      sync.WaitGroup
}

// sharing is how far a connection is with the attributes of its device. The lock of its pubsub guards it.
type sharing struct {
	sub     *subscription // that owed and told are about
	owed    bool          // there may be a set that the device does not have
	told    string        // revision of the set that it was sent last
	reading bool          // the set is being read
	paused  bool          // reading failed
	last    bool          // it had its turn before a command
	sent    atomic.Bool   // a set is on its way
}

// due reports whether the set is to be read as soon as the connection can take it.
func (s *sharing) due() bool { return s.owed && !s.reading && !s.paused && !s.sent.Load() }

// SharedChanged says that a device may read something else of itself than before. It does not block.
func (b *Broker) SharedChanged(device int64) {
	a := b.devices.attributes
	if a == nil {
		return
	}
	p := a.d.pubsub
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range a.listeners[device] {
		c.shared.owed = true
		c.wake()
	}
}

// sharedSubscription is the connection's subscription to the attributes of its device, nil when there is none or it has ended. It needs
// the lock.
func (c *conn) sharedSubscription() *subscription { return c.ownSubscription(c.topics.attributes) }

// changed notes that the subscriptions of a connection have changed, that it has begun, or that it has ended. It needs the lock.
func (a *attributes) changed(c *conn) {
	sub, before := c.sharedSubscription(), c.shared.sub
	if sub == before {
		return
	}
	c.shared.sub, c.shared.owed, c.shared.told = sub, sub != nil, ""
	device := c.binding.DeviceID
	switch {
	case before == nil:
		a.listeners[device] = append(a.listeners[device], c)
		a.listening++
	case sub == nil:
		if a.listeners[device] = slices.DeleteFunc(a.listeners[device], func(other *conn) bool { return other == c }); len(a.listeners[device]) == 0 {
			delete(a.listeners, device)
		}
		a.listening--
	}
	a.d.b.metrics.readers.Set(float64(a.listening))
	if sub != nil {
		c.wake()
	}
}

// claim has the set of a connection read that can take it now. A command that waits as well has the turn after it. It is called when
// nothing is left to be written.
func (a *attributes) claim(c *conn) {
	p := a.d.pubsub
	p.mu.Lock()
	defer p.mu.Unlock()
	if sub := c.sharedSubscription(); sub == nil || !c.shared.due() || c.claiming || c.offered && c.shared.last || !p.takesCommand(c, sub) {
		return
	}
	c.shared.reading, c.shared.last = true, true
	a.waiting = append(a.waiting, c)
	if !a.running {
		a.running = true
		a.work.Go(a.read)
	}
}

// read reads sets until no connection waits for one.
func (a *attributes) read() {
	p := a.d.pubsub
	for {
		p.mu.Lock()
		n := min(setsTogether, len(a.waiting))
		if n == 0 {
			a.waiting, a.running = nil, false
			p.mu.Unlock()
			return
		}
		conns := a.waiting[:n:n]
		a.waiting = a.waiting[n:]
		for _, c := range conns {
			c.shared.owed = false // what changes from here on may not be in what is read
		}
		p.mu.Unlock()
		of := make([]model.Binding, n)
		for i, c := range conns {
			of[i] = c.binding
		}
		ctx, cancel := context.WithTimeout(a.d.b.closing, setsReadLimit)
		sets, err := a.source.SharedSets(ctx, of...)
		cancel()
		if err != nil {
			a.d.b.metrics.setsUnread.Inc()
			a.d.b.log.Warn("reading the attributes of devices failed", "devices", n, "error", err, "retry_in", setsReadRetry)
			time.AfterFunc(setsReadRetry, func() { a.resume(conns) })
		}
		p.mu.Lock()
		for i, c := range conns {
			c.shared.reading = false
			if err != nil {
				c.shared.owed, c.shared.paused = c.shared.sub != nil, true
			} else {
				a.send(c, &sets[i])
			}
			if c.offered || c.shared.due() { // meanwhile
				c.wake()
			}
		}
		p.mu.Unlock()
	}
}

// resume lets connections try again whose sets could not be read.
func (a *attributes) resume(conns []*conn) {
	p := a.d.pubsub
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if c.shared.paused = false; c.shared.due() {
			c.wake()
		}
	}
}

// packetFrame is more than a PUBLISH to a device takes besides its topic and its payload.
const packetFrame = 16

// send puts a set into the queue of a connection, unless it is the one that was sent last. It needs the lock.
func (a *attributes) send(c *conn, set *shared.Set) {
	sub := c.sharedSubscription()
	if sub == nil || set.Revision == c.shared.told {
		return
	}
	m := &message{topic: c.topics.attributes, payload: set.Body, qos: 1}
	tooLarge := set.TooLarge()
	if c.maxPacket > 0 && len(m.topic)+len(m.payload)+packetFrame > int(c.maxPacket) {
		m.payload, tooLarge = set.Note(), true
	}
	if tooLarge {
		a.d.b.metrics.setsTooLarge.Inc()
	}
	c.shared.told = set.Revision
	c.shared.sent.Store(true)
	c.session.queue = append(c.session.queue, delivery{message: m, qos: min(m.qos, sub.qos), ended: func(how command.End, _ string) {
		c.shared.sent.Store(false)
		a.d.b.metrics.sets.WithLabelValues(setOutcome(how)).Inc()
	}})
	a.d.pubsub.account(c.session, m, 1)
	c.wake()
}

func setOutcome(how command.End) string {
	switch how {
	case command.Acknowledged:
		return "acknowledged"
	case command.Unconfirmed:
		return "unconfirmed"
	case command.Lost:
		return "lost"
	}
	return "refused"
}
