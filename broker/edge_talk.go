package broker

import (
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/edgewire"
	"weir/model"
)

// Bounds of what an edge and Weir say to one another beside the messages.
const (
	talksAtOnce  = 8                     // hellos and states of an edge within talkEvery
	talkEvery    = time.Second           // after that one in each of these
	talksWaiting = 64                    // documents of an edge that wait to be handled; beyond that it is not read
	maxToldEdge  = 128                   // documents that wait for an edge
	pageRest     = 20 * time.Millisecond // after each page of devices
	talkRefusal  = "one document after the other, one a second"
	unknownTopic = "not a document of an edge"
)

// talking is what a connection of an edge is at with its documents. The goroutine that reads the connection has it, but for what the queue holds.
type talking struct {
	up, down string // topics
	frames   string // likewise
	spent    int
	since    time.Time
	queue    chan said // documents, handled one after the other; nil: none has come yet

	site *edgewire.SiteDocument // of which it asks for the next part; the goroutine that handles the queue has it

	stale atomic.Bool // it has asked for devices, and was notified that they have changed since
}

// said is a document of an edge. done is set where its acknowledgement waits for what becomes of it.
type said struct {
	document any
	done     func(verdict)
}

// admit reports whether a further hello or state may come now.
func (t *talking) admit(now time.Time) bool {
	if back := int(now.Sub(t.since) / talkEvery); back > 0 {
		t.spent, t.since = max(0, t.spent-back), now
	}
	if t.spent >= talksAtOnce {
		return false
	}
	t.spent++
	return true
}

// edgeSays takes a document that an edge publishes about itself. It reports false where the topic is none for that. A document is no message of
// the ledger: nothing of it is stored as one.
func (d *devices) edgeSays(c *conn, p *publish, number uint64) bool {
	if p.topic != c.talk.up {
		return false
	}
	answer := func(outcome string, v verdict) bool {
		d.b.metrics.edgeDocuments.WithLabelValues(outcome).Inc()
		if p.qos > 0 {
			c.acks.complete(number, v)
		}
		return true
	}
	document, err := edgewire.ParseUp(p.payload)
	if err != nil {
		return answer("malformed", verdict{code: codePayloadInvalid, reason: unknownTopic})
	}
	if _, ok := document.(*edgewire.Hello); ok && !c.talk.admit(d.b.deps.Now()) {
		return answer("too-fast", verdict{code: codeQuotaExceeded, reason: talkRefusal})
	}
	if c.talk.queue == nil {
		c.talk.queue = make(chan said, talksWaiting)
		d.talks.Go(func() { d.listens(c, c.talk.queue) })
	}
	one := said{document: document}
	switch document.(type) {
	case *edgewire.Presence, *edgewire.Firings:
		one.done = func(v verdict) { answer("taken", v) }
	}
	select {
	case c.talk.queue <- one:
		return one.done != nil || answer("taken", verdict{})
	case <-c.ctx.Done():
		return true
	}
}

// listens handles the documents of an edge until its connection ends.
func (d *devices) listens(c *conn, queue <-chan said) {
	defer c.recovered("handling a document of an edge panicked")
	for {
		select {
		case one := <-queue:
			switch document := one.document.(type) {
			case *edgewire.Presence:
				d.presence(c, document, one.done)
			case *edgewire.Firings:
				d.firings(c, document, one.done)
			case *edgewire.AskSite:
				d.site(c, document)
			case *edgewire.Hello:
				d.greets(c, document)
			case *edgewire.Sync:
				d.sync(c, document)
			case *edgewire.Listening:
				if d.edgeCommands != nil {
					d.edgeCommands.listening(c, document)
				}
			case *edgewire.Delivered:
				if d.edgeCommands != nil {
					d.edgeCommands.delivered(c, document)
				}
			}
		case <-c.ctx.Done():
			return
		}
	}
}

// greets takes in what an edge says of itself, and answers a hello.
func (d *devices) greets(c *conn, h *edgewire.Hello) {
	w, err := d.b.deps.Edges.Said(c.ctx, c.binding, h)
	switch {
	case err != nil:
		if c.ctx.Err() == nil {
			d.b.log.Warn("what an edge says of itself cannot be taken in", "client", c.clientID, "error", err)
		}
		return
	case w == nil:
		return
	}
	w.Time, w.Frames = d.b.deps.Now().UTC(), true
	if !d.tellEdge(c, w, nil) {
		d.b.log.Warn("the hello of an edge cannot be answered", "client", c.clientID)
	}
}

