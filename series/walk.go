package series

import (
	"context"
	"math"
	"runtime"

	"weir/internal/pack"
	"weir/model"
	"weir/store"
)

// A walk visits the events of a selection from the newest to the oldest. Its cursors are in a heap by the newest
// position that they may still return; a row is read and decoded only when its turn comes.
type walk struct {
	ctx    context.Context
	tx     store.Tx
	gen    uint64
	effort *effort
	q      *selection
	heap   []ranked
	spare  []*columns // of finished cursors
}

// spend counts rows that are read and pieces that are decoded, and lets others run in between. Its error ends a walk that
// began with the readers of short queries.
func (w *walk) spend(steps int) error {
	runtime.Gosched() // a long query holds up neither the applier nor a device
	return w.effort.spend(steps)
}

// cursor returns events, newest first.
type cursor interface {
	// bound is the position of the next event if ready, else one that is not below any of its events.
	bound() place
	ready() bool
	// prepare makes progress: it reads or decodes, and may pass part of its events to cursors of their
	// own. more reports whether it may have events itself.
	prepare(w *walk) (added []cursor, more bool, err error)
	// next moves past the event at bound; more reports whether any may be left.
	next(w *walk) (more bool)
	// event sets the fields of the event at bound.
	event(e *Event)
}

// ranked is a cursor with its bound, the key of the heap.
type ranked struct {
	bound place
	cursor
}

func (w *walk) push(c cursor) {
	w.heap = append(w.heap, ranked{c.bound(), c})
	for i := len(w.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !w.heap[parent].bound.less(w.heap[i].bound) {
			return
		}
		w.heap[parent], w.heap[i] = w.heap[i], w.heap[parent]
		i = parent
	}
}

// settle restores the heap after its top changed or ended.
func (w *walk) settle(more bool) {
	if !more {
		last := len(w.heap) - 1
		w.heap[0], w.heap[last] = w.heap[last], ranked{}
		w.heap = w.heap[:last]
	} else {
		w.heap[0].bound = w.heap[0].cursor.bound()
	}
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(w.heap) {
			return
		}
		if right := child + 1; right < len(w.heap) && w.heap[child].bound.less(w.heap[right].bound) {
			child = right
		}
		if !w.heap[i].bound.less(w.heap[child].bound) {
			return
		}
		w.heap[i], w.heap[child] = w.heap[child], w.heap[i]
		i = child
	}
}

// second is the bound of the best cursor besides the top.
func (w *walk) second() (p place, ok bool) {
	for _, c := range w.heap[min(1, len(w.heap)):min(3, len(w.heap))] {
		if !ok || p.less(c.bound) {
			p, ok = c.bound, true
		}
	}
	return p, ok
}

// page skips skip events and returns the next ones, at most size.
func (w *walk) page(skip int64, size int) ([]Event, error) {
	var out []Event
	for len(w.heap) > 0 && len(out) < size {
		if !w.heap[0].ready() {
			if err := w.prepare(); err != nil {
				return nil, err
			}
			continue
		}
		skip, out = w.take(skip, size, out)
	}
	return out, nil
}

func (w *walk) prepare() error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if err := w.spend(1); err != nil {
		return err
	}
	added, more, err := w.heap[0].prepare(w)
	if err != nil {
		return err
	}
	w.settle(more)
	for _, c := range added {
		w.push(c)
	}
	return nil
}

// take consumes the top's events as long as no other cursor can have a newer one.
func (w *walk) take(skip int64, size int, out []Event) (int64, []Event) {
	top := w.heap[0].cursor
	second, rivals := w.second()
	for {
		if skip > 0 {
			skip--
		} else {
			out = append(out, Event{})
			top.event(&out[len(out)-1])
		}
		more := top.next(w)
		if !more || len(out) >= size || !top.ready() || rivals && top.bound().less(second) {
			w.settle(more)
			return skip, out
		}
	}
}

func (w *walk) columns() *columns {
	if n := len(w.spare); n > 0 {
		c := w.spare[n-1]
		w.spare = w.spare[:n-1]
		return c
	}
	return &columns{}
}

// pieceCursor returns the readings of a piece.
type pieceCursor struct {
	piece
	c      *columns // nil until it is decoded
	i, low int      // next reading, last one
}

var (
	_ cursor = (*pieceCursor)(nil)
	_ cursor = (*chunkCursor)(nil)
	_ cursor = (*blockCursor)(nil)
	_ cursor = (*rowCursor)(nil)
)

func (p *pieceCursor) ready() bool { return p.c != nil }

func (p *pieceCursor) bound() place {
	if p.c != nil {
		return p.c.place(p.i)
	}
	return place{p.last, p.lastOffset, math.MaxUint32}
}

// topOf is the newest position of a time.
func topOf(at model.Micros) place { return place{at, 1<<64 - 1, 1<<32 - 1} }

func (p *pieceCursor) prepare(w *walk) ([]cursor, bool, error) {
	c, err := p.decode(w.columns(), everything)
	if err != nil {
		return nil, false, err
	}
	low, end := c.selected(w.q)
	if end > low && p.bound().less(c.place(end-1)) {
		return nil, false, p.damaged(pack.ErrForm)
	}
	p.c, p.low, p.i = c, low, end-1
	return nil, p.i >= low, nil
}

func (p *pieceCursor) next(w *walk) bool {
	p.i--
	if p.i >= p.low {
		return true
	}
	if p.cols == nil {
		w.spare = append(w.spare, p.c)
	}
	return false
}

