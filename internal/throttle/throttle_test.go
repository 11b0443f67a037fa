package throttle

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// plant is a log and an applier in a bubble: what senders append is applied in order, so much cost a second.
type plant struct {
	*Throttle
	t        *testing.T
	capacity float64 // cost per second
	cost     map[string]float64
	budget   float64 // entries that the log holds, 0: any number

	ctx     context.Context
	end     context.CancelFunc
	senders sync.WaitGroup

	mu       sync.Mutex
	queue    []entry
	appended uint64
	applied  uint64
	worst    map[string]time.Duration // of what was applied, by tenant
	last     map[string]time.Time     // append, by tenant
	pause    map[string]time.Duration // longest time between two appends
	lags     []time.Duration          // one a second
	done     map[string]float64       // applied, by tenant
}

type entry struct {
	tenant string
	at     time.Time
}

func newPlant(t *testing.T, capacity float64, cost map[string]float64) *plant {
	p := &plant{Throttle: New(), t: t, capacity: capacity, cost: cost, worst: map[string]time.Duration{}, last: map[string]time.Time{},
		pause: map[string]time.Duration{}, done: map[string]float64{}}
	p.ctx, p.end = context.WithCancel(t.Context())
	t.Cleanup(p.stop)
	return p
}

// stop ends the senders.
func (p *plant) stop() {
	p.end()
	p.senders.Wait()
}

// connect makes so many connections that send a message, and the next one so long after it was taken.
func (p *plant) connect(n int, tenant string, every time.Duration) {
	for range n {
		p.senders.Go(func() { p.send(tenant, every) })
	}
}

func (p *plant) send(tenant string, every time.Duration) {
	for p.ctx.Err() == nil {
		p.Wait(p.ctx, tenant, 1, time.Minute)
		now := time.Now()
		p.mu.Lock()
		p.queue = append(p.queue, entry{tenant, now})
		p.appended++
		if at, ok := p.last[tenant]; ok {
			p.pause[tenant] = max(p.pause[tenant], now.Sub(at))
		}
		p.last[tenant] = now
		p.mu.Unlock()
		time.Sleep(every)
	}
}

const plantTick = 10 * time.Millisecond

// run applies and samples for so long.
func (p *plant) run(d time.Duration) {
	credit := 0.0
	for i := range int(d / plantTick) {
		time.Sleep(plantTick)
		now := time.Now()
		work := map[string]*Work{}
		credit += p.capacity * plantTick.Seconds()
		p.mu.Lock()
		for len(p.queue) > 0 && credit >= p.cost[p.queue[0].tenant] {
			e := p.queue[0]
			p.queue = p.queue[1:]
			credit -= p.cost[e.tenant]
			p.applied++
			p.done[e.tenant]++
			p.worst[e.tenant] = max(p.worst[e.tenant], now.Sub(e.at))
			w := work[e.tenant]
			if w == nil {
				w = &Work{Tenant: e.tenant}
				work[e.tenant] = w
			}
			w.Readings++
			w.Cost += int64(p.cost[e.tenant])
		}
		if len(p.queue) == 0 {
			credit = 0
		}
		appended, applied, fill := p.appended, p.applied, 0.0
		if p.budget > 0 {
			fill = float64(len(p.queue)) / p.budget
			if fill >= 0.9 {
				p.t.Fatalf("the log is %.0f %% full", fill*100)
			}
		}
		p.mu.Unlock()
		var all []Work
		for _, w := range work {
			all = append(all, *w)
		}
		if len(all) > 0 {
			p.Applied(all)
		}
		if i%5 == 4 {
			p.Sample(now, appended, applied, fill)
		}
		if i%100 == 99 {
			p.lags = append(p.lags, p.Lag())
		}
	}
}

