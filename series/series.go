// Package series keeps readings packed per series. A series is a metric of a device. The applier puts readings into the
// head, compressed, in memory; at a freeze, between two records of the log, the head is written to the store: a series
// with some hundreds of readings as a chunk of its own, the rest together as blocks; then one small transaction moves
// the head offset, up to which a replay does not need the log. Reads merge head, blocks and chunks.
//
//	Put ─► head ── Freeze ─► Frozen ── Write ─► rows of a new generation ── Flip ─► seen ── Release
//	Measurements, Buckets, Events, Latest… ◄── head + frozen head + rows
//
// Rows are a function of the log and of the offsets at which it was frozen: neither of the batching of records nor of the
// wall clock. Merge later replaces blocks by other rows with the same readings.
package series

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/setting"
	"weir/model"
	"weir/store"
)

// Config bounds the memory. A value of 0 or less means its default.
type Config struct {
	Settings
	// ChunkReadings is the approximate number of readings of a chunk, 512: the first chunk has that many, later ones fill a page; a series with at least FullReadings (300) open readings at
	// a freeze gets a chunk, one with fewer goes into a block. Both affect the size of rows, not whether they can be
	// read.
	ChunkReadings, FullReadings int
	// ChunkBytes is the optimal size of a chunk's blob, 3800 bytes: with the row's other columns and the variation
	// between two chunks of a series, that is a page of the database.
	ChunkBytes int
}

func (c *Config) setDefaults() {
	setting.FillDefaults(&c.Settings)
	for _, f := range [...]struct {
		v    *int
		most int
		def  int
	}{{&c.SeriesPerDevice, 1 << 20, 256}, {&c.SeriesPerTenant, 1 << 30, 100_000}, {&c.ChunkReadings, maxRun, 512}, {&c.FullReadings, maxRun, 300},
		{&c.ChunkBytes, 1 << 20, 3800}} {
		if *f.v <= 0 {
			*f.v = f.def
		}
		*f.v = min(*f.v, f.most)
	}
}

// Account accounts for the head's memory. Its methods may neither block nor refuse: the owner of the memory budget has
// the head frozen in time.
type Account interface {
	Grow(bytes int64)
	Shrink(bytes int64)
}

type noAccount struct{}

func (noAccount) Grow(int64)   {}
func (noAccount) Shrink(int64) {}

// Options are the collaborators of a Series. All may be nil.
type Options struct {
	// Applier and Scans are the store with the readers of the applier, and with those of long queries. Both default to the
	// store that short queries read.
	Applier, Scans store.Store

	Account    Account
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Series is the readings of an instance. Put, PutLocation, Admit, Forget and Freeze belong to the applier; everything
// else is safe for concurrent use.
type Series struct {
	cfg     Config
	st      store.Store // for writes and short queries
	applier store.Store
	scans   store.Store
	account Account
	m       *metrics

	mu             sync.RWMutex
	base           model.Offset // every reading up to here is in rows
	gen            uint64
	active, frozen *head        // frozen is nil unless one is being written
	bytes          atomic.Int64 // of the active one
	devices        map[int64]*device
	tenants        map[int64]*tenant
	lastGroup      int64     // of series ids
	silent         []*device // heard in the head released last

	backlog atomic.Pointer[Backlog] // as of the last Merge

	captureSlice int           // series that a reader examines before the applier gets its turn
	helpers      chan struct{} // one for each goroutine that sums in addition to the readers of queries for buckets
	shortSteps   int           // of a query with the readers of short ones

	// The applier's scratch space.
	enc     encoder
	scratch columns
	blob    []byte
}

// Open removes the rows of an interrupted checkpoint and reads the catalog of series.
func Open(ctx context.Context, cfg Config, st store.Store, o Options) (*Series, error) {
	cfg.setDefaults()
	s := &Series{cfg: cfg, st: st, account: o.Account, devices: map[int64]*device{}, tenants: map[int64]*tenant{}, captureSlice: 512,
		applier: cmp.Or(o.Applier, st), scans: cmp.Or(o.Scans, st), helpers: make(chan struct{}, runtime.GOMAXPROCS(0)-1), shortSteps: shortSteps}
	if s.account == nil {
		s.account = noAccount{}
	}
	removed, err := dropUnpublished(func(fn func(store.Tx) error) error { return st.Write(ctx, store.Results, fn) })
	if err != nil {
		return nil, fmt.Errorf("series: remove rows of an interrupted checkpoint: %w", err)
	}
	if removed > 0 && o.Logger != nil {
		o.Logger.Info("removed rows of an interrupted checkpoint", "rows", removed)
	}
	err = st.Read(ctx, func(tx store.Tx) (err error) {
		if s.base, s.gen, err = store.CheckpointState(tx); err != nil {
			return err
		}
		return s.loadTenants(tx)
	})
	if err != nil {
		return nil, fmt.Errorf("series: open: %w", err)
	}
	s.active = newHead(1, s.base)
	s.m = newMetrics(o.Registerer, s.Stats)
	return s, nil
}

// dropUnpublished removes the rows of generations that were never published, a slice at a time.
func dropUnpublished(run func(func(store.Tx) error) error) (removed int64, err error) {
	const slice = 200
	for {
		var n int64
		err := run(func(tx store.Tx) error {
			_, gen, err := store.CheckpointState(tx)
			if err != nil {
				return err
			}
			n, err = store.DropUnpublished(tx, gen, slice)
			return err
		})
		if err != nil || n == 0 {
			return removed, err
		}
		removed += n
	}
}

// HeadOffset is the offset up to which readings are in rows: a replay starts after it.
func (s *Series) HeadOffset() model.Offset {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.base
}

// Generation is that of the newest rows that readers see. The next checkpoint writes the following one.
func (s *Series) Generation() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.gen
}

// Bytes is the approximate memory of the active head, without a frozen one. The same log since the last freeze
// gives the same value, so that a freeze may depend on it.
func (s *Series) Bytes() int64 { return s.bytes.Load() }

// Stats are the statistics of a Series.
type Stats struct {
	HeadOffset  model.Offset
	Generation  uint64
	Bytes       int64 // of the head, including a frozen one
	Readings    int64 // in the head, including a frozen one
	Series      int64 // in the active head
	Writing     bool  // a frozen head waits for its rows
	FrozenBytes int64
	Backlog     Backlog
}

// Stats returns figures for status and metrics.
func (s *Series) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	st := Stats{HeadOffset: s.base, Generation: s.gen, Bytes: s.active.bytes, Readings: s.active.readings, Series: int64(len(s.active.acts))}
	if b := s.backlog.Load(); b != nil {
		st.Backlog = *b
	}
	if f := s.frozen; f != nil {
		st.Writing, st.FrozenBytes = true, f.bytes
		st.Bytes += f.bytes
		st.Readings += f.readings
	}
	return st
}
