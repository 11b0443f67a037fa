package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/command"
	"weir/ingest/links"
	"weir/internal/faults"
	"weir/internal/lograte"
	"weir/internal/throttle"
	"weir/model"
	"weir/rules"
	"weir/series"
	"weir/spool"
	"weir/store"
	"weir/store/caused"
)

// ApplyConfig is the applier's configuration. All of it affects results: a replay under another configuration may give other
// results.
type ApplyConfig struct {
	TimeSettings
	DedupeSettings
	CheckpointSettings
	DeadLetterSettings // of each tenant; zero: there is no limit

	LogBytes      int64         // a checkpoint is due, too, when the log takes more than this of its budget, pages included; 0: no limit
	LogRecords    int64         // … or holds more records than this; 0: no limit
	HeadBytes     int64         // … or what waits takes more memory than this
	RepeatsBytes  int64         // memory for the repeats of all MQTT clients together, 16 MiB when 0
	RejectedBytes int64         // of the rejected-payload buffer, in dead letters of unauthenticated senders
	RestartGrace  time.Duration // after a start, until the time of a device runs that is not heard
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
	Answers    command.Answerer // nil: answers of devices to commands are kept as events and move nothing
	Controller *Controller
	// Registrar changes the registry as messages of devices say; nil: those messages are dead letters.
	Registrar Registrar
	// Projections are results besides Weir's own. They record, write and publish after those. Without one of AlarmResults rules are judged and
	// no action is performed.
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
	// Ordered is called after orders of rules were committed; nil: nothing is. It must not block.
	Ordered func()
	// Edges and Readings get what was kept, after it is committed; nil: nothing does. They must not block.
	Edges    func(...model.Edge)
	Readings func(...series.Point)
	// Watched reports whether a client waits for Readings; nil: always.
	Watched func() bool
	// Tap shows messages as they end; nil: none are shown.
	Tap *Tap
	// Rates counts the outcomes for the last hour; nil: nothing does.
	Rates *Rates
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
	span      links.Span      // of the batch
	epoch     uint32          // of the batch, 0 before the first
	boot      uint64          // of the newest record
	flapLog   lograte.Every   // lines about rules that flap, by receive time
	out       *Effects        // of the batch, nil before the first
	event     Event           // of the record
	ahead     bool            // a record is with the projections, in whole or in part, whose effects are not committed
	work      workMeter
	lastStart model.Offset // newest record when this process started: later ones came through its own transports

	firstApplied model.Offset // what was applied when this process started

	applied  atomic.Uint64
	newest   atomic.Int64 // receive time of the newest record that was applied
	heard    atomic.Int64
	working  atomic.Int64  // receive time of the batch that is being applied, 0 when none is
	due      atomic.Int64  // listening time of the next timer, 0 for none
	moved    chan struct{} // has a value when due may have changed
	replayed chan struct{} // closed once what was there when the process started is applied
}

// NewApplier loads the results as of the checkpoint and returns an applier that continues after it.
func NewApplier(ctx context.Context, cfg ApplyConfig, deps ApplyDeps) (*Applier, error) {
	if deps.Queries == nil {
		deps.Queries = deps.Store
	}
	a := &Applier{
		cfg:      cfg,
		deps:     deps,
		metrics:  newApplyMetrics(deps.Registry),
		moved:    make(chan struct{}, 1),
		replayed: make(chan struct{}),
	}
	a.retry = &retrier{wait: cfg.CommitRetry, retries: a.metrics.retries, logger: deps.Logger}
	a.results = newResults(&a.cfg, &a.deps, a.metrics, a.retry)
	a.resolver = resolver{maxAge: cfg.MaxAge, maxFutureSkew: cfg.MaxFutureSkew, results: a.results, metrics: a.metrics}
	a.times.log = deps.Log
	a.times.clock = deps.Clock
	a.times.logger = deps.Logger
	a.checkpoints = &checkpointer{
		cfg:     &a.cfg,
		store:   deps.Store,
		log:     deps.Log,
		logger:  deps.Logger,
		retry:   a.retry,
		written: a.metrics.heads,
		results: a.results,
		behind:  a.behind,
	}
	// A write of a checkpoint outlasts ctx, so that a stop can finish it.
	a.checkpoints.life, a.checkpoints.end = context.WithCancel(context.WithoutCancel(ctx))
	// Records up to here were counted and shown by the process that received them.
	_, a.lastStart = deps.Log.Bounds()
	if err := deps.Store.Read(ctx, a.load); err != nil {
		return nil, fmt.Errorf("ingest: loading the results: %w", err)
	}
	// The store holds everything up to the checkpoint: replay begins after it.
	a.applied.Store(uint64(a.checkpoints.newest.Offset))
	a.heard.Store(int64(a.listening))
	a.firstApplied = a.Applied()
	a.working.Store(int64(max(a.times.newest, 1)))
	a.progressed()
	return a, nil
}

