package gql

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// admission bounds the bytes of all requests that are being read and executed at one time. A request over the bound waits
// up to admissionTimeout.
type admission struct {
	bytes   *semaphore.Weighted
	maximum int64
	held    atomic.Int64
}

const (
	minAdmitted      = 64 << 10 // even a small request needs some memory to run
	admissionTimeout = 10 * time.Second
)

func newAdmission(maximum int64) *admission {
	return &admission{bytes: semaphore.NewWeighted(maximum), maximum: maximum}
}

// enter waits until n more bytes fit and returns the function that releases them; ok is false when ctx or
// admissionTimeout ended first.
func (a *admission) enter(ctx context.Context, n int64) (leave func(), ok bool) {
	n = min(max(n, minAdmitted), a.maximum)
	ctx, cancel := context.WithTimeout(ctx, admissionTimeout)
	defer cancel()
	if a.bytes.Acquire(ctx, n) != nil {
		return nil, false
	}
	a.held.Add(n)
	return func() { a.held.Add(-n); a.bytes.Release(n) }, true
}

// inflight counts the running requests, so that Drain can wait for their end.
type inflight struct {
	mu       sync.Mutex
	running  int
	draining chan struct{} // closed when draining
	idle     chan struct{} // closed when draining and no request runs
}

func newInflight() *inflight {
	return &inflight{draining: make(chan struct{}), idle: make(chan struct{})}
}

// begin counts a request; false while draining, when the request must be refused.
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
	f.closeIfIdle()
}

func (f *inflight) closeIfIdle() {
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
		f.closeIfIdle()
	}
	f.mu.Unlock()
	select {
	case <-f.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
