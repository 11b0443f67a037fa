package broker

import (
	"container/list"
	"context"
	"sync"
	"time"

	"weir/ingest"
)

// keptSession is what outlives a connection: whether the device was subscribed to its commands, and a will that waits for
// its delay. Messages are not kept: a command for an absent device stays with the platform.
type keptSession struct {
	clientID   string
	subscribed int32 // QoS + 1, 0 for none
	until      time.Time
	will       *lastWill
	timer      *time.Timer // of will
}

// kept holds the sessions of clients that are away, in memory. When it is full the one that left first goes. It is ours
// and not mochi's because there each costs several kilobytes and a will or a message could leave it past the gate.
type kept struct {
	b        *Broker
	mu       sync.Mutex
	byClient map[string]*list.Element
	order    list.List // of *keptSession, the one that left first in front
}

func (k *kept) init(b *Broker) {
	k.b, k.byClient = b, map[string]*list.Element{}
	k.order.Init()
}

// enter hands over what was kept for the client, nil when there is nothing or when it asked for a clean start. A client
// that returns in time calls its delayed will off; a clean start ends the session and with it the delay.
func (k *kept) enter(s *session) *keptSession {
	k.mu.Lock()
	defer k.mu.Unlock()
	e, ok := k.byClient[s.clientID]
	if !ok {
		return nil
	}
	old := k.remove(e)
	pending := old.will != nil && old.timer.Stop()
	if s.clean || !time.Now().Before(old.until) {
		if pending {
			k.b.work.Go(func() { k.b.publishWill(old.will) })
		}
		return nil
	}
	return old
}

// leave keeps what the session leaves behind and returns the will when it is due now.
func (k *kept) leave(s *session, c *cause) (due *lastWill) {
	if c.kind == revoked {
		return nil
	}
	if s.will != nil && c.kind != clean && !c.ours {
		due = s.lastWill()
	}
	if s.expiry == 0 {
		return due
	}
	life := time.Duration(s.expiry) * time.Second
	e := &keptSession{clientID: s.clientID, subscribed: s.subscribed.Load(), until: time.Now().Add(life)}
	if due != nil && s.will.delay > 0 {
		e.will, due = due, nil
		e.timer = time.AfterFunc(min(life, time.Duration(s.will.delay)*time.Second), func() { k.delayed(e) })
	}
	k.add(e)
	return due
}

func (k *kept) add(e *keptSession) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.order.Len() >= k.b.cfg.MaxKeptSessions {
		oldest := k.remove(k.order.Front())
		if oldest.will != nil && oldest.timer.Stop() {
			k.b.work.Go(func() { k.b.publishWill(oldest.will) })
		}
		k.b.metrics.keptEvicted.Inc()
	}
	k.byClient[e.clientID] = k.order.PushBack(e)
	k.b.metrics.kept.Set(float64(k.order.Len()))
}

func (k *kept) remove(e *list.Element) *keptSession {
	s := k.order.Remove(e).(*keptSession)
	delete(k.byClient, s.clientID)
	k.b.metrics.kept.Set(float64(k.order.Len()))
	return s
}

// delayed publishes a will whose delay has passed.
func (k *kept) delayed(e *keptSession) {
	k.mu.Lock()
	will := e.will
	e.will = nil
	k.mu.Unlock()
	if will != nil {
		k.b.publishWill(will)
	}
}

// clear forgets every session. Wills that wait for their delay go with the memory that held them: Weir's own stop says
// nothing about a device.
func (k *kept) clear() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for e := k.order.Front(); e != nil; e = e.Next() {
		if s := e.Value.(*keptSession); s.timer != nil {
			s.timer.Stop()
		}
	}
	k.order.Init()
	clear(k.byClient)
}

// lastWill is a will on its way to the gate.
type lastWill struct {
	arrival *ingest.Arrival
	purpose purpose
}

func (s *session) lastWill() *lastWill {
	return &lastWill{purpose: s.topics.purpose(s.will.topic), arrival: &ingest.Arrival{
		Door: ingest.DoorMQTT, Source: s.b.cfg.Source, Tenant: s.binding.Tenant, Topic: s.binding.Device, Body: s.will.payload,
		Conn: &s.binding, ClientID: s.clientID, Mute: true, // nobody is left to be told how it ends
	}}
}

// publishWill takes a will into the pipeline like any message of the device.
func (b *Broker) publishWill(w *lastWill) {
	b.metrics.wills.Inc()
	a := w.arrival
	if w.purpose != forEvents {
		b.deps.Gate.Received(a.Door, a.Tenant, len(a.Body))
		b.deps.Gate.Refuse(a.Door, a.Tenant, ingest.ReasonNoConsumer)
		return
	}
	ctx, cancel := context.WithTimeout(b.closing, b.cfg.ConnectTimeout)
	defer cancel()
	b.deps.Gate.Accept(ctx, a, func(ingest.Answer) {})
}
