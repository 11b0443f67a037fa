package connlimit

import (
	"net"
	"sync/atomic"
)

// listener accepts a connection when a slot is free or can be freed; until then connections wait in the queue of the operating
// system.
type listener struct {
	net.Listener
	limit  *Limit
	closed atomic.Bool
}

// Listen returns a listener whose connections take the limit's slots. The server that serves it must be guarded: without that no
// connection is known to be busy.
func (l *Limit) Listen(ln net.Listener) net.Listener { return &listener{Listener: ln, limit: l} }

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	if !l.limit.waitForSlot(&l.closed) {
		return nil, net.ErrClosed
	}
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := l.limit.enter(nc, &l.closed)
	if c == nil {
		_ = nc.Close() // accepting has ended
		return nil, net.ErrClosed
	}
	return c, nil
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.closed.Store(true)
	l.limit.announce()
	return l.Listener.Close()
}