// load reads the results as of the checkpoint.
func (a *Applier) load(tx store.Tx) error {
	// The checkpoint first: every projection loads its rows as of its offset.
	if err := a.checkpoints.load(tx); err != nil {
		return err
	}
	if err := a.times.load(tx); err != nil {
		return err
	}
	at := &a.checkpoints.newest
	at.Received, at.timeMap = a.times.newest, a.times.timeMap
	a.listening = at.Listening
	// In the order of the list: rules need the metadata.
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

// behind reports whether records wait to be applied.
func (a *Applier) behind() bool {
	_, last := a.deps.Log.Bounds()
	return last > a.Applied()
}

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

// ProfileOf finds the published version of a tenant's profile by their tokens.
func (a *Applier) ProfileOf(tenant, profile string) (tenantID, id int64, ok bool) {
	return a.results.metadata.profileOf(tenant, profile)
}

// RuleStats are the figures of the engine.
func (a *Applier) RuleStats() rules.Stats { return a.results.rules.stats() }

// UnhealthyRules returns the rules that do not run or failed on some of their input.
func (a *Applier) UnhealthyRules() []rules.Health { return a.results.rules.unhealthy() }

// DeviceClocks are the clocks of devices that were set back, since the process started.
func (a *Applier) DeviceClocks() DeviceClocks { return a.results.rules.deviceClocks(a.Newest()) }

// UsedUpBudgets are the budgets of tenants' rules that are used up: what comes to need more of them is not judged, and counted.
func (a *Applier) UsedUpBudgets() []UsedUp { return a.results.rules.usedUp() }

// HeldTenants are the tenants whose time stands still because messages of them are turned away or wait.
func (a *Applier) HeldTenants() []HeldTenant { return a.results.rules.held() }

// Silence is how long a device may be silent before its inferred presence ends: the value of its profile, otherwise standard.
func (a *Applier) Silence(tenant, device string, standard time.Duration) time.Duration {
	return a.results.metadata.silence(tenant, device, standard)
}

// DeviceStatesOf returns the activity and presence of some of a tenant's devices by their row ids; those of which nothing is known
// are left out.
func (a *Applier) DeviceStatesOf(ctx context.Context, tenantID int64, devices []int64) (map[int64]*store.DeviceState, error) {
	return a.results.activity.some(ctx, a.deps.Queries, tenantID, devices)
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
		// A batch that was read after ctx ended is left for the replay.
		b, err := a.next(ctx, r)
		if err == nil && ctx.Err() == nil && b != nil {
			err = a.apply(ctx, b)
		}
		switch {
		case errors.Is(err, spool.ErrClosed) || ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())):
			return a.stop()
		case err != nil:
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
	loss := store.LogLoss{At: a.gapTime().Micros(), First: g.First, Last: g.Last, Why: g.Why}
	// Note the loss durably before anything after it is applied.
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
	// Nothing in the gap can be applied any more: continue behind it.
	a.applied.Store(uint64(g.Last))
	return a.reloadMetadata(ctx, g.Last)
}

// gapTime returns the time that a gap found now is noted with.
func (a *Applier) gapTime() model.Nanos {
	if a.deps.Clock != nil {
		return a.deps.Clock.Stamp().Wall
	}
	return a.times.newest
}

// reloadMetadata takes the metadata as the store knows it at an offset, and lets the projections follow. What they hold is ahead of
// what is committed meanwhile.
func (a *Applier) reloadMetadata(ctx context.Context, at model.Offset) error {
	m := a.results.metadata
	// A change whose first parts lie in the gap is in the reloaded view already.
	m.parts = parts{lost: true}
	a.ahead = true
	// Read the view as of the end of the gap, and find out which profiles differ.
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
	place := rules.Position{Epoch: a.epoch, Offset: at, Received: a.times.newest, Listening: a.listening}
	// The projections follow those changes as if records of the log had said them.
	for _, c := range changes {
		if err := a.results.record(ctx, &Event{At: place, Change: c}, a.out); err != nil {
			return err
		}
	}
	// Devices and attributes may have changed as well, so the rules look at all of them.
	a.results.rules.reloaded(place, a.out)
	return a.commit(ctx, at)
}

