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
	"weir/internal/lograte"
	"weir/internal/throttle"
	"weir/model"
	"weir/rules"
	"weir/series"
	"weir/spool"
	"weir/store"
)

// ApplyConfig is the applier's configuration. All of it affects results: a replay under another configuration may give other
// results.
type ApplyConfig struct {
	TimeSettings
	DedupeSettings
	CheckpointSettings
	DeadLetterSettings // of each tenant; zero: there is no limit

	LogBytes      int64 // a checkpoint is due, too, when the log takes more than this of its budget, pages included; 0: no limit
	LogRecords    int64 // … or holds more records than this; 0: no limit
	HeadBytes     int64 // … or what waits takes more memory than this
	RepeatsBytes  int64 // memory for the repeats of all MQTT clients together, 16 MiB when 0
	RejectedBytes int64 // of the rejected-payload buffer, in dead letters of unauthenticated senders
	CommitRetry   time.Duration
}

// ApplyDeps are the applier's collaborators.
type ApplyDeps struct {
	Log        spool.Log
	Store      store.Store // with readers of the applier's own
	Queries    store.Store // with the readers of queries, which do not hold up the applier; nil: Store
	Counts     *TransportCounts
	Series     *series.Series
	Rules      *rules.Engine
	Controller *Controller
	// Projections are results besides Weir's own. They record, write and publish after those.
	Projections []Projection
	// Gap is a part of the log that is known to be lost before anything is read; nil: none is.
	Gap *LogGap
	// Changes is the last change of the registry that the store has numbered: a log with later ones belongs to a newer
	// store. nil: the log is not checked.
	Changes *uint64
	// Clock is asked for the time map of this boot; nil: the clock was always set.
	Clock    *Clock
	Logger   *slog.Logger
	Registry prometheus.Registerer
	// Edges and Readings get what was kept, after it is committed; nil: nothing does. They must not block.
	Edges    func(...model.Edge)
	Readings func(...series.Point)
	// Watched reports whether a client waits for Readings; nil: always.
	Watched func() bool
	// Tap shows messages as they end; nil: none are shown.
	Tap *Tap
	// Throttle is given what each tenant costs; nil: it is not counted.
	Throttle *throttle.Throttle
}

// Applier reads the batches of the log in order, resolves each record once, passes it to the projections, commits what others
// must see at once, and writes the rest, which waits in memory, with a checkpoint.
type Applier struct {
	cfg     ApplyConfig
	deps    ApplyDeps
	metrics *applyMetrics
	retry   *retrier

	results     *results
	resolver    resolver
	times       recordTimes
	checkpoints *checkpointer

	listening rules.Listening // newest of any record
	span      Span            // of the batch
	epoch     uint32          // of the batch, 0 before the first
	flapLog   lograte.Every   // lines about rules that flap, by receive time
	out       *Effects        // of the batch, nil before the first
	event     Event           // of the record
	work      workMeter
	lastStart model.Offset // newest record when this process started: later ones came through its own transports

	firstApplied model.Offset // what was applied when this process started

	applied  atomic.Uint64
	newest   atomic.Int64 // receive time of the newest record that was applied
	heard    atomic.Int64
	working  atomic.Int64  // receive time of the batch that is being applied, 0 when none is
	replayed chan struct{} // closed once what was there when the process started is applied
}

// NewApplier loads the results as of the checkpoint and returns an applier that continues after it.
func NewApplier(ctx context.Context, cfg ApplyConfig, deps ApplyDeps) (*Applier, error) {
	if deps.Queries == nil {
		deps.Queries = deps.Store
	}
	a := &Applier{cfg: cfg, deps: deps, metrics: newApplyMetrics(deps.Registry), replayed: make(chan struct{})}
	a.retry = &retrier{wait: cfg.CommitRetry, retries: a.metrics.retries, logger: deps.Logger}
	a.results = newResults(&a.cfg, &a.deps, a.metrics, a.retry)
	a.resolver = resolver{maxAge: cfg.MaxAge, maxFutureSkew: cfg.MaxFutureSkew, results: a.results, metrics: a.metrics}
	a.times.log, a.times.clock, a.times.logger = deps.Log, deps.Clock, deps.Logger
	a.checkpoints = &checkpointer{cfg: &a.cfg, store: deps.Store, log: deps.Log, logger: deps.Logger, retry: a.retry, written: a.metrics.heads, results: a.results}
	a.checkpoints.life, a.checkpoints.end = context.WithCancel(context.WithoutCancel(ctx))
	_, a.lastStart = deps.Log.Bounds()
	if err := deps.Store.Read(ctx, a.load); err != nil {
		return nil, fmt.Errorf("ingest: loading the results: %w", err)
	}
	a.applied.Store(uint64(a.checkpoints.newest.Offset))
	a.heard.Store(int64(a.listening))
	a.firstApplied = a.Applied()
	a.working.Store(int64(max(a.times.newest, 1)))
	a.progressed()
	return a, nil
}

