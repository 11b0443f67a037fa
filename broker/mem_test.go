package broker

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"weir/model"
)

// BenchmarkIdleConnection: heap and stacks that one connection takes in the broker, its own socket and the client's
// included.
func BenchmarkIdleConnection(b *testing.B) {
	broker, addr := overTCP(b, &fakeGate{})
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
		if _, err := io.ReadFull(conn, make([]byte, 4)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((float64(used())-float64(before))/float64(b.N), "B/conn")
}