// maxPendingEdges is how many edges of a batch may wait in memory, maxPendingCost what may be done for a batch before it is
// visible, some tenths of a second, and maxEdgeCost what may be done while an edge waits, some hundredths: with more, what comes before is
// committed first.
const (
	maxPendingEdges = 16 << 10
	maxPendingCost  = 5_000_000
	maxEdgeCost     = 100_000
)

// apply applies one batch. The transports' counts of a batch that begins at or before the checkpoint are in it already.
func (a *Applier) apply(ctx context.Context, b *spool.Batch) error {
	meta, err := decodeMeta(b.Meta)
	if err != nil {
		return fmt.Errorf("batch at %d: %w", b.First, err)
	}
	// Queries report up to when results are complete; from here on it is before this batch.
	if len(b.Records) > 0 {
		a.working.Store(int64(max(a.times.newest, receivedAt(&b.Records[0]))))
	}
	// No record may be applied whose receive time is not known.
	if err := a.times.await(ctx, b, a.Applied()); err != nil {
		return err
	}
	faults.Point("apply.begin")
	if b.First > a.checkpoints.started {
		a.results.ledger.addAll(meta.Counts)
		for i := range b.Records { // what moved, moved in the process that received them
			if kind, boot, _ := model.PeekRecord(b.Records[i].Data); kind != 0 && kind != model.KindTimeMap {
				a.noteBoot(boot)
				break
			}
		}
		a.results.rules.moved(meta.Moves)
	}
	// They rode in a batch of this process: the ledger counts them from here on, not the transports.
	if b.First > a.lastStart {
		a.deps.Counts.read(meta.Counts)
	}
	a.epoch, a.span = b.Epoch, meta.Span
	a.begin()
	for i := range b.Records {
		// The first batch after a start may begin before the checkpoint.
		off := b.First + model.Offset(i)
		if off <= a.Applied() {
			continue
		}
		// Fetch the rule state of the next records together.
		if i%rules.Group == 0 {
			a.results.rules.expect(b.Records[i:min(i+rules.Group, len(b.Records))])
		}
		weight := int64(0)
		if i == len(b.Records)-1 {
			weight = b.Weight // a batch is trimmed as a whole
		}
		if err := a.record(ctx, &b.Records[i], off, weight); err != nil {
			return fmt.Errorf("record at %d: %w", off, err)
		}
		// Commit a part of a large batch, so that edges and readings do not wait for the rest of it.
		if a.isCommitDue() && off < b.Last() {
			if err := a.commit(ctx, off); err != nil {
				return err
			}
			a.begin()
		}
	}
	if err := a.commit(ctx, b.Last()); err != nil {
		return err
	}
	// A frozen checkpoint may be written only when everything up to it is committed.
	a.checkpoints.start()
	return nil
}

// isCommitDue reports whether what was done of a batch is to be visible before the rest of it.
func (a *Applier) isCommitDue() bool {
	edges := len(a.out.edges)
	return edges >= maxPendingEdges || a.work.cost >= maxPendingCost || edges > 0 && a.work.cost >= maxEdgeCost
}

