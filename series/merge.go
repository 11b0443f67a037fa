package series

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"weir/model"
	"weir/store"
)

// Merging makes chunks of blocks. An early checkpoint of many series leaves a few readings of each in
// a block; when a part of a group has a chunk's worth for each of its series, or its day is over, its blocks are read
// together and rewritten in one transaction: readers see either the old or the new rows. Merging needs no record of the log,
// and moves no offset. One merging reads a bounded number of bytes and uses the writer for a few milliseconds.

const (
	mergeBytes = 1 << 20 // the maximum of blobs that one merging reads, and one block more
	mergeRows  = 128     // blocks that one merging takes; so many are merged however few their readings
	// dayRest is how long after its end a day is merged: most late readings have arrived by then.
	dayRest = 6 * 60 * 60 * 1_000_000
)

// mergeTogether is how many parts are merged in one commit: their old rows are adjacent, so that pages of tables and
// indexes are written once and not for each. Every part is a Write of its own, so that no other write waits long.
const mergeTogether = 4

// Backlog describes the blocks that can still be merged.
type Backlog struct{ Blocks, Readings int64 }

// Merge merges the parts that are due at now, a few parts of groups at a time, and returns how many readings it has rewritten. pause
// is called before each few; its error ends the work. A part with a damaged block stays unchanged, and the others are merged
// before the error is returned. Only one Merge runs at a time.
func (s *Series) Merge(ctx context.Context, now model.Micros, pause func() error) (merged int64, err error) {
	var open []store.OpenBlocks
	m := merger{s: s}
	err = s.st.Read(ctx, func(tx store.Tx) (err error) {
		if _, m.gen, err = store.CheckpointState(tx); err != nil {
			return err
		}
		open, err = store.OpenBlocksByDay(tx, m.gen)
		return err
	})
	if err != nil {
		return 0, err
	}
	left := Backlog{}
	for _, o := range open {
		left.Blocks, left.Readings = left.Blocks+o.Rows, left.Readings+o.Readings
	}
	s.backlog.Store(&left)
	for _, o := range open {
		over := int64(now) >= (o.Day+1)*microsPerDay+dayRest
		for more := over || s.worthMerging(o); more; {
			if more, err = m.prepare(ctx, o, over); err != nil {
				if ctx.Err() != nil {
					return m.merged, err
				}
				m.faults = append(m.faults, err)
			}
			// The rest of a day is read again: the rows read first must be gone by then.
			if !more && len(m.ready) < mergeTogether {
				continue
			}
			if err := m.write(ctx, pause); err != nil {
				return m.merged, err
			}
		}
	}
	return m.merged, errors.Join(m.write(ctx, pause), errors.Join(m.faults...))
}

// worthMerging reports whether the series of a part have a chunk's worth in blocks, an eighth more since they have
// different numbers; or whether there are so many rows that they slow readers down.
func (s *Series) worthMerging(o store.OpenBlocks) bool {
	full := int64(s.cfg.FullReadings)
	return o.Rows > 1 && (o.Readings >= (full+full/8)*o.Runs || o.Rows >= mergeRows)
}

// merger merges.
type merger struct {
	s      *Series
	gen    uint64
	merged int64 // readings
	ready  []*merging
	faults []error

	// Scratch space of the prepared one.
	enc    encoder
	short  blockBuilder // runs that may be merged again
	long   blockBuilder // runs that stay as they are
	tenant int64
	newest uint64 // generation of the blocks that are read
	*merging
}

// merging replaces some blocks.
type merging struct {
	gone     []store.Block // without their data
	readings int64
	chunks   []*store.Chunk
	blocks   []*store.Block
}

// prepare repacks some of the blocks that o counts. more means that the day is over and some of it is left.
func (m *merger) prepare(ctx context.Context, o store.OpenBlocks, over bool) (more bool, err error) {
	rows, all, err := m.read(ctx, o)
	if err != nil || len(rows) == 0 || len(rows) == 1 && !over {
		return false, err
	}
	m.merging = &merging{}
	for i := range rows {
		gone := rows[i]
		gone.Data = nil
		m.gone = append(m.gone, gone)
		m.readings += rows[i].Count
	}
	if err := m.repack(rows, over); err != nil {
		return false, err
	}
	m.ready = append(m.ready, m.merging)
	return over && !all, nil
}

