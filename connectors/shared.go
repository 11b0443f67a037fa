package connectors

import (
	"context"
	"sync"
)

// targetKey names a connector of a tenant.
type targetKey struct {
	tenant int64
	token  string
}

// targets reads connectors for deliveries. Those that ask for the same one while it is being read share the next read, which begins after all
// of them have asked: a delivery never has an older version, or secret, than a read of its own would give.
type targets struct {
	mu      sync.Mutex
	reading map[targetKey]*sharedRead // at most one for each delivery under way
}

// sharedRead is a read under way, and the one that follows it.
type sharedRead struct {
	done chan struct{}
	next *sharedRead // has not begun; nil: nobody waits for it
	to   *target
	err  error
}

// get reads a connector, or waits for a read that begins later than the call.
func (t *targets) get(ctx context.Context, key targetKey, read func(context.Context) (*target, error)) (*target, error) {
	t.mu.Lock()
	running := t.reading[key]
	if running != nil {
		r := running.next
		if r == nil { // it is this one's to begin
			r = &sharedRead{done: make(chan struct{})}
			running.next = r
			t.mu.Unlock()
			<-running.done
			return t.run(ctx, key, r, read)
		}
		t.mu.Unlock()
		<-r.done
		return r.to, r.err
	}
	r := &sharedRead{done: make(chan struct{})}
	t.reading[key] = r
	t.mu.Unlock()
	return t.run(ctx, key, r, read)
}

// run reads, for all that wait. It does not end with the delivery that began it, but as soon as any read would.
func (t *targets) run(ctx context.Context, key targetKey, r *sharedRead, read func(context.Context) (*target, error)) (*target, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
	defer cancel()
	r.to, r.err = read(ctx)
	t.mu.Lock()
	if r.next != nil {
		t.reading[key] = r.next // from now on who asks waits for the one after it
	} else {
		delete(t.reading, key)
	}
	t.mu.Unlock()
	close(r.done)
	return r.to, r.err
}