// TestSendersAreSlowedToTheRateOfTheApplier: 50 connections could send ten times of what is applied. The lag settles at twice the time
// from which they are slowed, the applier is never without work, and no pause is longer than the longest delay.
func TestSendersAreSlowedToTheRateOfTheApplier(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(t, 2000, map[string]float64{"acme": 1})
		p.connect(50, "acme", 2500*time.Microsecond) // 20,000/s
		p.run(30 * time.Second)
		p.stop()
		for i, lag := range p.lags[10:] {
			if lag < 3*time.Second || lag > 5*time.Second {
				t.Errorf("the lag after %d s is %v, not about 4 s: %v", i+10, lag, p.lags)
				break
			}
		}
		if p.done["acme"] < 0.99*2000*30 {
			t.Errorf("%v were applied in 30 s of 60,000 possible: the applier ran dry", p.done)
		}
		if p.pause["acme"] > maxDelay {
			t.Errorf("nothing came for %v", p.pause["acme"])
		}
		if n, longest := p.Delayed(ReasonLag); n == 0 || longest == 0 || longest > maxDelay {
			t.Errorf("%d delayed, for %v at most", n, longest)
		}
		if s := p.State(); s == nil || len(s.Tenants) != 1 || s.Tenants[0].Tenant != "acme" || s.Tenants[0].Share < 0.99 || math.Abs(s.Tenants[0].Readings-2000) > 400 {
			t.Errorf("slowed: %+v", s)
		}
	})
}

// TestANeighbourIsNotSlowedAndNotLate: one tenant sends twice of what can be applied at a hundred times the cost; another one reading a
// second.
func TestANeighbourIsNotSlowedAndNotLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(t, 100_000, map[string]float64{"acme": 100, "beta": 1})
		p.connect(1, "beta", time.Second)
		p.run(2 * time.Second)
		p.connect(20, "acme", 10*time.Millisecond)
		p.run(30 * time.Second)
		p.stop()
		if p.worst["beta"] > time.Second {
			t.Errorf("the neighbour was applied %v late", p.worst["beta"])
		}
		if p.pause["beta"] > time.Second+grain {
			t.Errorf("the neighbour sent nothing for %v", p.pause["beta"])
		}
		if p.pause["acme"] > maxDelay {
			t.Errorf("the other one sent nothing for %v", p.pause["acme"])
		}
		if p.done["acme"] < 0.95*1000*30 {
			t.Errorf("of the other one %v were applied in 30 s, 30,000 could be", p.done["acme"])
		}
		if s := p.State(); s != nil && (len(s.Tenants) != 1 || s.Tenants[0].Tenant != "acme") {
			t.Errorf("slowed: %+v", s)
		}
	})
}

// TestTheLogDoesNotFill: it holds two seconds of what can be applied, so it would be full before the lag is long.
func TestTheLogDoesNotFill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(t, 2000, map[string]float64{"acme": 1})
		p.budget = 4000
		p.connect(50, "acme", 12500*time.Microsecond) // 4,000/s
		p.run(30 * time.Second)
		p.stop()
		if p.done["acme"] < 0.99*2000*30 || p.pause["acme"] > maxDelay {
			t.Errorf("%v were applied; the longest pause was %v", p.done, p.pause)
		}
		if n, _ := p.Delayed(ReasonFill); n == 0 {
			t.Error("nobody was slowed because of the log")
		}
	})
}

// TestNobodyIsSlowedWhereTheApplierKeepsUpOrStandsStill: while it stands still there is no rate to slow to.
func TestNobodyIsSlowedWhereTheApplierKeepsUpOrStandsStill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(t, 2000, map[string]float64{"acme": 1})
		p.connect(10, "acme", 10*time.Millisecond) // 1,000/s
		p.run(10 * time.Second)
		if n, _ := p.Delayed(ReasonLag); n != 0 || p.State() != nil {
			t.Errorf("%d delayed", n)
		}
		p.capacity = 0
		p.run(standstill + time.Second)
		if p.Lag() < standstill {
			t.Errorf("the lag is %v", p.Lag())
		}
		n, _ := p.Delayed(ReasonLag)
		p.run(10 * time.Second)
		if now, _ := p.Delayed(ReasonLag); n == 0 || now != n {
			t.Errorf("%d were delayed, and %d while the applier stood still", n, now-n)
		}
		p.stop()
	})
}