// write writes the prepared mergings. Blocks that were removed meanwhile are no error: their rest waits for the next time.
func (m *merger) write(ctx context.Context, pause func() error) error {
	if len(m.ready) == 0 {
		return nil
	}
	if err := pause(); err != nil {
		return err
	}
	var all sync.WaitGroup
	errs := make([]error, len(m.ready))
	for i, r := range m.ready {
		all.Go(func() {
			errs[i] = m.s.st.Write(ctx, store.Results, func(tx store.Tx) error { return store.ReplaceBlocks(tx, r.gone, r.chunks, r.blocks) })
		})
	}
	all.Wait()
	for i, r := range m.ready {
		switch {
		case errs[i] == nil:
			m.merged += r.readings
			m.s.m.countMerged(r)
		case errors.Is(errs[i], store.ErrMerged):
			errs[i] = nil
		}
	}
	clear(m.ready)
	m.ready = m.ready[:0]
	return errors.Join(errs...)
}

func (m *merger) read(ctx context.Context, o store.OpenBlocks) (rows []store.Block, all bool, err error) {
	err = m.s.st.Read(ctx, func(tx store.Tx) (err error) {
		rows, err = store.BlocksToMerge(tx, o, m.gen, mergeRows)
		return err
	})
	all = len(rows) < mergeRows
	bytes := 0
	for i := range rows {
		if bytes += len(rows[i].Data); bytes > mergeBytes && i > 0 {
			return rows[:i+1], false, err
		}
	}
	return rows, all, err
}

// repack reads the blocks and repacks their readings. A damaged block is an error and stays unchanged.
func (m *merger) repack(rows []store.Block, over bool) error {
	m.short.enc, m.long.enc = &m.enc, &m.enc
	m.tenant, m.newest = rows[0].TenantID, 0
	var pieces []piece
	for i := range rows {
		m.newest = max(m.newest, rows[i].Gen)
		ps, err := blockPieces(&rows[i], nil, &selection{from: store.MinMicros, to: store.MaxMicros})
		if err != nil {
			return err
		}
		pieces = append(pieces, ps...)
	}
	slices.SortStableFunc(pieces, func(a, b piece) int { return cmp.Or(cmp.Compare(a.series, b.series), a.labels.compare(b.labels)) })
	var all, one columns
	for i := range pieces {
		p := &pieces[i]
		c, err := p.decode(&one, everything)
		if err != nil {
			return err
		}
		if i == 0 || p.series != pieces[i-1].series || *p.labels != *pieces[i-1].labels {
			if i > 0 {
				m.series(&pieces[i-1], &all, over)
			}
			all.resize(0)
		}
		all.appendAll(c)
	}
	m.series(&pieces[len(pieces)-1], &all, over)
	m.close(&m.short, false)
	m.close(&m.long, true)
	return nil
}

// series packs the readings of one series: as chunks that fill a page, and the rest as a run of a block.
func (m *merger) series(p *piece, c *columns, over bool) {
	c.sortIfNeeded()
	for from := 0; from < c.len(); {
		part := c.part(from, min(c.len(), from+m.s.cfg.ChunkReadings*mostChunks))
		blob := m.enc.appendChunk(nil, part)
		if n := int(m.s.fills(int32(part.len()), len(blob))); n < part.len()-part.len()/8 {
			part = c.part(from, from+n)
			blob = m.enc.appendChunk(nil, part)
		}
		if rest := from+part.len() == c.len(); rest && !m.s.pageworthy(part.len(), len(blob)) {
			b := &m.short
			merged := over || part.len() >= m.s.cfg.FullReadings
			if merged {
				b = &m.long
			}
			if b.full(p.series) {
				m.close(b, merged)
			}
			b.add(p.series, p.labels, part)
		} else {
			m.chunks = append(m.chunks, chunkRow(m.newest, m.tenant, p.series, p.labels, part.summarize(), blob))
		}
		from += part.len()
	}
}

// pageworthy reports whether a chunk of so many readings and bytes wastes little of its page: it fills most of one, or at
// most half, so that another fits beside it.
func (s *Series) pageworthy(n, bytes int) bool {
	return n >= s.cfg.FullReadings && (bytes >= s.cfg.ChunkBytes-s.cfg.ChunkBytes/4 || bytes <= s.cfg.ChunkBytes/2)
}

func (m *merger) close(b *blockBuilder, merged bool) {
	if len(b.entries) == 0 {
		return
	}
	row := b.row(m.newest, m.tenant)
	row.Merged = merged
	m.blocks = append(m.blocks, row)
	b.reset()
}
