package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"weir/internal/faults"
	"weir/model"
	"weir/spool"
)

// committer is the Log for its Gatherer, which calls it from one goroutine, except Admit.
type committer struct{ *Log }

var _ spool.Committer = committer{}

// run is the committer: the only goroutine that writes batches and answers senders.
func (l *Log) run() {
	defer close(l.stopped)
	l.gatherer.Run()
	l.mu.Lock()
	l.closed = true
	l.tail.Announce()
	l.mu.Unlock()
}

// Commit implements spool.Committer. bbolt flushes twice: the pages, then the page that names them.
func (l committer) Commit(entries []spool.Entry) (first model.Offset, flush time.Duration, err error) {
	b := &spool.Batch{Epoch: l.id.epoch, First: l.last + 1, Meta: l.opt.Meta.Take(entries), Records: make([]spool.Record, len(entries))}
	for i, e := range entries {
		b.Records[i] = spool.Record{Data: e.Data, Value: e.Value}
	}
	faults.Point("spool.taken")
	took, err := l.write(b)
	faults.Point("spool.synced")
	l.opt.Meta.Settle(err == nil)
	if err != nil {
		l.metrics.failed.Inc()
		return 0, 0, l.mend(err)
	}
	l.written, l.extent = b, l.readExtent()
	return b.First, took / 2, nil
}

// write writes b to the present span, makes it durable and sets the budget that it uses. It returns the duration of the
// commit.
func (l *Log) write(b *spool.Batch) (time.Duration, error) {
	if err := l.makeRoom(); err != nil {
		return 0, err
	}
	size := batchSize(b)
	weight := weigh(size)
	if cap(l.buffer) < size || cap(l.buffer) > 4*spool.BatchBytes {
		l.buffer = make([]byte, 0, size)
	}
	l.buffer = appendBatch(l.buffer[:0], b, l.through, weight)
	started := time.Now()
	if err := l.current.commit(b.First, l.buffer, l.opt.Sync); err != nil {
		return 0, err
	}
	took := time.Since(started)
	b.Weight = int64(weight)
	l.metrics.syncSeconds.Observe(took.Seconds())
	l.metrics.written.Add(float64(size))
	l.metrics.stored(len(b.Records))
	l.syncTime = took
	return took, nil
}

// Publish implements spool.Committer: it updates the statistics for the batch written and announces it to readers.
func (l committer) Publish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.written
	l.written = nil
	l.stats.Syncs++
	l.stats.Batches++
	l.stats.Records += uint64(len(b.Records))
	l.stats.LastSyncNanos = int64(l.syncTime)
	l.last = b.Last()
	l.through += b.Weight
	l.disk += max(l.extent-l.current.disk, 0)
	l.current.disk = max(l.extent, l.current.disk)
	l.tail.Push(b, l.through)
	l.tail.Announce()
}

// readExtent returns the size of the present span. A file with unreadable pages is abandoned for the next one.
func (l *Log) readExtent() int64 {
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

// refuse makes appends fail until Repair has succeeded.
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

// Retry implements spool.Committer.
func (l committer) Retry() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		return 0
	}
	return l.retry
}

// Repair implements spool.Committer. While it fails it is called again, less and less often.
func (l committer) Repair() {
	l.retry = min(2*l.retry, lastRetry)
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
	return l.current != nil && !l.current.doubtful && !l.current.abandoned.Load() && l.current.disk < l.opt.SpanBytes && !l.closes()
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
func (l *Log) mapBytes() int64 { return l.opt.SpanBytes + 2*spool.BatchBytes }

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