// load reads the results as of the checkpoint.
func (a *Applier) load(tx store.Tx) error {
	if err := a.checkpoints.load(tx); err != nil {
		return err
	}
	if err := a.times.load(tx); err != nil {
		return err
	}
	at := &a.checkpoints.newest
	at.Received, at.timeMap = a.times.newest, a.times.timeMap
	a.listening = at.Listening
	for _, p := range a.results.all {
		if err := p.Load(tx, *at); err != nil {
			return err
		}
	}
	return nil
}

// Ledger returns the ledger of this instance.
func (a *Applier) Ledger() *Ledger {
	return &Ledger{store: a.deps.Queries, memory: a.results.ledger, counts: a.deps.Counts}
}

// Applied is the newest record whose effects are committed or in memory.
func (a *Applier) Applied() model.Offset { return model.Offset(a.applied.Load()) }

// Newest is the receive time of the newest record that was applied by this process, 0 when there is none.
func (a *Applier) Newest() model.Nanos { return model.Nanos(a.newest.Load()) }

// Received is the newest receive stamp that was applied.
func (a *Applier) Received() model.Nanos { return model.Nanos(a.times.received.Load()) }

// UnwrittenSince is the receive time of the oldest record whose results are in memory only, 0 when there is none.
func (a *Applier) UnwrittenSince() model.Nanos { return model.Nanos(a.checkpoints.since.Load()) }

// ReadingsStored is how many readings this process has stored.
func (a *Applier) ReadingsStored() int64 { return a.results.ledger.stored.Load() }

// SeenBytes is the memory of remembered altIds, as of the newest checkpoint; RepeatBytes that of clients' repeats.
func (a *Applier) SeenBytes() int64   { return a.results.seen.altIDsHeld.Load() }
func (a *Applier) RepeatBytes() int64 { return a.results.seen.repeatsHeld.Load() }

// Stalled says why the applier waits, "" when it does not.
func (a *Applier) Stalled() string {
	if s := a.retry.failing.Load(); s != nil {
		return *s
	}
	if s := a.times.waiting.Load(); s != nil {
		return *s
	}
	return ""
}

// ListeningTime is the listening time of the newest record that was applied: a process continues from there.
func (a *Applier) ListeningTime() int64 { return a.heard.Load() }

// RuleHealth returns a row for each rule of the active version of a tenant's profile, by rule token; none when the
// profile has no published version.
func (a *Applier) RuleHealth(ctx context.Context, tenant, profile string) ([]RuleHealth, error) {
	return a.results.rules.health(ctx, a.deps.Queries, tenant, profile)
}

// RuleStats are the figures of the engine.
func (a *Applier) RuleStats() rules.Stats { return a.results.rules.stats() }

// UnhealthyRules returns the rules that do not run or failed on some of their input.
func (a *Applier) UnhealthyRules() []rules.Health { return a.results.rules.unhealthy() }

// Silence is how long a device may be silent before its inferred presence ends: the value of its profile, otherwise standard.
func (a *Applier) Silence(tenant, device string, standard time.Duration) time.Duration {
	return a.results.metadata.silence(tenant, device, standard)
}

// DeviceState returns the activity and presence of a device, nil when nothing is known.
func (a *Applier) DeviceState(ctx context.Context, tenantID, deviceID int64) (*store.DeviceState, error) {
	return a.results.activity.state(ctx, a.deps.Queries, tenantID, deviceID)
}

// DeviceStates returns the states of a tenant's devices in order of device row ids.
func (a *Applier) DeviceStates(ctx context.Context, tenantID int64) ([]*store.DeviceState, error) {
	return a.results.activity.states(ctx, a.deps.Queries, tenantID)
}

