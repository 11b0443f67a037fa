package bolt

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"weir/internal/faults"
	"weir/model"
	"weir/spool"
)

// run is the committer: the only goroutine that writes batches and answers senders.
func (l *Log) run() {
	defer close(l.stopped)
	var entries []spool.Entry
	for l.awaitWork() {
		l.mu.Lock()
		entries = l.queue.take(entries[:0], batchBytes)
		l.mu.Unlock()
		l.store(entries)
		clear(entries)
		// The senders just answered can append again at once: wait for them, or they would arrive in halves, one half always
		// waiting for the other's flush (64 writers on a fast disk: 94,000/s without this, 141,000/s with it).
		runtime.Gosched()
	}
	l.mu.Lock()
	l.closed = true
	l.announce()
	l.mu.Unlock()
}

// awaitWork returns true when entries are queued, false when the log closes and none are. While appends are refused it
// retries recovery, less and less often.
func (l *Log) awaitWork() bool {
	for {
		l.mu.Lock()
		queued, closing, failed := l.queue.len() > 0, l.closing, l.failure != nil
		l.mu.Unlock()
		switch {
		case queued:
			l.linger(closing)
			return true
		case closing:
			return false
		}
		var retry <-chan time.Time
		if failed {
			retry = time.After(l.retry)
		}
		select {
		case <-l.wake:
		case <-retry:
			l.retry = min(2*l.retry, lastRetry)
			l.recoverWriting()
		}
	}
}

// linger gathers more entries for the next batch: a commit costs the same for one as for many. With the automatic
// interval it ends when most of the senders that can append have done so.
func (l *Log) linger(closing bool) {
	wait := l.pause()
	if wait <= 0 || closing {
		return
	}
	select {
	case <-l.flushNow: // sent for an earlier batch, or handled below
	default:
	}
	l.mu.Lock()
	l.goal = l.gathers()
	enough := l.enough()
	l.mu.Unlock()
	if enough {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.flushNow:
	}
}

func (l *Log) pause() time.Duration {
	switch {
	case l.opt.CommitInterval >= 0:
		return time.Duration(l.opt.CommitInterval)
	case l.flush > slowFlush:
		return min(l.flush/2, maxLinger)
	}
	return fastLinger
}

// gathers returns the number of entries that ends the gathering early. The senders answered by the last batch and those
// queued then can append again at once. A slow disk waits for all of them, otherwise a part of them would always wait for
// the other's flush. A fast disk leaves a fifth to arrive during its flush, and of many senders waits only for enough to
// make a commit cheap, so that the processors have work meanwhile; when the senders do not wait for acknowledgements, a
// batch gathers for the time of a few flushes. The caller holds mu.
func (l *Log) gathers() int {
	switch {
	case l.opt.CommitInterval >= 0:
		return math.MaxInt
	case l.flush > slowFlush:
		return l.senders
	}
	return min(l.senders-l.senders/5, fastGoal)
}

// enough reports whether the queue is worth a commit. The caller holds mu.
func (l *Log) enough() bool {
	return l.queue.bytes >= batchBytes || l.queue.len() >= l.goal || len(l.syncs) > 0
}

// store makes one batch of entries durable, or fails it, and answers all of them.
func (l *Log) store(entries []spool.Entry) {
	b := &spool.Batch{Epoch: l.id.epoch, First: l.last + 1, Meta: l.opt.Meta.Take(entries), Records: make([]spool.Record, len(entries))}
	for i, e := range entries {
		b.Records[i] = spool.Record{Data: e.Data, Value: e.Value}
	}
	faults.Point("spool.taken")
	weight, err := l.write(b)
	faults.Point("spool.synced")
	l.opt.Meta.Settle(err == nil)
	if err != nil {
		err = l.mend(err)
	}
	l.settle(b, entries, weight, err)
	for i, e := range entries {
		switch {
		case e.Done == nil:
		case err != nil:
			e.Done(0, err)
		default:
			e.Done(b.First+model.Offset(i), nil)
		}
	}
	faults.Point("spool.answered")
	l.acknowledged(len(entries))
}

// write writes b to the present span, makes it durable and returns the budget that the batch uses.
func (l *Log) write(b *spool.Batch) (int64, error) {
	if err := l.makeRoom(); err != nil {
		return 0, err
	}
	size := batchSize(b)
	weight := weigh(size)
	if cap(l.buffer) < size || cap(l.buffer) > 4*batchBytes {
		l.buffer = make([]byte, 0, size)
	}
	l.buffer = appendBatch(l.buffer[:0], b, l.through, weight)
	started := time.Now()
	if err := l.current.commit(b.First, l.buffer, l.opt.Sync); err != nil {
		return 0, err
	}
	l.measured(time.Since(started))
	l.metrics.written.Add(float64(size))
	return int64(weight), nil
}

// measured takes a commit's duration into the mean. bbolt flushes twice: the pages, then the page that names them.
func (l *Log) measured(commit time.Duration) {
	flush := commit / 2
	if l.flush == 0 {
		l.flush = flush
	}
	l.flush += (flush - l.flush) / 4
	l.metrics.syncSeconds.Observe(commit.Seconds())
	l.mu.Lock()
	l.stats.LastSyncNanos = int64(commit)
	l.mu.Unlock()
}

