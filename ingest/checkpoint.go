package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/faults"
	"weir/model"
	"weir/rules"
	"weir/spool"
	"weir/store"
)

// metaListening is the key of the listening time as of the checkpoint.
const metaListening = "listening"

// stopTimeout is how long the last checkpoint may take at a stop.
const stopTimeout = 30 * time.Second

// Checkpoint is an offset up to which the store holds every result, and the state with which resolution continues from there.
type Checkpoint struct {
	Offset     model.Offset
	Generation uint64          // of the rows that it publishes
	Received   model.Nanos     // newest receive time
	Listening  rules.Listening // newest

	timeMap *model.TimeMap // newest that was known
}

// Published returns the checkpoint that the store has, without its time map.
func Published(tx store.Tx) (c Checkpoint, err error) {
	if c.Offset, c.Generation, err = store.CheckpointState(tx); err != nil {
		return c, err
	}
	listening, _, err := store.MetaInt(tx, metaListening)
	if err != nil {
		return c, err
	}
	received, _, err := store.MetaInt(tx, metaReceived)
	c.Listening, c.Received = rules.Listening(listening), model.Nanos(received)
	return c, err
}

// publish moves the checkpoint. It comes last in the transaction of the projections.
func (c *Checkpoint) publish(tx store.Tx) error {
	if err := store.SetMetaInt(tx, metaListening, int64(c.Listening)); err != nil {
		return err
	}
	if err := writeTimes(tx, c.Received, c.timeMap); err != nil {
		return err
	}
	return store.SetCheckpointState(tx, c.Offset, c.Generation)
}

// checkpointer writes what the projections hold in memory, between two records. The moment follows from the records alone
// (their bytes, their receive times, the memory that they fill, a change that asks for it), so that the same log has the same checkpoints.
type checkpointer struct {
	cfg     *ApplyConfig
	store   store.Store
	log     spool.Log
	logger  *slog.Logger
	retry   *retrier
	written prometheus.Counter
	results *results

	newest  Checkpoint   // that is published
	started model.Offset // of the one that this process found: batches after it are not counted yet

	bytes   int64        // of records since the newest freeze
	weight  int64        // that their batches take of the log's budget
	records int64        // how many
	oldest  model.Nanos  // receive time of the first one, 0 when there is none
	asked   bool         // one of them asks for a checkpoint
	since   atomic.Int64 // oldest, for other goroutines

	frozen  *Checkpoint   // to be written when its batch is committed
	writing chan struct{} // closed when the write that is under way has ended
	err     error         // of that write
	awaited atomic.Bool   // the applier waits for it
	behind  func() bool   // records wait to be applied

	// life is the context of a write: it outlasts the applier's own, so that a stop finishes it.
	life context.Context
	end  context.CancelFunc
}

// load reads the checkpoint, without the time map.
func (c *checkpointer) load(tx store.Tx) (err error) {
	c.newest, err = Published(tx)
	c.started = c.newest.Offset
	return err
}

// add notes that a record was applied.
func (c *checkpointer) add(bytes int, received model.Nanos) {
	c.bytes += int64(bytes)
	c.records++
	if c.oldest == 0 {
		c.oldest = received
		c.since.Store(int64(received))
	}
}

// due reports whether it is time for a checkpoint after a record.
func (c *checkpointer) due(received model.Nanos) bool {
	return c.asked || c.bytes >= int64(c.cfg.ReplayBytes) || received-c.oldest >= model.Nanos(c.cfg.HeadAge) || c.results.pendingBytes() >= c.cfg.HeadBytes ||
		c.cfg.LogBytes > 0 && c.weight >= c.cfg.LogBytes || c.cfg.LogRecords > 0 && c.records >= c.cfg.LogRecords
}

// freeze sets aside everything that waits, as of a record. The write before has ended: at most two are in memory.
func (c *checkpointer) freeze(at Checkpoint) {
	faults.Point("head.freeze")
	// Rows of a new generation are not read until it is published.
	at.Generation = c.newest.Generation + 1
	for _, p := range c.results.all {
		p.Freeze(at)
	}
	faults.Point("head.cut")
	c.frozen = &at
	// Count again from here: the moment of the next checkpoint follows from the records after this one.
	c.bytes, c.weight, c.records, c.oldest, c.asked = 0, 0, 0, 0, false
	c.since.Store(0)
}

// start begins to write what is frozen, now that the batch of its record is committed.
func (c *checkpointer) start() {
	// Nothing is frozen after most batches.
	at := c.frozen
	if at == nil {
		return
	}
	c.frozen = nil
	faults.Point("head.write")
	done := make(chan struct{})
	c.writing = done
	go func() {
		defer close(done)
		c.err = c.write(c.life, *at)
	}()
}