// Run applies batches until ctx ends or the log is closed.
func (a *Applier) Run(ctx context.Context) error {
	r, err := openReader(a.deps.Log, a.retry, a.checkpoints.newest.Offset, a.lastStart, a.deps.Gap)
	if err != nil {
		return err
	}
	defer func() { r.close() }()
	for {
		b, err := a.next(ctx, r)
		if errors.Is(err, spool.ErrClosed) || ctx.Err() != nil {
			return a.stop()
		}
		if err == nil && b != nil {
			err = a.apply(ctx, b)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("ingest: %w", err), a.stop())
		}
	}
}

// next returns the next batch, nil for none yet. A gap before it is noted and skipped.
func (a *Applier) next(ctx context.Context, r *logReader) (*spool.Batch, error) {
	b, gap, err := r.next(ctx, a.Applied())
	if err != nil || gap == nil {
		return b, err
	}
	return b, a.skip(ctx, gap)
}

// skip continues after a gap. It notes the gap in the store (once, also if it is replayed) and loads the metadata as the store
// has it there, because the changes in the gap are effective already.
func (a *Applier) skip(ctx context.Context, g *LogGap) error {
	fresh := false
	now := a.Received()
	loss := store.LogLoss{At: a.noticed().Micros(), First: g.First, Last: g.Last, Why: g.Why}
	err := a.retry.until(ctx, "what was lost of the log cannot be noted", func() error {
		return a.deps.Store.Write(ctx, store.Durable, func(tx store.Tx) (err error) {
			fresh, err = NoteLoss(tx, loss, now)
			return err
		})
	})
	if err != nil {
		return err
	}
	if fresh || g.Fresh {
		a.metrics.lost.Add(float64(loss.Records()))
	}
	a.deps.Logger.Error("a part of the log is lost: its records cannot be read", "first", g.First, "last", g.Last, "why", g.Why)
	a.applied.Store(uint64(g.Last))
	return a.reloadMetadata(ctx, g.Last)
}

// noticed returns the time that a gap found now is noted with.
func (a *Applier) noticed() model.Nanos {
	if a.deps.Clock != nil {
		return a.deps.Clock.Stamp().Wall
	}
	return a.times.newest
}

// reloadMetadata takes the metadata as the store knows it at an offset, and lets the projections follow.
func (a *Applier) reloadMetadata(ctx context.Context, at model.Offset) error {
	m := a.results.metadata
	m.parts = parts{lost: true}
	var changes []*MetadataChange
	if err := a.retry.until(ctx, "the registry cannot be read", func() error {
		return a.deps.Store.Read(ctx, func(tx store.Tx) (err error) {
			changes, err = m.reload(tx, at)
			return err
		})
	}); err != nil {
		return err
	}
	a.begin()
	for _, c := range changes {
		e := &Event{At: rules.Position{Epoch: a.epoch, Offset: at, Received: a.times.newest, Listening: a.listening}, Change: c}
		if err := a.results.record(ctx, e, a.out); err != nil {
			return err
		}
	}
	return a.commit(ctx, at)
}

// maxPendingEdges is how many edges of a batch may wait in memory, and maxPendingCost what may be done for a batch before it is
// visible, some tenths of a second: with more, what comes before is committed first.
const (
	maxPendingEdges = 16 << 10
	maxPendingCost  = 5_000_000
)

// apply applies one batch. The transports' counts of a batch that begins at or before the checkpoint are in it already.
func (a *Applier) apply(ctx context.Context, b *spool.Batch) error {
	meta, err := decodeMeta(b.Meta)
	if err != nil {
		return fmt.Errorf("batch at %d: %w", b.First, err)
	}
	if len(b.Records) > 0 {
		a.working.Store(int64(max(a.times.newest, receivedAt(&b.Records[0]))))
	}
	if err := a.times.await(ctx, b, a.Applied()); err != nil {
		return err
	}
	faults.Point("apply.begin")
	if b.First > a.checkpoints.started {
		a.results.ledger.addAll(meta.Counts)
	}
	if b.First > a.lastStart {
		a.deps.Counts.read(meta.Counts)
	}
	a.epoch, a.span = b.Epoch, meta.Span
	a.begin()
	for i := range b.Records {
		off := b.First + model.Offset(i)
		if off <= a.Applied() {
			continue
		}
		weight := int64(0)
		if i == len(b.Records)-1 {
			weight = b.Weight // a batch is trimmed as a whole
		}
		if err := a.record(ctx, &b.Records[i], off, weight); err != nil {
			return fmt.Errorf("record at %d: %w", off, err)
		}
		if (len(a.out.edges) >= maxPendingEdges || a.work.cost >= maxPendingCost) && off < b.Last() {
			if err := a.commit(ctx, off); err != nil {
				return err
			}
			a.begin()
		}
	}
	if err := a.commit(ctx, b.Last()); err != nil {
		return err
	}
	a.checkpoints.start()
	return nil
}