// settle updates the statistics for a batch that is stored (err nil) or has failed, and announces a stored one to readers.
func (l *Log) settle(b *spool.Batch, entries []spool.Entry, weight int64, err error) {
	disk := int64(0)
	if err == nil {
		disk = l.extent()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.senders = len(entries) + l.queue.len()
	for _, e := range entries {
		l.unsynced -= entryCost(e)
		l.pending -= recordWeight(e)
	}
	l.grant()
	if err != nil {
		l.metrics.failed.Inc()
		return
	}
	l.stats.Syncs++
	l.stats.Batches++
	l.stats.Records += uint64(len(entries))
	l.metrics.stored(len(entries))
	l.last, b.Weight = b.Last(), weight
	l.through += weight
	l.disk += max(disk-l.current.disk, 0)
	l.current.disk = max(disk, l.current.disk)
	l.tail.push(b, l.through, weight)
	l.announce()
}

// acknowledged counts answered entries, for Sync.
func (l *Log) acknowledged(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered += uint64(n)
	kept := l.syncs[:0]
	for _, w := range l.syncs {
		if w.upTo <= l.answered {
			close(w.done)
		} else {
			kept = append(kept, w)
		}
	}
	clear(l.syncs[len(kept):])
	l.syncs = kept
}

// extent returns the size of the present span. A file with unreadable pages is abandoned for the next one.
func (l *Log) extent() int64 {
	n, err := l.current.extent()
	if err != nil {
		l.current.doubtful = true
		l.log.Error("spool: the span being written cannot be read", "file", l.current.name(), "error", err)
	}
	return n
}

// mend is called after a failed batch. Its state on disk may be unknown (the flush of the page that names it
// may have failed after the page was written), and after a failed fsync the kernel may mark pages as clean that never
// reached the disk. So the file is abandoned, and a new span that begins at the failed batch's offset cuts off
// its contents from there on. Only then are the senders answered. Until the new span exists, appends are refused.
func (l *Log) mend(cause error) error {
	cause = fmt.Errorf("%w: %w", spool.ErrUnavailable, cause)
	l.log.Error("spool: a batch was not stored", "error", cause)
	if l.usable() {
		return cause // nothing was written; the file is unchanged
	}
	if err := l.nextSpan(); err != nil {
		l.refuse(fmt.Errorf("%w: %w", cause, err))
	}
	return cause
}

// refuse makes appends fail until recoverWriting has succeeded.
func (l *Log) refuse(err error) {
	l.mu.Lock()
	first := l.failure == nil
	l.failure = err
	l.mu.Unlock()
	if first {
		l.retry = firstRetry
		l.log.Error("spool: refusing appends until a new span can be made", "error", err)
	}
}

func (l *Log) recoverWriting() {
	if err := l.makeRoom(); err != nil {
		l.refuse(fmt.Errorf("%w: %w", spool.ErrUnavailable, err))
	}
}

// makeRoom ensures that the present span can take a batch, and has the next one created when it is half full.
func (l *Log) makeRoom() error {
	if !l.usable() {
		return l.nextSpan()
	}
	if l.ahead == nil && l.current.disk >= l.opt.SpanBytes/2 {
		l.ahead = l.startAhead()
	}
	return nil
}

func (l *Log) usable() bool {
	return l.current != nil && !l.current.doubtful && !l.current.abandoned.Load() && l.current.disk < l.opt.SpanBytes
}

func (l *Log) startAhead() *ahead {
	a := &ahead{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.db, a.err = makeAhead(l.dir, l.id, l.mapBytes(), l.opt.unsafe)
	}()
	return a
}

// discard waits for the span and removes it.
func (a *ahead) discard(dir string) error {
	<-a.done
	if a.err != nil {
		return nil // nothing was created, and nothing is needed
	}
	return errors.Join(a.db.Close(), os.Remove(filepath.Join(dir, aheadName)))
}

// mapBytes is the mapped size of a span: its own and that of the batch that exceeds it.
func (l *Log) mapBytes() int64 { return l.opt.SpanBytes + 2*batchBytes }

// nextSpan makes the span that begins with the next offset the present one. Its name is durable before it is used. A
// present span without a batch has the same name and is replaced.
func (l *Log) nextSpan() error {
	a := l.ahead
	if a == nil {
		a = l.startAhead()
	}
	l.ahead = nil
	<-a.done
	if a.err != nil {
		return a.err
	}
	s := &span{dir: l.dir, begin: l.last + 1, db: a.db, refs: 1, disk: 4 * pageSize}
	err := os.Rename(filepath.Join(l.dir, aheadName), s.path())
	faults.Point("spool.span")
	if err == nil {
		err = l.syncDir()
	}
	if err != nil {
		return fmt.Errorf("spool: beginning span %s: %w", s.name(), errors.Join(err, a.db.Close()))
	}
	l.enter(s)
	return nil
}

// enter appends s to the spans and releases the previous one.
func (l *Log) enter(s *span) {
	old := l.current
	l.mu.Lock()
	if n := len(l.spans); n > 0 && l.spans[n-1].begin == s.begin {
		l.disk -= l.spans[n-1].disk
		l.spans = l.spans[:n-1]
	}
	l.spans = append(l.spans, s)
	l.disk += s.disk
	recovered := l.failure != nil
	l.failure = nil
	l.mu.Unlock()
	l.current, l.retry = s, firstRetry
	if recovered {
		l.log.Info("spool: taking appends again", "file", s.name())
	}
	if old == nil {
		return
	}
	if err := old.release(); err != nil {
		l.log.Warn("spool: closing a span", "file", old.name(), "error", err)
	}
}
