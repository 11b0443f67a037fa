package connectors

import (
	"context"
	"sync"
	"time"
)

// Bounds of the connections that are kept, over all tenants.
const (
	maxKept       = 256
	idleTime      = 2 * time.Minute
	sweepInterval = 15 * time.Second
	openTimeout   = 10 * time.Second
)

// What is kept, besides the id that tells it from others.
const (
	publishPool = "publish"  // a session of a connector, by its row id
	callPool    = "httpCall" // a transport to a host and port of a tenant
)

type poolKey struct {
	kind   string
	id     int64 // of the connector, or of the tenant
	target string
}

// pool keeps what deliveries share. It is safe for concurrent use.
type pool struct {
	now func() time.Time
	m   *metrics

	life    context.Context // ends with closeAll
	end     context.CancelFunc
	running sync.WaitGroup // what connects and closes

	mu  sync.Mutex
	all map[poolKey]*kept
}

// closer is what is kept.
type closer interface {
	Done() <-chan struct{} // closed when it cannot be used any more; nil: it always can
	Close() error
}

// kept is a connection, or one that is being made.
type kept struct {
	key    poolKey
	tenant int64
	stamp  string        // another one makes a new connection
	ready  chan struct{} // closed once it is made or was not
	value  closer
	err    error

	// What follows is guarded by the pool's lock.
	users   int
	used    time.Time
	retired bool // nobody else gets it
}

func newPool(now func() time.Time, m *metrics) *pool {
	p := &pool{now: now, m: m, all: map[poolKey]*kept{}}
	p.life, p.end = context.WithCancel(context.Background())
	return p
}

// get returns what is kept under a key with that stamp, and makes it where there is none: once, however many ask at a time. release gives it
// back. Connecting goes on when ctx ends before it is done, for the next attempt.
func (p *pool) get(ctx context.Context, key poolKey, tenant int64, stamp string, open func(context.Context) (closer, error)) (value closer, release func(), err error) {
	p.mu.Lock()
	k := p.all[key]
	if k != nil && (k.stamp != stamp || k.ended()) {
		p.retireLocked(k)
		k = nil
	}
	if k == nil {
		p.makeRoom()
		k = &kept{key: key, tenant: tenant, stamp: stamp, ready: make(chan struct{})}
		p.all[key] = k
		k.users++ // the connecting
		p.running.Go(func() { p.open(k, open) })
	}
	k.users++
	p.m.kept.Set(float64(len(p.all)))
	p.mu.Unlock()
	release = sync.OnceFunc(func() { p.release(k) })
	select {
	case <-k.ready:
	case <-ctx.Done():
		release()
		return nil, nil, ctx.Err()
	}
	if k.err != nil {
		release()
		return nil, nil, k.err
	}
	return k.value, release, nil
}

// ended reports whether the connection cannot be used any more.
func (k *kept) ended() bool {
	select {
	case <-k.ready:
	default:
		return false
	}
	if k.err != nil {
		return true
	}
	select {
	case <-k.value.Done():
		return true
	default:
		return false
	}
}

func (p *pool) open(k *kept, open func(context.Context) (closer, error)) {
	ctx, cancel := context.WithTimeout(p.life, openTimeout)
	defer cancel()
	k.value, k.err = open(ctx)
	p.mu.Lock()
	if k.err != nil {
		p.retireLocked(k)
	}
	p.mu.Unlock()
	close(k.ready)
	p.release(k)
}

func (p *pool) release(k *kept) {
	p.mu.Lock()
	k.users--
	k.used = p.now()
	end := k.retired && k.users == 0
	p.mu.Unlock()
	if end {
		k.close()
	}
}

// close closes what nobody uses.
func (k *kept) close() {
	if k.err == nil && k.value != nil {
		_ = k.value.Close() // nothing depends on how it ends
	}
}

// retireLocked takes a connection out of the pool. It is closed once nobody uses it.
func (p *pool) retireLocked(k *kept) {
	if k.retired {
		return
	}
	k.retired = true
	if p.all[k.key] == k {
		delete(p.all, k.key)
		p.m.kept.Set(float64(len(p.all)))
	}
	if k.users == 0 {
		p.running.Go(k.close)
	}
}

// makeRoom closes the connection that is idle for the longest time where there are as many as may be. There is one: fewer deliveries are
// made at a time than connections are kept.
func (p *pool) makeRoom() {
	if len(p.all) < maxKept {
		return
	}
	var oldest *kept
	for _, k := range p.all {
		if k.users == 0 && (oldest == nil || k.used.Before(oldest.used)) {
			oldest = k
		}
	}
	if oldest != nil {
		p.retireLocked(oldest)
	}
}

// retire ends the connection under a key.
func (p *pool) retire(key poolKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.all[key]; k != nil {
		p.retireLocked(k)
	}
}

// retireAll ends all connections as soon as they are not in use.
func (p *pool) retireAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.all {
		p.retireLocked(k)
	}
}

// sweep ends connections that are idle, that have ended, and those of tenants that are gone.
func (p *pool) sweep(gone func(tenant int64) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	for _, k := range p.all {
		if k.users == 0 && (now.Sub(k.used) >= idleTime || k.ended()) || gone(k.tenant) {
			p.retireLocked(k)
		}
	}
}

// closeAll ends all connections, those in use, too, and returns once they are closed.
func (p *pool) closeAll() {
	p.end()
	p.mu.Lock()
	for _, k := range p.all {
		p.retireLocked(k)
		if k.users > 0 {
			p.running.Go(func() {
				<-k.ready // soon: what connects ends with the life of the pool
				k.close()
			})
		}
	}
	p.mu.Unlock()
	p.running.Wait()
}
