package gql

import (
	"fmt"
	"net/netip"
	"sync"
)

// socketLimits counts the WebSocket connections of the instance and of each identity, over all areas.
type socketLimits struct {
	maximum, maximumEach int
	metrics              *metrics

	mu    sync.Mutex
	total int
	each  map[string]int
}

func newSocketLimits(l Limits, m *metrics) *socketLimits {
	return &socketLimits{maximum: l.Connections, maximumEach: l.ConnectionsPerIdentity, metrics: m, each: map[string]int{}}
}

// socketKey is the identity that a connection is counted for. Anonymous connections count for their address, or one
// client could open as many as the instance may have.
func socketKey(s Session, remote netip.Addr) string {
	switch {
	case s.anonymous():
		if remote.Is6() { // one client has a whole /64
			if p, err := remote.Prefix(64); err == nil {
				return "address " + p.String()
			}
		}
		return "address " + remote.String()
	case s.Principal.Identity != 0:
		return fmt.Sprintf("identity %d", s.Principal.Identity)
	}
	return fmt.Sprintf("subject %d %s", s.Principal.Kind, s.Principal.Subject)
}

// open counts a connection of the instance; false when their number is at the limit.
func (l *socketLimits) open() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= l.maximum {
		l.metrics.socketsRefused.WithLabelValues("instance").Inc()
		return false
	}
	l.total++
	l.metrics.sockets.Set(float64(l.total))
	return true
}

func (l *socketLimits) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	l.metrics.sockets.Set(float64(l.total))
}

// join counts a connection of the identity; release ends the count. ok is false at the limit.
func (l *socketLimits) join(key string) (release func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.each[key] >= l.maximumEach {
		l.metrics.socketsRefused.WithLabelValues("identity").Inc()
		return nil, false
	}
	l.each[key]++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.each[key]--; l.each[key] == 0 {
			delete(l.each, key)
		}
	}), true
}
