package ingest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/model"
	"weir/spool"
)

// BenchmarkStorm applies readings of fifty devices with values all over the thresholds of their rules. An operation is a reading.
func BenchmarkStorm(b *testing.B) {
	for _, c := range []struct {
		name  string
		rules int
		limit func(i int) float64
		edges int // the ceiling; 0: the default, which is not met
	}{
		{"ten rules, no edges", 10, func(i int) float64 { return float64(200 + 5*i) }, 0},
		{"ten rules, 2.6 edges a reading", 10, func(i int) float64 { return float64(60 + 5*i) }, 0},
		{"500 rules, 167 edges a reading", 500, func(i int) float64 { return float64(i) / 5 }, 0},
		{"500 rules, over the ceiling", 500, func(i int) float64 { return float64(i) / 5 }, 1},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := newWorld(b, func(w *world) { w.cfg.ReplayBytes, w.logBytes, w.maxEdges = 64<<20, 8<<30, c.edges })
			var rs []model.RuleView
			for i := range c.rules {
				rs = append(rs, thresholdRule(fmt.Sprintf("r%03d", i), "temp", "gt", c.limit(i)))
			}
			w.furnish(50, rs...)
			w.apply()
			w.pileStorm(b.N)
			w.restart()
			w.applier.deps.Edges = nil // the world would keep them all
			b.ReportAllocs()
			b.ResetTimer()
			ctx, stop := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			go func() { ended <- w.applier.Run(ctx) }()
			for !w.applier.CaughtUp() {
				time.Sleep(time.Millisecond)
			}
			b.StopTimer()
			stop()
			w.must(<-ended)
			h, err := w.applier.RuleHealth(b.Context(), "acme", "boiler")
			w.must(err)
			fires := int64(0)
			for _, r := range h {
				fires += r.Fires
			}
			b.ReportMetric(float64(fires)/float64(b.N), "edges/op")
		})
	}
}

func (w *world) pileStorm(n int) {
	w.t.Helper()
	var body [16]byte
	for i := range n {
		w.clock.advance(4 * time.Microsecond)
		at := w.clock.stamp()
		name := fmt.Sprintf("d%d", i%50+1)
		body[0], body[1], body[2], body[3] = byte(i), byte(i>>8), byte(i>>16), byte(i>>24)
		r := &model.Record{Kind: model.KindMessage, Transport: TransportMQTT, Source: "mqtt1", Tenant: "acme", Account: "acme", Device: name, Received: at,
			Credential: int64(100 + i%50), DeviceID: int64(i%50 + 1), ClientID: "weir:acme:" + name, PacketID: uint16(i/50%60000 + 1), Hash: body, Bytes: 120,
			Message: &model.Message{Type: model.MeasurementEvent, Occurred: at.Wall - 900_000, HasOccurred: true,
				Measurements: []model.Reading{{Metric: "temp", Value: float64(uint32(i)*2654435761%10000) / 100}}}}
		w.must(w.log.Append(context.Background(), spool.Entry{Data: model.AppendRecord(nil, r), Done: func(model.Offset, error) {}}))
		if i%1000 == 999 {
			w.must(w.log.Sync(context.Background()))
		}
	}
	w.must(w.log.Sync(context.Background()))
}
