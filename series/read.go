package series

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"weir/internal/pack"
	"weir/model"
	"weir/store"
)

// A read uses one snapshot of the store and those heads that the snapshot's rows lack. The head offset in the snapshot
// decides that: the rows contain a head whose freeze offset is not above it. If a head that the snapshot lacks was
// released meanwhile, the read restarts with a new snapshot; that happens at most once in a checkpoint,
// so that no lock is held during reads of the store.

// snapshot is the state of the heads according to the store's snapshot.
type snapshot struct {
	offset model.Offset
	gen    uint64
	effort *effort
}

func (n snapshot) walk(ctx context.Context, tx store.Tx, q *selection) walk {
	return walk{ctx: ctx, tx: tx, gen: n.gen, effort: n.effort, q: q}
}

var (
	errAgain = errors.New("series: a head was released while a read began")
	errLong  = errors.New("series: a query takes more than the readers of short queries give")
)

// A query begins with the readers of short ones. It ends when it turns out to be long, after some milliseconds, and begins
// again with the readers of scans, of which there are few: however many long queries there are, short ones go on.
const (
	shortSteps  = 1000 // rows that a short query reads and pieces that it decodes: a page with a chunk of each of many series
	rowsPerStep = 100  // rows that it counts cost a step
)

// effort is how many steps a query has left as a short one; nil: any number.
type effort struct{ steps int }

func (e *effort) spend(steps int) error {
	if e == nil {
		return nil
	}
	if e.steps -= steps; e.steps < 0 {
		return errLong
	}
	return nil
}

// mostRetries is never reached: each retry takes a whole checkpoint between two adjacent statements.
const mostRetries = 50

// read runs fn in a snapshot, and again in another one after errAgain and errLong: the results of the last run count.
func (s *Series) read(ctx context.Context, fn func(store.Tx, snapshot) error) error {
	err := s.readBy(ctx, s.st, s.shortSteps, fn)
	if errors.Is(err, errLong) {
		s.m.scans.Inc()
		err = s.readBy(ctx, s.scans, 0, fn)
	}
	return err
}

// readBy reads a store; steps bounds a short query and is 0 for a long one.
func (s *Series) readBy(ctx context.Context, st store.Store, steps int, fn func(store.Tx, snapshot) error) error {
	for range mostRetries {
		var e *effort
		if steps > 0 {
			e = &effort{steps}
		}
		err := st.Read(ctx, func(tx store.Tx) error {
			offset, gen, err := store.CheckpointState(tx)
			if err != nil {
				return err
			}
			return fn(tx, snapshot{offset, gen, e})
		})
		if !errors.Is(err, errAgain) {
			return err
		}
		s.m.retries.Inc()
	}
	return model.Errorf(model.CodeUnavailable, "readings are being rewritten, try again")
}

// headsOf returns the heads that a snapshot's rows lack, oldest first. The lock is held for reading.
func (s *Series) headsOf(snap snapshot) ([]*head, error) {
	if s.base > snap.offset || s.gen > snap.gen {
		return nil, errAgain
	}
	var hs []*head
	if s.frozen != nil && s.frozen.last > snap.offset {
		hs = append(hs, s.frozen)
	}
	return append(hs, s.active), nil
}

// selection is the set of series and readings of a query.
type selection struct {
	tenantID int64
	device   int64  // row id, 0 for all
	metric   string // "" for all
	anchors  []int64
	from, to model.Micros // inclusive
	before   *place       // only readings that are strictly older
}

func (q *selection) overlaps(first, last model.Micros) bool { return last >= q.from && first <= q.to }

// holds reports whether all readings between first and last are selected.
func (q *selection) holds(first, last model.Micros) bool {
	return first >= q.from && last <= q.lastInside()
}

// lastInside is the last time at which a reading is selected whatever its offset.
func (q *selection) lastInside() model.Micros {
	if q.before != nil && q.before.at <= q.to {
		return q.before.at - 1
	}
	return q.to
}

// unbounded reports whether no row can lie across an end.
func (q *selection) unbounded() bool {
	return q.from == store.MinMicros && q.lastInside() == store.MaxMicros
}

func (q *selection) hasAnchors(set int64) bool {
	if q.anchors == nil {
		return true
	}
	_, found := slices.BinarySearch(q.anchors, set)
	return found && set != 0
}

// piece contains adjacent readings of one series: in a head, a chunk or a block.
type piece struct {
	series int64
	live   *series // of a head's piece
	labels *labels
	first  model.Micros
	last   model.Micros
	n      int
	// lastOffset is not below the offset of any reading: when a whole fleet reports at the same instant, it decides whose
	// reading is the newest before all are decoded.
	lastOffset model.Offset

	chunk []byte
	block *block
	entry *entry
	open  []byte // stream in the order of the log
	upto  model.Offset
	sort  bool     // the stream is not in list order
	late  bool     // it contains readings after upto: settle first
	cols  *columns // decoded already
	sums  *summary // nil when not known
	row   string   // the position of the row
	rowID int64    // of a chunk
}

// decode returns the piece's readings in list order, in c unless it holds them decoded.
func (p *piece) decode(c *columns, d depth) (*columns, error) {
	switch {
	case p.cols != nil:
		return p.cols, nil
	case p.open != nil:
		decodeStream(p.open, p.n, p.upto, c)
		if p.sort {
			c.sort()
		}
		return c, nil
	case p.block != nil:
		return c, p.damaged(p.block.decode(p.entry, c, d))
	}
	if err := decodeChunk(p.chunk, c, d); err != nil {
		return c, p.damaged(err)
	}
	if n := c.len(); n != p.n || model.Micros(c.Times[0]) != p.first || model.Micros(c.Times[n-1]) != p.last {
		return c, p.damaged(pack.ErrForm)
	}
	return c, nil
}

