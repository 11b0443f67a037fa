package bolt

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sort"

	"weir/model"
	"weir/spool"
)

// Reader implements spool.Log.
func (l *Log) Reader(from model.Offset) (spool.Reader, error) {
	if l.gatherer.Closing() {
		return nil, spool.ErrClosed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if from < l.first {
		return nil, trimmed(from, l.first)
	}
	return &reader{log: l, at: l.tail.Follow(from)}, nil
}

func trimmed(offset, first model.Offset) error {
	return fmt.Errorf("%w: %d, the first is %d", spool.ErrTrimmed, offset, first)
}

// reader returns batches from the tail while it keeps up, otherwise from the spans.
type reader struct {
	log *Log
	at  *spool.Follower // guarded by Log.mu: the tail needs the position of every reader

	// The following fields belong to the reader.
	held   *span // the span it last read from, kept open for the next batch
	closed bool
}

var _ spool.Reader = (*reader)(nil)

// Next implements spool.Reader.
func (r *reader) Next(ctx context.Context) (*spool.Batch, error) {
	for {
		b, changed, err := r.step()
		if b != nil || err != nil {
			return b, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// TryNext implements spool.Reader.
func (r *reader) TryNext() (*spool.Batch, error) {
	b, _, err := r.step()
	return b, err
}

// Close implements spool.Reader.
func (r *reader) Close() {
	if r.closed {
		return
	}
	r.closed = true
	r.hold(nil)
	r.log.mu.Lock()
	r.log.tail.Leave(r.at)
	r.log.mu.Unlock()
}

// view is the part of the log's state that a step needs.
type view struct {
	next, last model.Offset
	closed     bool
	changed    <-chan struct{}
}

// step returns the next batch, or else a channel that is closed when there may be one.
func (r *reader) step() (*spool.Batch, <-chan struct{}, error) {
	if r.closed {
		return nil, nil, spool.ErrClosed
	}
	b, now, err := r.fromTail()
	if b != nil {
		r.hold(nil)
	}
	if b != nil || err != nil {
		return b, nil, err
	}
	if now.next <= now.last {
		if b, err = r.fromDisk(now); b != nil || err != nil {
			return b, nil, err
		}
	}
	if now.closed {
		r.hold(nil)
		return nil, nil, spool.ErrClosed
	}
	return nil, now.changed, nil
}

// fromTail returns the next batch from memory, and the state of the log.
func (r *reader) fromTail() (*spool.Batch, view, error) {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.at.Next < l.first {
		return nil, view{}, trimmed(r.at.Next, l.first)
	}
	if b, _ := l.tail.Find(r.at.Next); b != nil {
		l.metrics.reads.memory.Inc()
		l.tail.Moved(r.at, b)
		return b, view{}, nil
	}
	return nil, view{next: r.at.Next, last: l.last, closed: l.closed, changed: l.tail.Changed()}, nil
}

// fromDisk reads the next batch from the spans. It returns nil when the log has none up to last: a jump to a new
// epoch leaves offsets without a record. It begins at or before last, in the span of that offset, and batches are
// contiguous there, so that it never returns one that is committed and not yet announced.
func (r *reader) fromDisk(now view) (*spool.Batch, error) {
	for at := now.next; ; {
		s, limit := r.log.locate(at)
		b, err := r.read(s, at, limit)
		switch {
		case err == nil && at >= s.begin && (b == nil || b.First > at):
			// The page that names the newest batches may be damaged while the batches are still readable.
			if found, lost := s.rescued(at, limit, now.last, errMissing); lost == nil {
				b = found
			}
		case errors.Is(err, os.ErrNotExist):
			err = s.damage(errors.New("the file is gone"), at, min(limit, now.last+1))
		case errors.Is(err, spool.ErrDamaged):
			s.abandoned.Store(true)
			b, err = s.rescued(at, limit, now.last, err)
		}
		if err == nil && b != nil {
			err = r.follows(s, b)
		}
		switch {
		case err != nil:
			return nil, r.explain(err)
		case b != nil:
			r.log.metrics.reads.disk.Inc()
			r.log.mu.Lock()
			r.log.tail.Moved(r.at, b)
			r.log.mu.Unlock()
			return b, nil
		case limit > now.last:
			return nil, nil
		}
		at = limit
	}
}

func (r *reader) read(s *span, from, limit model.Offset) (*spool.Batch, error) {
	if err := r.hold(s); err != nil {
		return nil, err
	}
	st, err := s.find(from, limit)
	if st == nil || err != nil {
		return nil, err
	}
	return st.decode(s)
}

var errMissing = errors.New("records are missing")

// missing reports a gap: within an epoch, batches are contiguous.
func (r *reader) missing(b *spool.Batch) bool { return r.at.Epoch == b.Epoch && b.First > r.at.Next }

// follows returns an error for a gap.
func (r *reader) follows(s *span, b *spool.Batch) error {
	if r.missing(b) {
		return &spool.DamageError{File: s.name(), Offset: r.at.Next, Next: b.First, Reason: errMissing.Error()}
	}
	return nil
}

// explain returns ErrTrimmed instead of the error of a reader whose span was removed.
func (r *reader) explain(err error) error {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if r.at.Next < r.log.first {
		return trimmed(r.at.Next, r.log.first)
	}
	return err
}

// hold keeps s open for reading and releases the span held before.
func (r *reader) hold(s *span) error {
	if r.held == s {
		return nil
	}
	if r.held != nil {
		old := r.held
		r.held = nil
		if err := old.release(); err != nil {
			return fmt.Errorf("spool: %s: %w", old.name(), err)
		}
	}
	if s == nil {
		return nil
	}
	if err := s.acquire(); err != nil {
		if errors.Is(err, spool.ErrDamaged) {
			err = s.located(err, s.begin)
		}
		return err
	}
	r.held = s
	return nil
}

// locate returns the span that may hold offset, and where the next one begins (beyond every offset for the last).
func (l *Log) locate(offset model.Offset) (*span, model.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := max(sort.Search(len(l.spans), func(i int) bool { return l.spans[i].begin > offset })-1, 0)
	if i+1 < len(l.spans) {
		return l.spans[i], l.spans[i+1].begin
	}
	return l.spans[i], math.MaxUint64
}
