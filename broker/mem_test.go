package broker

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"weir/model"
)

// BenchmarkIdleConnection: heap and stacks that one connection takes in the broker, its own socket and the client's
// included. BenchmarkSubscribedConnection: likewise, of a device that has subscribed to its commands.
func BenchmarkIdleConnection(b *testing.B) { benchmarkConnection(b, false) }

func BenchmarkSubscribedConnection(b *testing.B) { benchmarkConnection(b, true) }

func benchmarkConnection(b *testing.B, subscribes bool) {
	broker, addr := overTCP(b, &fakeIntake{})
	verifier := broker.deps.Verifier.(*fakeVerifier)
	used := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	before := used()
	b.ResetTimer()
	for i := range b.N {
		dev := fmt.Sprintf("d%d", i)
		verifier.mu.Lock()
		verifier.proofs[Claim{Tenant: "acme", Type: AccessToken, ID: dev}] = Proof{Binding: model.Binding{Tenant: "acme", Device: dev, DeviceID: int64(i + 1)}}
		verifier.mu.Unlock()
		conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		_, _ = conn.Write(connectPacket(mqtt5, func(h *hello) { h.clientID, h.user = "weir:acme:"+dev, "acme:"+dev }))
		in := bufio.NewReader(conn)
		readPacket(b, in)
		if subscribes {
			_, _ = conn.Write(subscribePacket(mqtt5, 1, "weir/acme/device-commands/"+dev))
			readPacket(b, in)
		}
	}
	b.ReportMetric((float64(used())-float64(before))/float64(b.N), "B/conn")
}

// readPacket reads one packet.
func readPacket(b *testing.B, in *bufio.Reader) {
	b.Helper()
	_, size, err := fixedHeader(in)
	if err == nil {
		_, err = io.CopyN(io.Discard, in, int64(size))
	}
	if err != nil {
		b.Fatal(err)
	}
}
