package gql

import (
	"container/list"
	"fmt"
	"net/netip"
	"sync"

	"weir/internal/connlimit"
)

// socketLimits counts the WebSocket connections of the instance and of each identity, over all areas. Those without a
// connection_init are pending: a quarter of all at most, beyond it the oldest is evicted, so that silent clients cannot keep
// others out. Those that have no token are half of all at most.
type socketLimits struct {
	maximum, maximumEach          int
	maximumPending, maximumNoUser int
	maximumFollows                int
	metrics                       *metrics

	mu      sync.Mutex
	total   int
	pending list.List // of *socketSlot, oldest first
	noUser  int
	each    map[string]int
	follows map[string]int // open subscriptions of those
}

// socketSlot is one connection.
type socketSlot struct {
	limits *socketLimits
	evict  func()

	// Under the lock of limits.
	pending *list.Element // nil once it is not pending
	closed  bool
	joined  bool
	key     string
	noUser  bool
}

func newSocketLimits(l Limits, m *metrics) *socketLimits {
	return &socketLimits{maximum: l.Connections, maximumEach: l.ConnectionsPerIdentity, maximumPending: max(l.Connections/4, 1),
		maximumNoUser: max(l.Connections/2, 1), metrics: m, each: map[string]int{},
		maximumFollows: l.SubscriptionsPerIdentity, follows: map[string]int{}}
}

// socketKey is the identity that a connection is counted for. Anonymous connections count for their address, or one
// client could open as many as the instance may have.
func socketKey(s Session, remote netip.Addr) string {
	switch {
	case s.anonymous():
		return "address " + connlimit.SourceOf(remote).String()
	case s.Principal.Identity != 0:
		return fmt.Sprintf("identity %d", s.Principal.Identity)
	}
	return fmt.Sprintf("subject %d %s", s.Principal.Kind, s.Principal.Subject)
}

// open counts a connection of the instance as pending; nil when their number is at the limit. evict is called when another one gets
// its slot.
func (l *socketLimits) open(evict func()) *socketSlot {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending.Len() >= l.maximumPending || l.total >= l.maximum && l.pending.Len() > 0 {
		oldest := l.pending.Front().Value.(*socketSlot)
		l.close(oldest)
		oldest.evict()
		l.metrics.socketsRefused.WithLabelValues("pending").Inc()
	}
	if l.total >= l.maximum {
		l.metrics.socketsRefused.WithLabelValues("instance").Inc()
		return nil
	}
	s := &socketSlot{limits: l, evict: evict}
	s.pending = l.pending.PushBack(s)
	l.total++
	l.show()
	return s
}

// show sets the gauges.
func (l *socketLimits) show() {
	l.metrics.sockets.Set(float64(l.total))
	l.metrics.socketsPending.Set(float64(l.pending.Len()))
}

// close ends the count of a connection, if it has not ended.
func (l *socketLimits) close(s *socketSlot) {
	if s.closed {
		return
	}
	s.closed = true
	l.admit(s)
	l.total--
	if s.joined {
		if l.each[s.key]--; l.each[s.key] == 0 {
			delete(l.each, s.key)
		}
		if s.noUser {
			l.noUser--
		}
	}
	l.show()
}

// admit takes a connection from those that are pending.
func (l *socketLimits) admit(s *socketSlot) {
	if s.pending != nil {
		l.pending.Remove(s.pending)
		s.pending = nil
	}
}

// close ends the count of the connection.
func (s *socketSlot) close() {
	s.limits.mu.Lock()
	defer s.limits.mu.Unlock()
	s.limits.close(s)
}

// join counts the connection for the identity; it is not pending any more. False at a limit.
func (s *socketSlot) join(session Session, remote netip.Addr) bool {
	l := s.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	key, noUser := socketKey(session, remote), session.anonymous()
	switch {
	case s.closed:
		return false // evicted
	case l.each[key] >= l.maximumEach:
		l.metrics.socketsRefused.WithLabelValues("identity").Inc()
		return false
	case noUser && l.noUser >= l.maximumNoUser:
		l.metrics.socketsRefused.WithLabelValues("unauthenticated").Inc()
		return false
	}
	l.admit(s)
	s.joined, s.key, s.noUser = true, key, noUser
	l.each[key]++
	if noUser {
		l.noUser++
	}
	l.show()
	return true
}

// follow counts a subscription of the identity; false at the limit. Each that it lets through is ended by unfollow.
func (s *socketSlot) follow() bool {
	l := s.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.follows[s.key] >= l.maximumFollows {
		l.metrics.socketsRefused.WithLabelValues("subscriptions").Inc()
		return false
	}
	l.follows[s.key]++
	return true
}

// unfollow ends the count of a subscription.
func (s *socketSlot) unfollow() {
	l := s.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.follows[s.key]--; l.follows[s.key] == 0 {
		delete(l.follows, s.key)
	}
}
