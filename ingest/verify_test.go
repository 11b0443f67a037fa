package ingest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/spool"
	"weir/spool/bolt"
	"weir/store"
	"weir/store/erase"
)

// verifyDisk recounts what is on disk.
func (w *world) verifyDisk() *Verdict {
	w.t.Helper()
	release := w.log.HoldTrim()
	defer release()
	v := &Verifier{Store: w.db, Batches: func(ctx context.Context, from model.Offset, f func(*spool.Batch) error) error {
		return LogBatches(ctx, w.log, from, f)
	}, Tenants: func(store.Tx) (map[int64]string, error) { return map[int64]string{1: "acme"}, nil }}
	out, err := v.Verify(context.Background())
	w.must(err)
	return out
}

// writeHead writes everything that waits.
func (w *world) writeHead() {
	w.t.Helper()
	w.must(w.applier.stop())
}

func (w *world) sendAll(n int) {
	w.t.Helper()
	for i := range n {
		if an := w.send(w.arrival(1+i%2, measurement("temp", float64(i), fmt.Sprintf(`,"altId":"a%d"`, i)))); an.Outcome != Stored {
			w.t.Fatalf("message %d: %+v", i, an)
		}
		w.clock.advance(10 * time.Second)
	}
}

func wrongsOf(v *Verdict) string {
	var b strings.Builder
	for _, x := range v.Wrongs {
		fmt.Fprintf(&b, "%s %s %s %s: %d messages, %d readings: %s\n", x.Kind, x.Tenant, x.Transport, x.Row, x.Messages, x.Readings, x.Text)
	}
	return b.String()
}

// mixed is a little of everything: measurements, a location, an alert, a duplicate, dead letters, refusals.
func (w *world) mixed() {
	w.t.Helper()
	w.furnish(2)
	w.sendAll(40)
	w.send(w.arrival(1, measurement("temp", 1, `,"altId":"a0"`)))
	w.send(w.arrival(1, measurement("temp", 700, "")))
	w.send(w.arrival(9, temp(1)))
	w.send(w.arrival(1, "garbage"))
	w.send(w.arrival(1, `{"eventType":"Location","payload":{"entries":[{"latitude":"1","longitude":"2"},{"latitude":"1.5","longitude":"2"}]}}`))
	w.send(w.arrival(2, `{"eventType":"Alert","payload":{"entries":[{"type":"door","level":1}]}}`))
	w.send(w.arrival(2, `{"eventType":"Measurement","payload":{"entries":[{"measurements":{"temp":"1","n":"2"}},{"measurements":{"temp":"3"}}]}}`))
	w.send(&Arrival{Transport: TransportHTTP, Source: "http1", Tenant: "acme",
		Body: []byte(measurement("temp", 5, `,"credentialType":"ACCESS_TOKEN","credentialId":"token-1"`))})
}

func TestWhatIsOnDiskBalancesAtAnyInstant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mixed()
	holds := func(when string, waiting int64) *Verdict {
		t.Helper()
		v := w.verifyDisk()
		if len(v.Wrongs) != 0 || v.Waiting != waiting {
			t.Errorf("%s: %d waiting, %s", when, v.Waiting, wrongsOf(v))
		}
		return v
	}
	holds("nothing is applied", 47)
	w.apply()
	holds("nothing is written", 47)
	w.writeHead()
	v := holds("the head is written", 0)
	if v.Messages != 44 || v.Readings != 47 {
		t.Errorf("%d messages with %d readings, want 44 with 47", v.Messages, v.Readings)
	}
	w.restart()
	w.sendAll(3)
	holds("after a restart", 3)
}

func TestAHeadThatWasCutInsideABatchBalances(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.cfg.ReplayBytes = 700 })
	w.furnish(2)
	const n = 21
	together := make([]*Arrival, n) // which are one batch of the log
	for i := range together {
		together[i] = w.arrival(1+i%2, temp(float64(i)))
	}
	stored := make(chan Answer, 1)
	w.intake.AcceptAll(context.Background(), together, func(an Answer, _ int) { stored <- an })
	if an := <-stored; an.Outcome != Stored {
		t.Fatalf("%+v", an)
	}
	w.apply()
	w.must(w.applier.checkpoints.await())
	inside := false
	w.must(LogBatches(context.Background(), w.log, w.applier.checkpoints.newest.Offset, func(b *spool.Batch) error {
		inside = inside || b.First <= w.applier.checkpoints.newest.Offset && w.applier.checkpoints.newest.Offset < b.Last()
		return nil
	}))
	v := w.verifyDisk()
	if !inside || len(v.Wrongs) != 0 || v.Waiting == 0 || v.Messages+v.Waiting != n {
		t.Errorf("inside a batch: %v; head %d, %d stored, %d waiting: %s", inside, v.Checkpoint, v.Messages, v.Waiting, wrongsOf(v))
	}
}