func (p *pieceCursor) event(e *Event) {
	c, i := p.c, p.i
	*e = Event{Type: model.MeasurementEvent, Occurred: model.Micros(c.Times[i]), Received: model.Micros(c.Received[i]),
		Offset: model.Offset(c.Offsets[i]), Index: uint32(c.Indexes[i]), Value: c.Values[i], series: p.series,
		Source: p.labels.source, Unit: p.labels.unit, DataType: p.labels.dataType, Anchors: p.labels.anchors, Mark: p.labels.mark}
	if c.Classifiers != nil {
		e.Classifier, e.HasClassifier = classifierOf(c.Classifiers[i])
	}
	if c.AltIDs != nil {
		e.AltID = c.AltIDs[i]
	}
	if p.live != nil {
		e.Device, e.DeviceToken, e.Metric = p.live.dev.id, p.live.dev.token, p.live.metric
	}
}

// selected returns the half-open range of the readings, in list order, that q selects. Offsets and indexes matter
// only when q has a position before which it begins.
func (c *columns) selected(q *selection) (from, to int) {
	to = c.len()
	for to > 0 && (c.Times[to-1] > int64(q.to) || q.before != nil && c.Times[to-1] >= int64(q.before.at) && !c.place(to-1).less(*q.before)) {
		to--
	}
	for from < to && c.Times[from] < int64(q.from) {
		from++
	}
	return from, to
}

// chunkCursor visits the chunks of a scope and passes each to a cursor of its own.
type chunkCursor struct {
	scope store.PackedScope
	after *store.After
	batch []store.Chunk
	limit int
	ended bool // no chunk after batch
}

const (
	firstBatch = 2 // of chunks: the newest readings are often in blocks and heads; each further one is twice as large
	fullBatch  = 64
	blockBatch = 8
)

func (k *chunkCursor) ready() bool { return false }

func (k *chunkCursor) bound() place {
	if len(k.batch) > 0 {
		return topOf(k.batch[0].Last)
	}
	if k.after != nil {
		return topOf(k.after.Last)
	}
	return topOf(store.MaxMicros)
}

func (k *chunkCursor) prepare(w *walk) (added []cursor, more bool, err error) {
	if len(k.batch) == 0 {
		if k.batch, err = store.Chunks(w.tx, k.scope, k.after, k.limit); err != nil || len(k.batch) == 0 {
			return nil, false, err
		}
		last := &k.batch[len(k.batch)-1]
		k.after, k.ended = &store.After{Last: last.Last, ID: last.ID}, len(k.batch) < k.limit
		k.limit = min(2*k.limit, fullBatch)
		// The bound is more precise now: another cursor may come first.
		return nil, true, nil
	}
	row := &k.batch[0]
	k.batch = k.batch[1:]
	if w.q.hasAnchors(row.Anchors) {
		added = []cursor{&pieceCursor{piece: chunkPiece(row)}}
	}
	return added, len(k.batch) > 0 || !k.ended, nil
}

func (k *chunkCursor) next(*walk) bool { return false }
func (k *chunkCursor) event(*Event)    {}

// blockCursor visits the blocks of a scope and passes each selected run to a cursor of its own.
type blockCursor struct {
	scope store.PackedScope
	only  map[int64]bool // series, nil for all
	after *store.After
	batch []store.Block
	ended bool
}

func (k *blockCursor) ready() bool { return false }

func (k *blockCursor) bound() place {
	if len(k.batch) > 0 {
		return topOf(k.batch[0].Last)
	}
	if k.after != nil {
		return topOf(k.after.Last)
	}
	return topOf(store.MaxMicros)
}

func (k *blockCursor) prepare(w *walk) (added []cursor, more bool, err error) {
	if len(k.batch) == 0 {
		if k.batch, err = store.Blocks(w.tx, k.scope, k.after, blockBatch); err != nil || len(k.batch) == 0 {
			return nil, false, err
		}
		last := &k.batch[len(k.batch)-1]
		k.after, k.ended = &store.After{Last: last.Last, ID: last.ID}, len(k.batch) < blockBatch
		return nil, true, nil
	}
	pieces, err := blockPieces(&k.batch[0], k.only, w.q)
	if err != nil {
		return nil, false, err
	}
	k.batch = k.batch[1:]
	for _, p := range pieces {
		added = append(added, &pieceCursor{piece: p})
	}
	return added, len(k.batch) > 0 || !k.ended, nil
}

func (k *blockCursor) next(*walk) bool { return false }
func (k *blockCursor) event(*Event)    {}

// rowCursor returns the events of one type that are rows of their own.
type rowCursor struct {
	scope store.EventScope
	after *store.EventPosition
	batch []store.EventRow
	ended bool
}

func (k *rowCursor) ready() bool { return len(k.batch) > 0 }

func (k *rowCursor) bound() place {
	if len(k.batch) > 0 {
		return place{k.batch[0].Occurred, k.batch[0].Offset, k.batch[0].Index}
	}
	if k.after != nil {
		return place{k.after.Occurred, k.after.Offset, k.after.Index}
	}
	return topOf(store.MaxMicros)
}

func (k *rowCursor) prepare(w *walk) (added []cursor, more bool, err error) {
	if k.batch, err = store.RowEvents(w.tx, k.scope, k.after, 0, fullBatch); err != nil || len(k.batch) == 0 {
		return nil, false, err
	}
	last := &k.batch[len(k.batch)-1]
	k.after, k.ended = &store.EventPosition{Occurred: last.Occurred, Offset: last.Offset, Index: last.Index}, len(k.batch) < fullBatch
	return nil, true, nil
}

func (k *rowCursor) next(*walk) bool {
	k.batch = k.batch[1:]
	return len(k.batch) > 0 || !k.ended
}

func (k *rowCursor) event(e *Event) { *e = rowEvent(&k.batch[0]) }
