package ingest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/throttle"
	"weir/model"
	"weir/spool"
	"weir/store"
)

// farBehind is a throttle that admits a tenant's readings at some 50 a second. It takes a second in a bubble.
func farBehind(tenant string) *throttle.Throttle {
	t := throttle.New()
	t.Sample(time.Now(), 100_000, 0, 0)
	time.Sleep(time.Second)
	t.Applied([]throttle.Work{{Tenant: tenant, Readings: 100, Cost: 1}})
	t.Sample(time.Now(), 100_000, 100, 0)
	return t
}

// TestASlowedMessageWaitsInTheLedgerAndIsStored: whatever the transport and its version; an array waits as a message does. A message
// of another tenant, and one without a valid credential, is not slowed.
func TestASlowedMessageWaitsInTheLedgerAndIsStored(t *testing.T) {
	t.Parallel()
	for _, s := range senders {
		for _, array := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/array %v", s.name, array), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					in, _, _, _ := paperIntake(false)
					in.deps.Throttle = farBehind("acme")
					in.deps.Throttle.Delay("acme", 5, time.Now()) // 100 ms for the next one
					var got atomic.Pointer[Answer]
					if array {
						go in.AcceptAll(t.Context(), []*Arrival{s.arrival()}, func(a Answer, _ int) { got.Store(&a) })
					} else {
						go in.Accept(t.Context(), s.arrival(), func(a Answer) { got.Store(&a) })
					}
					time.Sleep(99 * time.Millisecond)
					synctest.Wait()
					one := store.LedgerCount{Messages: 1}
					if c := in.deps.Counts.shown(); got.Load() != nil || c[store.OutcomeReceived] != one || c[store.OutcomeWaiting] != one || len(c) != 2 {
						t.Fatalf("after 99 ms: %s, %v", ended(got.Load()), c)
					}
					time.Sleep(time.Millisecond)
					if synctest.Wait(); ended(got.Load()) != "stored" {
						t.Errorf("after 100 ms: %s", ended(got.Load()))
					}
				})
			})
		}
	}
}

func TestWhoIsNotSlowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, _, _, _ := paperIntake(false)
		in.deps.Throttle = farBehind("other")
		in.deps.Throttle.Delay("other", 100, time.Now())
		began := time.Now()
		in.Accept(t.Context(), senders[1].arrival(), func(Answer) {})
		if d := time.Since(began); d != 0 {
			t.Errorf("a neighbour was delayed by %v", d)
		}
		a := senders[1].arrival()
		a.Tenant = "other"
		in.deps.Ceiling.(*testCeiling).known["other"] = true
		a.CeilingWait = 40 * time.Millisecond
		in.Accept(t.Context(), a, func(Answer) {})
		if d := time.Since(began); d != 20*time.Millisecond {
			t.Errorf("a message that may wait for 40 ms was delayed by %v", d)
		}
	})
}

// TestTheGaugeKeepsTheThrottleUpToDate: readings come at twice the rate that the applier takes, and are slowed from a lag of 2 s on.
func TestTheGaugeKeepsTheThrottleUpToDate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &paperLog{stats: spool.Stats{First: 1, MaxBytes: 1 << 30, MaxRecords: 1 << 40}}
		var applied model.Offset
		th := throttle.New()
		g := NewGauge(GaugeConfig{Log: log, Applied: func() model.Offset { return applied }, Throttle: th})
		for i := range 100 {
			time.Sleep(behindTick)
			log.set(func(s *spool.Stats) { s.Last += 100 })
			applied += 50
			th.Applied([]throttle.Work{{Tenant: "acme", Readings: 50, Cost: 1}})
			g.Sample()
			behind := 50 * (i + 1) // records, of which 1,000 are applied in a second
			if slowed := th.State() != nil; slowed != (behind >= 2000) {
				t.Fatalf("%d records behind: slowed is %v, the lag %v", behind, slowed, th.Lag())
			}
		}
		if g.tick() != behindTick {
			t.Error("the applier is behind, and yet looked at seldom")
		}
		applied = log.Stats().Last
		time.Sleep(behindTick)
		if g.Sample(); th.State() != nil || g.tick() != pressureTick {
			t.Errorf("caught up, and slowed: %+v", th.State())
		}
	})
}

// TestAFullLogTakesMessagesAsSoonAsThereIsAnyRoom: they do not wait until nothing is refused any more.
func TestAFullLogTakesMessagesAsSoonAsThereIsAnyRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, log, _, _ := paperIntake(false)
		log.holding(1000, 500)
		log.full = true
		g := NewGauge(GaugeConfig{Log: log})
		in.deps.Pressure = g
		var got atomic.Pointer[Answer]
		go in.Accept(t.Context(), senders[1].arrival(), func(a Answer) { got.Store(&a) })
		if synctest.Wait(); got.Load() != nil {
			t.Fatalf("not held: %s", ended(got.Load()))
		}
		log.mu.Lock()
		log.stats.First, log.stats.Bytes, log.full = 63, 875, false
		log.mu.Unlock()
		g.Sample()
		if synctest.Wait(); ended(got.Load()) != "stored" || !g.Refusing() {
			t.Errorf("at 87.5 %%: %s, refusing %v", ended(got.Load()), g.Refusing())
		}
	})
}

