package series

import (
	"weir/model"
	"weir/store"
)

// A page far down a tenant's list is not reached event by event. The time ranges of the rows give an estimate of the page's
// time; the number of newer events is counted exactly, from the rows' own counts; and the walk begins there.

const (
	leapFrom  = 10_000  // for fewer events the walk is not shortened
	leapRows  = 200_000 // rows that are read; pages beyond them are not estimated
	leapShare = 0.97    // of the events before the page
)

// span is the time range of a row's readings.
type span struct {
	first, last model.Micros
	n           int64
}

// newer is about how many of the readings are newer than at.
func (s *span) newer(at model.Micros) float64 {
	switch {
	case at < s.first:
		return float64(s.n)
	case at >= s.last:
		return 0
	}
	return float64(s.n) * float64(s.last-at) / float64(s.last-s.first)
}

// leap returns a walk that begins nearer to the page after skip events, and how many it has yet to skip. The walk is
// one over measurements whose cursors have not moved.
func (w *walk) leap(pieces []piece, skip int64) (*walk, int64, error) {
	if skip < leapFrom || w.q.device != 0 || w.q.metric != "" || w.q.anchors != nil {
		return w, skip, nil
	}
	spans, oldest, err := w.spans(pieces, skip)
	if err != nil {
		return nil, 0, err
	}
	for share := leapShare; share > 0.5; share -= 0.2 {
		at := timeOf(spans, float64(skip)*share, oldest, w.q.to)
		newer, err := w.countNewer(pieces, at)
		if err != nil {
			return nil, 0, err
		}
		if newer > skip {
			continue
		}
		q := *w.q
		q.to = at
		near := &walk{ctx: w.ctx, tx: w.tx, gen: w.gen, effort: w.effort, q: &q}
		// The number of its events is known: nothing is counted again.
		for _, p := range overlapping(pieces, &q) {
			near.push(&pieceCursor{piece: p})
		}
		scope := q.scope(w.gen, 0)
		near.push(&chunkCursor{scope: scope, limit: firstBatch})
		near.push(&blockCursor{scope: scope})
		return near, skip - newer, nil
	}
	return w, skip, nil
}

// spans returns the time ranges of the rows that contain the newest skip events and more, and a time before which others may lie.
func (w *walk) spans(pieces []piece, skip int64) (spans []span, oldest model.Micros, err error) {
	for i := range pieces {
		p := &pieces[i]
		spans = append(spans, span{p.first, p.last, int64(p.n)})
	}
	scope := w.q.scope(w.gen, 0)
	oldest = w.q.from
	for _, read := range [...]func(store.Tx, store.PackedScope, func(first, last model.Micros, n int64) bool) error{store.ChunkSpans, store.BlockSpans} {
		rows, look := 0, 1024
		if err := read(w.tx, scope, func(first, last model.Micros, n int64) bool {
			spans = append(spans, span{first, last, n})
			if rows++; rows < look && rows < leapRows {
				return true
			}
			look *= 2
			if rows == leapRows || newerOf(spans, last) > float64(skip) {
				oldest = max(oldest, last)
				return false
			}
			return true
		}); err != nil {
			return nil, 0, err
		}
	}
	return spans, oldest, nil
}

// newerOf is about how many of the readings are newer than at.
func newerOf(spans []span, at model.Micros) (n float64) {
	for i := range spans {
		n += spans[i].newer(at)
	}
	return n
}

// timeOf finds a time, no older than oldest and no newer than newest, that about so many events are newer than.
func timeOf(spans []span, events float64, oldest, newest model.Micros) model.Micros {
	low, high := store.MaxMicros, store.MinMicros
	for i := range spans {
		low, high = min(low, spans[i].first), max(high, spans[i].last)
	}
	low, high = max(low, oldest), min(high, newest)
	for high/2-low/2 > 1 { // halves: a time may lie as far back as there are numbers
		if middle := low/2 + high/2; newerOf(spans, middle) > events {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// countNewer counts the events of the walk that are newer than at.
func (w *walk) countNewer(pieces []piece, at model.Micros) (int64, error) {
	q := *w.q
	q.from = max(q.from, at+1)
	if q.from > q.to {
		return 0, nil
	}
	newer := walk{ctx: w.ctx, tx: w.tx, gen: w.gen, effort: w.effort, q: &q}
	total, err := newer.countPieces(overlapping(pieces, &q))
	if err != nil {
		return 0, err
	}
	scope := q.scope(w.gen, 0)
	n, err := newer.countChunks(scope)
	if err != nil {
		return 0, err
	}
	total += n
	n, err = newer.countBlocks(scope, nil)
	return total + n, err
}

func overlapping(pieces []piece, q *selection) []piece {
	var out []piece
	for i := range pieces {
		if q.overlaps(pieces[i].first, pieces[i].last) {
			out = append(out, pieces[i])
		}
	}
	return out
}