func TestEachThingThatDoesNotBalanceIsNamed(t *testing.T) {
	t.Parallel()
	exec := func(q string, args ...any) func(*world) {
		return func(w *world) {
			w.must(w.db.Write(context.Background(), store.Durable, func(tx store.Tx) error {
				n, err := tx.Exec(q, args...)
				if err == nil && n == 0 {
					err = fmt.Errorf("%s changed nothing", q)
				}
				return err
			}))
		}
	}
	for name, c := range map[string]struct {
		before, after func(*world)
		want          []string
	}{
		"a message is lost inside Apply": {before: func(w *world) {
			w.applier.wrap(losing(20))
		}, want: []string{"messages acme mqtt : 1 messages, 0 readings: received, and have no outcome"}},
		"a reading is lost inside Apply": {before: func(w *world) {
			w.applier.wrapReadings(losing(20))
		}, want: []string{"stored acme mqtt : 1 messages, 1 readings: "}},
		"a reading is doubled inside Apply": {before: func(w *world) {
			w.applier.wrapReadings(doubling(20))
		}, want: []string{"row acme  series_blocks 1: 0 messages, 1 readings: series_blocks 1: 1 of its 21 readings stand there twice",
			"stored acme mqtt : -1 messages, -1 readings: "}},
		"a block is deleted": {after: exec(`DELETE FROM series_blocks WHERE id = 2`), want: []string{
			"stored acme mqtt : 10 messages, 10 readings: ",
			"row-gone acme  series_blocks 2: 0 messages, 0 readings: is not there; it stood between a row of d2 temp and one of d1 temp"}},
		"a row is there twice": {after: exec(`INSERT INTO series_blocks (gen, tenant_id, grp, min_series, max_series, first_at, last_at, n, runs,
				first_offset, last_offset, anchored, data) SELECT gen, tenant_id, grp, min_series, max_series, first_at, last_at, n, runs, first_offset,
				last_offset, anchored, data FROM series_blocks WHERE id = 2`),
			want: []string{"stored acme mqtt : -10 messages, -10 readings: "}},
		"a row says it holds more": {after: exec(`UPDATE series_blocks SET n = n + 1 WHERE id = 2`), want: []string{
			"row acme  series_blocks 2: 0 messages, 11 readings: store: damaged", "stored acme mqtt : 10 messages, 10 readings: "}},
		"a bit is turned over": {after: exec(`UPDATE series_blocks SET data = CAST(data || 'x' AS BLOB) WHERE id = 2`), want: []string{
			"row acme  series_blocks 2: 0 messages, 10 readings: store: damaged: series_blocks 2: checksum"}},
		"a count of the ledger is altered": {after: exec(`UPDATE ledger SET readings = readings + 3 WHERE heading = 'stored'`), want: []string{
			"stored acme mqtt : 0 messages, 3 readings: "}},
		"nothing, where blocks are merged": {after: func(w *world) {
			n, err := w.applier.deps.Series.Merge(context.Background(), store.MaxMicros/2, func() error { return nil })
			if err != nil || n != 30 {
				w.t.Fatalf("merged %d readings, %v", n, err)
			}
		}},
		"a location is deleted": {after: exec(`DELETE FROM row_events WHERE idx = 1`), want: []string{"stored acme mqtt : 0 messages, 1 readings: "}},
		"a dead letter is deleted": {after: exec(`DELETE FROM dead_letters WHERE reason = 'invalid-value'`), want: []string{
			"dead-letters acme mqtt : 1 messages, 0 readings: counted as dead letters (invalid-value): 1; there are 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.furnish(2)
			if c.before != nil {
				c.before(w)
				w.sendAll(40)
				w.apply()
				w.writeHead()
			} else {
				for range 3 { // a block each
					w.sendAllMore(10)
					w.apply()
					w.writeHead()
					w.restart()
				}
				w.send(w.arrival(1, `{"eventType":"Location","payload":{"entries":[{"latitude":"1","longitude":"2"},{"latitude":"1.5","longitude":"2"}]}}`))
				w.send(w.arrival(1, measurement("temp", 700, "")))
				w.apply()
				w.writeHead()
				if v := w.verifyDisk(); len(v.Wrongs) != 0 {
					t.Fatalf("before anything was done: %s", wrongsOf(v))
				}
				c.after(w)
			}
			v := w.verifyDisk()
			got := wrongsOf(v)
			if len(c.want) == 0 && len(v.Wrongs) != 0 {
				t.Errorf("all is well, and yet: %s", got)
			}
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("%q is not reported:\n%s", want, got)
				}
			}
		})
	}
}

