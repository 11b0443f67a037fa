package govern

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/test/fixture"
	"weir/internal/test/seed"
	"weir/store"
)

func newClock() *fixture.Clock { return fixture.NewClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) }

func withRate(t *testing.T, rate float64, burst int64, priority int64, floor int) (*Govern, *fixture.Clock) {
	t.Helper()
	clock := newClock()
	cfg := DefaultConfig()
	cfg.ManualFloor = floor
	g := open(t, fixture.Store(t), cfg, clock.Now)
	mustCreate(t, g, store.Patch{"token": "acme", "ingestMessagesPerSecond": rate, "ingestBurst": burst, "shedPriority": priority})
	return g, clock
}

func TestTheCeilingIsCountedInReadingsAllOrNone(t *testing.T) {
	g, clock := withRate(t, 100, 300, 90, 0)
	if !g.Take("acme", 256) {
		t.Fatal("a full message does not fit into a full bucket")
	}
	if g.Take("acme", 45) {
		t.Error("45 readings were admitted with 44 left")
	}
	if !g.Take("acme", 44) {
		t.Error("44 readings were refused with 44 left")
	}
	if !g.Empty("acme") {
		t.Error("the bucket is not empty")
	}
	clock.Step(10 * time.Millisecond)
	if g.Empty("acme") || !g.Take("acme", 1) || g.Take("acme", 1) {
		t.Error("10 ms at 100 readings a second are not exactly one")
	}
}

func TestABurstBelowOneMessageIsRaisedToIt(t *testing.T) {
	g, _ := withRate(t, 1, 5, 90, 0)
	if !g.Take("acme", 256) {
		t.Error("a legal message never fits")
	}
}

func TestAnArrayLargerThanTheBucketLeavesADebt(t *testing.T) {
	g, clock := withRate(t, 100, 300, 90, 0)
	if !g.Take("acme", 1000) {
		t.Fatal("refused with a full bucket: it could never be admitted")
	}
	clock.Step(7 * time.Second)
	if g.Take("acme", 1) {
		t.Error("admitted before the debt of 700 was paid")
	}
	clock.Step(100 * time.Millisecond)
	if !g.Take("acme", 1) {
		t.Error("refused after the debt was paid")
	}
}

func TestShedding(t *testing.T) {
	for priority, want := range map[int64][4]float64{80: {1, 1, 1, 1}, 79: {1, 1, 1, .25}, 50: {1, 1, 1, .25},
		49: {1, 1, .25, 0}, 20: {1, 1, .25, 0}, 19: {1, .25, .10, 0}, 1: {1, .25, .10, 0}} {
		for level, factor := range want {
			if got := shedFactor(level, priority); got != factor {
				t.Errorf("level %d, priority %d: %v, want %v", level, priority, got, factor)
			}
		}
	}
	g, clock := withRate(t, 1000, 1000, 30, 3)
	if g.Take("acme", 1) || !g.Empty("acme") || g.Wait(t.Context(), "acme", 1, 0) {
		t.Error("bronze is admitted at level 3")
	}
	if err := g.SetManualFloor(2); err != nil {
		t.Fatal(err)
	}
	clock.Step(time.Hour)
	admitted := 0
	for g.Take("acme", 1) {
		admitted++
	}
	if admitted != 256 {
		t.Errorf("bronze admits %d at level 2: a quarter of 1000, but never below a message", admitted)
	}
	if err := g.SetManualFloor(4); err == nil {
		t.Error("level 4 is taken")
	}
}

func TestAnUpdateOfTheCeilingKeepsWhatWasUsed(t *testing.T) {
	g, _ := withRate(t, 1, 1000, 90, 0)
	if !g.Take("acme", 900) {
		t.Fatal("refused")
	}
	if _, err := g.Tenants.Update(t.Context(), operator, "acme", store.Patch{"ingestBurst": int64(1100)}); err != nil {
		t.Fatal(err)
	}
	if g.Take("acme", 201) || !g.Take("acme", 200) {
		t.Error("a change of the ceiling filled the bucket")
	}
}

func TestUnknownNamesHaveSlotsAndThenOneCommonBucket(t *testing.T) {
	clock := newClock()
	cfg := DefaultConfig()
	cfg.IngestMessagesPerSecond, cfg.IngestBurst = 1, 256
	g := open(t, fixture.Store(t), cfg, clock.Now)
	for i := range unknownSlots {
		if !g.Take(fmt.Sprintf("no-%d", i), 256) {
			t.Fatalf("name %d has no bucket of its own", i)
		}
	}
	if !g.Take("one-more", 256) || g.Take("yet-another", 1) {
		t.Error("names beyond the slots do not share one bucket")
	}
	clock.Step(2 * time.Minute)
	g.Take("later", 1)
	if n := g.unknown.size(); n > 2 {
		t.Errorf("%d slots are still held", n)
	}
}

