package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"weir/internal/faults"
	"weir/model"
	"weir/rules"
	"weir/series"
	"weir/spool"
	"weir/store"
)

// ApplyConfig is what the applier is told once. All of it decides over results, so a replay under another config is
// another replay.
type ApplyConfig struct {
	MaxAge         time.Duration // an event older than this at its receipt is a dead letter
	MaxFutureSkew  time.Duration // a later one is stored at receipt + this
	ReplayBytes    int64         // the head is written when the log behind it passes this
	LogBytes       int64         // … or takes more than this of the log's budget, pages included; 0: it is not looked at
	LogRecords     int64         // … or holds more records than this; 0: it is not looked at
	HeadAge        time.Duration // … or its oldest reading is older than this, by receive time
	HeadBytes      int64         // … or it takes more memory than this
	DedupeWindow   time.Duration
	DedupeMaxBytes int64
	RepeatsBytes   int64                 // memory for the repeats of all MQTT clients together, 16 MiB when 0
	DeadLetters    store.DeadLetterBound // of each tenant; zero: there is none
	StrangersBytes int64                 // ring of dead letters of those who verify as nobody
	CommitRetry    time.Duration
}

// ApplyDeps are the applier's collaborators.
type ApplyDeps struct {
	Log        spool.Log
	Store      store.Store
	Counts     *TransportCounts
	Listening  *Listening
	Series     *series.Series
	Rules      *rules.Engine
	Controller *Controller
	// Hole is a part of the log that is known to be lost before anything is read; nil: none is.
	Gap *LogGap
	// Changes is the last change of the registry that the store has numbered: a log that knows later ones belongs to a newer
	// store. nil: it is not held against the log.
	Changes *uint64
	// Clock is asked for the time map of this boot; nil: the clock was always set.
	Clock    *Clock
	Logger   *slog.Logger
	Registry prometheus.Registerer
	// Edges and Readings are told what was kept, after it is committed; nil tells nobody. They must not block.
	Edges    func(...model.Edge)
	Readings func(...series.Point)
	// Watched reports whether anybody waits for Readings; nil: always.
	Watched func() bool
	// Tap shows messages as they end; nil shows nobody.
	Tap *Tap
}

// Applier is everything right of the log: it reads the batches in order and is the only one who changes results. What
// others must see is committed with each batch; what is cheap to rebuild waits in memory until the head is written.
type Applier struct {
	cfg ApplyConfig
	ApplyDeps
	metrics *applyMetrics

	rulesMu sync.Mutex   // of the engine: held over a batch, and by who looks at a rule's health
	viewMu  sync.RWMutex // of the view: the applier alone changes it, and reads it without

	view      *View
	seen      *seen
	fates     *fates
	activity  *activities
	parts     parts
	sequence  uint64          // highest control sequence in force
	listening rules.Listening // newest of any record
	span      Span            // of the batch
	epoch     uint32          // of the batch before, 0 for the first
	batch     *effects
	points    []series.Point // room for those of one record
	// transitions are the presence states that this process has folded since the head.
	transitions  map[int64]*store.DeviceState
	deadSince    map[string]store.DeadLetterBound // dead letters of each tenant since they were last trimmed
	lastReceived model.Nanos
	timeMap      *model.TimeMap // newest that is known: of the boot whose records are met
	head         head
	lastStart    model.Offset // newest record when this process started: what lies above came through its own doors

	applied atomic.Uint64
	newest  atomic.Int64 // receive time of the newest record that was applied
	kept    atomic.Int64 // readings stored by this process
	heard   atomic.Int64
	failing atomic.Pointer[string]
	waiting atomic.Pointer[string] // for the clock

	// seenHeld and repeatsHeld are the memory of what was seen, as of the newest head.
	seenHeld, repeatsHeld atomic.Int64

	received atomic.Int64 // lastReceived, for who looks from outside

	headSince atomic.Int64            // head.oldest, for who looks from outside
	drop      func(model.Offset) bool // a test loses a message on purpose
	// tamper lets a test lose or double readings on purpose.
	tamper func([]series.Point) []series.Point
}

// NewApplier loads the results as of the head and returns an applier that goes on behind it.
func NewApplier(ctx context.Context, cfg ApplyConfig, deps ApplyDeps) (*Applier, error) {
	a := &Applier{cfg: cfg, ApplyDeps: deps, metrics: newApplyMetrics(deps.Registry), view: NewView(), fates: newFates(),
		seen: newSeen(cfg.DedupeWindow, cfg.DedupeMaxBytes, cfg.RepeatsBytes), activity: newActivities(), deadSince: map[string]store.DeadLetterBound{}, transitions: map[int64]*store.DeviceState{}}
	a.head.life, a.head.end = context.WithCancel(context.WithoutCancel(ctx))
	_, a.lastStart = deps.Log.Bounds()
	if err := deps.Store.Read(ctx, a.load); err != nil {
		return nil, fmt.Errorf("ingest: loading the results: %w", err)
	}
	a.applied.Store(uint64(a.head.offset))
	a.heard.Store(int64(a.listening))
	return a, nil
}