// begin starts the effects of a batch, or of the rest of one. Subscribers may still have the edges of the one before: there is
// room for as many, and none is shared.
func (a *Applier) begin() {
	edges := 0
	if a.out != nil {
		edges = len(a.out.edges)
	}
	a.out = &Effects{watched: a.watched(), followers: a.results.followers, edges: make([]model.Edge, 0, edges)}
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
	// A record of this process or of the read-ahead is decoded already.
	r, ok := stored.Value.(*model.Record)
	if !ok {
		var err error
		if r, err = model.DecodeRecord(stored.Data); err != nil {
			return err
		}
	}
	r = a.times.resolve(r)
	// The counts of the transports no longer count it as waiting.
	if off > a.lastStart && Counted(r.Kind) {
		a.deps.Counts.passed(lineOf(r), r.Readings())
	}
	// Listening time never goes back, whatever the order of the stamps.
	before := a.listening
	a.listening = max(before, rules.Listening(a.span.At(r.Received.Mono)))
	a.event = Event{Record: r, At: rules.Position{Epoch: a.epoch, Offset: off, Received: r.Received.Wall, Listening: a.listening}}
	// Until the commit the projections are ahead of the store: no checkpoint may be cut at a stop.
	a.ahead = true
	judged := a.results.rules.cost()
	if r.Kind != model.KindTimeMap { // that may be of a former start
		a.noteBoot(r.Received.Boot)
	}
	// Timers that are due fire before the record is seen.
	a.results.advance(a.event.At, a.out)
	if err := a.resolve(ctx, &a.event); err != nil {
		return err
	}
	a.results.spans.record(&a.event, a.span, a.times.newest, before, a.out)
	// Charge the tenant for the work, so that its senders are slowed, not those of others.
	cost := a.results.rules.cost() - judged
	if a.event.causing {
		cost += costCaused + costAttribute*int64(r.Taken())
	}
	a.work.add(r.Account, r.Taken(), cost)
	a.times.newest = max(a.times.newest, r.Received.Wall)
	a.checkpoints.weight += weight
	a.checkpoints.add(len(stored.Data), r.Received.Wall)
	// Between the parts of a change there is no state that a checkpoint could hold.
	if a.checkpoints.due(r.Received.Wall) && !a.results.metadata.parts.open() {
		return a.checkpoint(ctx, off)
	}
	return nil
}

// noteBoot notes of which start the records are from here on.
func (a *Applier) noteBoot(boot uint64) {
	if boot != a.boot {
		faults.Point("apply.boot")
		a.boot = boot
		a.results.rules.boot(boot)
	}
}

// resolve resolves a record and passes it to the projections.
func (a *Applier) resolve(ctx context.Context, e *Event) error {
	switch r := e.Record; r.Kind {
	case model.KindMessage, model.KindRaw, model.KindDeviceReport, model.KindCommandResponse:
		if err := a.resolver.message(ctx, e); err != nil {
			return err
		}
		if e.causing {
			if err := a.cause(ctx, e); err != nil {
				return err
			}
		}
		if e.At.Offset > a.lastStart { // the others were counted before the start
			a.deps.Rates.Ended(r.Account, r.Transport, r.Received.Wall, e.Outcome)
			a.deps.Tap.ended(r, e.Outcome, e.Reason, e.Why)
		}
		if !a.deps.Tap.Busy() || e.At.Offset <= a.lastStart { // watchers have seen it before the start
			return a.results.record(ctx, e, a.out)
		}
		at := len(a.out.endings)
		before := len(a.out.edges)
		// A watcher sees the message together with the rules that it made fire, so it is shown after the commit.
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
	case model.KindFiring:
		if e.firing = a.resolver.firing(e); !e.firing {
			return nil
		}
		return a.results.record(ctx, e, a.out)
	case model.KindControl:
		return a.change(ctx, e)
	case model.KindTimeMap:
		a.times.learn(r.TimeMap)
	case model.KindClock:
		faults.Point("apply.clock")
	case model.KindEpochJump:
	default:
		return fmt.Errorf("kind %d has no reader in this Weir", r.Kind)
	}
	return nil
}

// cause changes the registry as a message says, and gives the message its outcome. The change is committed with what the batch holds
// before the message, and is effective from its record on: the message itself is judged by it. Timers that fired before the record have edges
// of its offset: they are committed with what else the record brings, since edges are known by the offset up to which they were added.
func (a *Applier) cause(ctx context.Context, e *Event) error {
	m := a.results.metadata
	var made caused.Ending
	var logged uint64
	// Make the change in the transaction of what lies before the message.
	a.out.Step(func(tx store.Tx) (err error) {
		if made, logged, err = m.cause(tx, a.deps.Registrar, e); logged > 0 {
			a.deps.Controller.noteUndurable(logged) // before it is committed, and could be read
		}
		return err
	})
	// Keep back the edges of this record: they belong to the next commit.
	fired := a.out.leave(e.At.Offset)
	if err := a.commit(ctx, e.At.Offset-1); err != nil {
		return err
	}
	a.begin()
	a.out.take(fired)
	faults.Point("apply.caused")
	// Another change is on its way through the log: this one follows it there, too.
	if logged > 0 {
		a.deps.Controller.wake()
	}
	// The view is told here of whatever the change says of it: anchors, and each kind of row that the registry adds to its change.
	for i := range made.Views {
		if err := a.changeRow(ctx, &Event{At: e.At, Record: e.Record}, &made.Views[i]); err != nil {
			return err
		}
	}
	a.results.rules.settled(e.At, a.out)
	// The outcome of the change is the outcome of the message.
	e.Reason, e.Why = Reason(made.Reason), made.Why
	if e.Reason != ReasonNone {
		return nil
	}
	// Resolve again: the change may have given the device other anchors.
	e.Outcome, e.stored = store.OutcomeStored, true
	a.resolver.referTo(e, m.view.Resolve(e.Record.Tenant, e.Record.Device))
	return m.number(ctx, e)
}

