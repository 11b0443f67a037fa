// Package bolt is the embedded driver of the durable log: a bbolt file per span of the log, in it a sub-bucket per
// committed batch, written by one committer that makes durable together whatever arrived during the previous commit.
// spool/DESIGN.md has the reasoning.
//
// The path of a record: Append (append.go) passes it to the Gatherer of package spool, which takes the queued entries as
// one batch; the committer encodes it (batch.go), commits it into the present span (commit.go, span.go) and puts it into
// the tail; the Gatherer answers each sender; a reader reads it from the tail, or from the spans when it is late
// (reader.go); Trim removes it (trim.go). Opening finds first and last without reading the batches in between
// (recover.go).
package bolt

import (
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

	gatherer *spool.Gatherer
	stopped  chan struct{} // the committer has ended

	trimming sync.Mutex // one Trim or HoldTrim at a time; taken before mu

	mu      sync.Mutex
	closed  bool  // every entry is answered, no more are accepted
	failure error // the reason why appends are refused

	first, last model.Offset
	began       *Began  // nil: this Open has started no new epoch
	spans       []*span // in order; the last is the one being written
	disk        int64   // the size of their files
	doomed      []string
	tail        *spool.Tail
	through     int64 // weight of the log up to and including last
	trimmed     int64 // weight of the batches before first
	holds       int
	heldTrim    model.Offset
	stats       spool.Stats  // the counters of it
	purge       model.Offset // the present span takes no batch when it begins at or before it

	// The following fields belong to the committer.
	current  *span // nil until the first span could be created
	ahead    *ahead
	buffer   []byte
	written  *spool.Batch  // committed and not published
	extent   int64         // of the present span, with written
	syncTime time.Duration // of the newest commit
	retry    time.Duration // until the next attempt to recover
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
		dir:     dir,
		opt:     opt,
		log:     opt.Logger,
		stopped: make(chan struct{}),
		tail:    spool.NewTail(opt.TailBytes),
		retry:   firstRetry,
	}
	if err := l.recover(); err != nil {
		return nil, errors.Join(err, l.closeCurrent())
	}
	var err error
	if l.metrics, err = newMetrics(opt.Registerer, l); err != nil {
		return nil, errors.Join(err, l.closeCurrent())
	}
	l.gatherer = spool.NewGatherer(committer{l}, spool.GatherOptions{UnsyncedBytes: opt.UnsyncedBytes, Interval: time.Duration(opt.CommitInterval), Stretch: opt.Stretch, Blocked: l.metrics.blocked.Inc})
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
	unsynced := l.gatherer.Unsynced()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.First, s.Last = l.first, l.last
	s.Bytes, s.MaxBytes, s.MaxRecords, s.Through = l.through-l.trimmed, int64(l.opt.MaxBytes), l.opt.MaxRecords, l.through
	s.UnsyncedBytes, s.DiskBytes, s.TailBytes = unsynced, l.disk, l.tail.Bytes()
	s.Err = l.failure
	return s
}

// Close implements spool.Log. A second call waits for the first and returns nil.
func (l *Log) Close() error {
	first := l.gatherer.Close()
	<-l.stopped
	if !first {
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