// begin starts the effects of a batch, or of the rest of one. Subscribers may still have the edges of the one before: there is
// room for as many, and none is shared.
func (a *Applier) begin() {
	edges := 0
	if a.out != nil {
		edges = len(a.out.edges)
	}
	a.out = &Effects{watched: a.watched(), edges: make([]model.Edge, 0, edges)}
}

// watched returns a function that reports whether a client waits for readings, nil when no client can.
func (a *Applier) watched() func() bool {
	switch {
	case a.deps.Readings == nil:
		return nil
	case a.deps.Watched == nil:
		return func() bool { return true }
	}
	return a.deps.Watched
}

// record applies one record, and freezes a checkpoint after it when one is due.
func (a *Applier) record(ctx context.Context, stored *spool.Record, off model.Offset, weight int64) error {
	r, ok := stored.Value.(*model.Record)
	if !ok {
		var err error
		if r, err = model.DecodeRecord(stored.Data); err != nil {
			return err
		}
	}
	r = a.times.resolve(r)
	if off > a.lastStart && counted(r.Kind) {
		a.deps.Counts.passed(lineOf(r), r.Readings())
	}
	a.listening = max(a.listening, rules.Listening(a.span.At(r.Received.Mono)))
	a.event = Event{Record: r, At: rules.Position{Epoch: a.epoch, Offset: off, Received: r.Received.Wall, Listening: a.listening}}
	judged := a.results.rules.cost()
	a.results.advance(a.event.At, a.out)
	if err := a.resolve(ctx, &a.event); err != nil {
		return err
	}
	a.work.add(r.Account, r.Readings(), a.results.rules.cost()-judged)
	a.times.newest = max(a.times.newest, r.Received.Wall)
	a.checkpoints.weight += weight
	a.checkpoints.add(len(stored.Data), r.Received.Wall)
	if a.checkpoints.due(r.Received.Wall) && !a.results.metadata.parts.open() {
		return a.checkpoint(ctx, off)
	}
	return nil
}

// resolve resolves a record and passes it to the projections.
func (a *Applier) resolve(ctx context.Context, e *Event) error {
	switch r := e.Record; r.Kind {
	case model.KindMessage, model.KindRaw:
		if err := a.resolver.message(ctx, e); err != nil {
			return err
		}
		if !a.deps.Tap.Busy() || e.At.Offset <= a.lastStart { // watchers have seen it before the start
			return a.results.record(ctx, e, a.out)
		}
		at, before := len(a.out.endings), len(a.out.edges)
		end := ending{rec: r, outcome: e.Outcome, reason: e.Reason, why: e.Why, offset: e.At.Offset, outOfRange: e.OutOfRange}
		if e.OutOfRange > 0 {
			end.marked = e.Record.Message.Measurements
		}
		a.out.endings = append(a.out.endings, end)
		err := a.results.record(ctx, e, a.out)
		a.out.endings[at].fired = a.out.edges[before:len(a.out.edges):len(a.out.edges)]
		return err
	case model.KindPresence:
		if err := a.resolver.presence(ctx, e); err != nil || e.Transition == nil {
			return err
		}
		return a.results.record(ctx, e, a.out)
	case model.KindControl:
		return a.change(ctx, e)
	case model.KindTimeMap:
		a.times.learn(r.TimeMap)
	case model.KindClock, model.KindEpochJump:
	default:
		return fmt.Errorf("kind %d has no reader in this Weir", r.Kind)
	}
	return nil
}

