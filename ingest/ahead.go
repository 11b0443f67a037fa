package ingest

import (
	"context"

	"weir/model"
	"weir/spool"
)

// batchesAhead is how many batches may be decoded at a time, the one that is being applied among them, and recordsAhead how
// many records of each: what a large batch has beyond them the applier decodes itself. Together they take some 6 MiB.
const (
	batchesAhead = 3
	recordsAhead = 4096
)

// ahead reads and decodes what is in the log at a start while the applier applies what comes before it: who judges and in
// which order stays the same. Behind that, and from the first batch on that cannot be read, it is the reader beneath.
// The records of a batch that it has decoded may be used until the next one is asked for.
type ahead struct {
	below   spool.Reader // the goroutine's until batches is closed
	batches chan *decodedBatch
	free    chan *decodedBatch // to be filled; closed when nothing is to be read any more
	given   *decodedBatch      // the one that is being applied
	err     error              // that the goroutine has met and nobody was told yet; its own until batches is closed
}

// decodedBatch is a batch and the room that its records were decoded into.
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

// run waits for room only: batches has a place for each.
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

// giveBack lets the room of the batch that was applied be used again.
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
	for range a.batches {
		// What was decoded already.
	}
	a.below.Close()
}
