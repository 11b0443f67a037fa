package series

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

func noPause() error { return nil }

// fill writes heads of a few readings of each of some devices; device 1 has twice as many.
func fill(t *testing.T, s *Series, devices, heads int) (readings int64, last model.Offset) {
	t.Helper()
	for h := range heads {
		for i := range 4 {
			for d := 1; d <= devices; d++ {
				for n := range 2 {
					if n == 1 && d > 1 {
						break
					}
					last++
					readings++
					put(t, s, reading(last, int64(d), "temp", day0+model.Micros(h*100+i*10+n)*1_000_000, float64(h)+float64(i)/10))
				}
			}
		}
		if err := writeHead(s, last); err != nil {
			t.Fatal(err)
		}
	}
	return readings, last
}

type rowsOf struct{ chunks, blocks, open, readings int64 }

func countRows(t *testing.T, st store.Store) (r rowsOf) {
	t.Helper()
	err := st.Read(t.Context(), func(tx store.Tx) error {
		return tx.QueryRow(`SELECT (SELECT COUNT(*) FROM series_chunks), (SELECT COUNT(*) FROM series_blocks), (SELECT COUNT(*) FROM series_blocks WHERE open <> 0),
			(SELECT COALESCE(SUM(n), 0) FROM series_chunks) + (SELECT COALESCE(SUM(n), 0) FROM series_blocks)`).Scan(&r.chunks, &r.blocks, &r.open, &r.readings)
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// answers are what a few queries say, as text.
func answers(t *testing.T, s *Series) string {
	t.Helper()
	one := int64(1)
	var b strings.Builder
	for _, q := range []Query{{TenantID: 1, Page: Page{1, 1000}}, {TenantID: 1, Device: &one, Page: Page{2, 7}}} {
		res, err := s.Measurements(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, res.Total)
		for i := range res.Events {
			fmt.Fprintln(&b, res.Events[i].ID(), res.Events[i].Value)
		}
	}
	buckets, err := s.Buckets(t.Context(), BucketQuery{TenantID: 1, IntervalSeconds: 3600})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range buckets {
		fmt.Fprintf(&b, "%d %d %.6f %v %v\n", k.Start, k.Count, k.Sum, k.Min, k.Max)
	}
	return b.String()
}

func TestBlocksAreMergedWhenTheirSeriesHaveAChunksWorth(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{ChunkReadings: 64, FullReadings: 32, ChunkBytes: 4000})
	fill(t, s, 5, 5)
	before := answers(t, s)
	if n, err := s.Merge(t.Context(), day0, noPause); n != 0 || err != nil {
		t.Fatalf("merged %d of too few, %v", n, err)
	}
	if b := s.Stats().Backlog; b.Blocks != 5 || b.Readings != 120 {
		t.Errorf("backlog %+v", b)
	}
	s = open(t, st, Config{ChunkReadings: 64, FullReadings: 20, ChunkBytes: 4000})
	n, err := s.Merge(t.Context(), day0, noPause)
	if got := countRows(t, st); n != 120 || err != nil || got.chunks != 5 || got.blocks != 0 || got.readings != 120 {
		t.Fatalf("merged %d, %v, then %+v", n, err, got)
	}
	if after := answers(t, s); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if s.HeadOffset() != 120 || s.Generation() != 5 {
		t.Errorf("at %d, generation %d: merging moves nothing", s.HeadOffset(), s.Generation())
	}
}

func TestADayThatIsOverComesTogetherInFewRowsOnce(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{})
	readings, _ := fill(t, s, 7, 9)
	before := answers(t, s)
	if n, err := s.Merge(t.Context(), day0+microsPerDay+dayRest-1, noPause); n != 0 || err != nil {
		t.Fatalf("merged %d before the day had rested, %v", n, err)
	}
	for range 2 {
		_, err := s.Merge(t.Context(), day0+microsPerDay+dayRest, noPause)
		if got := countRows(t, st); err != nil || got != (rowsOf{blocks: 1, readings: readings}) {
			t.Fatalf("%v, then %+v", err, got)
		}
	}
	if after := answers(t, s); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if n, err := s.Merge(t.Context(), day0+100*microsPerDay, noPause); n != 0 || err != nil {
		t.Errorf("merged %d again, %v", n, err)
	}
}

func TestTooManyRowsAreMergedHoweverFewReadingsTheyHave(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{})
	fill(t, s, 1, mergeRows)
	if n, err := s.Merge(t.Context(), day0, noPause); n == 0 || err != nil {
		t.Fatalf("merged %d, %v", n, err)
	}
	if got := countRows(t, st); got.chunks+got.blocks > 4 {
		t.Errorf("%+v", got)
	}
}

// brokenStore fails the write of a merging, as a full disk or a kill in the middle would.
type brokenStore struct {
	store.Store
	err error
}

func (b *brokenStore) Write(ctx context.Context, d store.Durability, fn func(store.Tx) error) error {
	return b.Store.Write(ctx, d, func(tx store.Tx) error { return errors.Join(fn(tx), b.err) })
}

