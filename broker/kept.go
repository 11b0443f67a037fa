package broker

import (
	"container/list"
	"sync"
	"time"

	"weir/model"
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
	closed   bool      // nothing is kept any more
	speaking sync.WaitGroup
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
	if s.clean || !time.Now().Before(old.until) {
		k.say(old)
		return nil
	}
	old.takeWill()
	return old
}

// takeWill takes the will out of a kept session, so that nobody else publishes it. The lock of kept guards it.
func (s *keptSession) takeWill() *lastWill {
	will := s.will
	if s.will = nil; will != nil {
		s.timer.Stop()
	}
	return will
}

// say publishes the will of a kept session, if one still waits there, for whom has the lock.
func (k *kept) say(s *keptSession) {
	if will := s.takeWill(); will != nil {
		k.speaking.Go(func() { k.b.publishWill(will) })
	}
}

// leave keeps what the session leaves behind and returns the will when it is due now, however the connection ended: only the
// client itself takes its will back, with a DISCONNECT of reason 0 (MQTT-3.1.2-8).
func (k *kept) leave(s *session, c *cause) (due *lastWill) {
	if s.will != nil && c.kind != clean {
		due = s.lastWill()
	}
	if s.expiry == 0 || c.kind == revoked {
		return due
	}
	life := time.Duration(s.expiry) * time.Second
	e := &keptSession{clientID: s.clientID, subscribed: s.subscribed.Load(), until: time.Now().Add(life)}
	if s.resumed != nil { // it ended before it began
		e.subscribed = s.resumed.subscribed
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return due
	}
	if due != nil && s.will.delay > 0 {
		e.will, due = due, nil
		e.timer = time.AfterFunc(min(life, time.Duration(s.will.delay)*time.Second), func() { k.delayed(e) })
	}
	k.add(e)
	return due
}

// add is called with the lock.
func (k *kept) add(e *keptSession) {
	for k.order.Len() >= k.b.cfg.MaxKeptSessions {
		k.say(k.remove(k.order.Front()))
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
	defer k.mu.Unlock()
	k.say(e)
}

// drop ends the kept sessions whose will waits and whose binding matches: the right to publish it is gone.
func (k *kept) drop(match func(model.Binding) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for e := k.order.Front(); e != nil; {
		next := e.Next()
		if s := e.Value.(*keptSession); s.will != nil && match(*s.will.arrival.Conn) {
			s.will.revoked = true
			k.say(k.remove(e))
		}
		e = next
	}
}

// close ends every session, for they live in memory, and with them the delay of their wills (MQTT-3.1.3-9). It returns when
// the gate has them.
func (k *kept) close() {
	k.mu.Lock()
	k.closed = true
	for e := k.order.Front(); e != nil; e = k.order.Front() {
		k.say(k.remove(e))
	}
	k.mu.Unlock()
	k.speaking.Wait()
}
