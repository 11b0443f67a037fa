package replay

import (
	"context"
	"runtime"
	"slices"
	"sync"
)

// Queue bounds how many previews run: a few of each tenant, others of which are turned away, and over all tenants one for each processor: the
// others wait, in turn by tenant.
type Queue struct {
	each         func() int // of a tenant, those that wait included
	mu           sync.Mutex
	places, free int
	held         map[int64]int // that run or wait, by tenant
	wait         map[int64][]*waiter
	turn         []int64 // tenants that wait, the next first
}

type waiter struct{ come chan struct{} }

// NewQueue returns a queue that lets each() previews of a tenant in.
func NewQueue(each func() int) *Queue {
	n := runtime.GOMAXPROCS(0)
	return &Queue{each: each, places: n, free: n, held: map[int64]int{}, wait: map[int64][]*waiter{}}
}

// Waiting is how many previews wait.
func (q *Queue) Waiting() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, all := range q.wait {
		n += len(all)
	}
	return n
}

// Running is how many previews run.
func (q *Queue) Running() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.places - q.free
}

// Enter waits for a place until ctx ends. It returns a nil function where as many previews of the tenant run or wait as may.
func (q *Queue) Enter(ctx context.Context, tenant int64) (leave func(), err error) {
	q.mu.Lock()
	if q.held[tenant] >= q.each() {
		q.mu.Unlock()
		return nil, nil
	}
	q.held[tenant]++
	leave = sync.OnceFunc(func() { q.leave(tenant) })
	if q.free > 0 {
		q.free--
		q.mu.Unlock()
		return leave, nil
	}
	w := &waiter{make(chan struct{})}
	if len(q.wait[tenant]) == 0 {
		q.turn = append(q.turn, tenant)
	}
	q.wait[tenant] = append(q.wait[tenant], w)
	q.mu.Unlock()
	select {
	case <-w.come:
		return leave, nil
	case <-ctx.Done():
		q.giveUp(tenant, w)
		return nil, ctx.Err()
	}
}

// leave gives the place to the tenant whose turn it is.
func (q *Queue) leave(tenant int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gone(tenant)
	q.next()
}

func (q *Queue) gone(tenant int64) {
	if q.held[tenant]--; q.held[tenant] == 0 {
		delete(q.held, tenant)
	}
}

func (q *Queue) next() {
	if len(q.turn) == 0 {
		q.free++
		return
	}
	t := q.turn[0]
	q.turn = q.turn[1:]
	w := q.wait[t][0]
	if q.wait[t] = q.wait[t][1:]; len(q.wait[t]) > 0 {
		q.turn = append(q.turn, t)
	} else {
		delete(q.wait, t)
	}
	close(w.come)
}

// giveUp takes out one that waits, or returns the place that it was given meanwhile.
func (q *Queue) giveUp(tenant int64, w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gone(tenant)
	at := slices.Index(q.wait[tenant], w)
	if at < 0 {
		q.next()
		return
	}
	if q.wait[tenant] = slices.Delete(q.wait[tenant], at, at+1); len(q.wait[tenant]) == 0 {
		delete(q.wait, tenant)
		q.turn = slices.DeleteFunc(q.turn, func(t int64) bool { return t == tenant })
	}
}
