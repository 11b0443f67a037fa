package ingest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/model"
	"weir/spool"
	"weir/spool/bolt"
	"weir/store"
	"weir/store/sqlite"
)

// traffic sends n messages and changes as a random but repeatable plant would: readings early and late, repeats, events
// of every type, unfit ones, presence, and a profile that is published and rolled back.
func (w *world) traffic(seed uint64, n int) {
	w.t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	version := 1
	answers := make(chan Answer, n)
	sent := 0
	for range n {
		w.clock.advance(time.Duration(r.IntN(400)) * time.Millisecond)
		device := 1 + r.IntN(6)
		now := w.clock.stamp().Wall.Time()
		more := ""
		switch r.IntN(4) {
		case 0:
			more = fmt.Sprintf(`,"occurredTime":%q`, now.Add(-time.Duration(r.IntN(7200))*time.Second).Format(time.RFC3339Nano))
		case 1:
			more = fmt.Sprintf(`,"altId":"a%d","occurredTime":"2026-03-01T11:00:00Z"`, r.IntN(40))
		}
		a := w.arrival(device, measurement("temp", float64(r.IntN(1200))/10, more))
		switch r.IntN(12) {
		case 0:
			a = w.arrival(device, `{"eventType":"Location","payload":{"entries":[{"latitude":"47.1","longitude":"8.5"}]}}`)
		case 1:
			a = w.arrival(device, `{"eventType":"Alert","payload":{"entries":[{"type":"door","level":2}]}}`)
		case 2:
			a = w.arrival(device, "garbage")
			a.CannotRefuse = r.IntN(2) == 0
		case 3:
			a.PacketID, a.Dup = uint16(1+r.IntN(3)), r.IntN(2) == 0
		case 4:
			a = w.arrival(device, measurement("temp", 900, ""))
		}
		switch r.IntN(40) {
		case 0:
			version = 3 - version
			w.change(w.profile(version, w.rulesOf(version)...))
		case 1:
			w.gate.Presence(context.Background(), TransportMQTT, "mqtt1", *a.Conn, model.Presence{State: model.PresenceState(1 + r.IntN(2)),
				Session: uint64(1 + r.IntN(50)), Occurred: w.clock.stamp().Wall}, func(an Answer) { answers <- an })
			sent++
		}
		w.gate.Accept(context.Background(), a, func(an Answer) { answers <- an })
		sent++
		if len(answers) > 20 || r.IntN(6) == 0 {
			for ; sent > 0; sent-- {
				<-answers
			}
		}
	}
	for ; sent > 0; sent-- {
		<-answers
	}
}

func (w *world) rulesOf(version int) []model.RuleView {
	if version == 1 {
		return []model.RuleView{thresholdRule("hot", "temp", "gt", 60), thresholdRule("cold", "temp", "lt", 10)}
	}
	return []model.RuleView{thresholdRule("hot", "temp", "gt", 80), thresholdRule("cold", "temp", "lt", 10)}
}

// resultTables are all tables that follow from the log. Row ids of bookkeeping tables are left out, everything else counts.
var resultTables = []string{"view_rows", "ledger", "dead_letters", "edges", "rule_fires", "device_states", "row_events", "latest_measurements",
	"latest_locations", "series", "series_chunks", "series_blocks", "rule_pages", "seen_pages"}

