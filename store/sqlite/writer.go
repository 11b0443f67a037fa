package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/faults"
	"weir/store"
)

const (
	queueLength  = 1024                  // maximum of queued Writes; the next one blocks its caller
	batchLength  = 256                   // maximum of Writes of one commit
	batchTime    = 20 * time.Millisecond // after which a batch accepts no further Write
	freeInterval = 10 * time.Second      // between two checks of the free pages
)

var (
	errTxOver = errors.New("store/sqlite: transaction is over")
	errNested = errors.New("store/sqlite: Write inside a Write would wait for itself")
	errExited = errors.New("store/sqlite: the function of a Write ended its goroutine")
)

// The states of a request.
const (
	queued int32 = iota
	begun
	withdrawn
)

// request is one queued Write.
type request struct {
	ctx     context.Context
	durable bool
	fn      func(store.Tx) error
	state   atomic.Int32
	tx      *tx
	err     error
	done    chan error
}

// writer owns the write connection.
type writer struct {
	db      *DB
	conn    *sql.Conn
	queue   chan *request
	stopped chan struct{}
	running sync.WaitGroup
	commits atomic.Uint64

	// Only for the loop's goroutine.
	ready    []*request // taken from the queue, not started
	full     bool       // synchronous=FULL is set
	broken   error      // a sync has failed
	lastFree time.Time

	committed   func(durable bool, writes int)
	commitFault func() error
}

func newWriter(db *DB, conn *sql.Conn, o Options) *writer {
	w := &writer{db: db, conn: conn, queue: make(chan *request, queueLength), stopped: make(chan struct{}),
		committed: o.committed, commitFault: o.commitFault}
	w.running.Go(w.loop)
	return w
}

// wait returns when the loop has ended; DB.closing must be closed.
func (w *writer) wait() { w.running.Wait() }

// submit queues functions in their order and waits for what each comes to.
func (w *writer) submit(ctx context.Context, d store.Durability, fns []func(store.Tx) error) []error {
	errs, all := make([]error, len(fns)), make([]*request, len(fns))
	for i, fn := range fns {
		all[i] = &request{ctx: ctx, durable: d == store.Durable, fn: fn, done: make(chan error, 1)}
		if errs[i] = w.enqueue(all[i]); errs[i] != nil {
			all[i] = nil
		}
	}
	for i, r := range all {
		if r != nil {
			errs[i] = w.await(r)
		}
	}
	return errs
}

func (w *writer) enqueue(r *request) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if r.ctx.Value(insideWrite{}) != nil {
		return errNested
	}
	select {
	case <-w.db.closing:
		return store.ErrClosed
	default:
	}
	select {
	case w.queue <- r:
		return nil
	case <-w.db.closing:
		return store.ErrClosed
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// await waits for the result. A request that was not started when ctx ends, or when the writer has stopped, is withdrawn.
func (w *writer) await(r *request) error {
	why := func() error { return r.ctx.Err() }
	select {
	case err := <-r.done:
		return err
	case <-r.ctx.Done():
	case <-w.stopped:
		why = func() error { return store.ErrClosed }
	}
	if r.state.CompareAndSwap(queued, withdrawn) {
		return why()
	}
	return <-r.done
}

// loop runs batches until the database closes and the queue is empty.
func (w *writer) loop() {
	clean := false
	defer func() {
		if clean {
			close(w.stopped)
			return
		}
		w.running.Go(w.loop) // a function called runtime.Goexit; the deferred code has answered its batch
	}()
	for w.fill() {
		w.batch()
	}
	clean = true
}

// fill takes the queued requests, waiting for the first. It returns false when the queue is empty and the
// database closes.
func (w *writer) fill() bool {
	if len(w.ready) == 0 {
		select {
		case r := <-w.queue:
			w.ready = append(w.ready, r)
		case <-w.db.closing:
			select {
			case r := <-w.queue:
				w.ready = append(w.ready, r)
			default:
				return false
			}
		}
	}
	for len(w.ready) < batchLength {
		select {
		case r := <-w.queue:
			w.ready = append(w.ready, r)
		default:
			return true
		}
	}
	return true
}

// batch runs the ready requests in one transaction and answers them.
func (w *writer) batch() {
	started := w.db.clock()
	var taken []*request
	answered := false
	defer func() {
		if !answered {
			w.closeRows() // of the function that ended its goroutine
			w.fail(taken, errors.Join(errExited, w.control("ROLLBACK")))
		}
	}()
	durable := w.anyDurable()
	if err := w.begin(durable); err != nil {
		taken, w.ready = w.ready, nil
		w.fail(taken, err)
		answered = true
		return
	}
	single := len(w.ready) == 1
	var lost error
	for len(w.ready) > 0 && lost == nil && (len(taken) == 0 || w.db.clock().Sub(started) < batchTime) {
		r := w.ready[0]
		w.ready[0], w.ready = nil, w.ready[1:]
		if !r.state.CompareAndSwap(queued, begun) {
			continue
		}
		taken = append(taken, r)
		lost = w.runOne(r, single)
	}
	w.answer(taken, w.end(taken, lost, durable))
	answered = true
	w.db.metrics.batch(len(taken), w.db.clock().Sub(started))
	w.afterCommit()
}

func (w *writer) anyDurable() bool {
	for _, r := range w.ready {
		if r.durable {
			return true
		}
	}
	return false
}

// begin sets the synchronous mode, which SQLite refuses to change inside a transaction, and opens one.
func (w *writer) begin(durable bool) error {
	if w.broken != nil {
		return w.broken
	}
	if err := w.db.ckpt.failed.Load(); err != nil {
		return *err
	}
	if durable != w.full {
		mode := "PRAGMA synchronous=NORMAL"
		if durable {
			mode = "PRAGMA synchronous=FULL"
		}
		if err := w.control(mode); err != nil {
			return err
		}
		w.full = durable
	}
	return w.control("BEGIN IMMEDIATE")
}

// runOne runs one request, in a savepoint unless it is alone. The request keeps its own failure; a failure of the
// transaction itself is returned, and ends the batch.
func (w *writer) runOne(r *request, single bool) error {
	if !single {
		if err := w.control("SAVEPOINT w"); err != nil {
			r.err = err
			return err
		}
	}
	ctx := context.WithValue(context.WithoutCancel(r.ctx), insideWrite{}, true)
	r.tx = &tx{ctx: ctx, conn: w.conn, write: true}
	r.err = call(r.fn, r.tx)
	r.tx.end()
	if left := w.closeRows(); left != "" && r.err == nil {
		r.err = fmt.Errorf("store/sqlite: a Write left the rows of %q open", left)
	}
	switch {
	case single && r.err != nil:
		return r.err
	case single:
		return nil
	case r.err != nil:
		return lostBy(w.control("ROLLBACK TO w", "RELEASE w"), r.err)
	}
	return lostBy(w.control("RELEASE w"), nil)
}

// lostBy explains a lost transaction: after some errors, such as a full disk, SQLite rolls all of it back.
func lostBy(err, cause error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("store/sqlite: the batch is lost: %w", errors.Join(cause, err))
}

// call runs fn and converts its panic into an error.
func call(fn func(store.Tx) error, t store.Tx) (err error) {
	returned := false
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("store/sqlite: panic in a Write: %v\n%s", p, debug.Stack())
		} else if !returned {
			err = errExited
		}
	}()
	err = fn(t)
	returned = true
	return err
}