// await waits for the write that is under way, if there is one.
func (c *checkpointer) await() error {
	if c.writing == nil {
		return nil
	}
	// While the applier waits, the write does not rest.
	c.awaited.Store(true)
	defer c.awaited.Store(false)
	<-c.writing
	c.writing = nil
	return c.err
}

// write writes a checkpoint in slices under a new generation that no reader sees, publishes generation and offset in one
// small durable transaction, and trims the log before it. A store that refuses is asked again.
func (c *checkpointer) write(ctx context.Context, at Checkpoint) error {
	// A write that failed is repeated as a whole; Write removes what the attempt left.
	if err := c.retry.until(ctx, "the checkpoint cannot be written", func() error { return c.try(ctx, at) }); err != nil {
		return err
	}
	faults.Point("head.flipped")
	c.newest = at
	c.written.Inc()
	// The checkpoint is published: rows that it replaces can go. Failing costs only space.
	for _, p := range c.results.all {
		if err := p.Release(ctx, c.slice(ctx)); err != nil && ctx.Err() == nil {
			c.logger.Warn("rows that the checkpoint replaced could not be removed; the next one removes them", "error", err)
		}
	}
	// Last: everything before the checkpoint is in the store durably.
	if err := c.log.Trim(at.Offset); err != nil {
		return fmt.Errorf("trimming the log: %w", err)
	}
	faults.Point("head.trimmed")
	return nil
}

func (c *checkpointer) try(ctx context.Context, at Checkpoint) error {
	for _, p := range c.results.all {
		if err := p.Write(ctx, c.slice(ctx)); err != nil {
			return err
		}
	}
	faults.Point("head.flip")
	// Published in one durable transaction: readers see all of the checkpoint or nothing of it.
	return c.store.Write(ctx, store.Durable, func(tx store.Tx) error {
		for _, p := range c.results.all {
			if err := p.Publish(tx); err != nil {
				return err
			}
		}
		return at.publish(tx)
	})
}

// slice returns a function that runs one transaction of results, and rests after it.
func (c *checkpointer) slice(ctx context.Context) WriteFunc {
	last := time.Now()
	return func(fn func(store.Tx) error) error {
		if err := c.writeSlice(ctx, fn); err != nil {
			return err
		}
		// Let queries and the applier have the writer after each transaction.
		c.rest(ctx, time.Since(last))
		last = time.Now()
		return nil
	}
}

func (c *checkpointer) writeSlice(ctx context.Context, fn func(store.Tx) error) error {
	err := c.store.Write(ctx, store.Results, fn)
	faults.Point("head.slice")
	return err
}

// While records wait a checkpoint rests restShare times as long as it works, maxRest at most between two slices.
const (
	restShare = 3
	maxRest   = 60 * time.Millisecond
)

// rest lets the applier catch up after some work: an edge that is late is noticed, and a checkpoint that takes longer is not. Where nothing
// waits, or the applier waits for the checkpoint itself, there is no rest.
func (c *checkpointer) rest(ctx context.Context, worked time.Duration) {
	if c.awaited.Load() || !c.behind() {
		return
	}
	select {
	case <-time.After(min(restShare*worked, maxRest)):
	case <-ctx.Done():
	}
}

// sliceRows is how many small rows one transaction of a checkpoint holds, so that the writer is never held for long.
const sliceRows = 200

// inSlices writes rows a slice at a time.
func inSlices[T any](write WriteFunc, rows []T, put func(store.Tx, T) error) error {
	for from := 0; from < len(rows); from += sliceRows {
		part := rows[from:min(from+sliceRows, len(rows))]
		if err := write(func(tx store.Tx) error {
			for _, r := range part {
				if err := put(tx, r); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// retrier repeats a required step until it succeeds or the process stops; later steps wait.
type retrier struct {
	wait    time.Duration
	retries prometheus.Counter
	logger  *slog.Logger
	failing atomic.Pointer[string] // why the applier waits
}

func (r *retrier) until(ctx context.Context, what string, do func() error) error {
	for {
		err := do()
		if err == nil {
			r.failing.Store(nil)
			return nil
		}
		if ctx.Err() != nil || errors.Is(err, store.ErrClosed) {
			return err
		}
		// Shown in the status, and the reason why a stop does not wait for the applier.
		why := what + ": " + err.Error()
		r.failing.Store(&why)
		r.retries.Inc()
		r.logger.Error("the applier waits: "+what, "error", err, "retry", r.wait.String())
		select {
		case <-time.After(r.wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
