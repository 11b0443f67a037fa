package handshake

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// HTTPS returns a listener that makes the TLS handshakes of l itself, each within timeout, and hands on the connections whose handshake
// succeeded. failed is called for each that did not, except where the client closed without a byte, as those do that look whether a port is
// open. How many handshakes run at a time is for l to bound, as it bounds connections.
func HTTPS(l net.Listener, c *tls.Config, timeout time.Duration, failed func(from netip.Addr, err error)) net.Listener {
	return &listener{Listener: l, config: c, timeout: timeout, failed: failed, ready: make(chan accepted), closed: make(chan struct{})}
}

type accepted struct {
	conn net.Conn
	err  error
}

type listener struct {
	net.Listener
	config  *tls.Config
	timeout time.Duration
	failed  func(netip.Addr, error)

	begin  sync.Once
	ready  chan accepted
	end    sync.Once
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	l.begin.Do(func() { go l.accept() })
	select {
	case a := <-l.ready:
		return a.conn, a.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Handshakes that are under way end with their connections closed.
func (l *listener) Close() error {
	l.end.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

func (l *listener) accept() {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			if !l.hand(accepted{err: err}) || errors.Is(err, net.ErrClosed) {
				return
			}
			continue // the server has waited before it accepts again
		}
		go l.shake(c)
	}
}

// hand returns false when the listener was closed.
func (l *listener) hand(a accepted) bool {
	select {
	case l.ready <- a:
		return true
	case <-l.closed:
		return false
	}
}

func (l *listener) shake(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(l.timeout)) // a connection without one is bounded by the server's
	secure := tls.Server(c, l.config)
	err := secure.HandshakeContext(context.Background())
	if err == nil {
		if err = c.SetDeadline(time.Time{}); err == nil && l.hand(accepted{conn: secure}) {
			return
		}
		_ = c.Close() // nobody serves it
		return
	}
	if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok && plain.Conn != nil && isHTTP(plain.RecordHeader) {
		_, _ = io.WriteString(c, "HTTP/1.0 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nThis listener speaks HTTPS.\n")
	}
	_ = c.Close() // it has failed
	if !errors.Is(err, io.EOF) {
		l.failed(address(c), err)
	}
}

// isHTTP reports whether a request begins with these bytes.
func isHTTP(b [5]byte) bool {
	switch string(b[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET", "PATCH":
		return true
	}
	return false
}

func address(c net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}