// end commits, or rolls back when the transaction was lost or no request succeeded.
func (w *writer) end(taken []*request, lost error, durable bool) error {
	if lost != nil {
		// After some errors (disk full, I/O) SQLite has already rolled back, and reports that here.
		_ = w.control("ROLLBACK")
		return lost
	}
	if !anyKept(taken) {
		return w.control("ROLLBACK")
	}
	err := w.commit()
	if err == nil {
		w.commits.Add(1)
		if w.committed != nil {
			w.committed(durable, len(taken))
		}
		return nil
	}
	if syncFailed(err) {
		w.broken = fmt.Errorf("%w: %w", store.ErrUnsynced, err)
		err = w.broken
	}
	_ = w.control("ROLLBACK")
	return err
}

func (w *writer) commit() error {
	if w.commitFault != nil {
		if err := w.commitFault(); err != nil {
			return err
		}
	}
	faults.Point("store.commit")
	err := w.control("COMMIT")
	faults.Point("store.committed")
	return err
}

func anyKept(taken []*request) bool {
	for _, r := range taken {
		if r.err == nil {
			return true
		}
	}
	return false
}

// answer answers each request. Hooks run first, in order, for the whole batch.
func (w *writer) answer(taken []*request, err error) {
	for _, r := range taken {
		if r.err == nil {
			r.err = err
		}
		if r.err == nil {
			for _, f := range r.tx.hooks {
				f()
			}
		}
	}
	for _, r := range taken {
		if r.err != nil {
			w.db.metrics.failed.Inc()
		}
		r.done <- r.err
	}
}

// fail answers all of them with err.
func (w *writer) fail(rs []*request, err error) {
	for _, r := range rs {
		if r.err == nil {
			r.err = err
		}
		select {
		case r.done <- r.err:
		default: // answered already
		}
	}
}

// control runs internal statements on the write connection.
func (w *writer) control(statements ...string) error {
	return raw(w.conn, func(c *conn) error {
		for _, s := range statements {
			if err := c.run(s); err != nil {
				return err
			}
		}
		return nil
	})
}

func (w *writer) closeRows() (left string) {
	_ = raw(w.conn, func(c *conn) error { left = c.closeRows(); return nil })
	return left
}

// afterCommit is the writer's housekeeping between two batches.
func (w *writer) afterCommit() {
	w.db.ckpt.grown(w)
	if now := w.db.clock(); now.Sub(w.lastFree) >= freeInterval {
		w.refreshFree()
	}
}

// refreshFree reads the number of free pages. A failure leaves the value unchanged.
func (w *writer) refreshFree() {
	w.lastFree = w.db.clock()
	pages, err := pragma(w.conn, "freelist_count")
	if err != nil {
		return
	}
	if size, err := pragma(w.conn, "page_size"); err == nil {
		w.db.freeBytes.Store(pages * size)
	}
}
