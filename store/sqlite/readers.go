package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"weir/store"
)

// queue is the connections that some readers have, and how many wait for one. Scans have a number of those of Queries.
type queue struct {
	free  chan *sql.Conn // shared by Queries and Scans
	slots chan struct{}  // nil: as many as there are connections

	waiting, inUse atomic.Int64
}

// shares bounds how many readers of Queries and Scans one tenant has. The entry of a tenant is there as long as it reads or waits.
type shares struct {
	each    int // readers
	waiting atomic.Int64

	mu  sync.Mutex
	all map[int64]*share
}

type share struct {
	slots chan struct{}
	users int // who read or wait
}

// enter waits until the tenant has fewer than its share of the readers. leave gives the share back; it must be called once.
func (s *shares) enter(ctx context.Context, closing <-chan struct{}, tenant int64) (leave func(), err error) {
	s.mu.Lock()
	own := s.all[tenant]
	if own == nil {
		own = &share{slots: make(chan struct{}, s.each)}
		s.all[tenant] = own
	}
	own.users++
	s.mu.Unlock()
	gone := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(s.all, tenant)
		}
	}
	select {
	case own.slots <- struct{}{}:
	default:
		s.waiting.Add(1)
		defer s.waiting.Add(-1)
		select {
		case own.slots <- struct{}{}:
		case <-closing:
			gone()
			return nil, store.ErrClosed
		case <-ctx.Done():
			gone()
			return nil, ctx.Err()
		}
	}
	return func() { <-own.slots; gone() }, nil
}

// The connections of each class of readers, and the parts of the page caches that each of its connections has.
const (
	defaultReaders = 4 // of Queries; half of them are the maximum for Scans
	deviceReaders  = 2
	bulkReaders    = 2 // a backup, which may take long, and another

	cacheParts  = 36
	writerCache = 12 // of cacheParts
	queryCache  = 18 // all of Queries together
	applyCache  = 3
	deviceCache = 1 // each
	bulkCache   = 1 // all of them together
)

// tenantSlots is how many of the readers of Queries one tenant may use, those of Scans included.
func tenantSlots(queries int) int { return max(queries/2, 1) }

// scanSlots is how many of the readers of Queries may be of Scans.
func scanSlots(queries int) int { return max(queries/2, 1) }

// openReaders opens the connections of all classes.
func (db *DB) openReaders(ctx context.Context, cacheBytes int64) error {
	db.readers = map[store.Readers]*queue{}
	for _, c := range []struct {
		class  store.Readers
		count  int
		cached int64 // by all of them
	}{{store.Queries, db.count, queryCache}, {store.Applier, 1, applyCache}, {store.Devices, deviceReaders, deviceReaders * deviceCache}, {store.Bulk, bulkReaders, bulkCache}} {
		q := &queue{free: make(chan *sql.Conn, c.count)}
		for range c.count {
			conn, err := db.connect(ctx, db.dsn(cacheBytes*c.cached/cacheParts/int64(c.count), true))
			if err != nil {
				return err
			}
			q.free <- conn
		}
		db.readers[c.class] = q
	}
	db.shares = &shares{each: tenantSlots(db.count), all: map[int64]*share{}}
	db.readers[store.Scans] = &queue{free: db.readers[store.Queries].free, slots: make(chan struct{}, scanSlots(db.count))}
	return nil
}

// oneReader has one connection serve all classes.
func (db *DB) oneReader(conn *sql.Conn) {
	db.readers, db.shares = map[store.Readers]*queue{}, &shares{each: 1, all: map[int64]*share{}}
	q := &queue{free: make(chan *sql.Conn, 1)}
	q.free <- conn
	for _, c := range store.AllReaders {
		db.readers[c] = q
	}
}

// drainReaders waits until no reader is in use.
func (db *DB) drainReaders() {
	for class, q := range db.readers {
		for n := cap(q.free); class != store.Scans && n > 0; n-- { // the connections of Scans are those of Queries
			<-q.free
		}
	}
}

// take returns a connection and the function that gives it back. It waits until ctx ends: the error is then
// store.ErrBusy, and that of ctx.
func (db *DB) take(ctx context.Context, class store.Readers) (*sql.Conn, func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	select {
	case <-db.closing:
		return nil, nil, store.ErrClosed
	default:
	}
	q := db.readers[class]
	q.waiting.Add(1)
	defer q.waiting.Add(-1)
	full := func(err error) error {
		db.metrics.busy(class)
		return fmt.Errorf("%w: all readers for %s are in use: %w", store.ErrBusy, class, err)
	}
	leaveShare := func() {}
	if tenant := store.TenantOf(ctx); tenant != 0 && (class == store.Queries || class == store.Scans) { // first: what waits for its share holds nothing
		var err error
		switch leaveShare, err = db.shares.enter(ctx, db.closing, tenant); {
		case errors.Is(err, store.ErrClosed):
			return nil, nil, err
		case err != nil:
			return nil, nil, full(err)
		}
	}
	if q.slots != nil { // before a connection, so that no connection waits for a slot
		select {
		case q.slots <- struct{}{}:
		case <-db.closing:
			leaveShare()
			return nil, nil, store.ErrClosed
		case <-ctx.Done():
			leaveShare()
			return nil, nil, full(ctx.Err())
		}
	}
	leave := func() {
		if q.slots != nil {
			<-q.slots
		}
		leaveShare()
	}
	select {
	case c := <-q.free:
		q.inUse.Add(1)
		return c, func() {
			q.inUse.Add(-1)
			q.free <- c
			leave()
		}, nil
	case <-db.closing:
		leave()
		return nil, nil, store.ErrClosed
	case <-ctx.Done():
		leave()
		return nil, nil, full(ctx.Err())
	}
}

// For implements store.Driver.
func (db *DB) For(class store.Readers) store.Store {
	if class == store.Queries {
		return db
	}
	return &handle{DB: db, class: class}
}

// handle is the database whose reads have readers of a class of their own.
type handle struct {
	*DB
	class store.Readers
}

// Read implements store.Store.
func (h *handle) Read(ctx context.Context, fn func(store.Tx) error) error {
	return h.DB.read(ctx, h.class, fn)
}