// tellEdge sends a document to an edge. It reports false where the edge has not subscribed to them, or too many wait. ended is called where
// it cannot be delivered after all.
func (d *devices) tellEdge(c *conn, document any, ended func()) bool {
	body, err := json.Marshal(document)
	if err != nil {
		return false
	}
	p := d.pubsub
	p.mu.Lock()
	defer p.mu.Unlock()
	sub := c.ownSubscription(c.talk.down)
	if sub == nil || len(c.session.queue) >= maxToldEdge {
		return false
	}
	m := &message{topic: c.talk.down, payload: body, qos: 1}
	one := delivery{message: m, qos: min(m.qos, sub.qos)}
	if ended != nil {
		one.ended = deliveredOr(ended)
	}
	c.session.queue = append(c.session.queue, one)
	p.account(c.session, m, 1)
	c.wake()
	return true
}

// notSecure is why an edge gets no credentials.
const notSecure = "credentials go over TLS only: let edge.uplink.broker_url begin with tls://"

// sync answers an edge that asks for the devices at its site.
func (d *devices) sync(c *conn, asked *edgewire.Sync) {
	page := &edgewire.Devices{Kind: edgewire.KindDevices, Nonce: asked.Nonce}
	if c.secure {
		if asked.After == "" {
			c.talk.stale.Store(false)
			d.asking.add(c)
		}
		var err error
		if page.Devices, page.Next, err = d.b.deps.Edges.Devices(c.ctx, c.binding, asked.After); err != nil {
			if c.ctx.Err() == nil {
				d.b.log.Warn("the devices of an edge cannot be read", "client", c.clientID, "error", err)
			}
			return // it asks again
		}
	} else {
		page.Refused = notSecure
	}
	d.tellEdge(c, page, nil)
	c.rest()
}

// rest waits for a moment after a page.
func (c *conn) rest() {
	rest := time.NewTimer(pageRest)
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-c.ctx.Done():
	}
}

// site answers a platform at the site of an edge that asks for what it is to follow.
func (d *devices) site(c *conn, asked *edgewire.AskSite) {
	if asked.Part == 0 || c.talk.site == nil {
		c.talk.stale.Store(false)
		d.asking.add(c)
		var err error
		if c.talk.site, err = d.b.deps.Edges.Site(c.ctx, c.binding); err != nil {
			c.talk.site = nil
			if c.ctx.Err() != nil {
				return
			}
			why := "what the site is to follow cannot be read now"
			if refusal, ok := errors.AsType[*model.Error](err); ok {
				why = refusal.Text()
			}
			d.b.log.Warn("what the site of an edge is to follow cannot be read", "client", c.clientID, "error", err)
			d.tellEdge(c, &edgewire.Site{Kind: edgewire.KindSite, Nonce: asked.Nonce, Refused: why}, nil)
			return
		}
	}
	page := c.talk.site.Answer(asked)
	if page.Part+1 >= page.Parts {
		c.talk.site = nil
	}
	d.tellEdge(c, page, nil)
	c.rest()
}

// asking are the connections of edges that have asked for their devices.
type asking struct {
	mu    sync.Mutex
	conns map[*conn]struct{}
}

func (a *asking) add(c *conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.ctx.Err() != nil {
		return // it has left
	}
	if a.conns == nil {
		a.conns = map[*conn]struct{}{}
	}
	a.conns[c] = struct{}{}
}

func (a *asking) remove(c *conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.conns, c)
}

func (a *asking) of(tenantID int64) (all []*conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for c := range a.conns {
		if c.binding.TenantID == tenantID {
			all = append(all, c)
		}
	}
	return all
}

// EdgesChanged notifies the edges of a tenant that have asked for their devices: these, or their credentials, have changed. It does not block.
func (b *Broker) EdgesChanged(tenantID int64) {
	for _, c := range b.devices.asking.of(tenantID) {
		if c.talk.stale.CompareAndSwap(false, true) && !b.devices.tellEdge(c, &edgewire.Changed{Kind: edgewire.KindChanged}, nil) {
			c.talk.stale.Store(false)
		}
	}
}
