package mqttclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
)

// gate is a connection whose writes wait until it is open.
type gate struct {
	script
	open   chan struct{}
	err    error
	writes []string
}

func (g *gate) Write(b []byte) (int, error) {
	<-g.open
	if g.err != nil {
		return 0, g.err
	}
	g.writes = append(g.writes, string(b))
	return len(b), nil
}

func newGate() *gate {
	return &gate{script: script{Reader: &bytes.Reader{}, closed: make(chan struct{})}, open: make(chan struct{})}
}

// TestPacketsThatWaitLeaveTogether: what is published while a packet is on its way is one write, every packet whole and once.
func TestPacketsThatWaitLeaveTogether(t *testing.T) {
	t.Parallel()
	const n = 64
	g := newGate()
	s := newStream(g, time.Minute)
	var all sync.WaitGroup
	var want []string
	publish := func(name string) {
		want = append(want, name)
		all.Go(func() {
			s.Lock()
			for piece := range strings.SplitAfterSeq(name, "-") {
				if _, err := s.Write([]byte(piece)); err != nil {
					t.Error(err)
				}
			}
			s.Unlock()
		})
	}
	waiting := func() int {
		s.write.Lock()
		defer s.write.Unlock()
		return len(s.gathered)
	}
	publish("first-;")
	for s.flush.TryLock() { // until the first packet is on its way
		s.flush.Unlock()
		runtime.Gosched()
	}
	for waiting() > 0 {
		runtime.Gosched()
	}
	total := 0
	for i := range n {
		name := fmt.Sprintf("packet-%d-;", i)
		total += len(name)
		publish(name)
	}
	for waiting() < total {
		runtime.Gosched()
	}
	close(g.open)
	all.Wait()
	if len(g.writes) != 2 {
		t.Errorf("%d writes", len(g.writes))
	}
	got := strings.SplitAfter(strings.TrimSuffix(strings.Join(g.writes, ""), ";"), ";")
	got[len(got)-1] += ";"
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestAWriteThatFailsIsNoDelivery: the library is told that everything was written; nothing acknowledges a message of QoS 0.
func TestAWriteThatFailsIsNoDelivery(t *testing.T) {
	t.Parallel()
	server, client := net.Pipe()
	conn := &failing{Conn: client}
	go func() {
		_, _ = packets.ReadPacket(server)
		_, _ = packets.NewControlPacket(packets.CONNACK).WriteTo(server)
	}()
	c, err := Connect(t.Context(), Options{URL: "tcp://h:1", Dial: func(context.Context, string, string) (net.Conn, error) { return conn, nil }})
	if err != nil {
		t.Fatal(err)
	}
	conn.mu.Lock()
	conn.fails = true
	conn.mu.Unlock()
	for qos := range byte(3) {
		if err := c.Publish(t.Context(), Message{Topic: "t", QoS: qos}); !errors.Is(err, ErrLost) {
			t.Errorf("QoS %d: %v, want ErrLost", qos, err)
		}
	}
	<-c.Done()
	_ = c.Close()
}

// failing is a connection whose writes fail once it is told so.
type failing struct {
	net.Conn
	mu    sync.Mutex
	fails bool
}

func (f *failing) Write(b []byte) (int, error) {
	f.mu.Lock()
	fails := f.fails
	f.mu.Unlock()
	if fails {
		return 0, errors.New("no")
	}
	return f.Conn.Write(b)
}
