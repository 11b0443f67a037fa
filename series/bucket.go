package series

import (
	"cmp"
	"context"
	"math"
	"slices"

	"weir/internal/pack"
	"weir/model"
	"weir/store"
)

// MaxBuckets is the maximum number of buckets of one query.
const MaxBuckets = 100_000

// BucketQuery selects the readings of the buckets, and their interval. Nil and empty restrict nothing.
type BucketQuery struct {
	TenantID        int64
	Device          *int64 // row id
	Metric          string
	Start, End      *model.Micros     // event time, both inclusive
	Anchors         []int64           // sorted
	Types           []model.EventType // nothing is returned when they leave out measurements
	IntervalSeconds int64
}

// Bucket aggregates the readings of one metric between Start and the next bucket's start. Sum is infinite or no
// number when the values overflow; count, minimum and maximum are exact even then.
type Bucket struct {
	Start    model.Micros
	Metric   string
	Count    int64
	Sum      float64
	Min, Max float64
}

// Avg is the mean of the bucket's values.
func (b *Bucket) Avg() float64 { return b.Sum / float64(b.Count) }

// Buckets returns the buckets that are not empty, by start, then by metric. Buckets begin at whole intervals from the
// epoch. Every reading counts, however late it arrived. More than MaxBuckets are LIMIT_EXCEEDED.
func (s *Series) Buckets(ctx context.Context, q BucketQuery) ([]Bucket, error) {
	if q.IntervalSeconds < 1 {
		return nil, model.Invalid("intervalSeconds", "must be at least 1")
	}
	if len(q.Types) > 0 && !slices.Contains(q.Types, model.MeasurementEvent) {
		return nil, nil
	}
	sel, err := (&Query{TenantID: q.TenantID, Device: q.Device, Start: q.Start, End: q.End, Anchors: q.Anchors}).selection()
	if err != nil || sel.from > sel.to {
		return nil, err
	}
	sel.metric = q.Metric
	var out []Bucket
	err = s.read(ctx, func(tx store.Tx, snap snapshot) error {
		b := &bucketing{walk: snap.walk(ctx, tx, sel), interval: min(q.IntervalSeconds, math.MaxInt32) * 1_000_000,
			sums: map[bucketKey]*bucketSum{}, numbers: map[string]int32{}, metrics: map[int64]int32{}, sharing: sharing{slots: s.helpers}}
		defer b.wait()
		if err := b.fill(s, snap); err != nil {
			return err
		}
		out = b.buckets()
		return nil
	})
	return out, err
}

// bucketing is a running query for buckets.
type bucketing struct {
	walk
	sharing
	interval int64 // microseconds
	sums     map[bucketKey]*bucketSum
	names    []string         // metrics by number
	numbers  map[string]int32 // and back
	metrics  map[int64]int32  // number of a series' metric
}

type bucketKey struct {
	start  int64
	metric int32
}

type bucketSum struct {
	n        int64
	sum      exactSum
	min, max float64
}

func (b *bucketSum) add(p *part) {
	if b.n == 0 {
		b.min, b.max = p.min, p.max
	}
	b.n += p.n
	b.sum.add(p.sum)
	b.min, b.max = min(b.min, p.min), max(b.max, p.max)
}

// summaryInterval is the interval from which on most chunks lie inside one bucket, so that reading their rows without
// the readings is tried first.
const summaryInterval = 6 * 60 * 60 * 1_000_000

func (b *bucketing) fill(s *Series, snap snapshot) error {
	pieces, err := s.capture(snap, b.q)
	if err != nil {
		return err
	}
	if err := b.spend(len(pieces)); err != nil {
		return err
	}
	for i := range pieces {
		p := &pieces[i]
		b.metrics[p.series] = b.number(p.live.metric)
		if err := b.piece(p); err != nil {
			return err
		}
	}
	sc, only, err := b.known()
	if err != nil {
		return err
	}
	for _, c := range sc.chunks {
		if err := b.chunks(c); err != nil {
			return err
		}
	}
	for _, c := range sc.blocks {
		if err := b.pieces(&blockCursor{scope: c, only: only}, b.piece); err != nil {
			return err
		}
	}
	return b.finish()
}

// known reads the series with their metrics, and returns the walks over their rows.
func (b *bucketing) known() (scopes, map[int64]bool, error) {
	read := func() ([]store.SeriesRow, error) { return b.selectedSeries() }
	if b.q.device == 0 && b.q.metric == "" {
		read = func() ([]store.SeriesRow, error) { return store.SeriesOfTenant(b.tx, b.gen, b.q.tenantID) }
	}
	rows, err := read()
	if err != nil {
		return scopes{}, nil, err
	}
	for i := range rows {
		b.metrics[rows[i].ID] = b.number(rows[i].Metric)
	}
	sc, only := b.scopesOf(rows)
	return sc, only, nil
}

func (b *bucketing) number(metric string) int32 {
	n, ok := b.numbers[metric]
	if !ok {
		n = int32(len(b.names))
		b.names = append(b.names, metric)
		b.numbers[metric] = n
	}
	return n
}

func (b *bucketing) chunks(sc store.PackedScope) error {
	if err := b.spendChunks(sc); err != nil {
		return err
	}
	if b.interval < summaryInterval {
		return store.ChunkValues(b.tx, sc, func(c *store.Chunk) error {
			if !b.q.hasAnchors(c.Anchors) {
				return nil
			}
			p := chunkPiece(c)
			p.chunk = b.kept(c.Data)
			return b.piece(&p)
		})
	}
	var across []int64
	err := store.ChunkSummaries(b.tx, sc, func(c *store.Chunk) error {
		if !b.q.hasAnchors(c.Anchors) {
			return nil
		}
		if b.q.holds(c.First, c.Last) && bucketStart(int64(c.First), b.interval) == bucketStart(int64(c.Last), b.interval) {
			p := chunkPiece(c)
			return b.piece(&p)
		}
		across = append(across, c.ID)
		return nil
	})
	if err != nil {
		return err
	}
	return store.ChunksByID(b.tx, across, func(c *store.Chunk) error {
		p := chunkPiece(c)
		return b.piece(&p)
	})
}

// spendChunks spends what the chunks of a scope cost before the first of them is decoded.
func (b *bucketing) spendChunks(sc store.PackedScope) error {
	if b.effort == nil {
		return nil
	}
	n, err := store.CountChunkRows(b.tx, sc, b.effort.steps+1)
	if err != nil {
		return err
	}
	return b.spend(n)
}

func (b *bucketing) add(p *part) error {
	metric, ok := b.metrics[p.series]
	if !ok {
		return damaged("series", pack.ErrForm)
	}
	key := bucketKey{p.start, metric}
	have := b.sums[key]
	if have == nil {
		if len(b.sums) >= MaxBuckets {
			return model.Errorf(model.CodeLimitExceeded, "more than %d buckets: choose a longer interval or a shorter time range", MaxBuckets)
		}
		have = &bucketSum{}
		b.sums[key] = have
	}
	have.add(p)
	return nil
}

func (b *bucketing) buckets() []Bucket {
	out := make([]Bucket, 0, len(b.sums))
	for k, v := range b.sums {
		out = append(out, Bucket{Start: model.Micros(k.start), Metric: b.names[k.metric], Count: v.n, Sum: v.sum.value(), Min: v.min, Max: v.max})
	}
	slices.SortFunc(out, func(a, b Bucket) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Metric, b.Metric))
	})
	return out
}
