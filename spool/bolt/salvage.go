package bolt

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"sort"

	"weir/model"
	"weir/spool"
)

// salvage finds the batches of a span whose pages no longer lead to them. It searches the file page by page, without the
// tree: a batch is one value with its own checksum, in a page of its own or inside a leaf, and both identify themselves.
// Payloads are not searched: a page is skipped with everything that belongs to it, whether its value is whole or
// not. Only after a page with a damaged header could payload be mistaken for a page, and it would have to contain the
// number of the page at its position.
//
// A salvaged batch was written by Weir and is whole. The result may contain one unacknowledged batch (its sync was
// interrupted by a kill), as if the kill had come a moment later. When two different batches claim an offset, both
// count as lost: it is unknown which one was acknowledged.
type salvage struct {
	file    *os.File
	limit   model.Offset
	upTo    model.Offset // newest record of the log when it was made
	batches []salvaged   // by first offset, none overlaps another
}

// salvaged is the position of a batch.
type salvaged struct {
	first, last model.Offset
	at          int64
	size        int
	header      batchHeader
}

// openSalvage searches the file of a span that ends before limit.
func openSalvage(s *span, limit model.Offset) (*salvage, error) {
	f, err := os.Open(s.path())
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	v := &salvage{file: f, limit: limit}
	// The last page of a truncated file is incomplete.
	if err := v.search(newPageFile(f, info.Size()), s.begin); err != nil {
		return nil, errors.Join(fmt.Errorf("spool: %s: %w", s.name(), err), f.Close())
	}
	v.reconcile()
	return v, nil
}

// search reads the pages. A read error of the disk may be temporary: it is not damage.
func (v *salvage) search(pages pageFile, begin model.Offset) error {
	for id := uint64(2); id < pages.pages; {
		p, err := pages.read(id, 2*maxBatch)
		switch {
		case err == nil:
			if p.flags == leafFlag {
				v.leaf(p, int64(id)*pageSize, begin, v.limit)
			}
			id += uint64(p.overflow) + 1
		case errors.Is(err, errPage), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			id++ // not a page, or incomplete
		default:
			return err
		}
	}
	return nil
}

// leaf takes the batches of a leaf: its own value when it is the leaf of a sub-bucket, else those of the sub-buckets
// inside it.
func (v *salvage) leaf(p page, at int64, begin, limit model.Offset) {
	for i := range int(p.count) {
		e, ok := p.element(i)
		if !ok {
			continue
		}
		switch {
		case !e.bucket && string(e.key) == batchKey:
			v.take(e.value, at+offsetIn(p.bytes, e.value), begin, limit)
		case e.bucket && len(e.key) == keySize:
			in, ok := inlinePage(e.value)
			if !ok || in.flags != leafFlag {
				continue
			}
			if one, ok := in.element(0); ok && string(one.key) == batchKey {
				v.take(one.value, at+offsetIn(p.bytes, one.value), begin, limit)
			}
		}
	}
}

// offsetIn is where part begins in whole, whose memory it shares to its end.
func offsetIn(whole, part []byte) int64 { return int64(cap(whole) - cap(part)) }

// take adds a batch that is whole and within the span.
func (v *salvage) take(value []byte, at int64, begin, limit model.Offset) {
	b, h, err := decodeBatch(value)
	if err != nil || h.first < begin || h.first >= limit {
		return
	}
	v.batches = append(v.batches, salvaged{h.first, b.Last(), at, len(value), h})
}

// reconcile sorts the batches found, and drops copies of the same batch, which bbolt leaves when it rewrites a leaf, and
// all batches that contradict one another.
func (v *salvage) reconcile() {
	slices.SortFunc(v.batches, func(a, b salvaged) int { return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(b.last, a.last)) })
	kept := v.batches[:0]
	for i := 0; i < len(v.batches); {
		group, end, same := i+1, v.batches[i].last, true
		for ; group < len(v.batches) && v.batches[group].first <= max(end, v.batches[i].first); group++ {
			end = max(end, v.batches[group].last)
			same = same && v.same(v.batches[i], v.batches[group])
		}
		if same {
			kept = append(kept, v.batches[i])
		}
		i = group
	}
	v.batches = kept
}

func (v *salvage) same(a, b salvaged) bool {
	x, errX := v.read(a)
	y, errY := v.read(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

func (v *salvage) read(s salvaged) ([]byte, error) {
	b := make([]byte, s.size)
	_, err := v.file.ReadAt(b, s.at)
	return b, err
}

// find returns the batch that contains from, or the first one after it, nil when there is none.
func (v *salvage) find(from model.Offset) *salvaged {
	i := sort.Search(len(v.batches), func(i int) bool { return v.batches[i].last >= from })
	if i == len(v.batches) {
		return nil
	}
	return &v.batches[i]
}

func (v *salvage) close() error { return v.file.Close() }

// salvaged returns the span's salvage as of the log that ends at last. limit is the begin of the next span; without a
// next span, the span may still grow.
func (s *span) salvaged(limit, last model.Offset) (*salvage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.rescue; v != nil && v.limit == limit && (limit != math.MaxUint64 || v.upTo >= last) {
		return v, nil
	}
	v, err := openSalvage(s, limit)
	if err != nil {
		return nil, err
	}
	if s.rescue != nil {
		err = s.rescue.close()
	}
	v.upTo, s.rescue = last, v
	return v, err
}

// rescued returns the batch that contains from, of the salvaged ones, or else damage with the begin of the next one:
// in this span, or of the next span.
func (s *span) rescued(from, limit, last model.Offset, cause error) (*spool.Batch, error) {
	v, err := s.salvaged(limit, last)
	if err != nil {
		return nil, err
	}
	at := v.find(from)
	if at == nil {
		return nil, s.damage(cause, from, min(limit, last+1))
	}
	if at.first > from {
		return nil, s.damage(cause, from, at.first)
	}
	value, err := v.read(*at)
	if err != nil {
		return nil, s.damage(err, from, at.last+1)
	}
	b, _, err := decodeBatch(value)
	if err != nil { // it was whole a moment ago
		return nil, s.damage(err, from, at.last+1)
	}
	return b, nil
}
