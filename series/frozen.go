package series

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"weir/model"
	"weir/store"
)

// The size of a slice of a checkpoint: about three milliseconds of the store's writer. It counts only rows, so that the
// same head gives the same rows on every machine.
const (
	sliceCost    = 3000 // microseconds, about
	chunkCost    = 50
	blockCost    = 80
	seriesCost   = 20
	latestCost   = 10
	locationCost = 15
	endCost      = 300
)

// Frozen is an immutable head that is to be written.
type Frozen struct {
	s    *Series
	head *head
	gen  uint64 // 0: not written yet
}

// Freeze ends the active head between two records of the log and begins an empty one. It returns nil while an earlier
// frozen head is not released. It takes microseconds: nothing is copied.
func (s *Series) Freeze(at model.Offset) *Frozen {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen != nil {
		return nil
	}
	h := s.active
	h.last = max(h.last, at)
	s.frozen, s.active = h, newHead(h.seq+1, h.last)
	s.bytes.Store(0)
	return &Frozen{s: s, head: h}
}

// Offset is the offset of the freeze.
func (f *Frozen) Offset() model.Offset { return f.head.last }

// Bytes is the approximate memory of the frozen head.
func (f *Frozen) Bytes() int64 { return f.head.bytes }

// Write writes the frozen head's rows under a generation above the present one. run runs a function in one transaction
// of the store; each takes a few milliseconds. No reader sees the rows before Flip's transaction, and the next Write
// removes the rows of a failed one. The caller's goroutine does the encoding.
func (f *Frozen) Write(ctx context.Context, gen uint64, run func(func(store.Tx) error) error) error {
	began := time.Now()
	if _, err := dropUnpublished(run); err != nil {
		return err
	}
	w := &headWriter{ctx: ctx, gen: gen, run: run}
	for _, part := range [...]func(*head) error{w.series, func(h *head) error { return w.packed(h, f.s.cfg.FullReadings) }, w.latest} {
		if err := part(f.head); err != nil {
			return err
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	f.gen = gen
	m := f.s.m
	m.chunks.Add(float64(w.chunked))
	m.blocks.Add(float64(w.blocked))
	m.readings.Add(float64(w.readings))
	m.bytes.Add(float64(w.bytes))
	m.writes.Observe(time.Since(began).Seconds())
	return nil
}

// Publish publishes the generation and moves the head offset. Call it in the transaction that does the same for
// everything else of the checkpoint.
func (f *Frozen) Publish(tx store.Tx) error {
	_, gen, err := store.CheckpointState(tx)
	if err != nil {
		return err
	}
	if f.gen <= gen {
		return errors.New("series: a checkpoint that was not written under a newer generation cannot be published")
	}
	return store.SetCheckpointState(tx, f.head.last, f.gen)
}

// releaseSlice is how many entries Release cleans up at a time, so that the applier waits for microseconds only.
const releaseSlice = 512

// Release drops the frozen head after the commit of Publish's transaction.
func (f *Frozen) Release() {
	s, h := f.s, f.head
	s.mu.Lock()
	if s.frozen != h {
		s.mu.Unlock()
		return
	}
	s.base, s.gen, s.frozen = h.last, f.gen, nil
	silent := s.silent
	s.silent = h.devices
	s.mu.Unlock()
	s.account.Shrink(h.bytes)
	for part := range slices.Chunk(h.acts, releaseSlice) {
		s.mu.Lock()
		for _, a := range part {
			if a.series.act == a {
				a.series.act = nil
			}
			if a.series.frozen == a {
				a.series.frozen = nil
			}
		}
		s.mu.Unlock()
	}
	// Devices that were heard in the head before this one and not since.
	for part := range slices.Chunk(silent, releaseSlice) {
		s.mu.Lock()
		for _, d := range part {
			if d.heard < h.seq && s.devices[d.id] == d {
				delete(s.devices, d.id)
			}
		}
		s.mu.Unlock()
	}
}

// headWriter gathers rows and writes them to the store in slices.
type headWriter struct {
	ctx  context.Context
	gen  uint64
	run  func(func(store.Tx) error) error
	enc  encoder
	rows []func(store.Tx) error
	cost int

	chunked, blocked, readings, bytes int64
}

// add puts a row into the slice.
func (w *headWriter) add(cost int, row func(store.Tx) error) error {
	w.rows = append(w.rows, row)
	if w.cost += cost; w.cost >= sliceCost {
		return w.flush()
	}
	return nil
}

func (w *headWriter) flush() error {
	if err := w.ctx.Err(); err != nil || len(w.rows) == 0 {
		return err
	}
	err := w.run(func(tx store.Tx) error {
		for _, row := range w.rows {
			if err := row(tx); err != nil {
				return err
			}
		}
		return nil
	})
	clear(w.rows)
	w.rows, w.cost = w.rows[:0], 0
	return err
}

func (w *headWriter) series(h *head) error {
	for _, f := range h.fresh {
		row := &store.SeriesRow{ID: f.id, Gen: w.gen, TenantID: f.dev.tenantID, Device: f.dev.id, DeviceToken: f.dev.token, Metric: f.metric,
			Created: f.created}
		if err := w.add(seriesCost, func(tx store.Tx) error { return store.InsertSeries(tx, row) }); err != nil {
			return err
		}
	}
	return nil
}

// short is a run for a block.
type short struct {
	*run
	series int64
	tenant int64
}

// packed writes chunks and blocks, in the order of series, days and the log.
func (w *headWriter) packed(h *head, full int) error {
	acts := slices.SortedFunc(slices.Values(h.acts), func(a, b *activity) int { return cmp.Compare(a.id, b.id) })
	var shorts []short
	var c columns
	for _, a := range acts {
		for r := a.runs; r != nil; r = r.next {
			for _, sealed := range r.sealed {
				if err := w.chunk(a, r.labels, sealed.summary, sealed.blob); err != nil {
					return err
				}
			}
			switch {
			case int(r.n) >= full:
				r.decode(math.MaxUint64, &c)
				if err := w.chunk(a, r.labels, c.summarize(), w.enc.appendChunk(nil, &c)); err != nil {
					return err
				}
			case r.n > 0:
				shorts = append(shorts, short{r, a.id, a.dev.tenantID})
			}
		}
	}
	return w.blocks(shorts)
}

func (w *headWriter) chunk(a *activity, l *labels, sum summary, blob []byte) error {
	row := chunkRow(w.gen, a.dev.tenantID, a.id, l, sum, blob)
	w.chunked++
	w.readings += sum.n
	w.bytes += int64(len(blob))
	return w.add(chunkCost, func(tx store.Tx) error { return store.InsertChunk(tx, row) })
}

func chunkRow(gen uint64, tenantID, series int64, l *labels, sum summary, blob []byte) *store.Chunk {
	return &store.Chunk{Gen: gen, TenantID: tenantID, Series: series, Anchors: l.anchors, Profile: l.profile,
		First: sum.first, Last: sum.last, Count: sum.n, Sum: sum.sum, Min: sum.min, Max: sum.max,
		FirstOffset: sum.firstOffset, LastOffset: sum.lastOffset, Source: l.source, Unit: l.unit, DataType: l.dataType, Data: markedChunk(blob, l.mark)}
}

// blocks packs short runs: those of one part of a group and one day together.
func (w *headWriter) blocks(shorts []short) error {
	slices.SortStableFunc(shorts, func(a, b short) int {
		return cmp.Or(cmp.Compare(store.BlockPart(a.series), store.BlockPart(b.series)), cmp.Compare(a.day, b.day), cmp.Compare(a.series, b.series))
	})
	b := &blockBuilder{enc: &w.enc}
	var c columns
	for i, r := range shorts {
		if i > 0 {
			if p := shorts[i-1]; b.full(r.series) || p.day != r.day {
				if err := w.block(b, p.tenant); err != nil {
					return err
				}
			}
		}
		r.decode(math.MaxUint64, &c)
		b.add(r.series, r.labels, &c)
	}
	if len(shorts) == 0 {
		return nil
	}
	return w.block(b, shorts[len(shorts)-1].tenant)
}

func (w *headWriter) block(b *blockBuilder, tenantID int64) error {
	row := b.row(w.gen, tenantID)
	b.reset()
	w.blocked++
	w.readings += row.Count
	w.bytes += int64(len(row.Data))
	return w.add(blockCost, func(tx store.Tx) error { return store.InsertBlock(tx, row) })
}

// latest writes the latest values of series and devices. Those rows have no generation: an older one may be replaced
// before the publication, because a replay after the old checkpoint computes the same newest reading.
func (w *headWriter) latest(h *head) error {
	acts := slices.SortedFunc(slices.Values(h.acts), func(a, b *activity) int { return cmp.Compare(a.id, b.id) })
	for _, a := range acts {
		row := a.latest()
		if err := w.add(latestCost, func(tx store.Tx) error { return store.PutLatestMeasurement(tx, row) }); err != nil {
			return err
		}
	}
	places := slices.SortedFunc(maps.Values(h.locations), func(a, b *location) int { return cmp.Compare(a.Device, b.Device) })
	for _, l := range places {
		if err := w.add(locationCost, func(tx store.Tx) error { return store.PutLatestLocation(tx, l) }); err != nil {
			return err
		}
	}
	for _, device := range h.ended {
		if err := w.add(endCost, func(tx store.Tx) error { return store.EndSeries(tx, device, w.gen) }); err != nil {
			return err
		}
	}
	return nil
}
