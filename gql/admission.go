package gql

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
)

// admission bounds the bytes of all requests that are being read and run at one time. What does not fit waits a while.
type admission struct {
	bytes *semaphore.Weighted
	most  int64
	held  atomic.Int64
}

const (
	minAdmitted  = 64 << 10 // even a small request needs some memory to run
	admitPatient = 10 * time.Second
)

func newAdmission(most int64) *admission {
	return &admission{bytes: semaphore.NewWeighted(most), most: most}
}

// enter waits for room for a body of n bytes and returns what gives the room back; ok is false when there was none.
func (a *admission) enter(ctx context.Context, n int64) (leave func(), ok bool) {
	n = min(max(n, minAdmitted), a.most)
	ctx, cancel := context.WithTimeout(ctx, admitPatient)
	defer cancel()
	if a.bytes.Acquire(ctx, n) != nil {
		return nil, false
	}
	a.held.Add(n)
	return func() { a.held.Add(-n); a.bytes.Release(n) }, true
}

// results bounds the bytes of all answers that are put together, or written to who takes his time. What does not fit is
// refused at once: whoever holds a part of his answer must not wait for others to let go of theirs.
type results struct {
	most    int64
	used    atomic.Int64
	refused prometheus.Counter
}

// add reports false when there is no room for n more bytes; they count all the same, until give.
func (r *results) add(n int64) bool { return r.used.Add(n) <= r.most }

func (r *results) give(n int64) { r.used.Add(-n) }

// inflight knows what runs, so that a stop can wait for it.
type inflight struct {
	mu       sync.Mutex
	running  int
	draining chan struct{} // closed when draining
	idle     chan struct{} // closed when draining and nothing runs
}

func newInflight() *inflight {
	return &inflight{draining: make(chan struct{}), idle: make(chan struct{})}
}

// begin reports false while draining.
func (f *inflight) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.draining:
		return false
	default:
	}
	f.running++
	return true
}

func (f *inflight) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
	f.settle()
}

func (f *inflight) settle() {
	select {
	case <-f.draining:
		if f.running == 0 {
			close(f.idle)
		}
	default:
	}
}

func (f *inflight) drain(ctx context.Context) error {
	f.mu.Lock()
	select {
	case <-f.draining:
	default:
		close(f.draining)
		f.settle()
	}
	f.mu.Unlock()
	select {
	case <-f.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
