package bolt

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"weir/model"
	"weir/spool"
)

// reopenBytes is the maximum size of a span that is written again after a start. A larger one is left unchanged: opening it
// for writing walks through all its pages. Without reopening, every start would leave a file behind.
const reopenBytes = 1 << 20

// recover restores the log's state from its files: it reads the names of all, the record of the newest, the newest batch
// (whole, with its checksum) and the header of the oldest, whatever their number and size.
func (l *Log) recover() error {
	if err := makeDir(l.dir); err != nil {
		return err
	}
	if err := l.listSpans(); err != nil {
		return err
	}
	if len(l.spans) == 0 {
		return l.create()
	}
	newest := l.spans[len(l.spans)-1]
	damage := with(newest, func() (err error) {
		l.id, err = newest.identity()
		return err
	})
	if damage != nil {
		if err := l.mendable(damage); err != nil {
			return err
		}
		l.id = l.knownIdentity()
	}
	if l.opt.PairID != [16]byte{} && l.opt.PairID != l.id.pair {
		return fmt.Errorf("%w: pair id %x, wanted %x", spool.ErrForeign, l.id.pair, l.opt.PairID)
	}
	l.last = newest.begin - 1
	if damage == nil {
		damage = l.findEnds()
	}
	switch {
	case damage != nil:
		if err := l.mendable(damage); err != nil {
			return err
		}
		if err := l.salvageEnds(); err != nil {
			return err
		}
		return l.jump(Damaged, damage)
	case l.last < l.opt.MinOffset:
		return l.jump(Short, nil)
	case l.opt.NewEpoch:
		return l.jump(Copied, nil)
	}
	return l.goOn(newest)
}

// mendable returns nil for damage after which a new epoch may start.
func (l *Log) mendable(err error) error {
	if l.opt.Mend && errors.Is(err, spool.ErrDamaged) {
		return nil
	}
	return err
}

// knownIdentity is the identity of the newest span whose record is readable. Without one, the log is assumed to be the
// expected one.
func (l *Log) knownIdentity() identity {
	for _, s := range slices.Backward(l.spans) {
		var id identity
		if err := with(s, func() (err error) {
			id, err = s.identity()
			return err
		}); err == nil {
			return id
		}
	}
	return identity{pair: l.opt.PairID}
}

// salvageEnds sets first and last and their weights from the salvaged batches.
func (l *Log) salvageEnds() error {
	limit, found := model.Offset(math.MaxUint64), false
	for _, s := range slices.Backward(l.spans) {
		v, err := openSalvage(s, limit)
		if err != nil {
			return err
		}
		if n := len(v.batches); n > 0 && !found {
			found, l.through = true, v.batches[n-1].header.through()
			l.last = v.batches[n-1].last
		}
		if err := v.close(); err != nil {
			return err
		}
		limit = s.begin
	}
	// The weights of the oldest batches are lost: assuming that all are kept is accurate enough.
	l.first, l.trimmed = l.spans[0].begin, max(l.through-l.disk, 0)
	return nil
}

// goOn continues to write the newest span. When one of the two pages that name the newest batch is damaged, that batch may
// exist without a name: the log continues after it.
func (l *Log) goOn(newest *span) error {
	whole, err := wholeHeads(newest.path())
	if err != nil || whole {
		return firstOf(err, func() error { return l.writeOn(newest) })
	}
	v, err := openSalvage(newest, math.MaxUint64)
	if err != nil {
		return err
	}
	defer v.close() // opened only for reading
	n := len(v.batches)
	if n == 0 || v.batches[n-1].last <= l.last {
		return l.writeOn(newest)
	}
	l.log.Warn("spool: the page that names the newest batch is damaged; what it named is there", "file", newest.name(), "from", l.last+1, "to", v.batches[n-1].last)
	if l.first > l.last {
		l.first = v.batches[0].first
	}
	l.last, l.through = v.batches[n-1].last, v.batches[n-1].header.through()
	return l.nextSpan()
}

func firstOf(err error, then func() error) error {
	if err != nil {
		return err
	}
	return then()
}