// Ledger returns the ledger of this instance.
func (a *Applier) Ledger() *Ledger { return &Ledger{store: a.Store, fates: a.fates, doors: a.Counts} }

// Applied is the newest record whose effects are committed or in memory.
func (a *Applier) Applied() model.Offset { return model.Offset(a.applied.Load()) }

// Newest is the receive time of the newest record that was applied by this process, 0 when there is none.
func (a *Applier) Newest() model.Nanos { return model.Nanos(a.newest.Load()) }

// Kept is how many readings this process has stored.
func (a *Applier) ReadingsStored() int64 { return a.kept.Load() }

// SeenBytes is the memory of remembered altIds, as of the newest head; RepeatBytes that of clients' repeats.
func (a *Applier) SeenBytes() int64   { return a.seenHeld.Load() }
func (a *Applier) RepeatBytes() int64 { return a.repeatsHeld.Load() }

// CaughtUp reports whether every record that was there when the process started is applied: from then on a query
// returns every acknowledged reading.
func (a *Applier) CaughtUp() bool { return a.Applied() >= a.lastStart }

// Failing says why the applier stands still, "" when it does not.
func (a *Applier) Stalled() string {
	if s := a.failing.Load(); s != nil {
		return *s
	}
	if s := a.waiting.Load(); s != nil {
		return *s
	}
	return ""
}

// Heard is the listening time of the newest record that was applied: a process goes on from there.
func (a *Applier) ListeningTime() int64 { return a.heard.Load() }

// Run applies batches until ctx ends or the log is closed.
func (a *Applier) Run(ctx context.Context) error {
	r, err := a.reader()
	if err != nil {
		return err
	}
	defer func() { r.Close() }()
	for {
		b, err := a.next(ctx, &r)
		if errors.Is(err, spool.ErrClosed) || ctx.Err() != nil {
			return a.stop()
		}
		if err == nil {
			err = a.apply(ctx, b)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("ingest: %w", err), a.stop())
		}
	}
}

// apply takes one batch in. The doors' counts of a batch that begins at or before the head are in it already.
func (a *Applier) apply(ctx context.Context, b *spool.Batch) error {
	meta, err := decodeMeta(b.Meta)
	if err != nil {
		return fmt.Errorf("batch at %d: %w", b.First, err)
	}
	if err := a.awaitTimes(ctx, b); err != nil {
		return err
	}
	faults.Point("apply.begin")
	if b.First > a.head.started {
		a.fates.addAll(meta.Counts)
	}
	if b.First > a.lastStart {
		a.Counts.read(meta.Counts)
	}
	a.epoch, a.span = b.Epoch, meta.Span
	a.batch = &effects{epoch: b.Epoch}
	if err := a.records(ctx, b); err != nil {
		return err
	}
	if err := a.commit(ctx, b.Last()); err != nil {
		return err
	}
	a.startHead()
	return nil
}

func (a *Applier) records(ctx context.Context, b *spool.Batch) error {
	a.rulesMu.Lock()
	defer a.rulesMu.Unlock()
	for i := range b.Records {
		off := b.First + model.Offset(i)
		if off <= a.Applied() {
			continue
		}
		r, err := a.record(ctx, &b.Records[i], off)
		if err != nil {
			return fmt.Errorf("record at %d: %w", off, err)
		}
		a.lastReceived = max(a.lastReceived, r.Received.Wall)
		if i == len(b.Records)-1 {
			a.head.weight += b.Weight // it is let go of as a whole
		}
		if err := a.cutWhenDue(ctx, off, len(b.Records[i].Data), r.Received.Wall); err != nil {
			return err
		}
	}
	return nil
}

// record decodes and applies one record.
func (a *Applier) record(ctx context.Context, e *spool.Record, off model.Offset) (*model.Record, error) {
	r, ok := e.Value.(*model.Record)
	if !ok {
		var err error
		if r, err = model.DecodeRecord(e.Data); err != nil {
			return nil, err
		}
	}
	r = a.settle(r)
	if off > a.lastStart && counted(r.Kind) {
		a.Counts.passed(lineOf(r), r.Readings())
	}
	if a.drop != nil && a.drop(off) {
		return r, nil
	}
	a.listening = max(a.listening, rules.Listening(a.span.At(r.Received.Mono)))
	at := rules.Position{Epoch: a.batch.epoch, Offset: off, Received: r.Received.Wall, Listening: a.listening}
	switch r.Kind {
	case model.KindMessage, model.KindRaw:
		return r, a.message(ctx, at, r)
	case model.KindPresence:
		return r, a.presence(ctx, at, r)
	case model.KindControl:
		return r, a.control(ctx, at, r.Control)
	case model.KindTimeMap:
		a.learnTimeMap(r.TimeMap)
	case model.KindClock, model.KindEpochJump:
	default:
		return r, fmt.Errorf("kind %d has no reader in this Weir", r.Kind)
	}
	return r, nil
}

