package series

import "weir/store"

// Counts come from the rows; only rows across an end of the range are decoded.

func (w *walk) countPieces(pieces []piece) (int64, error) {
	all, c := int64(0), &columns{}
	for i := range pieces {
		n, err := w.countPiece(&pieces[i], c)
		if err != nil {
			return 0, err
		}
		all += n
	}
	return all, nil
}

// countPiece returns how many readings of a piece the walk selects. c is scratch space.
func (w *walk) countPiece(p *piece, c *columns) (int64, error) {
	if w.q.holds(p.first, p.last) {
		return int64(p.n), nil
	}
	if err := w.spend(1); err != nil {
		return 0, err
	}
	return p.count(w.q, c)
}

// countRowEvents counts the events of a scope.
func (w *walk) countRowEvents(scope store.EventScope) (int64, error) {
	if w.effort == nil {
		return store.CountRowEvents(w.tx, scope, store.AllRows)
	}
	n, err := store.CountRowEvents(w.tx, scope, int64(w.effort.steps+1)*rowsPerStep)
	if err != nil {
		return 0, err
	}
	return n, w.spend(int(n / rowsPerStep))
}

// count returns how many readings of a piece are selected. c is scratch space.
func (p *piece) count(q *selection, c *columns) (int64, error) {
	if q.holds(p.first, p.last) {
		return int64(p.n), nil
	}
	d := timesOnly
	if q.before != nil && p.first <= q.before.at && q.before.at <= p.last {
		d = everything
	}
	c, err := p.decode(c, d)
	if err != nil {
		return 0, err
	}
	from, to := c.selected(q)
	return int64(to - from), nil
}

func (w *walk) countChunks(sc store.PackedScope) (int64, error) {
	if w.q.anchors != nil {
		return w.countRows(&chunkCursor{scope: sc, limit: fullBatch})
	}
	total, err := store.CountChunks(w.tx, sc, w.q.lastInside())
	if err != nil {
		return 0, err
	}
	if w.q.unbounded() {
		return total, nil
	}
	c := &columns{}
	for after := (*store.After)(nil); ; {
		rows, err := store.ChunksOverEnds(w.tx, sc, w.q.lastInside(), after, fullBatch)
		if err != nil {
			return 0, err
		}
		for i := range rows {
			p := chunkPiece(&rows[i])
			n, err := w.countPiece(&p, c)
			if err != nil {
				return 0, err
			}
			total += n
			after = &store.After{Last: p.last, ID: rows[i].ID}
		}
		if len(rows) < fullBatch {
			return total, nil
		}
	}
}

func (w *walk) countBlocks(sc store.PackedScope, only map[int64]bool) (int64, error) {
	if w.q.anchors != nil || only != nil {
		return w.countRows(&blockCursor{scope: sc, only: only})
	}
	total, err := store.CountBlocks(w.tx, sc, w.q.lastInside())
	if err != nil {
		return 0, err
	}
	if w.q.unbounded() {
		return total, nil
	}
	for after := (*store.After)(nil); ; {
		rows, err := store.BlocksOverEnds(w.tx, sc, w.q.lastInside(), after, blockBatch)
		if err != nil {
			return 0, err
		}
		for i := range rows {
			pieces, err := blockPieces(&rows[i], nil, w.q)
			if err != nil {
				return 0, err
			}
			n, err := w.countPieces(pieces)
			if err != nil {
				return 0, err
			}
			total += n
			after = &store.After{Last: rows[i].Last, ID: rows[i].ID}
		}
		if len(rows) < blockBatch {
			return total, nil
		}
	}
}

// countRows counts the events that a cursor over rows would return, reading each row.
func (w *walk) countRows(k cursor) (int64, error) {
	total := int64(0)
	err := w.pieces(k, func(p *piece) error {
		n, err := w.countPiece(p, w.scratch())
		total += n
		return err
	})
	return total, err
}

// pieces calls f for each piece of a cursor over rows.
func (w *walk) pieces(k cursor, f func(*piece) error) error {
	for more := true; more; {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if err := w.spend(1); err != nil {
			return err
		}
		var added []cursor
		var err error
		if added, more, err = k.prepare(w); err != nil {
			return err
		}
		for _, c := range added {
			if err := f(&c.(*pieceCursor).piece); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *walk) scratch() *columns {
	if len(w.spare) == 0 {
		w.spare = append(w.spare, &columns{})
	}
	return w.spare[0]
}
