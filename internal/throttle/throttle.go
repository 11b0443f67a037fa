// Package throttle slows senders to the rate at which their messages are applied, in proportion to how far the applier is behind and how
// full the log is, so that nothing has to be switched off and on.
//
// The law, for each tenant that is not light:
//
//	admitted readings per second = factor × readings of the tenant applied per second
//	factor = 1.25 − 0.25 × excess, at least 0.5
//	excess = the greater of lag/from − 1 and (fill − 0.5)/0.15; below 0 nothing is slowed
//
// The lag is what a message that comes now will have to wait: the records that wait, over those applied per second. from is 2 s, and
// 250 ms while some tenant is light: one that costs the applier less than half of an equal share. Light tenants are never slowed. At an
// excess of 1 as much comes in as is applied, so the lag settles at 2 × from, the log at 65 % of its budget; since the factor never
// is 0 and follows what was applied, nothing stops. An applier that applies nothing for 5 s gives no rate to slow to: then the log takes
// what comes, which is what it is there for.
package throttle

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	lagFrom      = 2 * time.Second
	lagFromEarly = 250 * time.Millisecond // while there are light tenants
	fillFrom     = 0.5
	fillStep     = 0.15 // of an excess of 1

	maxFactor   = 1.25
	factorStep  = 0.25 // per excess of 1
	minFactor   = 0.5
	minRate     = 10 // readings per second
	rateOver    = time.Second
	standstill  = 5 * time.Second
	forgetAfter = time.Minute // a tenant of which nothing was applied
	minSample   = 10 * time.Millisecond
	shownOver   = time.Second            // the delay that State shows is the longest over this time
	maxPerDelay = 2 * time.Second        // the longest delay of any message
	maxDelay    = 250 * time.Millisecond // … for each of its readings
	grain       = 5 * time.Millisecond   // shorter delays are left out: a timer costs more than a message
)

// Reason is why messages are slowed.
type Reason string

// The reasons.
const (
	ReasonLag  Reason = "lag"  // applying lags behind receiving
	ReasonFill Reason = "fill" // the log fills
)

// Reasons are all of them.
func Reasons() []Reason { return []Reason{ReasonLag, ReasonFill} }

// Work is what the applier has done for a tenant. Cost is in any unit, the same for all.
type Work struct {
	Tenant         string
	Readings, Cost int64
}

// Throttle slows senders. It is safe for concurrent use.
type Throttle struct {
	slowing atomic.Bool // whether any tenant is slowed: read for every message

	mu      sync.Mutex
	tenants map[string]*tenant // of which something was applied lately
	at      time.Time          // of the newest sample
	applied uint64             // as of then
	waiting uint64             // as of then
	moved   time.Time          // when something was applied, or nothing waited
	speed   mean               // records per second
	lag     time.Duration
	delays  map[Reason]*delays
	rotated time.Time
}

// tenant is what a tenant costs, as moving means, and how it is slowed.
type tenant struct {
	readings, cost float64 // since the newest sample
	rate           mean    // readings per second
	costRate       mean    // per second
	seen           time.Time
	share          float64 // of the cost of all

	limit  float64 // readings per second, 0: not slowed
	reason Reason
	next   time.Time // when the next reading is due
}

// delays counts slowed messages and keeps the longest delay.
type delays struct {
	messages      uint64
	longest, last time.Duration // since the rotation, and before it
}

// mean is a moving mean of a rate that is exact from its first sample on.
type mean struct{ sum, seconds float64 }

func (m *mean) add(n float64, over time.Duration) {
	keep := math.Exp(-over.Seconds() / rateOver.Seconds())
	m.sum, m.seconds = m.sum*keep+n, m.seconds*keep+over.Seconds()
}

func (m *mean) value() float64 {
	if m.seconds == 0 {
		return 0
	}
	return m.sum / m.seconds
}

// New returns a Throttle that slows nothing until Sample reports a reason.
func New() *Throttle {
	h := &Throttle{tenants: map[string]*tenant{}, delays: map[Reason]*delays{}}
	for _, r := range Reasons() {
		h.delays[r] = &delays{}
	}
	return h
}

// Applied adds what was done since the last call.
func (h *Throttle) Applied(work []Work) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range work {
		if w.Tenant == "" {
			continue // unauthenticated senders have an allowance of their own
		}
		t := h.tenants[w.Tenant]
		if t == nil {
			t = &tenant{}
			h.tenants[w.Tenant] = t
		}
		t.readings += float64(w.Readings)
		t.cost += float64(w.Cost)
	}
}

// Sample takes in up to which record the log goes and the applier has come, and how full the log is, from 0 to 1. It decides who is
// slowed until the next sample.
func (h *Throttle) Sample(now time.Time, last, applied uint64, fill float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	over, first := now.Sub(h.at), h.at.IsZero()
	if !first && over < minSample {
		return
	}
	done, waited := applied-h.applied, h.waiting
	h.at, h.applied, h.waiting = now, applied, max(last, applied)-applied
	if first {
		h.moved, h.rotated = now, now
		return
	}
	if done > 0 || h.waiting == 0 {
		h.moved = now
	}
	// Only an applier that never ran out of records shows how fast it is.
	busy := waited > 0 && h.waiting > 0 && done <= waited
	if busy {
		h.speed.add(float64(done), over)
	}
	h.measure(now, over, busy)
	h.lag = 0
	if h.waiting > 0 && h.speed.seconds > 0 {
		h.lag = time.Duration(min(float64(h.waiting)/max(h.speed.value(), 1), math.MaxInt32) * float64(time.Second))
	}
	h.decide(fill, now.Sub(h.moved) > standstill)
	if now.Sub(h.rotated) >= shownOver {
		h.rotated = now
		for _, d := range h.delays {
			d.last, d.longest = d.longest, 0
		}
	}
}