// settle removes the readings after upto from a piece that grew during a capture. It reports whether any are left.
func (p *piece) settle() (bool, error) {
	if !p.late {
		return true, nil
	}
	c, err := p.decode(&columns{}, everything)
	if err != nil {
		return false, err
	}
	var keep []int
	for i, o := range c.Offsets {
		if model.Offset(o) <= p.upto {
			keep = append(keep, i)
		}
	}
	c.pick(keep)
	p.cols, p.sums, p.n, p.late = c, nil, len(keep), false
	if p.n > 0 {
		p.first, p.last = model.Micros(c.Times[0]), model.Micros(c.Times[p.n-1])
	}
	return p.n > 0, nil
}

func settle(pieces []piece) ([]piece, error) {
	out := pieces[:0]
	for _, p := range pieces {
		ok, err := p.settle()
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, p)
		}
	}
	return out, nil
}

func (p *piece) damaged(err error) error {
	if err == nil {
		return nil
	}
	return damaged(p.name(), err)
}

// name is the piece's row, for errors and findings.
func (p *piece) name() string {
	if p.rowID == 0 {
		return p.row
	}
	return fmt.Sprintf("%s %d", p.row, p.rowID)
}

// damaged names the row that cannot be read.
func damaged(row string, err error) error {
	if err == nil || errors.Is(err, store.ErrVersion) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", store.ErrDamaged, row, err)
}

func chunkPiece(c *store.Chunk) piece {
	return piece{series: c.Series, first: c.First, last: c.Last, n: int(c.Count), lastOffset: c.LastOffset, chunk: c.Data, row: "series_chunks", rowID: c.ID,
		labels: &labels{source: c.Source, unit: c.Unit, dataType: c.DataType, anchors: c.Anchors, profile: c.Profile, mark: chunkMark(c.Data)},
		sums:   &summary{sum: c.Sum, min: c.Min, max: c.Max}}
}

// blockPieces returns the runs of a block that are selected, of the series in only or, if it is nil, of all.
func blockPieces(b *store.Block, only map[int64]bool, q *selection) ([]piece, error) {
	row := fmt.Sprintf("series_blocks %d", b.ID)
	dir, err := decodeBlock(b.Data)
	if err != nil {
		return nil, damaged(row, err)
	}
	n := int64(0)
	var out []piece
	for i := range dir.entries {
		e := &dir.entries[i]
		n += int64(e.n)
		if only != nil && !only[e.series] || !q.hasAnchors(e.labels.anchors) || !q.overlaps(e.first, e.last) {
			continue
		}
		out = append(out, piece{series: e.series, labels: e.labels, first: e.first, last: e.last, n: e.n, lastOffset: b.LastOffset, block: dir, entry: e,
			row: row})
	}
	if n != b.Count || dir.entries[0].series != b.MinSeries {
		return nil, damaged(row, pack.ErrForm)
	}
	return out, nil
}

// capture returns the readings of a selection in the heads that a snapshot lacks, as of one offset of the log: readings
// that arrive during the capture are not included.
func (s *Series) capture(snap snapshot, q *selection) ([]piece, error) {
	pieces, err := s.scan(snap, q)
	if err != nil {
		return nil, err
	}
	return settle(pieces)
}

func (s *Series) scan(snap snapshot, q *selection) ([]piece, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	hs, err := s.headsOf(snap)
	if err != nil {
		return nil, err
	}
	upto := s.active.last
	var pieces []piece
	if q.device != 0 {
		for _, h := range hs {
			for _, a := range s.activities(h, q) {
				pieces = a.appendPieces(pieces, q, upto)
			}
		}
		return pieces, nil
	}
	lists := make([][]*activity, 0, len(hs))
	for _, h := range hs {
		lists = append(lists, h.tenants[q.tenantID])
	}
	for _, list := range lists {
		for part := range slices.Chunk(list, s.captureSlice) {
			for _, a := range part {
				if q.metric == "" || a.metric == q.metric {
					pieces = a.appendPieces(pieces, q, upto)
				}
			}
			s.mu.RUnlock()
			s.mu.RLock()
		}
	}
	return pieces, nil
}

// activities returns those of a device in a head.
func (s *Series) activities(h *head, q *selection) []*activity {
	dev := s.devices[q.device]
	if dev == nil || dev.tenantID != q.tenantID {
		return nil
	}
	var acts []*activity
	for _, sr := range dev.series {
		if a := sr.in(h); a != nil && (q.metric == "" || sr.metric == q.metric) {
			acts = append(acts, a)
		}
	}
	return acts
}

func (a *activity) appendPieces(pieces []piece, q *selection, upto model.Offset) []piece {
	for r := a.runs; r != nil; r = r.next {
		if !q.hasAnchors(r.labels.anchors) {
			continue
		}
		for _, c := range r.sealed {
			if c.firstOffset > upto || !q.overlaps(c.first, c.last) {
				continue
			}
			p := piece{series: a.id, live: a.series, labels: r.labels, first: c.first, last: c.last, n: int(c.n), lastOffset: c.lastOffset, chunk: c.blob, sums: &c.summary,
				row: "head", upto: upto, late: c.lastOffset > upto}
			pieces = append(pieces, p)
		}
		if r.n == 0 || r.firstOffset > upto || !q.overlaps(r.first, r.last) {
			continue
		}
		pieces = append(pieces, piece{series: a.id, live: a.series, labels: r.labels, first: r.first, last: r.last, n: int(r.n), lastOffset: model.Offset(r.offset), open: r.buf,
			upto: upto, sort: r.unsorted, late: model.Offset(r.offset) > upto})
	}
	return pieces
}
