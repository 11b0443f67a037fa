package series

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"weir/internal/test/fixture"
	"weir/model"
	"weir/store"
)

// sharedDay fills a store with several shares of chunks, and a head beside them.
func sharedDay(t *testing.T) *Series {
	t.Helper()
	s := open(t, fixture.Store(t), Config{ChunkReadings: 10, FullReadings: 5})
	r := rand.New(rand.NewPCG(5, 6))
	for n := range 530 {
		for device := range 20 {
			at := day0 + model.Micros(n)*60_000_000
			// Sums of such values depend on the order in which they are made.
			p := Point{TenantID: 1, Device: int64(device + 1), DeviceToken: fmt.Sprintf("device-%d", device+1), Metric: "temp", Occurred: at, Received: at,
				Offset: model.Offset(20*n + device + 1), Value: math.Ldexp(r.Float64()-0.5, r.IntN(300))}
			if err := s.Put(t.Context(), []Point{p}); err != nil {
				t.Fatal(err)
			}
		}
		if n%100 == 99 {
			if err := writeHead(s, model.Offset(20*n+20)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

func TestBucketsAreTheSameInEveryWayOfSumming(t *testing.T) {
	t.Parallel()
	s := sharedDay(t)
	for _, q := range []BucketQuery{
		{TenantID: 1, IntervalSeconds: 300},
		{TenantID: 1, Metric: "temp", IntervalSeconds: 60},
		{TenantID: 1, IntervalSeconds: 6 * 3600},
	} {
		var all [][]Bucket
		for _, n := range []int{0, 1, 3} {
			s.helpers = make(chan struct{}, n)
			got, err := s.Buckets(t.Context(), q)
			if err != nil || len(got) == 0 {
				t.Fatal(len(got), err)
			}
			all = append(all, got)
		}
		n := int64(0)
		for _, b := range all[0] {
			n += b.Count
		}
		if n != 20*530 {
			t.Errorf("%+v: %d readings", q, n)
		}
		if !slices.Equal(all[0], all[1]) || !slices.Equal(all[0], all[2]) {
			t.Errorf("%+v: the sums depend on who made them", q)
		}
	}
}

func TestAChunkThatIsDamagedEndsABucketQuery(t *testing.T) {
	t.Parallel()
	s := sharedDay(t)
	if err := s.st.Write(t.Context(), store.Results, func(tx store.Tx) error {
		_, err := tx.Exec(`UPDATE series_chunks SET data = substr(data, 1, 20) WHERE id = 70`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 3} {
		s.helpers = make(chan struct{}, n)
		_, err := s.Buckets(t.Context(), BucketQuery{TenantID: 1, IntervalSeconds: 60})
		if !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), "series_chunks 70") {
			t.Errorf("%d helpers: %v", n, err)
		}
	}
}

// What goes wrong beside the reader goes wrong for it, and nobody works on.
func TestAPanicBesideTheReaderIsTheReaders(t *testing.T) {
	t.Parallel()
	b := &bucketing{walk: walk{ctx: context.Background(), q: &selection{from: store.MinMicros, to: store.MaxMicros}}, interval: 60_000_000,
		sharing: sharing{slots: make(chan struct{}, 2)}}
	defer func() {
		if x := recover(); x == nil || !strings.Contains(x.(string), "decodeChunk") && !strings.Contains(x.(string), "share") {
			t.Errorf("recovered %v", x)
		}
		b.wait()
	}()
	for range sharePieces {
		if err := b.piece(&piece{n: 1, block: &block{}}); err != nil { // a block without an entry
			t.Fatal(err)
		}
	}
	t.Error(b.finish())
}

func TestASharesPartsWaitForThoseBeforeThem(t *testing.T) {
	t.Parallel()
	slow, quick := &share{done: make(chan struct{}, 1)}, &share{done: make(chan struct{}, 1)}
	slow.parts, quick.parts = []part{{series: 1, n: 1}}, []part{{series: 1, n: 2}}
	b := &bucketing{sums: map[bucketKey]*bucketSum{}, metrics: map[int64]int32{1: 0}, sharing: sharing{pending: []*share{slow, quick}}}
	quick.done <- struct{}{}
	if err := b.collect(2); err != nil || len(b.sums) != 0 || len(b.pending) != 2 {
		t.Fatalf("%d buckets, %d pending before the first share is done: %v", len(b.sums), len(b.pending), err)
	}
	slow.done <- struct{}{}
	if err := b.collect(2); err != nil || len(b.pending) != 0 || b.sums[bucketKey{}].n != 3 {
		t.Fatalf("%d pending, %+v: %v", len(b.pending), b.sums[bucketKey{}], err)
	}
}
