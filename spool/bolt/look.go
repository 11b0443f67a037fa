package bolt

import (
	"context"
	"errors"
	"io/fs"
	"math"

	"weir/model"
	"weir/spool"
)

// Inventory describes the folder of a log that is not open.
type Inventory struct {
	Epoch       uint32
	PairID      [16]byte
	First, Last model.Offset // as by Log.Bounds
	DiskBytes   int64
	Batches     int  // that were read and are whole
	Complete    bool // every batch was read
}

// Inspect reads the log in dir and changes nothing. Newest first it reads as many batches as it can until ctx ends, and
// returns the error of Open, or the damage. The error is os.ErrNotExist when there is no log.
func Inspect(ctx context.Context, dir string) (*Inventory, error) {
	r, err := AtRest(dir)
	if err != nil {
		return nil, err
	}
	l := r.log
	inv := &Inventory{Epoch: l.id.epoch, PairID: l.id.pair, First: l.first, Last: l.last, DiskBytes: l.disk}
	return inv, l.readAll(ctx, inv)
}

// readAll reads the batches of all spans, the newest span first, until ctx ends.
func (l *Log) readAll(ctx context.Context, inv *Inventory) error {
	limit := model.Offset(math.MaxUint64)
	for i := len(l.spans) - 1; i >= 0; i-- {
		s := l.spans[i]
		if err := with(s, func() error { return s.readBatches(ctx, limit, &inv.Batches) }); err != nil {
			return ignoreEnd(ctx, err)
		}
		limit = s.begin
	}
	inv.Complete = true
	return nil
}

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// readBatches decodes the batches of a span below limit and counts them.
func (s *span) readBatches(ctx context.Context, limit model.Offset, n *int) error {
	for at := s.begin; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		st, err := s.seek(at, limit)
		if st == nil || err != nil {
			return err
		}
		b, err := st.decode(s)
		if err != nil {
			return err
		}
		*n++
		at = b.Last() + 1
	}
}

// Walk calls f for the batches of the log in dir in their order, from the one that contains from on, or from the oldest.
// It changes nothing; the log must not be open meanwhile. A folder without a log has no batches.
func Walk(ctx context.Context, dir string, from model.Offset, f func(*spool.Batch) error) error {
	r, err := AtRest(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	l := r.log
	for i, s := range l.spans {
		limit := model.Offset(math.MaxUint64)
		if i+1 < len(l.spans) {
			limit = l.spans[i+1].begin
		}
		if limit <= from {
			continue
		}
		if err := with(s, func() error { return s.walk(ctx, max(from, s.begin), limit, f) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *span) walk(ctx context.Context, from, limit model.Offset, f func(*spool.Batch) error) error {
	st, err := s.find(from, limit)
	for st != nil && err == nil {
		var b *spool.Batch
		if b, err = st.decode(s); err != nil {
			return err
		}
		if err = f(b); err == nil {
			err = ctx.Err()
		}
		if err == nil {
			st, err = s.seek(max(b.First, b.Last())+1, limit)
		}
	}
	return err
}