// TestTheApplierReportsWhatTenantsCost: a message whose readings cross thresholds costs more than one of which no rule has to judge.
func TestTheApplierReportsWhatTenantsCost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) { w.maxEdges = 5 })
	w.furnish(1, thresholdRule("r1", "temp", "gt", 10), thresholdRule("r2", "temp", "gt", 20))
	w.apply()
	cost := func(body string) int64 {
		w.send(w.arrival(1, body))
		r, err := w.log.Reader(w.applier.Applied() + 1)
		w.must(err)
		defer r.Close()
		b, err := r.TryNext()
		w.must(err)
		w.applier.begin()
		w.must(w.applier.record(t.Context(), &b.Records[0], b.First, 0))
		m := w.applier.work
		if len(m.work) != 1 || m.work[0].Tenant != "acme" || m.work[0].Readings != 1 || m.work[0].Cost != m.cost {
			t.Fatalf("%+v", m)
		}
		w.must(w.applier.commit(t.Context(), b.Last()))
		return m.cost
	}
	if plain, calm, crossing := cost(measurement("n", 1, "")), cost(temp(5)), cost(temp(30)); plain != costRecord+costReading ||
		calm != plain+2*costJudgement || crossing != calm+2*costEdge {
		t.Errorf("without rules %d, without edges %d, with two edges %d", plain, calm, crossing)
	}
}

// TestALongBatchIsVisibleInParts: what is done for a batch before it is committed is bounded, also where its edges are not kept.
func TestALongBatchIsVisibleInParts(t *testing.T) {
	t.Parallel()
	const n = 100 // rules, all crossed by each reading
	var seen []model.Offset
	w := newWorld(t, func(w *world) {
		w.maxEdges = 1
		w.projections = func() []Projection {
			return []Projection{watching{look: func() { seen = append(seen, w.applier.Applied()) }}}
		}
	})
	var rs []model.RuleView
	for i := range n {
		rs = append(rs, thresholdRule(fmt.Sprintf("r%d", i), "temp", "gt", 10))
	}
	w.furnish(1, rs...)
	w.apply()
	before := w.applier.Applied()
	entries := make([]string, model.MaxReadings)
	for i := range entries {
		entries[i] = fmt.Sprintf(`{"measurements":{"temp":"%d"}}`, 20*(i%2))
	}
	body := `{"eventType":"Measurement","payload":{"entries":[` + strings.Join(entries, ",") + `]}}`
	as := make([]*Arrival, 2+maxPendingCost/(model.MaxReadings*n*costEdge))
	for i := range as {
		as[i] = w.arrival(1, body)
	}
	done := make(chan Answer, 1)
	w.intake.AcceptAll(context.Background(), as, func(a Answer, _ int) { done <- a })
	if a := <-done; a.Outcome != Stored {
		t.Fatalf("%+v", a)
	}
	seen = nil
	w.apply()
	_, last := w.log.Bounds()
	if at := seen[len(seen)-1]; seen[0] > before || at <= seen[0] || at >= last {
		t.Errorf("at the last of %d records up to record %d was visible, at the first %d", len(seen), at, seen[0])
	}
}

// TestAnEdgeWaitsForAPartOfItsBatch: it is visible before the rest of a long batch is applied, which without an edge is visible as a whole.
func TestAnEdgeWaitsForAPartOfItsBatch(t *testing.T) {
	t.Parallel()
	var seen []model.Offset
	w := newWorld(t, func(w *world) {
		w.projections = func() []Projection {
			return []Projection{watching{look: func() { seen = append(seen, w.applier.Applied()) }}}
		}
	})
	w.furnish(1, thresholdRule("hot", "temp", "gt", 80))
	w.apply()
	for _, hot := range []bool{false, true} {
		before := w.applier.Applied()
		entries := slices.Repeat([]string{`{"measurements":{"temp":"20"}}`}, model.MaxReadings)
		as := make([]*Arrival, 2+maxEdgeCost/(costReading*model.MaxReadings))
		for i := range as {
			if hot && i == 1 {
				entries[0] = `{"measurements":{"temp":"90"}}`
			}
			as[i] = w.arrival(1, `{"eventType":"Measurement","payload":{"entries":[`+strings.Join(entries, ",")+`]}}`)
		}
		done := make(chan Answer, 1)
		w.intake.AcceptAll(context.Background(), as, func(a Answer, _ int) { done <- a })
		if a := <-done; a.Outcome != Stored {
			t.Fatalf("%+v", a)
		}
		seen = nil
		w.apply()
		if at := seen[len(seen)-1]; hot != (at > before) {
			t.Errorf("hot %t: at the last of %d records up to record %d was visible, before the first %d", hot, len(seen), at, before)
		}
	}
}

// watching is a projection that only looks.
type watching struct {
	ProjectionBase
	look func()
}

func (p watching) Record(context.Context, *Event, *Effects) error { p.look(); return nil }