// commit writes what others must see of the batch. A store that refuses is asked again until it takes it or the
// process stops: nothing behind may overtake it.
func (a *Applier) commit(ctx context.Context, last model.Offset) error {
	faults.Point("apply.commit")
	if !a.batch.empty() {
		err := a.insist(ctx, "results cannot be stored", func() error { return a.Store.Write(ctx, store.Results, a.batch.write) })
		if err != nil {
			return err
		}
	}
	faults.Point("apply.committed")
	a.applied.Store(uint64(last))
	a.newest.Store(int64(a.lastReceived))
	a.received.Store(int64(a.lastReceived))
	a.heard.Store(int64(a.listening))
	a.announce()
	return nil
}

// insist does what must not be left out until it succeeds or the process stops; meanwhile nothing behind it overtakes it.
func (a *Applier) insist(ctx context.Context, what string, do func() error) error {
	for {
		err := do()
		if err == nil {
			a.failing.Store(nil)
			return nil
		}
		if ctx.Err() != nil || errors.Is(err, store.ErrClosed) {
			return err
		}
		why := what + ": " + err.Error()
		a.failing.Store(&why)
		a.metrics.retries.Inc()
		a.Logger.Error("the applier waits: "+what, "error", err, "retry", a.cfg.CommitRetry.String())
		select {
		case <-time.After(a.cfg.CommitRetry):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// announce tells what is now committed.
func (a *Applier) announce() {
	if a.batch.sequence > 0 {
		a.Controller.Passed(a.batch.sequence)
	}
	if a.Edges != nil && len(a.batch.fresh) > 0 {
		a.Edges(a.batch.fresh...)
	}
	if a.Readings != nil && len(a.batch.points) > 0 {
		a.Readings(a.batch.points...)
	}
	for _, e := range a.batch.endings {
		a.Tap.tell(e)
	}
}

// effects is what one batch leaves in the store at once. It may be lost in a power cut: the log is kept until a head that
// was synced holds what follows from it.
type effects struct {
	epoch    uint32
	sequence uint64 // newest control sequence that this batch put in force
	steps    []func(store.Tx) error
	edges    []model.Edge
	fresh    []model.Edge // edges that were not there yet
	points   []series.Point
	endings  []ending // while somebody watches
}

func (e *effects) step(f func(store.Tx) error) { e.steps = append(e.steps, f) }

func (e *effects) empty() bool { return len(e.steps) == 0 && len(e.edges) == 0 }

// write runs inside the transaction, again when an earlier try failed.
func (e *effects) write(tx store.Tx) error {
	e.fresh = e.fresh[:0]
	for _, f := range e.steps {
		if err := f(tx); err != nil {
			return err
		}
	}
	for i := range e.edges {
		fresh, err := store.AddEdge(tx, &e.edges[i])
		if err != nil {
			return err
		}
		if fresh {
			e.fresh = append(e.fresh, e.edges[i])
		}
	}
	return nil
}

type applyMetrics struct {
	retries   prometheus.Counter
	heads     prometheus.Counter
	late      prometheus.Counter
	lost      prometheus.Counter
	forgotten prometheus.Counter
	altIDs    prometheus.Gauge
	altIDSpan prometheus.Gauge
	clients   prometheus.Gauge
	fates     *prometheus.CounterVec
	stored    prometheus.Counter // of fates

	deadLettersTrimmed prometheus.Counter
	setAside           prometheus.Counter
}

func newApplyMetrics(reg prometheus.Registerer) *applyMetrics {
	m := &applyMetrics{
		retries: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_ingest_store_retries_total",
			Help: "Reads and writes of the applier that the store failed and that were retried."}),
		forgotten: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_ingest_repeat_clients_evicted_total",
			Help: "MQTT clients whose last messages were evicted because the memory of all clients exceeded its maximum."}),
		altIDs: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_ingest_dedupe_entries", Help: "altIds kept for deduplication, as of the last checkpoint."}),
		altIDSpan: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_ingest_dedupe_span_seconds",
			Help: "Receive time covered by the altIds kept for deduplication, as of the last checkpoint."}),
		clients: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_ingest_repeat_clients", Help: "MQTT clients whose last messages are kept for deduplication, as of the last checkpoint."}),
		heads:   prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_ingest_checkpoints_total", Help: "Checkpoints of the applier written to the store."}),
		late: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_eventsources_total_msg_invalid_event_time",
			Help: "Messages whose event time is too far in the past."}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_ingest_lost_records_total",
			Help: "Records of the log lost before they were applied."}),
		fates: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_ingest_messages_total",
			Help: "Messages by outcome and reason."}, []string{"outcome", "reason"}),
	}
	m.setAside = prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_ingest_readings_set_aside_total",
		Help: "Readings that a series limit kept out of a message whose others are stored."})
	m.deadLettersTrimmed = prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_dead_letters_trimmed_total",
		Help: "Oldest dead letters removed because a tenant or the rejected-payload buffer had its maximum."})
	m.stored = m.fates.WithLabelValues(string(store.OutcomeStored), string(ReasonNone))
	if reg != nil {
		reg.MustRegister(m.deadLettersTrimmed, m.setAside, m.retries, m.heads, m.late, m.lost, m.forgotten, m.altIDs, m.altIDSpan, m.clients, m.fates)
	}
	return m
}
