package gql

import (
	"fmt"
	"net/netip"
	"sync"
)

// socketLimits counts the WebSocket connections of the instance and of each identity, over all areas.
type socketLimits struct {
	most, mostEach int
	metrics        *metrics

	mu    sync.Mutex
	total int
	each  map[string]int
}

func newSocketLimits(l Limits, m *metrics) *socketLimits {
	return &socketLimits{most: l.Connections, mostEach: l.ConnectionsPerIdentity, metrics: m, each: map[string]int{}}
}

// socketKey names whom a connection is counted for. Anonymous ones count for their address, or one caller could take
// all places of the instance.
func socketKey(s Session, remote netip.Addr) string {
	switch {
	case s.anonymous():
		if remote.Is6() { // one caller has a whole /64
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

// open takes a place of the instance.
func (l *socketLimits) open() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= l.most {
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

// join takes a place of the identity; release gives it back.
func (l *socketLimits) join(key string) (release func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.each[key] >= l.mostEach {
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
