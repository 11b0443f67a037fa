package govern

import (
	"context"
	"math"
	"sync"
	"time"
)

// bucket is a token bucket counted in readings. A message is admitted whole or not at all; one that is larger than the bucket
// (an HTTP array) is admitted when the bucket is full and leaves a debt, so that the rate still holds.
type bucket struct {
	mu     sync.Mutex
	rate   float64 // tokens a second; 0 refuses everything
	burst  float64
	tokens float64   // below 0: debt
	at     time.Time // of tokens; its monotonic reading is what counts

	turn chan struct{} // held by the caller of wait that is next
}

func newBucket(rate, burst float64, now time.Time) *bucket {
	return &bucket{rate: rate, burst: burst, tokens: burst, at: now, turn: make(chan struct{}, 1)}
}

// set changes the ceiling; used tokens stay used.
func (b *bucket) set(rate, burst float64, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Fill at the old rate up to now.
	b.refill(now)
	b.tokens = max(0, burst-(b.burst-b.tokens))
	b.rate, b.burst = rate, burst
}

func (b *bucket) refill(now time.Time) {
	if d := now.Sub(b.at); d > 0 {
		b.tokens = min(b.burst, b.tokens+b.rate*d.Seconds())
		b.at = now
	}
}

// take admits n or not.
func (b *bucket) take(n int, now time.Time) bool {
	return b.try(n, now, false) == 0
}

// empty reports whether not even one reading would be admitted.
func (b *bucket) empty(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	return b.rate <= 0 || b.tokens < min(1, b.burst)
}

// forever is returned by try when waiting cannot help.
const forever = time.Duration(math.MaxInt64)

// try takes n and returns 0, or returns how long the caller would have to wait for it. With reserve it takes n in
// either case, unless no waiting helps.
func (b *bucket) try(n int, now time.Time, reserve bool) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	if b.rate <= 0 {
		return forever
	}
	// A message that is larger than the bucket needs a full one, and leaves a debt.
	need := min(float64(n), b.burst)
	if b.tokens >= need {
		b.tokens -= float64(n)
		return 0
	}
	wait := seconds((need - b.tokens) / b.rate)
	// The debt makes those that come later wait.
	if reserve && wait < forever {
		b.tokens -= float64(n)
	}
	return wait
}

// giveBack returns reserved tokens that were not used.
func (b *bucket) giveBack(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(b.burst, b.tokens+float64(n))
}

// seconds converts, rounded up and saturating.
func seconds(s float64) time.Duration {
	if s >= forever.Seconds()/2 {
		return forever
	}
	return time.Duration(math.Ceil(s*1e9)) + 1
}

// wait takes n as soon as the bucket holds enough tokens, after at most timeout; it reports false after that time or when ctx
// ends. Callers are served one after the other. Others may take what became free while a caller slept; once that has happened
// it reserves its share, so that a steady stream of small messages cannot starve a large one.
func (b *bucket) wait(ctx context.Context, n int, timeout time.Duration, now func() time.Time) bool {
	if b.take(n, now()) {
		return true
	}
	// One caller at a time is served; the others wait for their turn.
	deadline := now().Add(timeout)
	out := time.NewTimer(timeout)
	defer out.Stop()
	select {
	case b.turn <- struct{}{}:
	case <-out.C:
		return false
	case <-ctx.Done():
		return false
	}
	took := b.serve(ctx, n, deadline, now)
	<-b.turn
	if !took {
		sleep(ctx, deadline.Sub(now())) // the sender is slowed down although it will be refused
	}
	return took
}

// serve is wait for the first caller in line. It returns at once when the tokens cannot suffice before the deadline.
func (b *bucket) serve(ctx context.Context, n int, deadline time.Time, now func() time.Time) bool {
	for overtaken := false; ; overtaken = true {
		// Others may have taken what was waited for.
		need := b.try(n, now(), false)
		switch {
		case need == 0:
			return true
		case need > deadline.Sub(now()):
			return false
		case overtaken:
			return b.sleepReserved(ctx, n, now)
		case !sleep(ctx, need):
			return false
		}
	}
}

func (b *bucket) sleepReserved(ctx context.Context, n int, now func() time.Time) bool {
	need := b.try(n, now(), true)
	if need == forever {
		return false
	}
	if need > 0 && !sleep(ctx, need) {
		b.giveBack(n)
		return false
	}
	return true
}

func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