// measure moves the means and the shares. It needs the lock.
func (h *Throttle) measure(now time.Time, over time.Duration, busy bool) {
	all := 0.0
	for name, t := range h.tenants {
		if t.cost > 0 {
			t.seen = now
		} else if now.Sub(t.seen) > forgetAfter {
			delete(h.tenants, name)
			continue
		}
		if busy {
			t.rate.add(t.readings, over)
		}
		t.costRate.add(t.cost, over)
		t.readings, t.cost = 0, 0
		all += t.costRate.value()
	}
	for _, t := range h.tenants {
		t.share = t.costRate.value() / max(all, 1)
	}
}

// decide sets the limits. It needs the lock.
func (h *Throttle) decide(fill float64, still bool) {
	n, from := float64(len(h.tenants)), lagFrom
	for _, t := range h.tenants {
		if t.light(n) {
			from = lagFromEarly
		}
	}
	excess, reason := h.lag.Seconds()/from.Seconds()-1, ReasonLag
	if e := (fill - fillFrom) / fillStep; e > excess {
		excess, reason = e, ReasonFill
	}
	slowing := false
	for _, t := range h.tenants {
		if t.limit = 0; excess < 0 || still || h.lag == 0 || t.rate.seconds == 0 || t.light(n) {
			continue
		}
		t.limit, t.reason = max(factor(excess)*t.rate.value(), minRate), reason
		slowing = true
	}
	h.slowing.Store(slowing)
}

// light reports whether a tenant, one of n, costs less than half of an equal share.
func (t *tenant) light(n float64) bool { return 2*n*t.share < 1 }

// factor is how much of what is applied is admitted.
func factor(excess float64) float64 { return max(maxFactor-factorStep*excess, minFactor) }

// Delay returns for how long a message of so many readings has to wait, and counts it. It is at most 250 ms for a reading, and 2 s.
func (h *Throttle) Delay(name string, readings int, now time.Time) time.Duration {
	if !h.slowing.Load() {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.tenants[name]
	if t == nil || t.limit == 0 {
		return 0
	}
	if t.next.Before(now) {
		t.next = now
	}
	delay := t.next.Sub(now)
	if longest := min(time.Duration(readings)*maxDelay, maxPerDelay); delay > longest {
		delay = longest // the next one that is due is not later for that
	} else {
		t.next = t.next.Add(time.Duration(float64(readings) / t.limit * float64(time.Second)))
	}
	if delay < grain {
		return 0
	}
	d := h.delays[t.reason]
	d.messages++
	d.longest = max(d.longest, delay)
	return delay
}

// Wait delays a message of so many readings, for at most so long, until ctx ends. It reports whether it did.
func (h *Throttle) Wait(ctx context.Context, tenant string, readings int, most time.Duration) bool {
	if !h.slowing.Load() {
		return false
	}
	delay := min(h.Delay(tenant, readings, time.Now()), most)
	if delay <= 0 {
		return false
	}
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return true
}

// Delayed returns how many messages were slowed for a reason, and the longest delay of the last second or so.
func (h *Throttle) Delayed(r Reason) (messages uint64, longest time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.delays[r]
	return d.messages, max(d.longest, d.last)
}

// Lag is how long a message that comes now has to wait for the applier, as of the newest sample.
func (h *Throttle) Lag() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lag
}

// Slowed is a tenant that is slowed.
type Slowed struct {
	Tenant string  `json:"tenant"`
	Share  float64 `json:"share"` // of the applier's work, from 0 to 1
	Reason Reason  `json:"reason"`
	// Readings per second that are admitted.
	Readings float64 `json:"readingsPerSecond"`
}

// State is who is slowed, and by how much.
type State struct {
	// LagSeconds is how long a message that comes now has to wait for the applier.
	LagSeconds float64 `json:"lagSeconds"`
	// DelaySeconds is the longest delay of an acknowledgement in the last second.
	DelaySeconds float64 `json:"delaySeconds"`
	// Tenants that are slowed, those that cost most first.
	Tenants []Slowed `json:"tenants"`
}

// shownTenants is how many tenants String names.
const shownTenants = 3

// String describes it in one line, for people.
func (s *State) String() string {
	var names []string
	for _, t := range s.Tenants[:min(len(s.Tenants), shownTenants)] {
		names = append(names, fmt.Sprintf("%s (%.0f %% of the applier's work)", t.Tenant, 100*t.Share))
	}
	if more := len(s.Tenants) - shownTenants; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	why := fmt.Sprintf("the applier is %.1f s behind", s.LagSeconds)
	if s.Tenants[0].Reason == ReasonFill {
		why = "the log fills"
	}
	return fmt.Sprintf("%s: acknowledgements of %s are delayed by up to %.0f ms", why, strings.Join(names, ", "), 1000*s.DelaySeconds)
}

// State returns who is slowed, nil when no tenant is.
func (h *Throttle) State() *State {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &State{LagSeconds: h.lag.Seconds(), Tenants: h.slowed()}
	for _, d := range h.delays {
		s.DelaySeconds = max(s.DelaySeconds, d.longest.Seconds(), d.last.Seconds())
	}
	if len(s.Tenants) == 0 {
		return nil
	}
	return s
}

// slowed returns the tenants that are slowed, those that cost most first. It needs the lock.
func (h *Throttle) slowed() []Slowed {
	var all []Slowed
	for name, t := range h.tenants {
		if t.limit > 0 {
			all = append(all, Slowed{Tenant: name, Share: t.share, Reason: t.reason, Readings: math.Round(t.limit)})
		}
	}
	slices.SortFunc(all, func(a, b Slowed) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Tenant, b.Tenant))
	})
	return all
}
