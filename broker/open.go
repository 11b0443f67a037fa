package broker

import (
	"bufio"
	"container/list"
	"context"
	"crypto/rand"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"

	"weir/model"
)

// OpenConfig is about the open topics: general publish and subscribe on a listener of its own (Door.Open), for bridges,
// nodes of a site and conformance suites. It is apart from the devices: nothing published there is stored, and no topic of
// a device can be published there. Zero values mean the defaults named here.
type OpenConfig struct {
	Tenant    string // whose device credentials open a connection; one only, so that tenants never meet
	Anonymous bool   // whoever reaches it is let in

	MaxConnections   int   // 1,000; beyond it a CONNECT is refused as busy
	MaxSessions      int   // 1,000 sessions are kept for clients that are away; those that left first go
	MaxSubscriptions int   // 1,000 of one client; beyond it a SUBSCRIBE is refused with 0x97
	MaxNodes         int   // 200,000 levels of all filters and retained names together; beyond it 0x97
	MaxRetained      int   // 10,000 retained messages; beyond it a publish that would be retained is refused with 0x97
	MaxRetainedBytes int64 // 8 MiB of them, likewise
	MaxQueued        int   // 10,000 messages wait for one client; beyond it what comes is dropped for that client
	MaxQueuedBytes   int64 // 16 MiB wait for one client, likewise; four times that for all of them together
	MaxInflight      int   // 64 exchanges at QoS 1 and 2 with one client, or fewer if its receive maximum says so
}

func (c OpenConfig) withDefaults() OpenConfig {
	for v, d := range map[*int]int{&c.MaxConnections: 1000, &c.MaxSessions: 1000, &c.MaxSubscriptions: 1000, &c.MaxNodes: 200_000,
		&c.MaxRetained: 10_000, &c.MaxQueued: 10_000, &c.MaxInflight: 64} {
		if *v <= 0 {
			*v = d
		}
	}
	for v, d := range map[*int64]int64{&c.MaxRetainedBytes: 8 << 20, &c.MaxQueuedBytes: 16 << 20} {
		if *v <= 0 {
			*v = d
		}
	}
	return c
}

const (
	openAliases  = 16  // topic aliases of one connection, in each direction
	maxLevels    = 128 // of a topic name or filter
	maxOpenID    = 256 // bytes of a client id
	leastForID   = 34  // bytes more of a CONNACK that holds a chosen client id
	maxOpenQoS2  = 4096
	allQueues    = 4 // times MaxQueuedBytes are what all queues may hold
	openAutoName = "auto-"
)

// Reasons for which an open topic refuses or drops.
const (
	openDeviceTopic  = "device-topic"
	openReserved     = "reserved-topic"
	openRetainedFull = "retained-full"
	openSubsFull     = "subscriptions-full"
	openQueueFull    = "queue-full"
	openExpired      = "expired"
	openRevoked      = "will-revoked"
	openStopping     = "will-at-the-stop"
	openTooLarge     = "too-large-for-the-client"
)

// openTopics is what the open topics have in common: who is here, what they subscribed to, what is retained. The library's
// own sessions do not serve here: they hold the packet identifiers of both directions in one table, forget the order of
// what waits and most properties of a will, and pay no heed to a receive maximum when they repeat.
//
// One lock guards all of it. Whoever holds it writes to no connection: what a client is to get is put into its queue, and
// a goroutine of the client's own takes it from there, so that a slow one holds up nobody.
type openTopics struct {
	b       *Broker
	cfg     OpenConfig
	metrics *openMetrics
	devices *regexp.Regexp // topics of devices

	mu            sync.Mutex
	clients       map[string]*openSession
	conns         map[*openConn]struct{}
	away          list.List // of *openSession without a connection, the one that left first in front
	tree          topicTree
	subscriptions int
	retained      int
	retainedBytes int64
	queued        int
	queuedBytes   int64
	closing       bool
	gathered      map[*openSession]*delivery // of the publish that is being handed out
}

func newOpenTopics(b *Broker, cfg OpenConfig) *openTopics {
	const one = `/[^/]+/`
	return &openTopics{b: b, cfg: cfg.withDefaults(), metrics: newOpenMetrics(b.deps.Registerer),
		devices: regexp.MustCompile(`^` + regexp.QuoteMeta(b.cfg.InstanceID) + one +
			`(devices/[^/]+/events|command-responses/[^/]+|device-reports/[^/]+|device-commands/[^/]+)$`),
		clients: map[string]*openSession{}, conns: map[*openConn]struct{}{}, gathered: map[*openSession]*delivery{}}
}

var (
	refuseOpenTopic = &refusal{code: codeNotAuthorized, v3: connackNotAuthorized, why: "will-topic"}
	causeOpenDevice = &cause{word: "forbidden-publish", code: codeNotAuthorized,
		text: "topics of devices are served, and readings stored, by the broker for devices only (listeners.mqtt, mqtts, mqtt_ws, mqtt_wss)"}
	causeOpenQuota = &cause{word: "quota-exceeded", code: codeQuotaExceeded, text: "too many messages are retained"}
)