// change makes a change of the metadata effective. One that is effective already was appended twice.
func (a *Applier) change(ctx context.Context, e *Event) error {
	m, c := a.results.metadata, e.Record.Control
	// A crash of the controller may have appended a change twice.
	if c.Sequence <= m.sequence {
		a.out.sequence = max(a.out.sequence, c.Sequence)
		return nil
	}
	if known := a.deps.Changes; known != nil && c.Sequence > *known && e.At.Offset <= a.lastStart {
		return fmt.Errorf("%w: the log holds change %d of the registry, the database knows them up to %d", ErrStoreOlder, c.Sequence, *known)
	}
	// A change takes effect as a whole, with its last part.
	changes, complete, err := m.parts.add(c)
	if err != nil || !complete {
		return err
	}
	for i := range changes {
		if changes[i].Kind == model.ViewCheckpoint {
			a.checkpoints.asked = true
			continue
		}
		if err := a.changeRow(ctx, e, &changes[i]); err != nil {
			return err
		}
	}
	// All rows are effective now; devices that seemed to leave a group in between did not.
	a.results.rules.settled(e.At, a.out)
	m.passed(c.Sequence, e.At, a.out)
	return nil
}

// changeRow changes one row of the metadata, and lets the projections follow.
func (a *Applier) changeRow(ctx context.Context, e *Event, row *model.ViewChange) (err error) {
	if e.Change, err = a.results.metadata.set(row); err != nil {
		return err
	}
	e.TenantID, e.DeviceID = e.Change.DeviceID()
	// The projections take in the change first, then they remove what is left of the device.
	if err := a.results.record(ctx, e, a.out); err != nil || !e.Change.EndsDevice() {
		return err
	}
	return a.results.removeDevice(ctx, e, a.out)
}

// checkpoint freezes what waits in memory, as of the record at off. A freeze in this batch may follow another one, and a
// write that is under way is waited for: two at most are in memory.
func (a *Applier) checkpoint(ctx context.Context, off model.Offset) error {
	// The checkpoint contains what is committed, so commit first.
	if err := a.commit(ctx, off); err != nil {
		return err
	}
	a.begin()
	// Wait for the previous one: two are in memory at most.
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
	// Notify the others only now: none of them may see what a failed write could still take back.
	a.results.metadata.committed()
	a.ahead = a.ahead && last < a.event.At.Offset // the record that causes a change comes after what is committed with it
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
	// Mutations that wait for this change may return.
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
	if len(a.out.acts.moves) > 0 {
		a.results.alarms.Publish(a.out.acts.moves...)
	}
	// The drain carries the orders out.
	if a.out.acts.ordered && a.deps.Ordered != nil {
		a.deps.Ordered()
	}
	if a.deps.Readings != nil && len(a.out.points) > 0 {
		a.deps.Readings(a.out.points...)
	}
	for _, e := range a.out.endings {
		a.deps.Tap.show(e)
	}
}

// stop writes a last checkpoint, so that the next start has nothing to replay. What is not written in time is replayed. A run
// that ended between a record and its commit writes none: it would hold a record that is applied again.
func (a *Applier) stop() error {
	c := a.checkpoints
	// A disk that hangs must not hold up the stop.
	defer time.AfterFunc(stopTimeout, c.end).Stop()
	defer c.end()
	if err := c.await(); err != nil {
		return err
	}
	// No checkpoint where there is nothing to write, or where memory and store do not agree.
	if c.bytes == 0 || a.ahead || a.results.metadata.parts.open() || a.out == nil || a.Stalled() != "" {
		return nil
	}
	a.begin() // what the last batch came to is committed and announced
	if err := a.checkpoint(c.life, a.Applied()); err != nil {
		return err
	}
	c.start()
	return c.await()
}
