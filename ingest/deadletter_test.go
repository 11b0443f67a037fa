package ingest

import (
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"weir/store"
)

func TestATenantKeepsItsNewestDeadLettersUpToTheirBoundAndTheLedgerKnowsWhichWent(t *testing.T) {
	t.Parallel()
	for name, bound := range map[string]DeadLetterSettings{
		"rows":  {DeadLetters: 10, DeadLetterBytes: 1 << 30},
		"bytes": {DeadLetters: 1 << 30, DeadLetterBytes: 10 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(w *world) { w.cfg.DeadLetterSettings = bound })
			w.furnish(1)
			const sent = 60
			for i := range sent {
				w.send(w.arrival(1, temp(1000+float64(i)))) // the profile has no room for it
			}
			w.send(w.arrival(1, temp(1)))
			w.apply()
			var left []store.DeadLetter
			w.must(w.db.Read(context.Background(), func(tx store.Tx) (err error) {
				left, err = store.DeadLetters(tx, store.DeadLetterFilter{Tenant: new("acme"), Limit: 1000})
				return err
			}))
			var bytes int64
			for _, d := range left {
				bytes += d.Bytes
			}
			most := bound.DeadLetters + max(bound.DeadLetters/100, 1)
			if int64(len(left)) > most || bytes > int64(bound.DeadLetterBytes)+int64(bound.DeadLetterBytes)/16+left[0].Bytes || len(left) < 5 {
				t.Errorf("%d dead letters of %d bytes are left", len(left), bytes)
			}
			if left[0].Offset < left[len(left)-1].Offset || int(left[0].Offset) < sent {
				t.Errorf("not the newest are left: offsets %d to %d", left[len(left)-1].Offset, left[0].Offset)
			}
			if n := testutil.ToFloat64(w.applier.metrics.deadLettersTrimmed); int(n) != sent-len(left) {
				t.Errorf("%v are counted as gone, %d went", n, sent-len(left))
			}
			w.must(w.applier.checkpoint(context.Background(), w.applier.Applied()))
			w.applier.checkpoints.start()
			w.must(w.applier.checkpoints.await())
			verdict := w.verifyDisk()
			if len(verdict.Wrongs) > 0 || verdict.Removed != int64(sent-len(left)) {
				t.Errorf("the ledger: %d removed, wrong %+v", verdict.Removed, verdict.Wrongs)
			}
		})
	}
}

func TestDeadLettersOfOneTenantPushOutNoneOfAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(w.db.Write(context.Background(), store.Results, func(tx store.Tx) error {
		for i := range 30 {
			for _, tenant := range []string{"acme", "other"} {
				if err := store.AddDeadLetter(tx, &store.DeadLetter{Tenant: tenant, Kind: store.DeadLetterIngest, Reason: "x", Source: "s", Summary: fmt.Sprint(i), Bytes: 10}); err != nil {
					return err
				}
			}
		}
		n, err := store.TrimDeadLetters(tx, "acme", store.DeadLetterBound{Rows: 4, Bytes: 1 << 20})
		if n != 26 {
			t.Errorf("%d went", n)
		}
		return err
	}))
	w.must(w.db.Read(context.Background(), func(tx store.Tx) error {
		for tenant, want := range map[string]int{"acme": 4, "other": 30} {
			ds, err := store.DeadLetters(tx, store.DeadLetterFilter{Tenant: &tenant, Limit: 100})
			if err != nil || len(ds) != want {
				t.Errorf("%s has %d, %v", tenant, len(ds), err)
			}
		}
		n, err := store.CountDeadLetters(tx)
		if n != 34 {
			t.Errorf("%d in all", n)
		}
		return err
	}))
}
