package httpingest

import (
	"context"
	"sync"
	"time"
)

// timeout is the context of a request: the connection's, with a deadline. Unlike context.WithDeadline it starts a timer
// only when a caller waits on Done, which is rare.
type timeout struct {
	context.Context
	ends time.Time

	mu      sync.Mutex
	timed   context.Context // set when a caller waits
	cancel  context.CancelFunc
	stopped bool
}

var _ context.Context = (*timeout)(nil)

// Deadline implements context.Context.
func (t *timeout) Deadline() (time.Time, bool) {
	if ends, ok := t.Context.Deadline(); ok && ends.Before(t.ends) {
		return ends, true
	}
	return t.ends, true
}

// Done implements context.Context.
func (t *timeout) Done() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timed == nil {
		t.timed, t.cancel = context.WithDeadline(t.Context, t.ends)
		if t.stopped {
			t.cancel()
		}
	}
	return t.timed.Done()
}

// Err implements context.Context.
func (t *timeout) Err() error {
	t.mu.Lock()
	timed, stopped := t.timed, t.stopped
	t.mu.Unlock()
	switch {
	case timed != nil:
		return timed.Err()
	case stopped:
		return context.Canceled
	case t.Context.Err() != nil:
		return t.Context.Err()
	case !time.Now().Before(t.ends):
		return context.DeadlineExceeded
	}
	return nil
}

// stop ends the context: the request is answered.
func (t *timeout) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	if t.cancel != nil {
		t.cancel()
	}
}
