// Package trickle keeps what anyone can cause from costing more than a trickle of it: a queue takes some items a second, and hands
// them over once a second: the first after a quiet time at once, what comes meanwhile together.
package trickle

import (
	"context"
	"sync"
	"time"
)

const (
	gather    = time.Second // between two times of handing over
	lastWrite = 2 * time.Second
)

// Queue holds items until they are handed over. It is safe for concurrent use.
type Queue[T any] struct {
	perSecond, burst int
	keep             func(context.Context, []T) error
	lost             func(items int, err error)

	mu   sync.Mutex
	held []T
	room float64       // items that may be taken now
	at   time.Duration // of the newest Take
	wake chan struct{}
}

// NewQueue returns a queue that takes perSecond items a second, and burst at once after a quiet time; it holds no more than burst. keep
// stores the items of a second; lost is called with the number of those that it could not store, or that came while the queue was
// full.
func NewQueue[T any](perSecond, burst int, keep func(context.Context, []T) error, lost func(items int, err error)) *Queue[T] {
	return &Queue[T]{perSecond: perSecond, burst: burst, keep: keep, lost: lost, room: float64(burst), wake: make(chan struct{}, 1)}
}

// Take reports whether an item may be put at a monotonic time. Call it before the work of making one.
func (q *Queue[T]) Take(now time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.room = min(float64(q.burst), q.room+max(0, (now-q.at).Seconds())*float64(q.perSecond))
	q.at = now
	if q.room < 1 {
		return false
	}
	q.room--
	return true
}

// Put hands an item to the queue. It does not block.
func (q *Queue[T]) Put(item T) {
	q.mu.Lock()
	full := len(q.held) >= q.burst
	if !full {
		q.held = append(q.held, item)
	}
	q.mu.Unlock()
	if full {
		q.lost(1, nil)
		return
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Run hands items over until ctx ends, and then those that are left.
func (q *Queue[T]) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrite)
			defer cancel()
			q.write(last)
			return nil
		case <-q.wake:
		}
		q.write(ctx)
		t := time.NewTimer(gather)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

func (q *Queue[T]) write(ctx context.Context) {
	q.mu.Lock()
	all := q.held
	q.held = nil
	q.mu.Unlock()
	if len(all) == 0 {
		return
	}
	if err := q.keep(ctx, all); err != nil {
		q.lost(len(all), err)
	}
}
