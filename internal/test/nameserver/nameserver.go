// Package nameserver is a DNS server for tests of what happens when a name leads elsewhere from one look-up to the next.
package nameserver

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Server is a DNS server that changes its answers.
type Server struct {
	conn net.PacketConn

	mu      sync.Mutex
	answers map[string][]string // of a name, one after the other; each holds addresses
	asks    map[string]int
}

// New starts a server on the loopback interface, which ends with the test.
func New(t testing.TB) *Server {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &Server{conn: conn, answers: map[string][]string{}, asks: map[string]int{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.serve()
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return n
}

// Answer gives a name its answers: one look-up after the other gets the next, and after the last the first again.
func (n *Server) Answer(name string, answers ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answers[name] = answers
}

// Asked is how often a name was looked up.
func (n *Server) Asked(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asks[name]
}

// Resolver asks the server.
func (n *Server) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", n.conn.LocalAddr().String())
	}}
}

func (n *Server) serve() {
	b := make([]byte, 1500)
	for {
		size, from, err := n.conn.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = n.conn.WriteTo(n.reply(b[:size]), from) // the next one is asked again
	}
}

// reply answers a question (RFC 1035, section 4): A records live for no time, of anything else there is none.
func (n *Server) reply(q []byte) []byte {
	var labels []string
	i := 12
	for ; q[i] != 0; i += int(q[i]) + 1 {
		labels = append(labels, string(q[i+1:i+1+int(q[i])]))
	}
	end := i + 5
	name, typeA := strings.ToLower(strings.Join(labels, ".")), binary.BigEndian.Uint16(q[i+1:]) == 1
	n.mu.Lock()
	defer n.mu.Unlock()
	answers, known := n.answers[name]
	out := slices.Clone(q[:end])
	out[2], out[3] = 0x81, 0x80
	clear(out[4:12])
	out[5] = 1
	if !known {
		out[3] |= 3 // no such name
		return out
	}
	if !typeA {
		return out
	}
	for addr := range strings.FieldsSeq(answers[n.asks[name]%len(answers)]) {
		ip := netip.MustParseAddr(addr).As4()
		out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		out = append(out, ip[:]...)
		out[7]++
	}
	n.asks[name]++
	return out
}
