package ingest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"weir/ingest/links"
	"weir/model"
	"weir/spool"
)

// quickLog stores nothing and answers a batch at a time.
type quickLog struct {
	spool.Log
	counts  *TransportCounts
	entries []spool.Entry
}

func (l *quickLog) Append(_ context.Context, entries ...spool.Entry) error {
	if l.entries = append(l.entries, entries...); len(l.entries) < 200 {
		return nil
	}
	l.counts.Take(l.entries)
	l.counts.Settle(true)
	for _, e := range l.entries {
		e.Done(1, nil)
		l.counts.passed(lineOf(e.Value.(*model.Record)), 1)
	}
	clear(l.entries)
	l.entries = l.entries[:0]
	return nil
}

func (l *quickLog) Stats() spool.Stats { return spool.Stats{MaxBytes: 1} }

// BenchmarkAccept is what the intake does for a message of a connected device, without the log.
func BenchmarkAccept(b *testing.B) {
	started := time.Now()
	elapsed := func() time.Duration { return time.Since(started) }
	counts := NewTransportCounts(links.New(elapsed))
	log := &quickLog{counts: counts}
	clock := NewClock(ClockConfig{Boot: 1, Log: log, Logger: slog.New(slog.DiscardHandler),
		Now: func() (time.Time, time.Duration) { now := time.Now(); return now, now.Sub(started) }})
	clock.Begin(0)
	intake := NewIntake(IntakeConfig{AuthSettings: AuthSettings{DeviceAuth: AuthRequired}}, IntakeDeps{Log: log, Counts: counts, Stamp: clock.Stamp,
		Ceiling: &testCeiling{known: map[string]bool{"acme": true}, left: -1}, Pressure: NewGauge(GaugeConfig{Log: log}), Logger: slog.New(slog.DiscardHandler),
		Tap: NewTap(func() model.Nanos { return 0 }, nil)})
	conn := &model.Binding{Tenant: "acme", TenantID: 1, Device: "d1", DeviceID: 1, Credential: 100}
	body := []byte(`{"eventType":"Measurement","altId":"a-1234567","payload":{"entries":[{"measurements":{"temperature":"21.25"}}]}}`)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		intake.Accept(b.Context(), &Arrival{Transport: TransportMQTT, Source: "mqtt1", Tenant: "acme", Topic: "d1", Body: body, ClientID: "weir:acme:d1",
			PacketID: uint16(i%60000 + 1), Conn: conn, HoldFor: -1}, func(Answer) {})
	}
}

// BenchmarkThrough takes messages the whole way: intake, log, applier with a rule.
func BenchmarkThrough(b *testing.B) {
	w := newWorld(b)
	w.furnish(10, thresholdRule("hot", "temp", ">", 1e6))
	w.apply()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		w.clock.advance(time.Millisecond)
		w.intake.Accept(b.Context(), w.arrival(i%10+1, temp(float64(i%1000))), func(Answer) {})
		if i%1000 == 999 {
			w.must(w.log.Sync(b.Context()))
			w.apply()
		}
	}
	w.must(w.log.Sync(b.Context()))
	w.apply()
}