// TestABurstAfterAQuietTimeIsNotSlowed: how fast the applier is shows only when it has never run out of records.
func TestABurstAfterAQuietTimeIsNotSlowed(t *testing.T) {
	t.Parallel()
	h, now := New(), time.Unix(1, 0)
	last, applied := uint64(1), uint64(0)
	step := func(came, done uint64) {
		now = now.Add(50 * time.Millisecond)
		last, applied = last+came, applied+done
		h.Applied([]Work{{"acme", int64(done), 1}})
		h.Sample(now, last, applied, 0)
	}
	for range 100 {
		step(2, 2) // one waits each time, and is not the one before
	}
	step(1000, 2)
	for range 3 {
		if s := h.State(); s != nil {
			t.Fatalf("slowed: %v", s)
		}
		step(0, 300)
	}
	if math.Abs(h.speed.value()-6000) > 1 {
		t.Errorf("the applier takes %v/s, measured %v/s", 6000, h.speed.value())
	}
}

// TestADelayEnds: with its connection, and with what the transport allows.
func TestADelayEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New()
		p.Sample(time.Now(), 1000, 0, 0)
		time.Sleep(time.Second)
		p.Applied([]Work{{"acme", 20, 20}})
		p.Sample(time.Now(), 1000, 20, 0)
		for _, c := range []struct{ readings, want int }{{1, 0}, {1, 100}, {1, 200}, {1, 250}, {100, 300}, {1, 250}, {256, 2000}} {
			if got := p.Delay("acme", c.readings, time.Now()); got.Round(time.Millisecond) != time.Duration(c.want)*time.Millisecond {
				t.Errorf("%d readings: %v, want %d ms", c.readings, got, c.want)
			}
		}
		took := func(ctx context.Context, most time.Duration) time.Duration {
			began := time.Now()
			p.Wait(ctx, "acme", 256, most)
			return time.Since(began)
		}
		if d := took(t.Context(), 30*time.Millisecond); d != 30*time.Millisecond {
			t.Errorf("delayed by %v, 30 ms are allowed", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if d := took(ctx, time.Minute); d != 50*time.Millisecond {
			t.Errorf("delayed by %v, the connection ended after 50 ms", d)
		}
	})
}

// TestTenantsAreForgotten: the number of tenants kept follows from what was applied in the last minute.
func TestTenantsAreForgotten(t *testing.T) {
	t.Parallel()
	p, now := New(), time.Unix(1, 0)
	p.Sample(now, 0, 0, 0)
	p.Applied([]Work{{"acme", 1, 1}, {"beta", 1, 1}, {"", 1, 1}})
	for range 61 {
		now = now.Add(time.Second)
		p.Sample(now, 0, 0, 0)
		p.Applied([]Work{{"beta", 1, 1}})
	}
	now = now.Add(time.Second)
	if p.Sample(now, 0, 0, 0); len(p.tenants) != 1 || p.tenants["beta"] == nil {
		t.Errorf("kept: %v", p.tenants)
	}
}

func TestTheStateNamesWhoCostsMost(t *testing.T) {
	t.Parallel()
	s := &State{LagSeconds: 2.34, DelaySeconds: 0.0401, Tenants: []Slowed{{Tenant: "acme", Share: 0.9}, {Tenant: "b", Share: 0.05}, {Tenant: "c"}, {Tenant: "d"}}}
	if got, want := s.String(), "the applier is 2.3 s behind: acknowledgements of acme (90 % of the applier's work), b (5 % of the applier's work), c (0 % of the applier's work), 1 more are delayed by up to 40 ms"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	s.Tenants[0].Reason = ReasonFill
	if got, want := s.String()[:len("the log fills: ")], "the log fills: "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
