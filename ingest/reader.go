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

// ErrStoreOlder is returned when the log holds changes that the store has never numbered.
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
	// A known gap explains why the log begins further on.
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
	// Report the known gap when the records before it are applied.
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
	// Open the new reader before the old one is closed: on an error next can be called again.
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
	// The usual case, without a closure.
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

// batchesAhead is how many batches may be decoded at a time, the one that is being applied among them, and recordsAhead how
// many records of each: what a large batch has beyond them the applier decodes itself. Together they take some 6 MiB.
const (
	batchesAhead = 3
	recordsAhead = 4096
)

// ahead reads and decodes what is in the log at a start while the applier applies what comes before it: the
// order stays the same. After that, and from the first batch on that cannot be read, it is the reader beneath.
// The records of a batch that it has decoded may be used until the next one is asked for.
type ahead struct {
	below   spool.Reader // the goroutine's until batches is closed
	batches chan *decodedBatch
	free    chan *decodedBatch // to be filled; closed when nothing is to be read any more
	given   *decodedBatch      // the one that is being applied
	err     error              // of the goroutine, not returned yet; the goroutine's until batches is closed
}

// decodedBatch is a batch and the memory that its records were decoded into.
type decodedBatch struct {
	spool.Batch
	decoder model.RecordDecoder
}

var _ spool.Reader = (*ahead)(nil)

func readAhead(below spool.Reader, upTo model.Offset) *ahead {
	a := &ahead{below: below, batches: make(chan *decodedBatch, batchesAhead), free: make(chan *decodedBatch, batchesAhead)}
	for range batchesAhead {
		a.free <- new(decodedBatch)
	}
	go a.run(upTo)
	return a
}

// run waits for memory only: batches has a slot for each.
func (a *ahead) run(upTo model.Offset) {
	defer close(a.batches)
	for d := range a.free {
		b, err := a.below.TryNext()
		if a.err = err; err != nil || b == nil {
			return
		}
		d.decode(b)
		a.batches <- d
		if b.Last() >= upTo {
			return
		}
	}
}

// decode becomes b with its records decoded, all but those that cannot be or are too many. b itself may be shared.
func (d *decodedBatch) decode(b *spool.Batch) {
	// Copy: the batch may be shared with other readers of the log.
	records := append(d.Records[:0], b.Records...)
	d.Batch = *b
	d.Records = records
	some := records[:min(len(records), recordsAhead)]
	d.decoder.Expect(len(some))
	for i := range some {
		if e := &some[i]; e.Value == nil {
			if r, err := d.decoder.Decode(e.Data); err == nil {
				e.Value = r
			}
		}
	}
}

// Next implements spool.Reader.
func (a *ahead) Next(ctx context.Context) (*spool.Batch, error) {
	a.giveBack()
	select {
	case b, more := <-a.batches:
		return a.take(b, more, func() (*spool.Batch, error) { return a.below.Next(ctx) })
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TryNext implements spool.Reader. It waits for a batch that is being decoded.
func (a *ahead) TryNext() (*spool.Batch, error) {
	a.giveBack()
	b, more := <-a.batches
	return a.take(b, more, a.below.TryNext)
}

func (a *ahead) take(b *decodedBatch, more bool, below func() (*spool.Batch, error)) (*spool.Batch, error) {
	if !more {
		// The goroutine has ended; from here on the reader beneath is used directly.
		a.free = nil
		if err := a.err; err != nil {
			a.err = nil
			return nil, err
		}
		return below()
	}
	a.given = b
	return &b.Batch, nil
}

// giveBack lets the memory of the applied batch be used again.
func (a *ahead) giveBack() {
	if a.given != nil && a.free != nil {
		a.free <- a.given
	}
	a.given = nil
}

// Close implements spool.Reader.
func (a *ahead) Close() {
	if a.free != nil {
		close(a.free)
	}
	// Let the goroutine end before the reader beneath is closed.
	for range a.batches {
		// What was decoded already.
	}
	a.below.Close()
}
