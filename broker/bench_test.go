package broker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"weir/ingest"
	"weir/model"
)

// committer answers as the log does: everything that came during the last sync with the next one.
type committer struct {
	fakeIntake
	mu    sync.Mutex
	queue []func(ingest.Answer)
	ready chan struct{}
	sync  time.Duration
}

func (c *committer) Accept(_ context.Context, _ *ingest.Arrival, done func(ingest.Answer)) {
	c.mu.Lock()
	c.queue = append(c.queue, done)
	c.mu.Unlock()
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

func (c *committer) run(ctx context.Context) {
	for {
		select {
		case <-c.ready:
		case <-ctx.Done():
			return
		}
		c.mu.Lock()
		batch := c.queue
		c.queue = nil
		c.mu.Unlock()
		sleep(ctx, ctx, c.sync)
		for _, done := range batch {
			done(ingest.Answer{})
		}
	}
}

// BenchmarkDurablePubacks: QoS 1 publishes of 120 bytes over loopback, each acknowledged by a committer whose sync takes
// 2 ms. The clients run on the same cores.
func BenchmarkDurablePubacks(b *testing.B) {
	for _, shape := range []struct {
		clients, window int
		split           bool // one PUBLISH per write
	}{{1, 256, false}, {50, 20, false}, {500, 20, false}, {50, 20, true}} {
		b.Run(fmt.Sprintf("%dx%d,split=%v", shape.clients, shape.window, shape.split), func(b *testing.B) {
			gate := &committer{ready: make(chan struct{}, 1), sync: 2 * time.Millisecond}
			go gate.run(b.Context())
			broker, addr := overTCP(b, gate)
			verifier := broker.deps.Verifier.(*fakeVerifier)
			var conns []net.Conn
			for i := range shape.clients {
				dev := fmt.Sprintf("d%d", i)
				verifier.mu.Lock()
				verifier.proofs[Claim{Tenant: "acme", Type: AccessToken, ID: dev}] = Proof{Expires: model.MicrosOf(time.Now().Add(time.Hour)),
					Binding: model.Binding{Tenant: "acme", Device: dev, DeviceID: int64(i + 1)}}
				verifier.mu.Unlock()
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					b.Fatal(err)
				}
				defer conn.Close()
				_, _ = conn.Write(connectPacket(mqtt311, func(h *hello) { h.clientID, h.user = "weir:acme:"+dev, "acme:"+dev }))
				if _, err := io.ReadFull(conn, make([]byte, 4)); err != nil {
					b.Fatal(err)
				}
				conns = append(conns, conn)
			}
			b.ReportAllocs()
			b.ResetTimer()
			var all sync.WaitGroup
			for i, conn := range conns {
				share := b.N / len(conns)
				if i < b.N%len(conns) {
					share++
				}
				topic := fmt.Sprintf("weir/acme/devices/d%d/events", i)
				all.Go(func() { publishAll(b, conn, topic, share, shape.window, shape.split) })
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}

func publishAll(b *testing.B, conn net.Conn, topic string, n, window int, split bool) {
	r, w := bufio.NewReader(conn), bufio.NewWriterSize(conn, 8192)
	payload := string(make([]byte, 120))
	open, sent := 0, 0
	var ack [4]byte
	for acked := 0; acked < n; {
		for open < window && sent < n {
			_, _ = w.Write(publishPacket(mqtt311, qos1, topic, uint16(sent%60000+1), payload))
			open, sent = open+1, sent+1
			if split {
				_ = w.Flush()
			}
		}
		_ = w.Flush()
		for first := true; open > 0 && (first || r.Buffered() >= 4); first = false {
			if _, err := io.ReadFull(r, ack[:]); err != nil || ack[0] != 0x40 || int(ack[2])<<8|int(ack[3]) != acked%60000+1 {
				b.Errorf("PUBACK % x after %d: %v", ack, acked, err)
				return
			}
			open, acked = open-1, acked+1
		}
	}
}
