package ingest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/model"
	"weir/spool"
)

// BenchmarkReplay is a start with a log that no head covers: messages of one reading each from fifty devices, ten rules on
// each, read from disk and applied until the last. An operation is a message.
func BenchmarkReplay(b *testing.B) {
	w := newWorld(b, func(w *world) { w.cfg.ReplayBytes, w.logBytes = 64<<20, 8<<30 })
	rs := []model.RuleView{thresholdRule("hot", "temp", "gt", 25)}
	for i := range 9 {
		rs = append(rs, thresholdRule(fmt.Sprintf("never%d", i), "temp", "gt", float64(1000+i)))
	}
	w.furnish(50, rs...)
	w.apply()
	w.pile(b.N)
	w.restart()
	b.ReportAllocs()
	b.ResetTimer()
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.applier.Run(ctx) }()
	for !w.applier.CaughtUp() {
		time.Sleep(time.Millisecond)
	}
	b.StopTimer()
	if got := w.applier.ReadingsStored(); got != int64(b.N) {
		b.Errorf("%d readings were kept of %d", got, b.N)
	}
	stop()
	w.must(<-ended)
}

// pile appends messages as a transport makes them, in batches of a thousand, and hands none of them to an applier.
func (w *world) pile(n int) { w.pileOf(n, 50) }

// pileOf is pile for so many devices, of which one comes after another that is far away.
func (w *world) pileOf(n, devices int) {
	w.t.Helper()
	var body [16]byte
	for i := range n {
		w.clock.advance(4 * time.Microsecond)
		at := w.clock.stamp()
		device := i*7919%devices + 1
		name := fmt.Sprintf("d%d", device)
		body[0], body[1], body[2], body[3] = byte(i), byte(i>>8), byte(i>>16), byte(i>>24)
		value := 20 + float64(i*7919%400)/100
		if i%10_000 == 0 {
			value = 30
		}
		r := &model.Record{Kind: model.KindMessage, Transport: TransportMQTT, Source: "mqtt1", Tenant: "acme", Account: "acme", Device: name, Received: at,
			Credential: int64(99 + device), DeviceID: int64(device), ClientID: "weir:acme:" + name, PacketID: uint16(i/devices%60000 + 1), Hash: body, Bytes: 120,
			Message: &model.Message{Type: model.MeasurementEvent, Occurred: at.Wall - 900_000, HasOccurred: true,
				Measurements: []model.Reading{{Metric: "temp", Value: value}}}}
		w.must(w.log.Append(context.Background(), spool.Entry{Data: model.AppendRecord(nil, r), Done: func(model.Offset, error) {}}))
		if i%1000 == 999 {
			w.must(w.log.Sync(context.Background()))
		}
	}
	w.must(w.log.Sync(context.Background()))
}
