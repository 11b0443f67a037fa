// Package bolt is the embedded driver of the durable log: a bbolt file per span of the log, in it a sub-bucket per
// committed batch, written by one committer that makes durable together whatever arrived during the previous commit.
// spool/DESIGN.md has the reasoning.
//
// The path of a record: Append puts it into the queue (append.go); the committer takes the queued entries as one batch,
// encodes it (batch.go), commits it into the present span (commit.go, span.go), puts it into the tail (tail.go) and
// answers each sender; a reader reads it from the tail, or from the spans when it is late (reader.go); Trim removes it
// (trim.go). Opening finds first and last without reading the batches in between (recover.go).
package bolt

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"weir/model"
	"weir/spool"
)

// Log is a durable log in one folder. Its methods are safe for concurrent use.
type Log struct {
	dir     string
	opt     Options
	id      identity
	log     *slog.Logger
	metrics *metrics

	wake     chan struct{} // the queue is no longer empty, or the log is closing
	flushNow chan struct{} // stop gathering and commit
	stopped  chan struct{} // the committer has ended

	trimming sync.Mutex // one Trim or HoldTrim at a time; taken before mu

	mu      sync.Mutex
	queue   queue
	waiting []*waiter
	syncs   []syncWaiter
	closing bool
	closed  bool  // every entry is answered, no more are accepted
	failure error // the reason why appends are refused

	first, last model.Offset
	began       *Began  // nil: this Open has started no new epoch
	spans       []*span // in order; the last is the one being written
	disk        int64   // the size of their files
	doomed      []string
	tail        tail
	readers     map[*reader]struct{}
	changed     chan struct{} // closed when last moves or the log closes; nil while no reader waits
	unsynced    int64         // the cost of queued and committing entries
	pending     int64         // their approximate share of the budget
	through     int64         // weight of the log up to and including last
	trimmed     int64         // weight of the batches before first
	senders     int           // of the last batch: those that it answered and those that were queued then
	goal        int           // the number of queued entries that ends the gathering
	enqueued    uint64        // entries accepted since the start
	answered    uint64        // entries answered since the start
	holds       int
	heldTrim    model.Offset
	stats       spool.Stats // the counters of it

	// The following fields belong to the committer.
	current *span // nil until the first span could be created
	ahead   *ahead
	buffer  []byte
	flush   time.Duration // moving mean of one flush
	retry   time.Duration
}

var _ spool.Log = (*Log)(nil)

// ahead is the next span, created while the present one fills.
type ahead struct {
	done chan struct{}
	db   *bbolt.DB
	err  error
}

// Open opens the log in dir and creates it when it does not exist. It returns ErrDamaged when the newest batch or the
// files at the ends of the log cannot be read, ErrVersion for a newer format, ErrForeign for another pair id.
func Open(dir string, opt Options) (*Log, error) {
	opt = opt.withDefaults()
	l := &Log{
		dir:      dir,
		opt:      opt,
		log:      opt.Logger,
		wake:     make(chan struct{}, 1),
		flushNow: make(chan struct{}, 1),
		stopped:  make(chan struct{}),
		readers:  map[*reader]struct{}{},
		tail:     tail{max: opt.TailBytes},
		retry:    firstRetry,
	}
	if err := l.recover(); err != nil {
		return nil, errors.Join(err, l.closeCurrent())
	}
	var err error
	if l.metrics, err = newMetrics(opt.Registerer, l); err != nil {
		return nil, errors.Join(err, l.closeCurrent())
	}
	go l.run()
	return l, nil
}

// Bounds implements spool.Log.
func (l *Log) Bounds() (first, last model.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first, l.last
}

// Began is the reason why Open started a new epoch of the log, and the offsets between the two.
type Began struct {
	Why Reason
	// Last is the newest readable record of the previous epoch; Next is the first offset of the new one.
	Last, Next model.Offset
	// Err is the damage, for the reason Damaged.
	Err error
}

// Reason is the reason why a new epoch was started.
type Reason string

// The reasons. Copied is not a loss: the log is a copy, and the original continued with its offsets.
const (
	Fresh   Reason = "there was no log"
	Short   Reason = "the log ended before what is known of it"
	Damaged Reason = "the newest part of the log could not be read"
	Copied  Reason = "the log is a copy"
)

// Began returns why a new epoch was started when the log was opened, nil when the log continues its epoch.
func (l *Log) Began() *Began { return l.began }

// Epoch implements spool.Log.
func (l *Log) Epoch() uint32 { return l.id.epoch }

// PairID implements spool.Log.
func (l *Log) PairID() [16]byte { return l.id.pair }

// Stats implements spool.Log.
func (l *Log) Stats() spool.Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.First, s.Last = l.first, l.last
	s.Bytes, s.MaxBytes, s.MaxRecords, s.Through = l.through-l.trimmed, int64(l.opt.MaxBytes), l.opt.MaxRecords, l.through
	s.UnsyncedBytes, s.DiskBytes, s.TailBytes = l.unsynced, l.disk, l.tail.bytes
	s.Err = l.failure
	return s
}

// Close implements spool.Log. A second call waits for the first and returns nil.
func (l *Log) Close() error {
	l.mu.Lock()
	again := l.closing
	l.closing = true
	for _, w := range l.waiting {
		close(w.ready)
	}
	l.waiting = nil
	l.mu.Unlock()
	signal(l.wake)
	signal(l.flushNow)
	<-l.stopped
	if again {
		return nil
	}
	l.metrics.unregister()
	return l.closeCurrent()
}

// closeCurrent releases the span being written and the one created ahead. The committer has ended or never started.
func (l *Log) closeCurrent() error {
	var err error
	if l.ahead != nil {
		err = l.ahead.discard(l.dir)
		l.ahead = nil
	}
	if l.current != nil {
		err = errors.Join(err, l.current.release())
		l.current = nil
	}
	return err
}

// Sync implements spool.Log.
func (l *Log) Sync(ctx context.Context) error {
	l.mu.Lock()
	if l.answered == l.enqueued {
		l.mu.Unlock()
		return nil
	}
	w := syncWaiter{upTo: l.enqueued, done: make(chan struct{})}
	l.syncs = append(l.syncs, w)
	l.mu.Unlock()
	signal(l.flushNow)
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// syncWaiter is a Sync that waits for the entries accepted before it.
type syncWaiter struct {
	upTo uint64
	done chan struct{}
}

// signal sets a flag channel.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// announce wakes the waiting readers. The caller holds mu.
func (l *Log) announce() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}
