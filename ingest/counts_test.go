package ingest

import (
	"fmt"
	"testing"
	"time"

	"weir/ingest/links"
	"weir/model"
	"weir/spool"
	"weir/store"
)

// TestLinesOnWhichNothingMovesAreForgotten: hours and tenants go by, and the transports hold only what is under way.
func TestLinesOnWhichNothingMovesAreForgotten(t *testing.T) {
	t.Parallel()
	d := NewTransportCounts(links.New(func() time.Duration { return 0 }))
	stays := line{tenant: "acme", transport: TransportHTTP, hour: 1}
	d.received(stays)
	d.handed(stays, 3)
	for i := range 1000 {
		r := &model.Record{Kind: model.KindMessage, Transport: TransportMQTT, Account: fmt.Sprintf("t%d", i)}
		d.received(lineOf(r))
		d.handed(lineOf(r), 1)
		d.Take([]spool.Entry{{Value: r}})
		d.Settle(true)
		d.passed(lineOf(r), 1)
	}
	if n := len(d.lines.all); n > 40 {
		t.Errorf("%d lines are held, of which one is in use", n)
	}
	d.Take(nil)
	d.Settle(true)
	got := map[store.Outcome]store.LedgerCount{}
	d.live(func(k store.LedgerKey, c store.LedgerCount) {
		if k.Tenant == "acme" {
			got[k.Outcome] = c
		}
	})
	if got[store.OutcomeReceived] != (store.LedgerCount{Messages: 1}) || got[store.OutcomeWaiting] != (store.LedgerCount{Messages: 1, Readings: 3}) {
		t.Errorf("the line in use says %v", got)
	}
}

// TestBatchOfManyLines: what rides in a batch is counted per line, whatever order its records are in.
func TestBatchOfManyLines(t *testing.T) {
	t.Parallel()
	d := NewTransportCounts(links.New(func() time.Duration { return 0 }))
	var entries []spool.Entry
	for _, tenant := range []string{"a", "a", "b", "a", "", "b", "b"} {
		r := &model.Record{Kind: model.KindMessage, Transport: TransportMQTT, Account: tenant}
		d.received(lineOf(r))
		entries = append(entries, spool.Entry{Value: r}, spool.Entry{Value: &model.Record{Kind: model.KindControl}}, spool.Entry{})
	}
	m, err := decodeMeta(d.Take(entries))
	if err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]int64{"a": 3, "b": 3, "": 1} {
		if got := m.Counts[(line{tenant: tenant, transport: TransportMQTT}).key(store.OutcomeReceived, ReasonNone)].Messages; got != want {
			t.Errorf("tenant %q: %d received, want %d", tenant, got, want)
		}
	}
	if len(m.Counts) != 3 {
		t.Errorf("%d counts: %v", len(m.Counts), m.Counts)
	}
}
