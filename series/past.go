package series

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"weir/model"
	"weir/store"
	"weir/store/past"
)

// Past is one snapshot of what is stored of a tenant, for readings in the order of the log: as the applier was given them. It belongs to the
// function that it is passed to.
type Past struct {
	ctx    context.Context
	s      *Series
	tx     store.Tx
	tenant int64
	gen    uint64
	heads  []piece
	upto   model.Offset // of the heads
}

// Past runs fn in a snapshot, with the readers of scans. It runs once, unless the snapshot cannot be taken.
func (s *Series) Past(ctx context.Context, tenantID int64, fn func(*Past) error) error {
	return s.readBy(ctx, s.scans, 0, func(tx store.Tx, snap snapshot) error {
		s.mu.RLock()
		upto := s.active.last
		s.mu.RUnlock()
		heads, err := s.capture(snap, &selection{tenantID: tenantID, from: store.MinMicros, to: store.MaxMicros})
		if err != nil {
			return err
		}
		return fn(&Past{ctx: ctx, s: s, tx: tx, tenant: tenantID, gen: snap.gen, heads: heads, upto: upto})
	})
}

// Tx reads the store in the snapshot.
func (p *Past) Tx() store.Tx { return p.tx }

// LastWith returns an offset that is not below that of any record which holds an event between two times, both inclusive; 0 for none.
func (p *Past) LastWith(from, to model.Micros) (model.Offset, error) {
	last, err := past.LastWith(p.tx, p.tenant, p.gen, from, to)
	for i := range p.heads {
		if h := &p.heads[i]; h.last >= from && h.first <= to {
			last = max(last, h.lastOffset)
		}
	}
	return last, err
}

// Count returns about how many readings there are between two times, those of the heads left out.
func (p *Past) Count(from, to model.Micros) (int64, error) {
	return past.Count(p.tx, p.tenant, p.gen, from, to)
}

// Origin is what readings of one series and source have in common.
type Origin struct {
	Device int64  // row id
	Token  string // of the device, when the series began
	Metric string
	Source string
}

// Stored is a reading of a record of the log.
type Stored struct {
	Offset             model.Offset
	Occurred, Received model.Micros
	Value              float64
	Index              uint32 // in the record
	Origin             uint32 // index in Reel.Origins
}

func (r Stored) compare(o Stored) int {
	return cmp.Or(cmp.Compare(r.Offset, o.Offset), cmp.Compare(r.Index, o.Index))
}

// ErrManyRows is returned where more rows hold readings of a stretch of the log than can be read in its order.
var ErrManyRows = errors.New("series: too many rows hold readings of this stretch of the log")

// Bounds of a Reel: rows that it knows of, of 56 bytes each, and readings that it holds at a time, of 48 bytes each, with what
// sorting them takes.
const (
	maxReelRows  = 200_000
	reelReadings = 128 << 10
)

// Reel returns the readings of some devices in the order of the log, some hundred thousand at a time. A row of the store is read again for
// each of these parts that it has readings of, so that the memory does not depend on how many series there are.
type Reel struct {
	// Origins are those of the readings that were returned so far.
	Origins []Origin

	p        *Past
	devices  func(device int64) bool
	rows     []reelRow // by first offset
	from     model.Offset
	upto     model.Offset
	total    int64
	part     int // readings of a part
	series   map[int64]seriesName
	known    map[originKey]uint32
	buf      []Stored
	starts   []int32 // of sort
	places   []int32 // likewise
	scratch  columns
	ended    bool
	finished int // rows before it have no more readings
}

type reelRow struct {
	past.Row
	head *piece
}

type seriesName struct {
	device int64
	token  string
	metric string
}

type originKey struct {
	series int64
	source string
}

// Reel prepares to read the records after one offset and up to another. devices selects. It returns ErrManyRows, or an error of the store.
func (p *Past) Reel(after, upto model.Offset, devices func(device int64) bool) (*Reel, error) {
	r := &Reel{p: p, devices: devices, from: after, upto: upto, part: reelReadings, series: map[int64]seriesName{}, known: map[originKey]uint32{}}
	rows, more, err := past.Rows(p.tx, p.tenant, p.gen, after, upto, maxReelRows)
	if err != nil {
		return nil, err
	}
	if more {
		return nil, ErrManyRows
	}
	named, err := store.SeriesOfTenant(p.tx, p.gen, p.tenant)
	if err != nil {
		return nil, err
	}
	for i := range named {
		if n := &named[i]; devices(n.Device) {
			r.series[n.ID] = seriesName{n.Device, n.DeviceToken, n.Metric}
		}
	}
	for _, row := range rows {
		if _, selected := r.series[row.Series]; selected || row.Block {
			r.rows = append(r.rows, reelRow{Row: row})
			r.total += row.Readings
		}
	}
	for i := range p.heads {
		h := &p.heads[i]
		dev := h.live.dev
		if h.lastOffset <= after || !devices(dev.id) {
			continue
		}
		r.series[h.series] = seriesName{dev.id, dev.token, h.live.metric}
		r.rows = append(r.rows, reelRow{Row: past.Row{Series: h.series, Last: h.lastOffset, Readings: int64(h.n)}, head: h})
		r.total += int64(h.n)
	}
	slices.SortStableFunc(r.rows, func(a, b reelRow) int { return cmp.Compare(a.First, b.First) })
	return r, nil
}

// Readings is how many readings the rows hold that are to be read, those of other devices in the same row included; Rows is how many rows.
func (r *Reel) Readings() int64 { return r.total }

// Rows is how many rows are to be read.
func (r *Reel) Rows() int { return len(r.rows) }

