package bolt

import (
	"log/slog"
	"math/bits"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/setting"
	"weir/model"
	"weir/spool"
)

// Auto as CommitInterval is spool.Auto.
const Auto = spool.Auto

// Defaults of Options and the fixed sizes.
const (
	DefaultSpanBytes     = 64 << 20
	DefaultSpanBytes32   = 16 << 20 // 32 bit: little address space to map files into
	DefaultUnsyncedBytes = 8 << 20
	DefaultTailBytes     = 8 << 20

	// ReserveBytes is the space above MaxBytes that only exempt entries may use.
	ReserveBytes = 16 << 20

	firstRetry  = 100 * time.Millisecond
	lastRetry   = 5 * time.Second
	largestSpan = 256 << 20
)

// Options of a log. The zero value is usable: every zero means the default, except CommitInterval, where it means
// no wait (Auto is the product's default).
type Options struct {
	spool.Capacity                            // of the batches that are not trimmed
	spool.CommitSettings                      // how long the committer gathers before it commits; negative: Auto
	Stretch              func() time.Duration // see spool.GatherOptions; nil: commits are not stretched
	SpanBytes            int64                // size at which the next file is started; at most an eighth of MaxBytes
	UnsyncedBytes        int64                // bound of the bytes not yet synced; at least one largest group
	TailBytes            int64                // memory for batches that readers have not read yet, values included by estimate
	// Sync, when set, wraps each batch's durable step: it calls sync once and returns its error, and may hold,
	// delay or fail it. A batch is stored only when both return nil.
	Sync func(sync func() error) error
	// Meta provides the metadata of each batch; nil: none.
	Meta spool.MetaSource
	// MinOffset is the highest offset that any result knows: the next offset is above it. A log that ends below
	// starts a new epoch there.
	MinOffset model.Offset
	// Mend starts a new epoch after the readable batches, where Open would fail for damage. Began reports the loss.
	Mend bool
	// MinEpoch is the minimum number of an epoch that begins with this Open (a new log, or a jump); 0 means 1.
	MinEpoch uint32
	// NewEpoch starts a new epoch with this Open, wherever the log ends: it is a copy, and the original used the
	// following offsets for other records.
	NewEpoch bool
	// PairID is written into a new log; an existing one must have it (ErrForeign). Zero: a new log creates one, an
	// existing one keeps its own.
	PairID     [16]byte
	Logger     *slog.Logger
	Registerer prometheus.Registerer

	unsafe bool // tests without crashes leave the flushes out
}

func (o Options) withDefaults() Options {
	setting.FillDefaults(&o.Capacity)
	if o.SpanBytes <= 0 {
		o.SpanBytes = DefaultSpanBytes
		if bits.UintSize == 32 {
			o.SpanBytes = DefaultSpanBytes32
		}
	}
	o.SpanBytes = max(min(o.SpanBytes, int64(o.MaxBytes)/8, largestSpan), 4*pageSize)
	if o.UnsyncedBytes <= 0 {
		o.UnsyncedBytes = DefaultUnsyncedBytes
	}
	o.UnsyncedBytes = max(o.UnsyncedBytes, spool.MinUnsynced)
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
