package broker

import (
	"slices"
	"sync"
	"time"

	"weir/command"
)

// mqttCarrier is the name by which dispatches over MQTT are stored.
const mqttCarrier = "mqtt"

// unacknowledged is how long a command may wait for its PUBACK on a connection that stays: then it counts as lost.
const unacknowledged = 30 * time.Second

// commands brings commands to the devices that are connected and subscribed to their command topic: it is the broker as a
// command.Carrier. What waits for a connection is an offer, not a packet: the claim is made when the connection can take one, that is
// when nothing else waits to be written and the client's receive maximum has room. A PUBACK finds the dispatch by the packet identifier,
// and a connection that ends before it reports the dispatch as lost. The lock of the devices' pubsub guards it.
//
// A client that does not acknowledge may be sent no more than its receive maximum, and nothing again on the same connection (MQTT-4.4.0-1,
// MQTT-3.3.4-9): one that leaves no room for a command that waits is disconnected, since only a new connection brings it commands again.
type commands struct {
	d         *devices
	desk      command.Desk
	calls     calls
	listeners map[int64][]*conn // that are subscribed, by device, in the order in which they were
	listening int
}

// taking is how far a connection is with the next command of its device. The lock of its pubsub guards it.
type taking struct {
	offered     bool        // a command waits for the device
	claiming    bool        // the desk has been asked for it
	owing       *time.Timer // runs while a command waits and the client leaves no room; nil: it leaves some
	unconfirmed []delivery  // at QoS 0, in the write that is being made; of the goroutine that writes
}

// Commands returns the broker as a carrier of commands; nil when Deps.Desk is.
func (b *Broker) Commands() command.Carrier {
	if b.devices.commands == nil {
		return nil
	}
	return b.devices.commands
}

// Traits implements command.Carrier.
func (m *commands) Traits() command.Traits {
	return command.Traits{Name: mqttCarrier, Sources: []string{m.d.b.cfg.Source}, Unacknowledged: unacknowledged, Connected: true}
}

// Rhythm implements command.Carrier: a connected device does not sleep.
func (m *commands) Rhythm(int64) (time.Duration, bool) { return 0, false }

// Reach implements command.Carrier: a device is there while a connection of it is subscribed to its commands.
func (m *commands) Reach(device int64) command.Reach {
	p := m.d.pubsub
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case m.choose(device) != nil:
		return command.Present
	case p.perDevice[device] > 0:
		return command.Absent
	}
	return command.Unknown
}

// Offer implements command.Carrier.
func (m *commands) Offer(device int64) bool {
	p := m.d.pubsub
	p.mu.Lock()
	defer p.mu.Unlock()
	return m.offer(device)
}

// offer passes an offer to one of the device's connections. It needs the lock.
func (m *commands) offer(device int64) bool {
	c := m.choose(device)
	if c == nil {
		return false
	}
	c.offered = true
	m.watch(c)
	c.wake()
	return true
}

// watch ends a connection that leaves no room for a command that waits: when none of what it owes an acknowledgement for is acknowledged in the time
// in which a command counts as lost. It needs the lock.
func (m *commands) watch(c *conn) {
	sub := c.commandSubscription()
	if c.owing != nil || sub == nil || !c.offered || len(c.session.inflight) == 0 || m.d.pubsub.takesCommand(c, sub) {
		return
	}
	oldest := c.session.inflight[0]
	c.owing = time.AfterFunc(unacknowledged, func() {
		p := m.d.pubsub
		p.mu.Lock()
		c.owing = nil
		owes := c.commandSubscription() != nil && c.offered && len(c.session.inflight) > 0 && c.session.inflight[0] == oldest
		if !owes {
			m.watch(c)
		}
		p.mu.Unlock()
		if owes {
			c.end(causeUnacknowledged)
		}
	})
}

// choose returns the connection that is to get the next command of a device, nil when none is subscribed: a command goes to one of
// several, since the device would act on it once for each. One that has room is preferred, then one that acknowledges, then the one that
// subscribed last: an older one may be dead without anyone having noticed. It needs the lock.
func (m *commands) choose(device int64) (best *conn) {
	rank := -1
	for _, c := range m.listeners[device] {
		sub := c.commandSubscription()
		if sub == nil {
			continue
		}
		of := 0
		if m.d.pubsub.takesCommand(c, sub) {
			of += 2
		}
		if sub.qos > 0 {
			of++
		}
		if of >= rank {
			best, rank = c, of
		}
	}
	return best
}

// commandSubscription is the connection's subscription to the commands of its device, nil when there is none or it has ended. It needs
// the lock.
func (c *conn) commandSubscription() *subscription { return c.ownSubscription(c.topics.commands) }

// ownSubscription is the connection's subscription to a topic, nil when there is none or the connection has ended. It needs the lock.
func (c *conn) ownSubscription(topic string) *subscription {
	if c.session == nil || c.session.conn != c || c.shut || c.cause.Load() != nil {
		return nil
	}
	return c.session.subs[topic]
}

