package series

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// One goroutine, the transaction's, reads the rows of a query for buckets. Their pieces are summed one share at a time, in
// parallel where a processor is free, and the results are combined in the order in which the pieces were read: the sums do not
// depend on timing.

// sharePieces is how many pieces are summed together: some milliseconds' work. Fewer in all are summed where they are read.
const sharePieces = 64

// firstBlobs is the initial capacity: a day of a device.
const firstBlobs = 64 << 10

// share is a group of pieces that are summed together.
type share struct {
	pieces   []piece
	blobs    []byte // of the pieces that have no other place
	parts    []part // of all pieces, in their order
	columns  columns
	err      error
	panicked any
	done     chan struct{} // gets one when parts are complete
}

// part is the contribution of a piece to one bucket.
type part struct {
	series        int64
	start         int64
	n             int64
	sum, min, max float64
}

// sharing contains the shares of a running query.
type sharing struct {
	open    *share
	pending []*share      // started, in order
	free    []*share      // to be used again
	slots   chan struct{} // one for each that works besides the readers of all queries
}

// work sums the pieces of a share. It keeps a panic for the reader, whose caller handles it.
func (s *share) work(q *selection, interval int64) {
	defer func() { s.done <- struct{}{} }()
	defer func() {
		if x := recover(); x != nil {
			s.panicked = fmt.Sprintf("%v\n%s", x, debug.Stack())
		}
	}()
	for i := range s.pieces {
		if s.err = s.sum(&s.pieces[i], q, interval); s.err != nil {
			return
		}
	}
}

// sum adds the parts of a piece: one from its summary when it lies inside one bucket, otherwise those of its readings.
func (s *share) sum(p *piece, q *selection, interval int64) error {
	if p.sums != nil && q.holds(p.first, p.last) && bucketStart(int64(p.first), interval) == bucketStart(int64(p.last), interval) {
		s.parts = append(s.parts, part{p.series, bucketStart(int64(p.first), interval), int64(p.n), p.sums.sum, p.sums.min, p.sums.max})
		return nil
	}
	c, err := p.decode(&s.columns, timesAndValues)
	if err != nil {
		return err
	}
	from, to := c.selected(q)
	for from < to {
		start := bucketStart(c.Times[from], interval)
		low, high, sum, n := c.Values[from], c.Values[from], exactSum{}, int64(0)
		for ; from < to && c.Times[from]-start < interval; from++ {
			v := c.Values[from]
			sum.add(v)
			low, high = min(low, v), max(high, v)
			n++
		}
		s.parts = append(s.parts, part{p.series, start, n, sum.value(), low, high})
	}
	return nil
}

// bucketStart is the start of the bucket that a time lies in.
func bucketStart(at, interval int64) int64 {
	r := at % interval
	if r < 0 {
		r += interval
	}
	return at - r
}

// piece adds a piece to the open share.
func (b *bucketing) piece(p *piece) error {
	s := b.opened()
	s.pieces = append(s.pieces, *p)
	if len(s.pieces) < sharePieces {
		return nil
	}
	if err := b.ctx.Err(); err != nil {
		return err
	}
	b.handOut()
	runtime.Gosched() // the applier is not to wait for a long query
	select {
	case b.slots <- struct{}{}:
		go func() {
			defer func() { <-b.slots }()
			s.work(b.q, b.interval)
		}()
	default:
		s.work(b.q, b.interval)
	}
	return b.collect(2 * (1 + cap(b.slots)))
}

func (b *bucketing) opened() *share {
	if n := len(b.free); b.open == nil && n > 0 {
		b.open, b.free = b.free[n-1], b.free[:n-1]
	} else if b.open == nil {
		b.open = &share{blobs: make([]byte, 0, firstBlobs), done: make(chan struct{}, 1)}
	}
	return b.open
}

// kept is a copy of a blob that lives as long as the open share.
func (b *bucketing) kept(blob []byte) []byte {
	s := b.opened()
	start := len(s.blobs)
	s.blobs = append(s.blobs, blob...)
	return s.blobs[start:len(s.blobs):len(s.blobs)]
}

func (b *bucketing) handOut() *share {
	s := b.open
	b.open, b.pending = nil, append(b.pending, s)
	return s
}

func (s *share) reset() {
	clear(s.pieces)
	s.pieces, s.blobs, s.parts = s.pieces[:0], s.blobs[:0], s.parts[:0]
}

// finish sums the rest.
func (b *bucketing) finish() error {
	if b.open != nil {
		b.handOut().work(b.q, b.interval)
	}
	return b.collect(0)
}

// collect adds the finished shares and waits as long as more than most shares are pending.
func (b *bucketing) collect(most int) error {
	for len(b.pending) > 0 {
		s := b.pending[0]
		if len(b.pending) <= most {
			select {
			case <-s.done:
			default:
				return nil
			}
		} else {
			<-s.done
		}
		b.pending = b.pending[1:]
		if s.panicked != nil {
			panic(s.panicked)
		}
		if s.err != nil {
			return s.err
		}
		for i := range s.parts {
			if err := b.add(&s.parts[i]); err != nil {
				return err
			}
		}
		s.reset()
		b.free = append(b.free, s)
	}
	return nil
}

// wait returns when all work is finished.
func (b *bucketing) wait() {
	for _, s := range b.pending {
		<-s.done
	}
}