// admit has the credential verified and gives the client its session.
func (h *openTopics) admit(conn net.Conn, in *bufio.Reader, p *connect, d *Listener) (*openConn, *refusal) {
	if r := p.serves(); r != nil {
		return nil, r
	}
	switch {
	case len(p.clientID) > maxOpenID:
		return nil, refuseClientID
	case p.clientID == "" && p.maxPacket > 0 && p.maxPacket < leastPacket+leastForID:
		return nil, refusePacketSize
	}
	assigned := p.clientID == ""
	if assigned {
		p.clientID = openAutoName + rand.Text()
	}
	if p.will != nil && !h.soundWill(p.will) {
		return nil, refuseOpenTopic
	}
	ctx, cancel := context.WithTimeout(h.b.closing, h.b.cfg.ConnectTimeout)
	defer cancel()
	for range verifyAttempts {
		drops := h.b.drops.Load()
		proof, r := h.verify(ctx, p)
		if r != nil {
			return nil, r
		}
		c := newOpenConn(h, conn, in, p, proof)
		c.door, c.assigned = d.Name, assigned
		if r := h.enter(c); r != nil {
			c.session.abandon()
			return nil, r
		}
		if h.b.drops.Load() == drops {
			_ = conn.SetDeadline(time.Time{})
			if c.cause.Load() != nil { // taken over, or dropped, while it was verified
				c.hurryUp()
			}
			return c, nil
		}
		h.leave(c, causeDropped) // something was dropped meanwhile: perhaps this
		c.session.abandon()
	}
	return nil, refuseBusy
}

func (h *openTopics) soundWill(w *will) bool {
	return w.topic != "" && !strings.ContainsAny(w.topic, "+#") && levelsOf(w.topic) <= maxLevels && h.forbidden(w.topic) == ""
}

// verify has the credential of the tenant verified; the client id is free.
func (h *openTopics) verify(ctx context.Context, p *connect) (Proof, *refusal) {
	if h.cfg.Anonymous {
		return Proof{}, nil
	}
	tenant, credential, _ := strings.Cut(p.user, ":")
	claim := Claim{Tenant: tenant, Type: AccessToken, ID: credential}
	if p.password != "" {
		claim.Type, claim.Secret = MQTTBasic, p.password
	}
	if h.cfg.Tenant == "" || tenant != h.cfg.Tenant || credential == "" {
		return Proof{}, refuseIdentity
	}
	proof, err := h.b.deps.Verifier.Verify(ctx, claim)
	if err != nil || proof.Tenant != tenant {
		return Proof{}, refuseIdentity
	}
	return proof, nil
}

// bridgeStates is where bridges say whether they are there; of the reserved topics these are open to clients.
const bridgeStates = "$SYS/broker/connection/"

// forbidden says why nobody may publish on a topic, "" when everybody may.
func (h *openTopics) forbidden(topic string) string {
	switch {
	case h.devices.MatchString(topic):
		return openDeviceTopic
	case strings.HasPrefix(topic, "$SYS/") && !strings.HasPrefix(topic, bridgeStates), strings.HasPrefix(topic, sharePrefix):
		return openReserved
	}
	return ""
}

// enter gives a connection its place, after whoever had its client id before is gone.
func (h *openTopics) enter(c *openConn) *refusal {
	for {
		old, r := h.tryEnter(c)
		if old == nil {
			return r
		}
		old.end(causeTakenOver)
		<-old.done
	}
}

func (h *openTopics) tryEnter(c *openConn) (old *openConn, r *refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.clients[c.clientID]
	switch {
	case h.closing:
		return nil, refuseStopping
	case s != nil && s.conn != nil:
		return s.conn, nil
	case len(h.conns) >= h.cfg.MaxConnections:
		return nil, refuseBusy
	}
	h.conns[c] = struct{}{}
	h.join(c, s)
	h.b.metrics.byListener.WithLabelValues(c.door).Inc()
	h.gauge()
	return nil, nil
}

// leave ends what a connection was for its session.
func (h *openTopics) leave(c *openConn, why *cause) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, c)
	h.part(c, why)
	h.b.metrics.byListener.WithLabelValues(c.door).Dec()
	h.gauge()
}

// drop ends the connections whose credential matches, as Broker.Drop.
func (h *openTopics) drop(match func(model.Binding) bool) (n int) {
	for _, c := range h.live() {
		if c.binding.Tenant != "" && match(c.binding) && c.end(causeDropped) {
			n++
		}
	}
	return n
}

func (h *openTopics) live() (all []*openConn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.conns {
		all = append(all, c)
	}
	return all
}

// shut refuses who comes and ends who is there.
func (h *openTopics) shut() []*openConn {
	h.mu.Lock()
	h.closing = true
	h.mu.Unlock()
	all := h.live()
	for _, c := range all {
		c.end(causeShutdown)
	}
	return all
}