// sendAllMore sends without ids of their own, so that it can be called again.
func (w *world) sendAllMore(n int) {
	w.t.Helper()
	for i := range n {
		w.send(w.arrival(1+i%2, temp(float64(i))))
		w.clock.advance(10 * time.Second)
	}
}

func TestReadingsWhoseTimeIsOverAreNotMissingButOthersAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(2)
	w.sendAll(20)
	w.apply()
	w.writeHead()
	write := func(f func(store.Tx) error) { w.must(w.db.Write(context.Background(), store.Durable, f)) }
	write(func(tx store.Tx) error {
		_, err := store.RemoveBefore(tx, store.KeptReadings, w.clock.stamp().Wall.Micros()+1, 100)
		return err
	})
	if v := w.verifyDisk(); len(v.Wrongs) != 0 || v.Expired != 20 || v.Readings != 0 {
		t.Errorf("%d expired, %d there: %s", v.Expired, v.Readings, wrongsOf(v))
	}
	write(func(tx store.Tx) error {
		_, err := tx.Exec(`UPDATE ledger SET readings = readings + 1 WHERE heading = 'stored'`)
		return err
	})
	if got := wrongsOf(w.verifyDisk()); !strings.Contains(got, "stored acme mqtt : 20 messages, 21 readings") {
		t.Errorf("one more than was removed: %s", got)
	}
}

func TestARecordThatIsInNeitherLogNorStoreIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(2)
	w.sendAll(10)
	v := &Verifier{Store: w.db, Batches: func(ctx context.Context, from model.Offset, f func(*spool.Batch) error) error {
		return LogBatches(ctx, w.log, from+4, f)
	}}
	out, err := v.Verify(context.Background())
	w.must(err)
	if got := wrongsOf(out); !strings.Contains(got, "the records 1 to 4 are neither in the store nor in the log") {
		t.Error(got)
	}
}

func TestAClosedLogIsWalkedLikeAnOpenOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mixed()
	read := func(walk func(func(*spool.Batch) error) error) (out []string) {
		w.must(walk(func(b *spool.Batch) error {
			for i := range b.Records {
				out = append(out, fmt.Sprintf("%d %x", b.First+model.Offset(i), b.Records[i].Data))
			}
			return nil
		}))
		return out
	}
	open := read(func(f func(*spool.Batch) error) error { return LogBatches(context.Background(), w.log, 17, f) })
	w.close()
	closed := read(func(f func(*spool.Batch) error) error {
		return bolt.Walk(context.Background(), w.dir+"/spool", 17, f)
	})
	if len(open) == 0 || strings.Join(open, "\n") != strings.Join(closed, "\n") {
		t.Errorf("open: %d records, closed: %d", len(open), len(closed))
	}
	w.open()
}

// A tenant whose rows are being removed balances in no part until that is over: it is left out, and the others are not.
func TestATenantThatIsErasedIsLeftOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mixed()
	w.apply()
	w.writeHead()
	write := func(fn func(*store.Change) error) {
		t.Helper()
		w.must(store.Direct{Store: w.db}.Mutate(t.Context(), fixture.Operator(), fn))
	}
	imbalances := func() int {
		t.Helper()
		wrong, _, err := w.applier.Ledger().Imbalances(t.Context())
		w.must(err)
		return len(wrong)
	}
	of := erase.Tenant{ID: 1, Token: "acme"}
	for _, q := range []string{`DELETE FROM ledger WHERE heading = 'stored'`, `DELETE FROM row_events`, `DELETE FROM dead_letters`, `UPDATE series_blocks SET data = x'00'`} {
		write(func(c *store.Change) error { _, err := c.Exec(q); return err })
	}
	if v := w.verifyDisk(); len(v.Wrongs) < 3 || imbalances() == 0 {
		t.Errorf("the test shows nothing: %s", wrongsOf(v))
	}
	write(func(c *store.Change) error { return erase.Begin(c, of, 1) })
	if v := w.verifyDisk(); len(v.Wrongs) > 0 || imbalances() > 0 {
		t.Errorf("while it is erased: %d imbalances, %s", imbalances(), wrongsOf(v))
	}
	write(func(c *store.Change) error { return erase.Begin(c, erase.Tenant{ID: 7, Token: "other"}, 1) })
	write(func(c *store.Change) error { return erase.Complete(c, &erase.Deletion{ID: 1}, 1) })
	if v := w.verifyDisk(); len(v.Wrongs) < 3 || imbalances() == 0 {
		t.Errorf("while another tenant is erased: %s", wrongsOf(v))
	}
}
