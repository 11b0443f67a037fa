package broker

import (
	"slices"
	"strings"
	"time"

	"weir/command"
	"weir/model"
)

// hands knows which clients of an edge take the commands of which device, and hands commands on to them. The lock of the pubsub guards it.
type hands struct {
	b      *Broker
	pubsub *pubsub
	notify func(tenant, device string, listens bool)
	calls  calls

	listeners map[string][]*conn // by command topic, in the order in which they subscribed
	topics    map[*conn][]string // the same the other way
}

func newHands(b *Broker, p *pubsub, notify func(tenant, device string, listens bool)) *hands {
	if notify == nil {
		return nil
	}
	return &hands{b: b, pubsub: p, notify: notify, listeners: map[string][]*conn{}, topics: map[*conn][]string{}}
}

// changed compares what a connection is subscribed to with what is known of it. It needs the lock.
func (h *hands) changed(c *conn) {
	if h == nil {
		return
	}
	var now []string
	if c.session != nil && c.session.conn == c && !c.shut && c.cause.Load() == nil {
		for topic := range c.session.subs {
			if _, device := h.device(topic); device != "" {
				now = append(now, topic)
			}
		}
	}
	before := h.topics[c]
	for _, topic := range before {
		if slices.Contains(now, topic) {
			continue
		}
		if h.listeners[topic] = slices.DeleteFunc(h.listeners[topic], func(o *conn) bool { return o == c }); len(h.listeners[topic]) == 0 {
			delete(h.listeners, topic)
			h.says(topic, false)
		}
	}
	for _, topic := range now {
		if slices.Contains(before, topic) {
			continue
		}
		if h.listeners[topic] = append(h.listeners[topic], c); len(h.listeners[topic]) == 1 {
			h.says(topic, true)
		}
	}
	if h.topics[c] = now; len(now) == 0 {
		delete(h.topics, c)
	}
}

func (h *hands) says(topic string, listens bool) {
	tenant, device := h.device(topic)
	h.calls.add(func() { h.notify(tenant, device, listens) })
}

// device returns the device whose commands are on a topic, "" for none.
func (h *hands) device(topic string) (tenant, device string) {
	parts := strings.Split(topic, "/")
	if len(parts) != 4 || parts[0] != h.b.cfg.InstanceID || parts[2] != "device-commands" || !model.ValidToken(parts[1]) || !model.ValidToken(parts[3]) {
		return "", ""
	}
	return parts[1], parts[3]
}

// allHands are those that there are.
func (b *Broker) allHands() (all []*hands) {
	if b.devices.hands != nil {
		all = append(all, b.devices.hands)
	}
	if b.site != nil && b.site.hands != nil {
		all = append(all, b.site.hands)
	}
	return all
}

// HandOn sends a command to a client that is subscribed to the commands of a device: to the one that subscribed last. It reports false where none is.
// ended is called once, from another goroutine, with how the command ended, and must not block.
func (b *Broker) HandOn(tenant, device string, body []byte, expires time.Time, ended func(how command.End, why string)) bool {
	h := b.devices.hands
	if b.site != nil {
		h = b.site.hands
	}
	if h == nil {
		return false
	}
	topic := topicsOf(b.cfg.InstanceID, tenant, device).commands
	p := h.pubsub
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range slices.Backward(h.listeners[topic]) {
		sub := c.ownSubscription(topic)
		if sub == nil || len(c.session.queue) >= maxCommands {
			continue
		}
		m := &message{topic: topic, payload: body, qos: 1}
		c.session.queue = append(c.session.queue, delivery{message: m, qos: min(m.qos, sub.qos), ends: expires,
			ended: func(how command.End, why string) { h.calls.add(func() { ended(how, why) }) }})
		p.account(c.session, m, 1)
		c.wake()
		return true
	}
	return false
}