// Next returns the next readings, of whole records, nil when there are no more. They are valid until the next call.
func (r *Reel) Next() ([]Stored, error) {
	for !r.ended {
		part, err := r.next()
		if err != nil || len(part) > 0 {
			return part, err
		}
	}
	return nil, nil
}

func (r *Reel) next() ([]Stored, error) {
	if r.buf == nil { // at once: an array that grows leaves three times its size behind
		r.buf = make([]Stored, 0, min(r.total, int64(r.part)*7/4))
	}
	r.buf = r.buf[:0]
	cut, batch := r.upto, make([]int, 0, reelBatch)
	for i := r.finished; i < len(r.rows) && r.rows[i].First <= cut; i++ {
		row := &r.rows[i]
		switch {
		case row.Last <= r.from:
			if i == r.finished {
				r.finished++
			}
			continue
		case row.head != nil:
			if err := r.take(row.head, cut); err != nil {
				return nil, err
			}
		default:
			if batch = append(batch, i); len(batch) < reelBatch {
				continue
			}
			if err := r.read(batch, cut); err != nil {
				return nil, err
			}
			batch = batch[:0]
		}
		cut = r.trim(cut)
	}
	if err := r.read(batch, cut); err != nil {
		return nil, err
	}
	cut = r.trim(cut)
	r.sort()
	r.from, r.ended = cut, cut >= r.upto
	return r.buf, r.p.ctx.Err()
}

// sort puts the readings into the order of the log. Offsets of a part lie close together, so that a reading's place among them tells about where
// it belongs: one pass counts, one finds a place for each, one moves them there, and what falls together is sorted. They are moved within their array:
// a second one would be the larger part of what a preview takes.
func (r *Reel) sort() {
	n := len(r.buf)
	if n < 2 {
		return
	}
	low, high := r.buf[0].Offset, r.buf[0].Offset
	for i := range r.buf {
		low, high = min(low, r.buf[i].Offset), max(high, r.buf[i].Offset)
	}
	scale := float64(n) / (float64(high-low) + 1)
	place := func(o model.Offset) int { return min(int(float64(o-low)*scale), n-1) }
	r.starts, r.places = sized(r.starts, n+1), sized(r.places, n)
	clear(r.starts)
	for i := range r.buf {
		r.starts[place(r.buf[i].Offset)+1]++
	}
	for i := range n {
		r.starts[i+1] += r.starts[i]
	}
	for i := range r.buf {
		at := &r.starts[place(r.buf[i].Offset)]
		r.places[i] = *at
		*at++
	}
	for i := range r.buf {
		for to := r.places[i]; int(to) != i; to = r.places[i] {
			r.buf[i], r.buf[to] = r.buf[to], r.buf[i]
			r.places[i], r.places[to] = r.places[to], to
		}
	}
	from := 0
	for i := range n {
		to := int(r.starts[i]) // the end of each, now
		if to-from > 1 {
			slices.SortFunc(r.buf[from:to], Stored.compare)
		}
		from = to
	}
}

// reelBatch is how many rows one statement reads.
const reelBatch = 64

// trim keeps the first readings once there are half as many again as a part has, and returns the offset up to which they go.
func (r *Reel) trim(cut model.Offset) model.Offset {
	if len(r.buf) < r.part+r.part/2 {
		return cut
	}
	r.sort()
	n := r.part
	for n < len(r.buf) && r.buf[n].Offset == r.buf[n-1].Offset {
		n++
	}
	r.buf = r.buf[:n]
	return r.buf[n-1].Offset
}

// read takes the readings of rows of the store.
func (r *Reel) read(batch []int, cut model.Offset) error {
	var chunks, blocks []int64
	for _, i := range batch {
		if row := &r.rows[i]; row.Block {
			blocks = append(blocks, row.ID)
		} else {
			chunks = append(chunks, row.ID)
		}
	}
	if err := r.p.ctx.Err(); err != nil {
		return err
	}
	if len(chunks) > 0 {
		if err := store.ChunksByID(r.p.tx, chunks, func(c *store.Chunk) error {
			piece := chunkPiece(c)
			return r.take(&piece, cut)
		}); err != nil {
			return err
		}
	}
	if len(blocks) == 0 {
		return nil
	}
	return store.BlocksByID(r.p.tx, blocks, func(b *store.Block) error {
		pieces, err := blockPieces(b, nil, &selection{from: store.MinMicros, to: store.MaxMicros})
		for i := range pieces {
			if _, selected := r.series[pieces[i].series]; selected && err == nil {
				err = r.take(&pieces[i], cut)
			}
		}
		return err
	})
}

// take takes those readings of a piece that belong to the part.
func (r *Reel) take(p *piece, cut model.Offset) error {
	c, err := p.decode(&r.scratch, everything)
	if err != nil {
		return err
	}
	origin, found := uint32(0), false
	for i, o := range c.Offsets {
		at := model.Offset(o)
		if at <= r.from || at > cut {
			continue
		}
		if !found {
			origin, found = r.origin(originKey{p.series, p.labels.source}), true
		}
		r.buf = append(r.buf, Stored{Offset: at, Occurred: model.Micros(c.Times[i]), Received: model.Micros(c.Received[i]), Value: c.Values[i],
			Index: uint32(c.Indexes[i]), Origin: origin})
	}
	return nil
}

func (r *Reel) origin(k originKey) uint32 {
	if n, known := r.known[k]; known {
		return n
	}
	s := r.series[k.series]
	r.Origins = append(r.Origins, Origin{Device: s.device, Token: s.token, Metric: s.metric, Source: k.source})
	n := uint32(len(r.Origins) - 1)
	r.known[k] = n
	return n
}