func TestAMergingThatFailsInTheMiddleLeavesWhatWasThere(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{ChunkReadings: 64, FullReadings: 16})
	fill(t, s, 5, 5)
	before, rows := answers(t, s), countRows(t, st)
	cut := errors.New("cut")
	s.st = &brokenStore{st, cut}
	if n, err := s.Merge(t.Context(), day0, noPause); n != 0 || !errors.Is(err, cut) {
		t.Fatalf("merged %d, %v", n, err)
	}
	s = open(t, st, Config{ChunkReadings: 64, FullReadings: 16}) // as after a kill
	if got := countRows(t, st); got != rows || answers(t, s) != before {
		t.Errorf("%+v became %+v", rows, got)
	}
}

func TestBlocksThatRetentionRemovesMeanwhileStayGone(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{ChunkReadings: 64, FullReadings: 16})
	fill(t, s, 5, 5)
	if n, err := s.Merge(t.Context(), day0, func() error {
		exec(t, st, `DELETE FROM series_blocks WHERE id = 1`)
		return nil
	}); n != 0 || err != nil {
		t.Fatalf("merged %d, %v", n, err)
	}
	if got := countRows(t, st); got.chunks != 0 || got.blocks != 4 {
		t.Fatalf("%+v", got)
	}
	if n, err := s.Merge(t.Context(), day0, noPause); n != 4*24 || err != nil {
		t.Errorf("the next time %d are merged, %v", n, err)
	}
}

func TestADamagedBlockIsReportedAndTheOthersAreMerged(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{ChunkReadings: 64, FullReadings: 16})
	fill(t, s, 300, 5) // three parts
	exec(t, st, `UPDATE series_blocks SET data = substr(data, 1, 20) || x'ff' || substr(data, 22) WHERE id = 1`)
	n, err := s.Merge(t.Context(), day0, noPause)
	if !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), "series_blocks 1") || n != 172*20 {
		t.Errorf("merged %d, %v", n, err)
	}
}

func TestAMergeEndsWhenItsPauseSaysSo(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{ChunkReadings: 64, FullReadings: 16})
	fill(t, s, 5, 5)
	if n, err := s.Merge(t.Context(), day0, func() error { return context.Canceled }); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("merged %d, %v", n, err)
	}
}

// A Weir before merging made blocks of whole groups of series.
func TestBlocksOfManyPartsAreMergedIntoOnesOfOnePartEach(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{})
	readings, _ := fill(t, s, 300, 2)
	before := answers(t, s)
	var e encoder
	wide := blockBuilder{enc: &e}
	var rows []store.Block
	if err := st.Read(t.Context(), func(tx store.Tx) (err error) {
		rows, err = store.BlocksAfter(tx, 2, 0, 100)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var pieces []piece
	for i := range rows {
		ps, err := blockPieces(&rows[i], nil, &selection{from: store.MinMicros, to: store.MaxMicros})
		if err != nil {
			t.Fatal(err)
		}
		pieces = append(pieces, ps...)
	}
	slices.SortStableFunc(pieces, func(a, b piece) int { return cmp.Compare(a.series, b.series) })
	for _, p := range pieces {
		c, err := p.decode(&columns{}, everything)
		if err != nil {
			t.Fatal(err)
		}
		wide.add(p.series, p.labels, c)
	}
	if err := st.Write(t.Context(), store.Results, func(tx store.Tx) error { return store.ReplaceBlocks(tx, rows, nil, []*store.Block{wide.row(2, 1)}) }); err != nil {
		t.Fatal(err)
	}
	n, err := s.Merge(t.Context(), day0+3*microsPerDay, noPause)
	if got := countRows(t, st); n != readings || err != nil || got.readings != readings || got.open != 0 {
		t.Fatalf("merged %d of %d, %v, then %+v", n, readings, err, got)
	}
	if after := answers(t, s); after != before {
		t.Error("the answers are others")
	}
	if err := st.Read(t.Context(), func(tx store.Tx) (err error) {
		rows, err = store.BlocksAfter(tx, 2, 0, 100)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if store.BlockPart(r.MinSeries) != store.BlockPart(r.MaxSeries) {
			t.Errorf("block %d has series %d to %d", r.ID, r.MinSeries, r.MaxSeries)
		}
	}
}

// SQLite gives the id of a removed row, if it was the highest, to the next one: what a merging has read may be another
// row by the time it writes.
func TestAMergingDoesNotTakeTheRowThatHasTheIdOfOneItRead(t *testing.T) {
	t.Parallel()
	st := fixture.Store(t)
	s := open(t, st, Config{})
	_, last := fill(t, s, 3, 1)
	n, err := s.Merge(t.Context(), day0+3*microsPerDay, func() error {
		if err := st.Write(t.Context(), store.Results, func(tx store.Tx) error {
			_, err := store.RemoveBefore(tx, store.KeptReadings, day0+2*microsPerDay, 10)
			return err
		}); err != nil {
			return err
		}
		last++
		put(t, s, reading(last, 1, "temp", day0+2*microsPerDay, 7))
		return writeHead(s, last)
	})
	if got := countRows(t, st); n != 0 || err != nil || got != (rowsOf{blocks: 1, open: 1, readings: 1}) {
		t.Fatalf("merged %d, %v, then %+v", n, err, got)
	}
	one := int64(1)
	res, err := s.Measurements(t.Context(), Query{TenantID: 1, Device: &one})
	if err != nil || res.Total != 1 || res.Events[0].Value != 7 {
		t.Errorf("%+v, %v", res, err)
	}
}
