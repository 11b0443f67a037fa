package series

import (
	"context"
	"errors"
	"fmt"

	"weir/model"
	"weir/store"
)

// Tally is a row's number of readings of one tenant, from one event source, received in one hour. A message counts with
// its first reading, so that it counts once.
type Tally = store.RowTally

// Recount returns the contents of chunks and blocks, by reading every row to its last reading.
type Recount struct {
	Tally func(Tally) error
	// Fault is called for a row that differs from what was written, or that contains a reading twice. An unreadable row
	// is not tallied.
	Fault func(Fault)
	// Row is called after each row, unless it is nil.
	Row func()
}

// Fault describes a damaged row.
type Fault struct {
	Row      string // table and id
	TenantID int64
	Text     string
	Readings int64 // according to the row, or that appear twice
}

// Gap is a missing row id between two rows of one series or neighbours in one group. Merged and expired rows
// leave such gaps too: a gap is evidence when a count is short, and nothing else.
type Gap struct {
	Table        string
	First, Last  int64
	Before, Next int64 // series of the rows around it
	TenantID     int64
}

// recountBatch is how many rows are in memory at once.
const recountBatch = 16

// maxGaps is the maximum number of gaps kept.
const maxGaps = 200

// Run reads the rows of generation gen. It needs the memory of a few rows, whatever their number.
func (r *Recount) Run(ctx context.Context, tx store.Tx, gen uint64) ([]Gap, error) {
	var gaps []Gap
	note := func(g Gap) {
		if g.First <= g.Last && len(gaps) < maxGaps {
			gaps = append(gaps, g)
		}
	}
	if err := r.chunks(ctx, tx, gen, note); err != nil {
		return nil, err
	}
	return gaps, r.blocks(ctx, tx, gen, note)
}

func (r *Recount) chunks(ctx context.Context, tx store.Tx, gen uint64, gap func(Gap)) error {
	c, last := &columns{}, store.Chunk{}
	for {
		rows, err := store.ChunksAfter(tx, gen, last.ID, recountBatch)
		if err != nil || len(rows) == 0 {
			return err
		}
		for i := range rows {
			row := &rows[i]
			gap(Gap{Table: "series_chunks", First: last.ID + 1, Last: row.ID - 1, Before: last.Series, Next: row.Series, TenantID: row.TenantID})
			if err := r.chunk(row, c); err != nil {
				return err
			}
			last.ID, last.Series = row.ID, row.Series
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (r *Recount) chunk(row *store.Chunk, c *columns) error {
	p := chunkPiece(row)
	got, err := p.decode(c, everything)
	if err == nil {
		err = sameSummary(row, got)
	}
	if err != nil {
		return r.fault(err, Fault{Row: p.name(), TenantID: row.TenantID, Readings: row.Count})
	}
	return r.run(row.TenantID, &p, got)
}

// sameSummary compares a row's summary with its readings, except the sum: its rounding is not specified.
func sameSummary(row *store.Chunk, c *columns) error {
	s := c.summarize()
	if s.firstOffset != row.FirstOffset || s.lastOffset != row.LastOffset || s.min != row.Min || s.max != row.Max {
		return damaged(fmt.Sprintf("series_chunks %d", row.ID), errors.New("what it says of its readings is not what they are"))
	}
	return nil
}

func (r *Recount) blocks(ctx context.Context, tx store.Tx, gen uint64, gap func(Gap)) error {
	c, last := &columns{}, store.Block{}
	for {
		rows, err := store.BlocksAfter(tx, gen, last.ID, recountBatch)
		if err != nil || len(rows) == 0 {
			return err
		}
		for i := range rows {
			row := &rows[i]
			gap(Gap{Table: "series_blocks", First: last.ID + 1, Last: row.ID - 1, Before: last.MaxSeries, Next: row.MinSeries, TenantID: row.TenantID})
			if err := r.block(row, c); err != nil {
				return err
			}
			last.ID, last.MaxSeries = row.ID, row.MaxSeries
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (r *Recount) block(row *store.Block, c *columns) error {
	pieces, err := blockPieces(row, nil, &selection{from: store.MinMicros, to: store.MaxMicros})
	if err != nil {
		return r.fault(err, Fault{Row: fmt.Sprintf("series_blocks %d", row.ID), TenantID: row.TenantID, Readings: row.Count})
	}
	for i := range pieces {
		p := &pieces[i]
		got, err := p.decode(c, everything)
		if err != nil {
			err = r.fault(err, Fault{Row: p.name(), TenantID: row.TenantID, Readings: int64(p.n)})
		} else {
			err = r.run(row.TenantID, p, got)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fault reports an unreadable row. A row of a newer Weir is not a fault.
func (r *Recount) fault(err error, f Fault) error {
	if errors.Is(err, store.ErrVersion) {
		return err
	}
	f.Text = err.Error()
	r.Fault(f)
	r.done()
	return nil
}

func (r *Recount) done() {
	if r.Row != nil {
		r.Row()
	}
}

// run tallies the readings of one run.
func (r *Recount) run(tenantID int64, p *piece, c *columns) error {
	defer r.done()
	hours := map[int64]store.LedgerCount{}
	seen := make(map[place]struct{}, c.len())
	twice := int64(0)
	for i := range c.Times {
		at := place{offset: model.Offset(c.Offsets[i]), index: uint32(c.Indexes[i])}
		if _, double := seen[at]; double {
			twice++
		}
		seen[at] = struct{}{}
		hour := model.Micros(c.Received[i]).Nanos().Hour()
		n := hours[hour]
		n.Readings++
		if at.index == 0 {
			n.Messages++
		}
		hours[hour] = n
	}
	if twice > 0 {
		r.Fault(Fault{Row: p.name(), TenantID: tenantID, Readings: twice, Text: fmt.Sprintf("%s: %d of its %d readings stand there twice", p.name(), twice, p.n)})
	}
	for hour, n := range hours {
		if err := r.Tally(Tally{TenantID: tenantID, Source: p.labels.source, Hour: hour, LedgerCount: n}); err != nil {
			return err
		}
	}
	return nil
}
