package web

import (
	"net"
	"sync"
)

// limitedListener holds at most as many open connections as there are places, which it may share; further ones wait in the kernel's queue.
type limitedListener struct {
	net.Listener
	places  chan struct{}
	done    chan struct{}
	close   func() error
	metrics *metrics
}

func limitListener(l net.Listener, places chan struct{}, m *metrics) net.Listener {
	ll := &limitedListener{Listener: l, places: places, done: make(chan struct{}), metrics: m}
	ll.close = sync.OnceValue(func() error {
		close(ll.done)
		return l.Close()
	})
	return ll
}

func (l *limitedListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	default:
		l.metrics.waits.Inc()
		select {
		case l.places <- struct{}{}:
		case <-l.done:
			return nil, net.ErrClosed
		}
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	l.metrics.connections.Inc()
	return &limitedConn{Conn: c, leave: sync.OnceFunc(func() {
		l.metrics.connections.Dec()
		<-l.places
	})}, nil
}

func (l *limitedListener) Close() error { return l.close() }

type limitedConn struct {
	net.Conn
	leave func()
}

func (c *limitedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
