// Package relay is a link between two programs of a test that the test can cut, stall and make slow.
package relay

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// Relay passes on what connects to it.
type Relay struct {
	ln net.Listener

	mu     sync.Mutex
	target string
	down   bool
	stall  chan struct{} // nil: nothing is stalled; closed when it goes on
	delay  time.Duration
	conns  []net.Conn
}

// Start starts a relay to an address on loopback. It ends with the test.
func Start(t testing.TB, target string) *Relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{ln: ln, target: target}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() { r.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		r.Stall(false)
		r.Cut()
		running.Wait()
	})
	return r
}

// Address is where the relay listens.
func (r *Relay) Address() string { return r.ln.Addr().String() }

// To changes where new connections go.
func (r *Relay) To(target string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = target
}

// Down makes the link be gone: connections are cut, and new ones end at once.
func (r *Relay) Down(down bool) {
	r.mu.Lock()
	r.down = down
	r.mu.Unlock()
	if down {
		r.Cut()
	}
}

// Cut ends all connections at once, with whatever is on its way.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
	r.conns = nil
}

// Stall makes the link half-open: connections stand, and nothing gets through.
func (r *Relay) Stall(stalled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case stalled && r.stall == nil:
		r.stall = make(chan struct{})
	case !stalled && r.stall != nil:
		close(r.stall)
		r.stall = nil
	}
}

// Delay makes each piece arrive later.
func (r *Relay) Delay(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = d
}

func (r *Relay) serve(near net.Conn) {
	defer near.Close()
	r.mu.Lock()
	target, down := r.target, r.down
	r.mu.Unlock()
	if down {
		return
	}
	far, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		return
	}
	defer far.Close()
	r.mu.Lock()
	if r.down {
		r.mu.Unlock()
		return
	}
	r.conns = append(r.conns, near, far)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.conns = slices.DeleteFunc(r.conns, func(c net.Conn) bool { return c == near || c == far })
	}()
	var both sync.WaitGroup
	both.Go(func() { r.pass(near, far) })
	both.Go(func() { r.pass(far, near) })
	both.Wait()
}

// pass copies in one direction until either end is closed.
func (r *Relay) pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		r.mu.Lock()
		stall, delay := r.stall, r.delay
		r.mu.Unlock()
		if stall != nil {
			<-stall
		}
		if delay > 0 {
			time.Sleep(delay)
		}
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