func dump(t testing.TB, db store.Store) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	err := db.Read(context.Background(), func(tx store.Tx) error {
		for _, table := range resultTables {
			rows, err := tx.Query(`SELECT * FROM ` + table)
			if err != nil {
				return err
			}
			cols, err := rows.Columns()
			if err != nil {
				return err
			}
			for rows.Next() {
				vals, ptrs := make([]any, len(cols)), make([]any, len(cols))
				for i := range vals {
					ptrs[i] = &vals[i]
				}
				if err := rows.Scan(ptrs...); err != nil {
					return err
				}
				var b strings.Builder
				for i, c := range cols {
					if c == "id" && (table == "edges" || table == "dead_letters" || table == "seen_pages" || table == "row_events") {
						continue
					}
					fmt.Fprintf(&b, "%s=%v ", c, vals[i])
				}
				out[table] = append(out[table], b.String())
			}
			if err := rows.Close(); err != nil {
				return err
			}
			slices.Sort(out[table])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func compareDumps(t testing.TB, got, want map[string][]string) {
	t.Helper()
	for _, table := range resultTables {
		if slices.Equal(got[table], want[table]) {
			continue
		}
		t.Errorf("table %s differs: %d rows, want %d", table, len(got[table]), len(want[table]))
		for i := range max(len(got[table]), len(want[table])) {
			g, x := at(got[table], i), at(want[table], i)
			if g != x {
				t.Errorf("  got  %.600s\n  want %.600s", g, x)
				break
			}
		}
	}
}

func at(s []string, i int) string {
	if i < len(s) {
		return s[i]
	}
	return "(none)"
}

func (w *world) finishHead(a *Applier) {
	w.t.Helper()
	a.begin()
	w.must(a.checkpoint(context.Background(), a.Applied()))
	a.checkpoints.start()
	w.must(a.checkpoints.await())
}

func smallHeads(w *world) {
	w.cfg.ReplayBytes, w.cfg.HeadAge = 8<<10, 5*time.Second
}

// recut is the meta of a log that holds the records of another one in other batches: the counts come with the first.
type recut struct {
	span   Span
	counts map[store.LedgerKey]store.LedgerCount
}

func (r *recut) Take([]spool.Entry) []byte {
	m := appendMeta(nil, batchMeta{Span: r.span, Counts: r.counts})
	r.counts = nil
	return m
}
func (r *recut) Settle(bool) {}

func TestTheSameLogGivesTheSameResultsHoweverItWasCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, smallHeads)
	release := w.log.HoldTrim()
	defer release()
	w.furnish(6, w.rulesOf(1)...)
	w.traffic(1, 600)
	w.apply()
	w.finishHead(w.applier)
	if w.applier.checkpoints.newest.Generation < 5 {
		t.Fatalf("only %d heads were written", w.applier.checkpoints.newest.Generation)
	}
	want := dump(t, w.db)
	for _, table := range []string{"edges", "series_blocks", "dead_letters", "row_events", "device_states", "seen_pages", "rule_pages"} {
		if len(want[table]) == 0 {
			t.Errorf("the traffic left nothing in %s", table)
		}
	}

	var records []spool.Record
	re := &recut{counts: map[store.LedgerKey]store.LedgerCount{}}
	r, err := w.log.Reader(1)
	w.must(err)
	for {
		b, err := r.TryNext()
		w.must(err)
		if b == nil {
			break
		}
		m, err := decodeMeta(b.Meta)
		w.must(err)
		re.span = m.Span
		for k, c := range m.Counts {
			have := re.counts[k]
			have.Add(c)
			re.counts[k] = have
		}
		records = append(records, b.Records...)
	}
	w.clock.advance(1000 * time.Hour) // another wall clock
	dir := t.TempDir()
	log, err := bolt.Open(filepath.Join(dir, "spool"), bolt.Options{MaxBytes: 64 << 20, Meta: re})
	w.must(err)
	defer log.Close()
	for i, rec := range records {
		w.must(log.Append(context.Background(), spool.Entry{Data: rec.Data, Done: func(model.Offset, error) {}}))
		if i%17 == 0 {
			w.must(log.Sync(context.Background()))
		}
	}
	w.must(log.Sync(context.Background()))
	db, err := sqlite.Open(context.Background(), filepath.Join(dir, "weir.db"), sqlite.Options{})
	w.must(err)
	defer db.Close()
	w.edges = nil
	a := w.newApplier(log, db)
	defer a.checkpoints.end()
	w.applyTo(a, log)
	w.finishHead(a)
	compareDumps(t, dump(t, db), want)
}

// TestAKillAnywhereLeavesTheSameResults applies a log in one go, and again with the process gone at random places, among
// them between a head that is cut and its write.
func TestAKillAnywhereLeavesTheSameResults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		w := newWorld(t, smallHeads)
		release := w.log.HoldTrim()
		w.furnish(6, w.rulesOf(1)...)
		w.traffic(seed, 300)
		w.apply()
		w.finishHead(w.applier)
		want := dump(t, w.db)

		r := rand.New(rand.NewPCG(seed, 9))
		db, err := sqlite.Open(context.Background(), filepath.Join(t.TempDir(), "weir.db"), sqlite.Options{})
		w.must(err)
		var a *Applier
		for kills := 0; ; kills++ {
			a = w.newApplier(w.log, db)
			if w.killedWhileApplying(a, r) {
				a.checkpoints.end()
				_ = a.checkpoints.await()
				continue
			}
			break
		}
		w.finishHead(a)
		compareDumps(t, dump(t, db), want)
		a.checkpoints.end()
		w.must(db.Close())
		release()
	}
}

// killedWhileApplying applies batches until chance ends the process; false when it reached the end.
func (w *world) killedWhileApplying(a *Applier, r *rand.Rand) bool {
	w.t.Helper()
	reader, err := w.log.Reader(a.Applied() + 1)
	w.must(err)
	defer reader.Close()
	dying := false
	for {
		b, err := reader.TryNext()
		w.must(err)
		if b == nil {
			return dying
		}
		if r.IntN(25) == 0 {
			a.checkpoints.end() // whatever head is being written stops where it is
			dying = true
		}
		if err := a.apply(context.Background(), b); err != nil {
			return true
		}
		if r.IntN(25) == 0 {
			return true
		}
	}
}

func TestEachReadingIsJudgedByTheVersionAtItsPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, smallHeads)
	w.furnish(1, thresholdRule("hot", "temp", "gt", 60))
	r := rand.New(rand.NewPCG(7, 7))
	limit, version := 60.0, 1
	var want []string
	raised := false
	for i := range 400 { // the applier stands still meanwhile
		if r.IntN(15) == 0 {
			if version = 3 - version; version == 1 {
				limit = 60
			} else {
				limit = 80
			}
			w.change(w.profile(version, thresholdRule("hot", "temp", "gt", limit)))
			if raised { // another body: what was raised resolves where the version changed
				want, raised = append(want, "resolved"), false
			}
		}
		v := float64(r.IntN(100))
		w.clock.advance(time.Second)
		if an := w.send(w.arrival(1, temp(v))); an.Outcome != Stored {
			t.Fatalf("%d: %+v", i, an)
		}
		switch {
		case v > limit && !raised:
			want, raised = append(want, fmt.Sprintf("raised %v", v)), true
		case v <= limit && raised:
			want, raised = append(want, "resolved"), false
		}
	}
	w.apply()
	var got []string
	for _, e := range w.edges {
		s := e.Signal.String()
		if e.HasValue {
			s += fmt.Sprintf(" %v", e.Value)
		}
		got = append(got, s)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	h, err := w.applier.RuleHealth(context.Background(), "acme", "boiler")
	if err != nil || len(h) != 1 || h[0].Fires != int64(len(want)) {
		t.Errorf("health %+v, %v; want %d fires", h, err, len(want))
	}
}