// takesCommand reports whether a connection could be sent a command now, but for what is being written. It needs the lock.
func (p *pubsub) takesCommand(c *conn, sub *subscription) bool {
	s := c.session
	return len(s.queue) == 0 && (sub.qos == 0 || c.quota > 0 && len(s.inflight) < p.limits.MaxInflight)
}

// changed notes that the subscriptions of a connection have changed, that it has begun, or that it has ended. It needs the lock.
func (m *commands) changed(c *conn) {
	device := c.binding.DeviceID
	at := slices.Index(m.listeners[device], c)
	switch subscribed := c.commandSubscription() != nil; {
	case subscribed:
		if at < 0 {
			m.listeners[device] = append(m.listeners[device], c)
			m.listening++
		}
		m.calls.add(func() { m.desk.Reachable(device) })
	case at >= 0:
		if m.listeners[device] = slices.Delete(m.listeners[device], at, at+1); len(m.listeners[device]) == 0 {
			delete(m.listeners, device)
		}
		m.listening--
		if c.owing != nil {
			c.owing.Stop()
			c.owing = nil
		}
		if c.offered {
			c.offered = false
			m.offer(device)
		}
	}
	m.d.b.metrics.listeners.Set(float64(m.listening))
}

// claim asks the desk for a command that was offered to a connection, if the connection can take it now. It is called when nothing is
// left to be written.
func (m *commands) claim(c *conn) {
	p := m.d.pubsub
	p.mu.Lock()
	defer p.mu.Unlock()
	if sub := c.commandSubscription(); sub == nil || !c.offered || c.claiming || c.shared.reading || !p.takesCommand(c, sub) {
		return
	}
	c.offered, c.claiming, c.shared.last = false, true, false
	m.calls.add(func() {
		m.desk.Claim(c.binding.DeviceID, mqttCarrier, func(d command.Dispatch, ok bool) { m.claimed(c, d, ok) })
	})
}

// claimed puts a claimed command into the queue of the connection that was to get it.
func (m *commands) claimed(c *conn, d command.Dispatch, ok bool) {
	p := m.d.pubsub
	p.mu.Lock()
	defer p.mu.Unlock()
	c.claiming = false
	if !ok {
		if c.offered || c.shared.due() { // meanwhile
			c.wake()
		}
		return
	}
	m.put(c, d)
}

// Ready implements command.Taker: the connection that is to get the next command would claim it at once.
func (m *commands) Ready(device int64) bool {
	p := m.d.pubsub
	p.mu.Lock()
	defer p.mu.Unlock()
	c := m.choose(device)
	return c != nil && !c.writing && len(c.out) == 0 && !c.offered && !c.claiming && !c.shared.reading && !c.shared.due() &&
		p.takesCommand(c, c.commandSubscription())
}

// Take implements command.Taker.
func (m *commands) Take(d command.Dispatch) {
	p := m.d.pubsub
	p.mu.Lock()
	defer p.mu.Unlock()
	c := m.choose(d.DeviceID)
	if c != nil && !p.takesCommand(c, c.commandSubscription()) { // it had room before the commit
		c = nil
	}
	m.put(c, d)
}

// put puts a command into the queue of a connection; it is lost where that is subscribed no more, or nil. It needs the lock.
func (m *commands) put(c *conn, d command.Dispatch) {
	ended := func(how command.End, why string) {
		m.calls.add(func() {
			m.desk.Ended(command.Receipt{DeviceID: d.DeviceID, Token: d.Token, Nonce: d.Nonce, Carrier: mqttCarrier, End: how, Text: why})
		})
	}
	if c == nil || c.commandSubscription() == nil {
		ended(command.Lost, "")
		return
	}
	sub := c.commandSubscription()
	one := delivery{message: &message{topic: c.topics.commands, payload: d.Body(), qos: 1}, ended: ended}
	one.qos = min(one.message.qos, sub.qos)
	if d.Expires > 0 {
		one.ends = d.Expires.Time()
	}
	c.session.queue = append(c.session.queue, one)
	m.d.pubsub.account(c.session, one.message, 1)
	c.wake()
}

// written reports what was written at QoS 0. The goroutine that writes to the connection calls it.
func (c *conn) written(err error) {
	how := command.Unconfirmed
	if err != nil {
		how = command.Lost
	}
	for i := range c.unconfirmed {
		c.unconfirmed[i].end(how, "")
	}
	c.unconfirmed = c.unconfirmed[:0]
}

// calls makes calls one after the other, in their order, in a goroutine that ends when none is left: the desk may hold a lock of its
// own while it asks the carrier, so that nobody may call it who holds one of the broker's. There is at most a call for each change of
// a subscription, each claim and each end that is under way.
type calls struct {
	mu      sync.Mutex
	waiting []func()
	running bool
	done    sync.WaitGroup
}

func (q *calls) add(call func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, call)
	if !q.running {
		q.running = true
		q.done.Go(q.run)
	}
}

func (q *calls) run() {
	for {
		q.mu.Lock()
		all := q.waiting
		q.waiting, q.running = nil, len(all) > 0
		q.mu.Unlock()
		if len(all) == 0 {
			return
		}
		for _, call := range all {
			call()
		}
	}
}
