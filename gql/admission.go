package gql

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"weir/internal/transfers"
)

// admission bounds the bytes of all requests that are being read and executed at one time. A body takes its part as it arrives,
// whatever size it announces: the first freeBody bytes belong to its connection, up to mediumBody it needs one of many slots,
// beyond that one of few, and what is complete needs one to run. Each of these waits up to admissionTimeout. A large request thus never
// stands before a small one.
type admission struct {
	medium, large *transfers.Slots // bodies
	running       *semaphore.Weighted
	anonymous     *semaphore.Weighted // of running, what callers without a token may have
	held          atomic.Int64        // bytes of bodies
	metrics       *metrics
}

const (
	freeBody         = 4 << 10
	mediumBody       = 64 << 10 // also what a request takes to run
	admissionTimeout = 10 * time.Second

	// maxAnonymousBody bounds the body of a caller without a token: signing in takes some hundred bytes.
	maxAnonymousBody = 64 << 10
	// anonymousOwner is the owner of the bodies of all of them.
	anonymousOwner = ""
)

// newAdmission divides the bytes: an eighth for medium bodies, half for large ones, but at least one, and the rest to run.
func newAdmission(l Limits, m *metrics) *admission {
	run := runningRequests(l)
	return &admission{metrics: m,
		medium:  transfers.New(int(max(l.PendingBytes/8/mediumBody, 1))),
		large:   transfers.New(int(max(l.PendingBytes/2/l.BodyBytes, 1))),
		running: semaphore.NewWeighted(run), anonymous: semaphore.NewWeighted(max(run/2, 1))}
}

// runningRequests is how many requests run at a time.
func runningRequests(l Limits) int64 { return max(l.PendingBytes*3/8/mediumBody, 1) }

var (
	errBusy  = errors.New("too many requests are waiting")
	errStale = os.ErrDeadlineExceeded // the body did not arrive while others waited
)

// read reads a body. done ends what it takes, and must be called once the request is answered.
func (a *admission) read(ctx context.Context, w http.ResponseWriter, src io.Reader, owner string) (body []byte, done func(), err error) {
	leave := func() {}
	done = func() {
		leave()
		a.held.Add(-int64(len(body)))
	}
	stop := func() {
		a.metrics.bodiesStopped.Inc()
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // a closed connection needs none
	}
	body, err = a.readTo(src, nil, freeBody, func(int) {})
	for _, stage := range []struct {
		slots *transfers.Slots
		limit int
	}{{a.medium, mediumBody}, {a.large, maxInt}} {
		if err != nil {
			break
		}
		slot := enter(ctx, stage.slots, owner, stop)
		leave()
		if leave = func() {}; slot == nil {
			return body, done, errBusy
		}
		leave = slot.Leave
		body, err = a.readTo(src, body, stage.limit, slot.Arrived)
		if !slot.Complete() { // what waits for the next slot is not stalled
			return body, done, errStale
		}
	}
	if len(body) <= mediumBody { // a large one keeps its slot while it is executed
		leave()
		leave = func() {}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return body, done, err
}

const maxInt = int(^uint(0) >> 1)

// enter waits for a slot up to admissionTimeout.
func enter(ctx context.Context, slots *transfers.Slots, owner string, stop func()) *transfers.Slot {
	if slot := slots.TryEnter(owner, stop); slot != nil {
		return slot
	}
	ctx, cancel := context.WithTimeout(ctx, admissionTimeout)
	defer cancel()
	return slots.Enter(ctx, owner, stop)
}

// readTo appends src to body, up to limit bytes in total; io.EOF says that src has ended.
func (a *admission) readTo(src io.Reader, body []byte, limit int, arrived func(int)) ([]byte, error) {
	for len(body) < limit {
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
		n, err := src.Read(body[len(body):min(cap(body), limit)])
		body = body[:len(body)+n]
		a.held.Add(int64(n))
		arrived(n)
		if err != nil {
			return body, err
		}
	}
	return body, nil
}

// run waits until a request may run and returns the function that ends that; ok is false when ctx or admissionTimeout ended first.
func (a *admission) run(ctx context.Context, anonymous bool) (leave func(), ok bool) {
	ctx, cancel := context.WithTimeout(ctx, admissionTimeout)
	defer cancel()
	if anonymous && a.anonymous.Acquire(ctx, 1) != nil {
		return nil, false
	}
	if a.running.Acquire(ctx, 1) != nil {
		if anonymous {
			a.anonymous.Release(1)
		}
		return nil, false
	}
	return func() {
		a.running.Release(1)
		if anonymous {
			a.anonymous.Release(1)
		}
	}, true
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