func TestUnauthenticatedSendersShareOneAllowanceOfMessagesAndBytes(t *testing.T) {
	g := open(t, fixture.Store(t), DefaultConfig(), newClock().Now)
	for i := range 100 {
		if !g.AdmitUnauthenticated(10) {
			t.Fatalf("message %d refused", i)
		}
	}
	if g.AdmitUnauthenticated(10) {
		t.Error("the 101st message of a second was admitted")
	}
	g = open(t, fixture.Store(t), DefaultConfig(), newClock().Now)
	if !g.AdmitUnauthenticated(1<<20-10) || g.AdmitUnauthenticated(11) || !g.AdmitUnauthenticated(10) {
		t.Error("bytes are not bounded to 1 MiB a second")
	}
	g = open(t, fixture.Store(t), DefaultConfig(), newClock().Now)
	if !g.TakeUnauthenticated(90, 1000) || g.TakeUnauthenticated(11, 1<<19) || !g.TakeUnauthenticated(10, 1<<20-1000) {
		t.Error("a refusal by one bucket drew on the other")
	}
}

func TestWaitHoldsTheSenderUntilThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(10, 256, time.Now())
		begun := time.Now()
		if !b.wait(t.Context(), 256, time.Second, time.Now) || time.Since(begun) != 0 {
			t.Fatal("waited although there was room")
		}
		if !b.wait(t.Context(), 10, 2*time.Second, time.Now) {
			t.Fatal("not admitted although patience lasted")
		}
		if d := time.Since(begun); d < time.Second || d > 1001*time.Millisecond {
			t.Errorf("10 readings at 10 a second took %v", d)
		}
		begun = time.Now()
		if b.wait(t.Context(), 100, 3*time.Second, time.Now) {
			t.Error("admitted although patience was too short")
		}
		if d := time.Since(begun); d != 3*time.Second {
			t.Errorf("the sender was held for %v, not for his patience", d)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(1, 256, time.Now())
		b.take(256, time.Now())
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if b.wait(ctx, 200, time.Hour, time.Now) {
					t.Error("admitted after the end")
				}
			})
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.tokens < 0 {
			t.Errorf("%v tokens: what was reserved was not given back", b.tokens)
		}
	})
}

func TestWhoGivesUpAfterReservingGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(10, 256, time.Now())
		b.take(256, time.Now())
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if b.wait(ctx, 100, time.Hour, time.Now) {
				t.Error("admitted after the end")
			}
		})
		sleep(t.Context(), 9*time.Second)
		b.take(80, time.Now()) // so that he is robbed when he wakes at 10 s, and reserves
		sleep(t.Context(), 2*time.Second)
		if b.empty(time.Now()) != true {
			t.Error("he has not reserved")
		}
		cancel()
		wg.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.tokens < 29 || b.tokens > 31 {
			t.Errorf("%v tokens, want the 30 that nobody has used", b.tokens)
		}
	})
}

func TestALargeMessageIsNotStarvedBySmallOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(100, 256, time.Now())
		b.take(256, time.Now())
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { // takes every reading as soon as it is there
			for ctx.Err() == nil {
				b.take(1, time.Now())
				sleep(ctx, 5*time.Millisecond)
			}
		})
		begun := time.Now()
		if !b.wait(t.Context(), 256, 20*time.Second, time.Now) {
			t.Error("starved")
		}
		if d := time.Since(begun); d > 10*time.Second {
			t.Errorf("took %v", d)
		}
		stop()
		wg.Wait()
	})
}

func TestWaitersTogetherNeverExceedTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, burst = 50.0, 256
		b := newBucket(rate, burst, time.Now())
		begun := time.Now()
		var mu sync.Mutex
		admitted := 0
		var wg sync.WaitGroup
		all := seed.Rand(t)
		for range 40 {
			r := seed.Fork(all)
			wg.Go(func() {
				for range 5 {
					n := 1 + r.IntN(64)
					if b.wait(t.Context(), n, 10*time.Second, time.Now) {
						mu.Lock()
						admitted += n
						limit := burst + rate*time.Since(begun).Seconds() + 1
						if float64(admitted) > limit {
							t.Errorf("%d readings admitted, at most %v are allowed", admitted, limit)
						}
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		if admitted < burst {
			t.Errorf("only %d readings were admitted", admitted)
		}
	})
}

func BenchmarkTake(b *testing.B) {
	g := &Govern{index: newIndex(DefaultConfig(), time.Now), unknown: newAllowance(DefaultConfig(), time.Now), now: time.Now, m: newMetrics(nil, nil)}
	g.index.put(entry{id: 1, token: "acme", enabled: true}, "silver", Values{})
	b.ReportAllocs()
	for b.Loop() {
		g.Lookup("acme")
		g.Take("acme", 1)
	}
}
