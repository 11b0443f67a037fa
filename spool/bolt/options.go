package bolt

import (
	"log/slog"
	"math/bits"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/model"
	"weir/spool"
)

// Auto as CommitInterval waits for more before the next batch only as long as it pays: until most of those who can be there
// are, at most half a flush where a flush takes over 5 ms, else 3 ms. Who sends alone never waits.
const Auto time.Duration = -1

// Defaults of Options and the sizes that are not for choosing.
const (
	DefaultMaxBytes      = 1 << 30
	DefaultMaxRecords    = 10_000_000
	DefaultSpanBytes     = 64 << 20
	DefaultSpanBytes32   = 16 << 20 // 32 bit: little address space to map files into
	DefaultUnsyncedBytes = 8 << 20
	DefaultTailBytes     = 8 << 20

	// ReserveBytes is the room above MaxBytes that only exempt entries may use.
	ReserveBytes = 16 << 20

	batchBytes     = 1 << 20 // a batch is closed when it holds this much
	entryOverhead  = 64      // what an entry without data counts in the unsynced bound
	recordOverhead = 8       // what a record is taken to add to its data on disk until its batch is weighed
	slowFlush      = 5 * time.Millisecond
	maxLinger      = 100 * time.Millisecond
	fastLinger     = 3 * time.Millisecond // where a flush is not slow
	firstRetry     = 100 * time.Millisecond
	lastRetry      = 5 * time.Second
	fastGoal       = 256 // entries that it gathers at most
	largestSpan    = 256 << 20
)

// Options of a log. The zero value is usable: every zero means the default, except CommitInterval, where it means
// never to wait (Auto is the product's default).
type Options struct {
	MaxBytes      int64 // budget for what is not trimmed
	MaxRecords    int64 // and how many records that may be
	SpanBytes     int64 // a file is left for the next one at this size; at most an eighth of MaxBytes
	UnsyncedBytes int64 // bound of what waits for its sync; at least one largest group
	TailBytes     int64 // memory for batches that readers have yet to take, values included by estimate
	// CommitInterval is how long the committer gathers before it commits; negative: Auto.
	CommitInterval time.Duration
	// Sync, when set, stands around each batch's durable step: it calls sync once and returns its error, and may hold,
	// delay or fail it. A batch is stored only when both return nil.
	Sync func(sync func() error) error
	// Meta gives the bytes that ride in each batch; nil: none.
	Meta spool.MetaSource
	// MinOffset is the highest offset that some result knows: the next offset lies above it. A log that ends below
	// starts a new epoch there.
	MinOffset model.Offset
	// Mend begins a new life behind what can be read, where Open would fail for damage. Began says what is lost.
	Mend bool
	// MinEpoch is the least number of an epoch that begins with this Open (a new log, or a jump); 0 means 1.
	MinEpoch uint32
	// NewEpoch begins a new epoch with this Open, wherever the log ends: it is a copy, and what followed in the original
	// bears offsets that are given again now.
	NewEpoch bool
	// PairID is written into a new log; an existing one must carry it (ErrForeign). Zero: a new log draws one, an
	// existing one keeps its own.
	PairID     [16]byte
	Logger     *slog.Logger
	Registerer prometheus.Registerer

	unsafe bool // tests that look at no crash leave the flushes out
}

func (o Options) withDefaults() Options {
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxRecords <= 0 {
		o.MaxRecords = DefaultMaxRecords
	}
	if o.SpanBytes <= 0 {
		o.SpanBytes = DefaultSpanBytes
		if bits.UintSize == 32 {
			o.SpanBytes = DefaultSpanBytes32
		}
	}
	o.SpanBytes = max(min(o.SpanBytes, o.MaxBytes/8, largestSpan), 4*pageSize)
	if o.UnsyncedBytes <= 0 {
		o.UnsyncedBytes = DefaultUnsyncedBytes
	}
	o.UnsyncedBytes = max(o.UnsyncedBytes, spool.MaxGroup+spool.MaxGroupEntries*entryOverhead)
	if o.TailBytes <= 0 {
		o.TailBytes = DefaultTailBytes
	}
	if o.Sync == nil {
		o.Sync = func(sync func() error) error { return sync() }
	}
	if o.Meta == nil {
		o.Meta = noMeta{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

type noMeta struct{}

func (noMeta) Take([]spool.Entry) []byte { return nil }
func (noMeta) Settle(bool)               {}