// clear forgets every session and every retained message: they live as long as the broker.
func (h *openTopics) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.clients {
		s.stopTimers()
		if s.will != nil {
			h.withhold(causeShutdown)
		}
	}
	h.clients, h.tree = map[string]*openSession{}, topicTree{}
	h.away.Init()
}

// publish takes a message and hands it out. It returns why it was refused, "" when it was not.
func (h *openTopics) publish(m *message) (refused string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.gauge()
	return h.handOut(m)
}

// handOut is publish for whom has the lock.
func (h *openTopics) handOut(m *message) (refused string) {
	if m.retain && !h.retain(m) {
		h.metrics.refused.WithLabelValues(openRetainedFull).Inc()
		return openRetainedFull
	}
	h.metrics.received.Inc()
	h.tree.match(m.topic, func(n *topicNode) {
		for _, s := range n.subs {
			h.gather(m, s)
		}
		for _, g := range n.groups {
			if s := h.choose(g, m); s != nil {
				h.enqueue(s.client, s.delivery(m))
			}
		}
	})
	for s, d := range h.gathered {
		h.enqueue(s, *d)
	}
	clear(h.gathered)
	return ""
}

// delivery is a message as a subscription asks for it.
func (s *subscription) delivery(m *message) delivery {
	d := delivery{message: m, qos: min(m.qos, s.qos), retain: m.retain && s.asPublished} // MQTT-3.3.1-12, -13
	if s.id > 0 {
		d.ids = []uint32{s.id}
	}
	return d
}

// gather joins the subscriptions of one client that match into one delivery: with the highest of their QoS (MQTT-3.3.4-2)
// and all of their identifiers (MQTT-3.3.4-4).
func (h *openTopics) gather(m *message, s *subscription) {
	if s.noLocal && s.client.id == m.from { // MQTT-3.8.3-3
		return
	}
	one := s.delivery(m)
	d := h.gathered[s.client]
	if d == nil {
		h.gathered[s.client] = &one
		return
	}
	d.qos, d.retain, d.ids = max(d.qos, one.qos), d.retain || one.retain, append(d.ids, one.ids...)
}

// choose returns the member of a group whose turn it is: of those that are here and have room, else of those that are away.
func (h *openTopics) choose(g *shareGroup, m *message) *subscription {
	var second *subscription
	for i := range g.members {
		s := g.members[(g.next+i)%len(g.members)]
		switch {
		case !h.hasRoom(s.client, m):
		case s.client.conn != nil:
			g.next = (g.next + i + 1) % len(g.members)
			return s
		case second == nil:
			second = s
		}
	}
	if second == nil && len(g.members) > 0 {
		second = g.members[0] // whose queue is full: there it is counted
	}
	return second
}

// retain keeps a message as the last of its topic, or forgets that when it is empty (MQTT-3.3.1-6). It returns false when
// there is no room.
func (h *openTopics) retain(m *message) bool {
	n := h.tree.find(m.topic, false)
	var old *message
	if n != nil {
		old = n.retained
	}
	if len(m.payload) == 0 {
		if old != nil {
			h.forget(n)
		}
		return true
	}
	count, bytes := 1, m.size()
	if old != nil {
		count, bytes = 0, bytes-old.size()
	}
	if !h.retainable(count, bytes, levelsOf(m.topic)) {
		h.sweep()
		if !h.retainable(count, bytes, levelsOf(m.topic)) {
			return false
		}
	}
	h.tree.find(m.topic, true).retained = m // the sweep may have taken the node away
	h.retained, h.retainedBytes = h.retained+count, h.retainedBytes+bytes
	return true
}

func (h *openTopics) retainable(count int, bytes int64, levels int) bool {
	return h.retained+count <= h.cfg.MaxRetained && h.retainedBytes+bytes <= h.cfg.MaxRetainedBytes && h.tree.nodes+levels*count <= h.cfg.MaxNodes
}

// forget lets go of the retained message of a node.
func (h *openTopics) forget(n *topicNode) {
	h.retained--
	h.retainedBytes -= n.retained.size()
	n.retained = nil
	h.tree.prune(n)
}

// sweep forgets the retained messages whose time is over (MQTT-3.3.2-5).
func (h *openTopics) sweep() {
	var over []*topicNode
	now := time.Now()
	h.tree.root.walk(func(n *topicNode) {
		if n.retained != nil && n.retained.expired(now) {
			over = append(over, n)
		}
	})
	for _, n := range over {
		h.forget(n)
	}
}

// gauge shows what is held.
func (h *openTopics) gauge() {
	m := h.metrics
	m.connections.Set(float64(len(h.conns)))
	m.kept.Set(float64(h.away.Len()))
	m.retained.Set(float64(h.retained))
	m.retainedBytes.Set(float64(h.retainedBytes))
	m.queued.Set(float64(h.queued))
	m.queuedBytes.Set(float64(h.queuedBytes))
	m.subscriptions.Set(float64(h.subscriptions))
	m.nodes.Set(float64(h.tree.nodes))
}
