package ingest

import (
	"context"
	"errors"
	"fmt"

	"weir/model"
	"weir/spool"
	"weir/store"
)

// LogGap is a part of the log that cannot be read: First to Last. Fresh says that it was found, and noted in the store, just now.
type LogGap struct {
	First, Last model.Offset
	Why         string
	Fresh       bool
}

// ErrStoreOlder: the log holds more than the store can know of.
var ErrStoreOlder = errors.New("ingest: the database is older than the log")

// logReader reads the log in order, and reports what cannot be read as a gap.
type logReader struct {
	log    spool.Log
	retry  *retrier
	upTo   model.Offset // what is read ahead
	known  *LogGap      // a gap that is known before anything is read; nil: none is, or it was reported
	in     spool.Reader
	resume model.Offset // where to open the log again after a gap, 0: it is open there
}

// openReader opens the log after a checkpoint. Where the log begins further on, and no gap says why, the database was
// replaced by an older one: row ids that records bear would mean others by now, so nothing may be applied.
func openReader(log spool.Log, retry *retrier, checkpoint, upTo model.Offset, gap *LogGap) (*logReader, error) {
	from := checkpoint + 1
	first, _ := log.Bounds()
	if gap != nil && from < first && gap.First <= from && gap.Last+1 >= first {
		from = first
	}
	in, err := log.Reader(from)
	if errors.Is(err, spool.ErrTrimmed) {
		return nil, fmt.Errorf("%w: it ends at record %d, the log begins with record %d", ErrStoreOlder, checkpoint, first)
	}
	if err != nil {
		return nil, fmt.Errorf("ingest: the log after the results cannot be read: %w", err)
	}
	return &logReader{log: log, retry: retry, upTo: upTo, known: gap, in: readAhead(in, upTo)}, nil
}

func (r *logReader) close() { r.in.Close() }

// next returns the next batch after what is applied, or a gap, or both: then the gap lies before the batch.
func (r *logReader) next(ctx context.Context, applied model.Offset) (*spool.Batch, *LogGap, error) {
	if err := r.reopen(); err != nil {
		return nil, nil, err
	}
	if g := r.known; g != nil && applied+1 >= g.First {
		if r.known = nil; g.Last > applied {
			r.resume = g.Last + 1
			return nil, g, nil
		}
	}
	b, err := r.read(ctx)
	damage, damaged := errors.AsType[*spool.DamageError](err)
	switch {
	case damaged && damage.Next > applied+1:
		r.resume = damage.Next
		return nil, &LogGap{First: applied + 1, Last: damage.Next - 1, Why: damage.File + ": " + damage.Reason}, nil
	case err != nil:
		return nil, nil, err
	case b.First > applied+1:
		return b, &LogGap{First: applied + 1, Last: b.First - 1, Why: "records are missing"}, nil
	}
	return b, nil, nil
}

// reopen opens the log after the gap that was reported last.
func (r *logReader) reopen() error {
	if r.resume == 0 {
		return nil
	}
	in, err := r.log.Reader(r.resume)
	if err != nil {
		return err
	}
	r.in.Close()
	r.in, r.resume = readAhead(in, r.upTo), 0
	return nil
}

// read asks for the next batch again as long as the disk cannot be read.
func (r *logReader) read(ctx context.Context) (b *spool.Batch, err error) {
	if b, err = r.in.Next(ctx); err == nil || final(ctx, err) {
		return b, err
	}
	var end error
	err = r.retry.until(ctx, "the log cannot be read", func() error {
		if b, end = r.in.Next(ctx); final(ctx, end) {
			return nil
		}
		return end
	})
	return b, errors.Join(err, end)
}

// final reports whether asking again for the next batch would be of no use.
func final(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || errors.Is(err, spool.ErrClosed) || errors.Is(err, spool.ErrTrimmed) || errors.Is(err, spool.ErrVersion) || errors.Is(err, spool.ErrDamaged))
}

// NoteLoss notes a loss, and the gap that it leaves in the ledger since the last that was received before. fresh is false
// when it is known.
func NoteLoss(tx store.Tx, l store.LogLoss, received model.Nanos) (fresh bool, err error) {
	if fresh, err = store.AddLogLoss(tx, l); err != nil || !fresh {
		return false, err
	}
	return true, store.AddLedgerGap(tx, store.LedgerGap{From: min(received.Micros(), l.At), To: l.At})
}
