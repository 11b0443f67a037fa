package bolt

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"go.etcd.io/bbolt"

	"weir/model"
	"weir/spool"
)

// Copy calls each for every file of the log, oldest first. A file is as of its last commit before the call of each,
// so that together they reach at least as far as Bounds at the call of Copy. The caller holds the trim: a file that is
// deleted meanwhile is an error.
func (l *Log) Copy(ctx context.Context, each func(spool.File) error) error {
	l.mu.Lock()
	spans := slices.Clone(l.spans)
	l.mu.Unlock()
	return copySpans(ctx, spans, each)
}

func copySpans(ctx context.Context, spans []*span, each func(spool.File) error) error {
	for _, s := range spans {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := with(s, func() error { return s.copyOut(each) }); err != nil {
			return err
		}
	}
	return nil
}

// copyOut passes on the file as a transaction sees it: commits during the copy change none of its pages.
func (s *span) copyOut(each func(spool.File) error) error {
	return s.view(func(tx *bbolt.Tx) error {
		return each(spool.File{Name: s.name(), Bytes: tx.Size(), Write: func(w io.Writer) error {
			to := failing{w: w}
			if _, err := tx.WriteTo(&to); err != nil {
				return cmp.Or(to.err, err)
			}
			return nil
		}})
	})
}

// failing keeps the error of a writer: the engine makes a text of it in some places.
type failing struct {
	w   io.Writer
	err error
}

func (f *failing) Write(b []byte) (int, error) {
	n, err := f.w.Write(b)
	f.err = cmp.Or(f.err, err)
	return n, err
}

// Resting is a log that is not open, for a copy. The caller holds the lock of the data directory.
type Resting struct{ log *Log }

// AtRest reads the ends of the log in dir and changes nothing. The error is os.ErrNotExist when there is no log.
func AtRest(dir string) (*Resting, error) {
	l := &Log{dir: dir}
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	if err := l.readSpans(); err != nil {
		return nil, err
	}
	if len(l.spans) == 0 {
		return nil, fmt.Errorf("spool: %w", os.ErrNotExist)
	}
	newest := l.spans[len(l.spans)-1]
	if err := with(newest, func() (err error) {
		l.id, err = newest.identity()
		return err
	}); err != nil {
		return nil, err
	}
	l.last = newest.begin - 1
	if err := l.findEnds(); err != nil {
		return nil, err
	}
	return &Resting{l}, nil
}

// Copy is Log.Copy.
func (r *Resting) Copy(ctx context.Context, each func(spool.File) error) error {
	return copySpans(ctx, r.log.spans, each)
}

// HoldTrim does nothing: the log is not open.
func (r *Resting) HoldTrim() (release func()) { return func() {} }

// Bounds is Log.Bounds.
func (r *Resting) Bounds() (first, last model.Offset) { return r.log.first, r.log.last }

// Epoch is Log.Epoch.
func (r *Resting) Epoch() uint32 { return r.log.id.epoch }

// PairID is Log.PairID.
func (r *Resting) PairID() [16]byte { return r.log.id.pair }