// listSpans reads the folder. A span created ahead is empty and is removed.
func (l *Log) listSpans() error {
	if err := os.Remove(filepath.Join(l.dir, aheadName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("spool: %w", err)
	}
	return l.readSpans()
}

// readSpans reads the names and sizes of the spans in the folder.
func (l *Log) readSpans() error {
	files, err := os.ReadDir(l.dir)
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	for _, f := range files {
		begin, ok := spanBegin(f.Name())
		if !ok {
			continue // not a file of the log
		}
		info, err := f.Info()
		if err != nil {
			return fmt.Errorf("spool: %w", err)
		}
		s := &span{dir: l.dir, begin: begin, disk: diskBytes(info)}
		if begin > farthest && !s.identifiable() {
			l.stray(f.Name())
			continue
		}
		l.spans = append(l.spans, s)
		l.disk += s.disk
	}
	slices.SortFunc(l.spans, func(a, b *span) int { return cmp.Compare(a.begin, b.begin) })
	return nil
}

// farthest is an offset that no log reaches: a million records a second would take 140,000 years. A file of that name was not written by a
// log, and going on behind it would leave no offsets.
const farthest = model.Offset(1) << 62

// identifiable reports whether the file has the record that every span has.
func (s *span) identifiable() bool {
	return with(s, func() error {
		_, err := s.identity()
		return err
	}) == nil
}

// stray reports a file that is not one of the log although its name is.
func (l *Log) stray(name string) {
	if l.log != nil { // a copy is looked at without one
		l.log.Error("spool: the file is not part of the log, and is ignored; remove it", "file", name)
	}
}

// create starts a log in an empty folder, above the offsets that the results know.
func (l *Log) create() error {
	l.id = identity{epoch: max(1, l.opt.MinEpoch), pair: l.opt.PairID}
	if l.id.pair == [16]byte{} {
		if _, err := rand.Read(l.id.pair[:]); err != nil {
			return fmt.Errorf("spool: %w", err)
		}
	}
	l.first, l.last = l.opt.MinOffset+1, l.opt.MinOffset
	l.began = &Began{Why: Fresh, Next: l.first}
	return l.nextSpan()
}

// jump starts a new epoch above the offsets of the log and of the results. Older batches stay readable.
func (l *Log) jump(why Reason, damage error) error {
	l.id.epoch = max(l.id.epoch+1, l.opt.MinEpoch)
	end := max(l.last, l.opt.MinOffset, l.spans[len(l.spans)-1].begin-1)
	l.began = &Began{Why: why, Last: l.last, Next: end + 1, Err: damage}
	if why != Copied {
		l.log.Error("spool: a part of the log is lost; going on above it in a new epoch", "why", string(why), "last", l.last, "next", end+1, "epoch", l.id.epoch, "error", damage)
	}
	if l.first > l.last {
		l.first = end + 1
	}
	l.last = end
	return l.nextSpan()
}

// findEnds sets first and last and their weights.
func (l *Log) findEnds() error {
	newest, err := l.newestBatch()
	if err != nil {
		return err
	}
	if newest == nil {
		l.first = l.last + 1
		return nil
	}
	if hole := l.last; newest.last() < hole && hole > l.opt.MinOffset && l.opt.Mend {
		return l.spans[len(l.spans)-1].damage(errMissing, newest.last()+1, hole+1) // before the newest file, which has no batch
	}
	l.last = max(l.last, newest.last())
	l.through = newest.through()
	oldest, err := l.oldestBatch()
	if err != nil {
		return err
	}
	l.first, l.trimmed = oldest.first, int64(oldest.before)
	return nil
}

// newestBatch finds and checks the batch at the end of the log: only a new span at the very end can be empty.
func (l *Log) newestBatch() (h *batchHeader, err error) {
	limit := model.Offset(math.MaxUint64)
	for _, s := range slices.Backward(l.spans) {
		err = with(s, func() error {
			st, err := s.before(limit)
			if st == nil || err != nil {
				return err
			}
			if _, err = st.decode(s); err != nil {
				return err
			}
			got, err := peekBatch(st.value)
			h = &got
			return err
		})
		if h != nil || err != nil {
			return h, err
		}
		limit = s.begin
	}
	return nil, nil
}

// oldestBatch reads the header of the log's first batch, which exists.
func (l *Log) oldestBatch() (h batchHeader, err error) {
	for i, s := range l.spans {
		limit := model.Offset(math.MaxUint64)
		if i+1 < len(l.spans) {
			limit = l.spans[i+1].begin
		}
		var st *stored
		err = with(s, func() error {
			st, err = s.seek(s.begin, limit)
			return err
		})
		if err != nil {
			return h, err
		}
		if st == nil {
			continue
		}
		if h, err = peekBatch(st.value); err != nil {
			return h, s.damage(err, st.first, st.next)
		}
		return h, nil
	}
	return h, errors.New("spool: the log has no first batch")
}

// writeOn continues to write the newest span if it is small and completely readable; otherwise it starts a new one
// after it.
func (l *Log) writeOn(s *span) error {
	if s.disk > min(reopenBytes, l.opt.SpanBytes/2) {
		return l.nextSpan()
	}
	if err := errors.Join(examine(s.path(), pageFile.checkAll), s.verify()); err != nil {
		l.log.Warn("spool: a damaged span is left for a new one", "error", err)
		return l.nextSpan()
	}
	db, err := openFile(s.path(), true, l.mapBytes(), l.opt.unsafe)
	if err != nil {
		return err
	}
	s.db, s.refs = db, 1
	l.current = s
	return nil
}

// verify reads all batches of a small span.
func (s *span) verify() error {
	n := 0
	return with(s, func() error { return s.readBatches(context.Background(), math.MaxUint64, &n) })
}

// with runs fn with s open for reading.
func with(s *span, fn func() error) error {
	if err := s.acquire(); err != nil {
		return err
	}
	return errors.Join(fn(), s.release())
}
