package connlimit

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A body must be complete within bodyGrace, or bodyQuota bytes of it must have arrived by then, and again in each bodyWindow.
const (
	bodyGrace  = 20 * time.Second
	bodyWindow = 10 * time.Second
	bodyQuota  = 5000 // 500 bytes a second
)

// maxWrite is the size of the pieces in which an answer is written: each that the client takes is progress.
const maxWrite = 64 << 10

// States of a connection.
const (
	open int32 = iota // can be evicted
	busy              // a request is being handled
	kept              // busy until it closes
	evicted
)

// conn is one connection. Its server reports what happens to it.
type conn struct {
	net.Conn
	limit   *Limit
	source  netip.Addr
	state   atomic.Int32
	idle    atomic.Bool  // between two requests
	since   atomic.Int64 // when it was accepted, finished a request, or made progress with a body; since limit.born
	writing atomic.Int64 // when the write that is under way began, since limit.born; 0: none is
	age     time.Duration

	mu       sync.Mutex
	deadline time.Time // of reads, as the server set it
	body     bodyRate
}

// bodyRate is the progress of a body that is being read.
type bodyRate struct {
	ends    time.Time // of the window; zero: no body is being read
	arrived int       // in the window
	slow    bool      // a window has ended without its quota
	set     bool      // the connection's read deadline is that of the window, or its own where that comes first
}

func (c *conn) touch() { c.since.Store(int64(c.limit.now())) }

// evictable reports whether the connection may be evicted: it is not busy, or its client does not read the answer.
func (c *conn) evictable(now time.Duration) bool {
	state := c.state.Load()
	return state == open || state == busy && c.writeStalled(now)
}

func (c *conn) writeStalled(now time.Duration) bool {
	began := c.writing.Load()
	return began != 0 && now-time.Duration(began) >= writeTimeout
}

// claim marks the connection as evicted; false when it must not be.
func (c *conn) claim(now time.Duration) bool {
	return c.state.CompareAndSwap(open, evicted) || c.writeStalled(now) && c.state.CompareAndSwap(busy, evicted)
}

// work marks the connection as busy: its request has arrived completely.
func (c *conn) work() { c.state.CompareAndSwap(open, busy) }

// rest marks the connection as not busy.
func (c *conn) rest() {
	c.touch()
	if c.state.CompareAndSwap(busy, open) {
		c.limit.announce()
	}
}

// keep marks the connection as busy until it closes.
func (c *conn) keep() {
	if !c.state.CompareAndSwap(open, kept) {
		c.state.CompareAndSwap(busy, kept)
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	defer c.limit.leave(c)
	return c.Conn.Close()
}

// CloseWrite closes the side that answers are written to, where the connection has two: a client that is still sending when it is
// refused finds the end of the answer before the connection is closed.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (n int, err error) {
	defer c.writing.Store(0)
	for {
		c.writing.Store(max(int64(c.limit.now()), 1))
		m, err := c.Conn.Write(p[n:min(n+maxWrite, len(p))])
		if n += m; err != nil || n == len(p) {
			return n, err
		}
	}
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline, c.body.set = t, false
	return c.Conn.SetReadDeadline(t)
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.Conn.SetWriteDeadline(t))
}

// Read implements net.Conn. While a body is being read it fails when that comes below the minimum rate.
func (c *conn) Read(p []byte) (int, error) {
	for {
		if err := c.setBodyDeadline(); err != nil {
			return 0, err
		}
		n, err := c.Conn.Read(p)
		if !c.arrived(n, err) {
			return n, err
		}
	}
}

// setBodyDeadline sets the read deadline to the end of the body's window, unless the server's own comes first.
func (c *conn) setBodyDeadline() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := &c.body
	if b.ends.IsZero() || b.set {
		return nil
	}
	b.set = true
	if !c.deadline.IsZero() && c.deadline.Before(b.ends) {
		return c.Conn.SetReadDeadline(c.deadline)
	}
	return c.Conn.SetReadDeadline(b.ends)
}

// arrived counts what came of a body. It reports whether reading has timed out at the end of a window that has its quota: the next
// one begins.
func (c *conn) arrived(n int, err error) (again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := &c.body
	if b.ends.IsZero() {
		return false
	}
	if before := b.arrived; before/bodyQuota != (before+n)/bodyQuota {
		c.touch()
	}
	b.arrived += n
	if n > 0 || !b.set || b.slow || !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().Before(b.ends) {
		return false
	}
	if b.arrived >= bodyQuota {
		*b = bodyRate{ends: time.Now().Add(bodyWindow)}
		return true
	}
	b.slow = true
	c.limit.metrics.Closed.WithLabelValues(reasonSlowBody).Inc()
	return false
}

// beginBody starts the first window of a body.
func (c *conn) beginBody() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.body = bodyRate{ends: time.Now().Add(bodyGrace)}
}

// endBody ends the windows of a body: it has arrived, or its handler has returned.
func (c *conn) endBody() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.body.set && !c.body.slow {
		_ = c.Conn.SetReadDeadline(c.deadline) // a closed connection needs none
	}
	c.body = bodyRate{}
}