// change makes a change of the metadata effective. One that is effective already was appended twice.
func (a *Applier) change(ctx context.Context, e *Event) error {
	m, c := a.results.metadata, e.Record.Control
	if c.Sequence <= m.sequence {
		a.out.sequence = max(a.out.sequence, c.Sequence)
		return nil
	}
	if known := a.deps.Changes; known != nil && c.Sequence > *known && e.At.Offset <= a.lastStart {
		return fmt.Errorf("%w: the log holds change %d of the registry, the database knows them up to %d", ErrStoreOlder, c.Sequence, *known)
	}
	changes, complete, err := m.parts.add(c)
	if err != nil || !complete {
		return err
	}
	for i := range changes {
		if err := a.changeRow(ctx, e, &changes[i]); err != nil {
			return err
		}
	}
	m.passed(c.Sequence, e.At, a.out)
	return nil
}

// changeRow changes one row of the metadata, and lets the projections follow.
func (a *Applier) changeRow(ctx context.Context, e *Event, row *model.ViewChange) (err error) {
	if e.Change, err = a.results.metadata.set(row); err != nil {
		return err
	}
	e.TenantID, e.DeviceID = e.Change.DeviceID()
	if err := a.results.record(ctx, e, a.out); err != nil || !e.Change.EndsDevice() {
		return err
	}
	return a.results.removeDevice(ctx, e, a.out)
}

// checkpoint freezes what waits in memory, as of the record at off. A freeze in this batch may follow another one, and a
// write that is under way is waited for: two at most are in memory.
func (a *Applier) checkpoint(ctx context.Context, off model.Offset) error {
	if err := a.commit(ctx, off); err != nil {
		return err
	}
	a.begin()
	a.checkpoints.start()
	if err := a.checkpoints.await(); err != nil {
		return err
	}
	a.checkpoints.freeze(Checkpoint{Offset: off, Received: a.times.newest, Listening: a.listening, timeMap: a.times.timeMap})
	return nil
}

// commit writes what others must see of the batch. It repeats a failed write until it succeeds or the process stops: nothing
// after it may overtake it.
func (a *Applier) commit(ctx context.Context, last model.Offset) error {
	faults.Point("apply.commit")
	if !a.out.empty() {
		err := a.retry.until(ctx, "results cannot be stored", func() error { return a.deps.Store.Write(ctx, store.Results, a.out.write) })
		if err != nil {
			return err
		}
	}
	faults.Point("apply.committed")
	a.applied.Store(uint64(last))
	a.newest.Store(int64(a.times.newest))
	a.times.received.Store(int64(a.times.newest))
	a.heard.Store(int64(a.listening))
	a.work.report(a.deps.Throttle)
	a.progressed()
	a.announce()
	return nil
}

// announce sends what is now committed to the subscribers.
func (a *Applier) announce() {
	if a.out.sequence > 0 {
		a.deps.Controller.Passed(a.out.sequence)
	}
	if n, rule := a.results.rules.flapped(); n > 0 {
		if more, ok := a.flapLog.Allow(time.Duration(a.times.newest)); ok {
			a.deps.Logger.Warn("a rule flaps: its tenant has more detections than detection.max_edges_per_second allows; those over it are counted, not kept",
				"rule", rule, "over", n, "lines_left_out", more)
		}
	}
	if len(a.out.fresh) > 0 {
		a.metrics.fired.count(a.out.fresh)
		if a.deps.Edges != nil {
			a.deps.Edges(a.out.fresh...)
		}
	}
	if a.deps.Readings != nil && len(a.out.points) > 0 {
		a.deps.Readings(a.out.points...)
	}
	for _, e := range a.out.endings {
		a.deps.Tap.show(e)
	}
}

// stop writes a last checkpoint, so that the next start has nothing to replay. What is not written in time is replayed.
func (a *Applier) stop() error {
	c := a.checkpoints
	defer time.AfterFunc(stopTimeout, c.end).Stop()
	defer c.end()
	if err := c.await(); err != nil {
		return err
	}
	if c.bytes == 0 || a.results.metadata.parts.open() || a.out == nil || a.Stalled() != "" {
		return nil
	}
	if err := a.checkpoint(c.life, a.Applied()); err != nil {
		return err
	}
	c.start()
	return c.await()
}
