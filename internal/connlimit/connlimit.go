// Package connlimit bounds the connections of an HTTP server, so that idle and slow clients cannot keep others out. When all slots
// are taken, a new connection evicts another: of the source address with the most connections, the one whose last finished request
// is longest ago. A connection whose request is being handled is never evicted; while there are only such, accepting waits.
//
//	connlimit.go  the slots, and which connection is evicted
//	listener.go   accepting
//	conn.go       the state of a connection, and the minimum rate of a body
//	server.go     what a connection learns from its HTTP server
package connlimit

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Reasons for which a connection is closed, the label of Metrics.Closed.
const (
	reasonFull     = "full"      // evicted: all slots were taken
	reasonIdle     = "idle"      // idle for crowdedIdle while half of the slots were taken
	reasonSlowBody = "slow-body" // its body came below the minimum rate
)

const (
	// crowdedIdle is the timeout of idle connections while half of the slots are taken; checked once per sweepEvery at most.
	crowdedIdle = 10 * time.Second
	sweepEvery  = time.Second
	// writeTimeout is how long one write may take until the connection counts as idle: the client does not read its answer.
	writeTimeout = 10 * time.Second
	// evictShare is the part of the slots that one eviction frees: looking at all connections must not be needed for each.
	evictShare = 64
)

// Metrics are the figures of a limit.
type Metrics struct {
	Connections prometheus.Gauge
	Waits       prometheus.Counter     // times that accept waited
	Closed      *prometheus.CounterVec // by reason
}

// NewClosed returns the counter of a limit's Closed.
func NewClosed(name string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name,
		Help: "Connections closed by the server: evicted because all slots were taken (full), idle while half of them were, or a body below its minimum rate (slow-body)."},
		[]string{"reason"})
	for _, reason := range []string{reasonFull, reasonIdle, reasonSlowBody} { // exported from the start
		v.WithLabelValues(reason)
	}
	return v
}

// Limit is a number of slots, for the connections of one or several listeners.
type Limit struct {
	max     int
	metrics Metrics
	born    time.Time

	mu      sync.Mutex
	changed sync.Cond // a slot came free, a connection can be evicted, or a listener was closed
	conns   map[*conn]struct{}
	swept   time.Duration // since born
	waiting atomic.Int32  // calls of accept that wait for changed
}

// New returns a limit of so many connections.
func New(limit int, m Metrics) *Limit {
	l := &Limit{max: limit, metrics: m, born: time.Now(), conns: map[*conn]struct{}{}}
	l.changed.L = &l.mu
	return l
}

// Len is the number of connections.
func (l *Limit) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// SourceOf returns the part of an address that identifies a source: all of an IPv4 address, the /64 prefix of an IPv6 address,
// because one host usually controls its whole /64.
func SourceOf(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		p, _ := a.Prefix(64) // fails for neither family nor length
		return p.Addr()
	}
	return a
}

// sourceOf returns the source of a connection; the zero address for one without an IP address.
func sourceOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return SourceOf(tcp.AddrPort().Addr())
	}
	return netip.Addr{}
}

// now is the time since the limit was made.
func (l *Limit) now() time.Duration { return time.Since(l.born) }

// waitForSlot waits until a slot is free or can be freed; false when closed says that accepting has ended.
func (l *Limit) waitForSlot(closed *atomic.Bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wait(closed, func() bool { return len(l.conns) < l.max || l.canEvict() })
}

// enter gives a connection its slot, an evicted one's if need be; nil when accepting has ended.
func (l *Limit) enter(nc net.Conn, closed *atomic.Bool) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep()
	if !l.wait(closed, func() bool {
		if len(l.conns) >= l.max {
			l.evict(max(l.max/evictShare, 1))
		}
		return len(l.conns) < l.max
	}) {
		return nil
	}
	c := &conn{Conn: nc, limit: l, source: sourceOf(nc.RemoteAddr())}
	c.touch()
	l.conns[c] = struct{}{}
	l.metrics.Connections.Inc()
	return c
}

// wait waits until holds returns true; false when accepting has ended. The caller holds the lock.
func (l *Limit) wait(closed *atomic.Bool, holds func() bool) bool {
	if !closed.Load() && holds() {
		return true
	}
	l.waiting.Add(1) // before holds is asked again: a change after that is announced
	defer l.waiting.Add(-1)
	for counted := false; !closed.Load(); counted = true {
		if holds() {
			return true
		}
		if !counted {
			l.metrics.Waits.Inc()
		}
		t := time.AfterFunc(writeTimeout, l.announce) // the one change that comes with time only
		l.changed.Wait()
		t.Stop()
	}
	return false
}

// announce wakes the calls of accept that wait.
func (l *Limit) announce() {
	if l.waiting.Load() > 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.changed.Broadcast()
	}
}

// leave frees the slot of a closed connection.
func (l *Limit) leave(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(c)
}

func (l *Limit) remove(c *conn) {
	if _, ok := l.conns[c]; !ok {
		return
	}
	delete(l.conns, c)
	l.metrics.Connections.Dec()
	l.changed.Broadcast()
}

func (l *Limit) canEvict() bool {
	now := l.now()
	for c := range l.conns {
		if c.evictable(now) {
			return true
		}
	}
	return false
}

// evict closes up to n connections. Each time it is the oldest one of the sources that have the most connections at that time.
func (l *Limit) evict(n int) {
	now := l.now()
	var all []*conn
	each := map[netip.Addr]int{}
	for c := range l.conns {
		each[c.source]++
		if c.evictable(now) {
			c.age = now - time.Duration(c.since.Load())
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *conn) int { return cmp.Compare(b.age, a.age) })
	for n > 0 && len(all) > 0 {
		level := 0
		for _, c := range all {
			level = max(level, each[c.source])
		}
		all = slices.DeleteFunc(all, func(c *conn) bool {
			if n == 0 || each[c.source] != level {
				return false
			}
			if l.close(c, now, reasonFull) {
				each[c.source]--
				n--
			}
			return true
		})
	}
}

// sweep closes what is idle, when half of the slots are taken.
func (l *Limit) sweep() {
	now := l.now()
	if 2*len(l.conns) < l.max || l.swept != 0 && now-l.swept < sweepEvery {
		return
	}
	l.swept = now
	for c := range l.conns {
		if c.idle.Load() && now-time.Duration(c.since.Load()) >= crowdedIdle {
			l.close(c, now, reasonIdle)
		}
	}
}

// close closes a connection unless it has become busy.
func (l *Limit) close(c *conn, now time.Duration, reason string) bool {
	if !c.claim(now) {
		return false
	}
	l.remove(c)
	_ = c.Conn.Close() // its server finds it closed
	l.metrics.Closed.WithLabelValues(reason).Inc()
	return true
}
